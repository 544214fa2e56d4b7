"""Tensors, arrays or lists that callers want drawn → arrays of float64, checked once; and numbers as texts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import KindError, ShapeError
from regard.shapes.arrays import as_array as floating_array

Matrix = NDArray[np.float64]

MOST_CELLS = 2**22
"""The most elements of a matrix that is drawn."""

NEARLY_ONE, PRECISION = 0.995, 1e-6
"""The least part that two decimals round up to the whole, and the difference that single precision does not tell."""


def as_array(name: str, values: Any, *ranks: int) -> Matrix:
    """Returns an array of float64 with one of these ranks.

    Args:
        values: a tensor of any dtype on any device, an array, or nested lists.

    Raises:
        ArgumentError: these are not real numbers.
        ShapeError: the number of axes is invalid, rows differ in length, or there are more than `MOST_CELLS` elements.
    """
    # Only the shape of a tensor that is too large matters, so it is not copied.
    is_large = isinstance(values, Tensor) and values.numel() > MOST_CELLS
    array = np.broadcast_to(np.float64(0), values.shape) if is_large else floating_array(values, name)
    if array.ndim not in ranks:
        expected = " or ".join(str(rank) for rank in ranks)
        raise ShapeError(f"{name} must have {expected} axes; it has shape {list(array.shape)}")
    if array.size > MOST_CELLS:
        raise ShapeError(
            f"{name} must hold at most {MOST_CELLS:,} numbers to be drawn; it has shape {list(array.shape)}"
        )
    return array.astype(np.float64)


def as_image(image: Any) -> NDArray[np.uint8]:
    """Returns an image as uint8 ``[height, width, 3]``.

    Args:
        image: a tensor or an array of uint8, or nested lists of integers from 0 to 255.

    Raises:
        ShapeError: another shape, or an empty image.
        KindError: the image is not uint8.
    """
    pixels = image.detach().cpu().numpy() if isinstance(image, Tensor) else np.asarray(image)
    if pixels.ndim != 3 or pixels.shape[2] != 3 or not pixels.size:
        raise ShapeError(f"image must be uint8 [height, width, 3] and not empty; it has shape {list(pixels.shape)}")
    if isinstance(image, (list, tuple)) and pixels.dtype.kind in "iu" and 0 <= pixels.min() <= pixels.max() <= 255:
        pixels = pixels.astype(np.uint8)
    if pixels.dtype != np.uint8:
        raise KindError(f"image must be uint8 [height, width, 3]; it is {pixels.dtype}")
    return pixels


def number_texts(matrix: Matrix, *, most_decimals: int = 4) -> list[list[str]]:
    """Returns every number of a matrix as text, all with the same number of decimals.

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
    text = "∞" if abs(value) == float("inf") else _plain_power(format(abs(value), form))
    # A number that is written as zero has no sign.
    return f"−{text}" if value < 0 and any(digit in text for digit in "123456789∞") else text


def _plain_power(text: str) -> str:
    """Returns a number in scientific notation as it is printed: ``1.50e−7`` for ``1.50e-07``."""
    mantissa, _, power = text.partition("e")
    return f"{mantissa}e{int(power)}".replace("-", "−") if power else text


def short_number(value: float) -> str:
    """Returns a number with three significant digits, without zeros at the end, and a whole one with all of its digits.

    ``0.119``, ``0.5``, ``30``, ``1,250``; below 0.0001 ``3.12e−5``. The viewer's legends write the same.
    """
    size = abs(value)
    if size == 0 or 999.5 <= size < 1e9:
        return _number_text(value, ",.0f")
    mantissa, _, power = _number_text(value, "#.3g" if 1e-4 <= size < 1e9 else ".2e").partition("e")
    return (mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa) + (power and f"e{power}")


def short_numbers(matrix: Matrix) -> list[list[str]]:
    """Returns the numbers of a matrix with three significant digits; those up to 1, all with the same number of
    decimals.

    Decimals are at most three. Where that would leave fewer than two digits of a number, each has its own, as
    `short_number` writes it.
    """
    sizes = np.abs(matrix[np.isfinite(matrix) & (matrix != 0)])
    if sizes.size and sizes.min() >= 0.00995 and sizes.max() <= 1:
        return number_texts(matrix, most_decimals=3)
    return [[short_number(value) for value in line] for line in matrix.tolist()]


def cell_number(weight: float) -> str:
    """Returns a weight in a cell: two decimals, without the zero before the point.

    One that rounds to 0 is "", and one that only rounds to 1 is ">.99". The viewer's cells have the same.
    """
    size = abs(weight)
    if NEARLY_ONE <= size < 1 - PRECISION:
        return ">.99" if weight > 0 else "<−.99"
    text = f"{size:.2f}".replace("1.00", "1").replace("0.", ".", 1) if size < 1.005 else short_number(size)
    return "" if text.strip(".0") == "" else ("−" if weight < 0 else "") + text


def signed_number(value: float, largest: float) -> str:
    """Returns a number with its sign and as many decimals as the largest magnitude beside it needs for 3 digits.

    A number that would be 0 with them is written by its power of ten.
    """
    decimals = max(0, 2 - math.floor(math.log10(largest))) if largest else 0
    text = f"{value:+.{decimals}f}" if not value or abs(value) * 10**decimals >= 0.5 else f"{value:+.0e}"
    return "0" if not value else text.replace("-", "\N{MINUS SIGN}")


MOST_SHOWN = 8
"""The most rows and columns of a matrix that a flow draws."""


def shown_indices(size: int, traced: Sequence[int | None]) -> list[int | None]:
    """Returns all rows or columns, or seven of many with the traced ones, and a None for the others."""
    if size <= MOST_SHOWN:
        return list(range(size))
    first, late = MOST_SHOWN - 1, set[int]()
    for _ in traced:
        late = {index for index in traced if index is not None and index >= first}
        first = MOST_SHOWN - 1 - len(late)
    return [*range(first), None, *sorted(late)]


def cell_texts(matrix: Matrix) -> list[list[str]]:
    """Returns the numbers of a matrix with two decimals, or with more where all of them are small."""
    largest = float(np.abs(matrix[np.isfinite(matrix)]).max(initial=0.0))
    decimals = next((count for count in (2, 3) if not largest or largest >= 10.0 ** (1 - count)), 4)
    return number_texts(matrix, most_decimals=decimals)


def short_weight(value: float) -> str:
    """Returns a weight in a sentence: two decimals, one digit of small ones, more of one that is nearly 1."""
    if not np.isfinite(value):
        return "NaN"
    size, sign = abs(value), "−" if value < 0 else ""
    if size == 0:
        return "0"
    if size < 0.0001:
        return ">\u200a−0.0001" if sign else "<\u200a0.0001"
    if NEARLY_ONE <= size < 1 - PRECISION:
        return sign + _nearly_one(size)
    return sign + (f"{size:.2f}" if size >= 0.01 else f"{float(f'{size:.1g}'):.4f}".rstrip("0"))


def short_weights(parts: Sequence[float]) -> list[str]:
    """Returns weights in a sentence, the last of which is that of all others, which add up to their sum as shown.

    Rounded parts need not. Then the last one, and after it those that are nearest to another hundredth, are rounded
    the other way (the method of largest remainders).
    """
    if not all(0 <= part < NEARLY_ONE for part in parts):
        return [short_weight(part) for part in parts]
    small = [float(f"{part:.1g}") if part < 0.01 else None for part in parts]
    hundredths = [int(100 * part + 0.5) if one is None else 0 for part, one in zip(parts, small, strict=True)]
    left = int(100 * (sum(parts) - sum(one or 0.0 for one in small)) + 0.5) - sum(hundredths)
    step = (left > 0) - (left < 0)
    distances = [abs(count + step - 100 * part) for count, part in zip(hundredths, parts, strict=True)]
    order = [n for n, one in enumerate(small) if one is None and distances[n] < 1 and hundredths[n] + step < 100]
    for number in sorted(order, key=lambda n: (n != len(parts) - 1, distances[n]))[: abs(left)]:
        hundredths[number] += step
    return [
        short_weight(part) if one is not None else f"{count / 100:.2f}"
        for part, one, count in zip(parts, small, hundredths, strict=True)
    ]


def percent(part: float, language: str = "en") -> str:
    """Returns a part as percent in whole numbers; only the whole is 100, and only nothing is 0."""
    nearly = NEARLY_ONE <= part < 1 - PRECISION
    text = "<\xa01" if 0 < part < 0.005 else _nearly_one(part, 100) if nearly else str(int(100 * part + 0.5))
    return f"{text}%" if language == "zh" else f"{text}\xa0%"


def _nearly_one(size: float, factor: int = 1) -> str:
    """Returns a number that is nearly one, cut and not rounded, with a ">" if four decimals do not tell it from 1."""
    text = f"{int(1e4 * size + 1e-3) * factor / 1e4:.4f}".rstrip("0").rstrip(".")
    return f">\u200a{text}" if size > 0.9999 + PRECISION else text
