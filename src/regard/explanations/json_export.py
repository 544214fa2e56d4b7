"""Calculations as JSON, which has no NaN and no infinity: they are the strings "nan", "inf" and "-inf"."""

import json
import math
from typing import Any

from torch import Tensor


def json_numbers(tensor: Tensor) -> Any:
    """A tensor as nested lists of numbers, or one number if it has no axes; "nan", "inf" and "-inf" are strings."""
    return _replaced(tensor.detach().double().tolist())


def json_text(record: dict[str, Any]) -> str:
    """A record as one line of JSON; letters of any script stay as they are."""
    return json.dumps(record, ensure_ascii=False, allow_nan=False)


def _replaced(value: Any) -> Any:
    if isinstance(value, list):
        return [_replaced(item) for item in value]
    return value if math.isfinite(value) else str(value)
