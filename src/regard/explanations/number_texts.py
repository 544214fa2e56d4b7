"""Numbers as text, for tables and for arithmetic."""

import math

import torch
from torch import Tensor


def finite_or_text(number: float, decimals: int) -> str:
    """A number for a cell of a table: fixed decimals, "−∞" for a masked score, "NaN", no "-0"."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "∞" if number > 0 else "−∞"
    text = f"{number:.{decimals}f}"
    return text if float(text) != 0 else f"{0:.{decimals}f}"


def is_whole(tensor: Tensor, tolerance: float = 0.0) -> bool:
    """Whether every finite number in it is an integer, so that no decimals are needed.

    Args:
        tensor: of any shape.
        tolerance: the relative error up to which a number counts as an integer.
    """
    finite = tensor[torch.isfinite(tensor)]
    near = (finite - finite.round()).abs() <= tolerance * finite.abs()
    return bool(near.all()) and bool((finite.abs() < 1e9).all())
