"""The numbers that an option accepts."""

import math
from collections.abc import Callable
from typing import Annotated, Any

from cyclopts import Parameter

LARGEST = 2**63 - 1
"""Largest whole number that PyTorch and the files of a run can hold."""


def finite(kind: Any, value: Any) -> None:
    """A check that a number is finite and can be stored; other values pass.

    Args:
        kind: the type of the option.
        value: its value, or a list of values.

    Raises:
        ValueError: the end of a message that begins with the option's name.
    """
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"must be a finite number; it is {value}")
    if isinstance(value, int) and abs(value) > LARGEST:
        raise ValueError(f"must be at most {LARGEST:,}; it has {len(str(abs(value)))} digits")


def between(low: float, high: float) -> Callable[[Any, Any], None]:
    """A check, as `finite` is one, that a number is from ``low`` to ``high``; None passes, NaN does not."""

    def check(kind: Any, value: Any) -> None:
        finite(kind, value)
        if value is not None and not low <= value <= high:
            raise ValueError(f"must be from {low:,} to {high:,}; it is {value:,}")

    return check


Threads = Annotated[int, Parameter(validator=between(0, 1024))]
"""A number of CPU threads; 0: PyTorch's own number."""

Seed = Annotated[int, Parameter(validator=between(0, LARGEST))]
"""A seed of random numbers."""
