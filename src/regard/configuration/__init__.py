"""Options as frozen dataclasses: what a field may be, when it has a meaning, and what earlier versions called it."""

from regard.configuration.options import (
    COUNT,
    HEADS,
    LAYERS,
    RATE,
    SIZE,
    WEIGHT,
    Configuration,
    Range,
    check_at_least,
    check_between,
    check_choices,
    check_finite,
    check_probabilities,
    from_data,
    option,
    varies,
)
from regard.names.lazy_names import public_names

__all__ = [
    "COUNT",
    "Configuration",
    "HEADS",
    "LAYERS",
    "RATE",
    "Range",
    "SIZE",
    "WEIGHT",
    "check_at_least",
    "check_between",
    "check_choices",
    "check_finite",
    "check_probabilities",
    "from_data",
    "option",
    "varies",
]

__dir__ = public_names(__name__)
