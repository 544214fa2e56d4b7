"""Tensors, arrays or lists that callers want drawn → arrays of float64, checked once; and numbers as texts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import KindError, ShapeError

Matrix = NDArray[np.float64]

MOST_CELLS = 2**22
"""The most elements of a matrix that is drawn."""


def as_array(name: str, values: Any, *ranks: int) -> Matrix:
    """An array of float64 with one of these ranks.

    Args:
        name: the argument's name, for the message.
        values: a tensor of any dtype on any device, an array, or nested lists.
        ranks: the valid numbers of axes.

    Raises:
        KindError: these are not real numbers.
        ShapeError: the number of axes is invalid, rows differ in length, or there are more than `MOST_CELLS` elements.
    """
    if isinstance(values, Tensor) and values.numel() <= MOST_CELLS:
        values = values.detach().cpu().double().numpy()
    try:
        # A tensor that is too large is not copied: only its shape matters.
        array = np.broadcast_to(np.float64(0), values.shape) if isinstance(values, Tensor) else np.asarray(values)
    except ValueError as error:
        raise ShapeError(f"{name} must be an array; its rows have different lengths") from error
    if array.size == 0 and array.dtype == object:
        array = array.astype(np.float64)
    if array.dtype.kind not in "biuf":
        raise KindError(f"{name} must hold real numbers; it holds {array.dtype}")
    if array.ndim not in ranks:
        expected = " or ".join(str(rank) for rank in ranks)
        raise ShapeError(f"{name} must have {expected} axes; it has shape {list(array.shape)}")
    if array.size > MOST_CELLS:
        raise ShapeError(
            f"{name} must hold at most {MOST_CELLS:,} numbers to be drawn; it has shape {list(array.shape)}"
        )
    return array.astype(np.float64)


def number_texts(matrix: Matrix, *, most_decimals: int = 4) -> list[list[str]]:
    """Every number of a matrix as text, all with the same number of decimals.

    There are as few decimals as give every number exactly (in float32's precision), at most ``most_decimals``, and
    fewer for large numbers. −inf is ``−∞``.
    """
    finite = matrix[np.isfinite(matrix)]
    largest = float(np.abs(finite).max(initial=0.0))
    if largest >= 1e6 or 0 < largest < 10.0 ** -(most_decimals - 1):
        form = ".2e" if not _whole(finite) or largest >= 1e9 else ".0f"
    else:
        limit = most_decimals if largest < 100 else 2
        exact = (d for d in range(limit) if np.allclose(finite, finite.round(d), rtol=1e-6, atol=0))
        form = f".{next(exact, limit)}f"
    return [[_number_text(value, form) for value in row] for row in matrix.tolist()]


def _whole(finite: NDArray[np.float64]) -> bool:
    return bool((finite == finite.round()).all())


def _number_text(value: float, form: str) -> str:
    if value != value:
        return "NaN"
    text = "∞" if abs(value) == float("inf") else format(abs(value), form)
    # A number that is written as zero has no sign.
    return f"−{text}" if value < 0 and any(digit in text for digit in "123456789∞") else text


def three_digits(value: float) -> str:
    """A number as text with three significant digits: ``0.0312``, ``30.0``, ``1,250``; below 0.0001 as ``3.12e-05``."""
    if value != value:
        return "NaN"
    size = abs(value)
    if size >= 999.5 or size == 0:
        text = f"{size:,.0f}" if size < 1e9 else f"{size:.2e}"
    else:
        text = f"{size:.2e}" if size < 1e-4 else f"{size:#.3g}".rstrip(".")
    return f"−{text}" if value < 0 else text


def cell_number(weight: float) -> str:
    """A weight in a cell: three decimals, without the zero before the point; "" for one that rounds to 0."""
    text = three_digits(weight) if abs(weight) >= 0.9995 else f"{weight:.3f}".replace("0.", ".", 1).replace("-", "−")
    return "" if text.strip("−.0") == "" else text
