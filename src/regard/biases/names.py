"""Biases by name."""

from regard.biases.alibi import alibi
from regard.biases.bias import Bias, as_bias
from regard.names.foreign_names import written_here
from regard.shapes.checks import known_name

NAMES = ("alibi",)


def bias_for(value: object, heads: int) -> Bias | None:
    """Converts a user's ``bias=`` to a Bias, as `as_bias` does; ``"alibi"`` becomes `alibi` for these query heads.

    Raises:
        KindError: the value is no bias.
        UnknownNameError: no bias has this name.

    Example:
        >>> from regard import biases
        >>> biases.bias_for("alibi", 2)
        Alibi(heads=2)
    """
    if not isinstance(value, str):
        return as_bias(value)
    known_name("bias", value, NAMES, "" if value in NAMES else written_here("bias", value))
    return alibi(heads)
