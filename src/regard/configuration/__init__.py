"""Options as frozen dataclasses: what a field may be, when it has a meaning, and what earlier versions called it."""

from regard.configuration.options import (
    AT_LEAST_0,
    AT_LEAST_1,
    COUNT,
    HEADS,
    LAYERS,
    RATE,
    SEED,
    SIZE,
    WEIGHT,
    Configuration,
    Range,
    check_finite,
    from_data,
    option,
    varies,
)
from regard.names.lazy_names import public_names

__all__ = [
    "AT_LEAST_0",
    "AT_LEAST_1",
    "COUNT",
    "Configuration",
    "HEADS",
    "LAYERS",
    "RATE",
    "Range",
    "SEED",
    "SIZE",
    "WEIGHT",
    "check_finite",
    "from_data",
    "option",
    "varies",
]

__dir__ = public_names(__name__)
