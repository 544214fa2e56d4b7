"""Tensors, arrays or lists that callers want drawn → arrays of float64, checked once; and numbers as texts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import KindError, ShapeError
from regard.shapes.arrays import as_array as floating_array

Matrix = NDArray[np.float64]

MOST_CELLS = 2**22
"""The most elements of a matrix that is drawn."""

PRECISION = 1e-6
"""The relative difference that single precision does not tell."""


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


def short_number(value: float, digits: int = 3) -> str:
    """Returns a number with three significant digits, without zeros at the end, and a whole one with all of its digits.

    ``0.119``, ``0.5``, ``30``, ``1,250``; below 0.0001 ``3.12e−5``. A number below 1 has ``digits`` of them, such as 2
    at a scale of weights. The viewer's legends write the same.
    """
    size = abs(value)
    if size == 0 or 999.5 <= size * (1 + PRECISION) < 1e9:
        return _number_text(math.copysign(math.floor(size + 0.5), value), ",.0f")
    form = f"#.{digits if size < 1 else 3}g" if 1e-4 <= size < 1e9 else ".2e"
    mantissa, _, power = _number_text(value * (1 + PRECISION), form).partition("e")
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


def _digits(size: float, form: str) -> str:
    """Returns a size in a format; what single precision does not tell from a half is rounded up, as in the viewer."""
    return format(size * (1 + PRECISION), form)


def _two_decimals(size: float) -> str:
    """Returns a size with two decimals; one that is less than 1 does not become 1."""
    text = _digits(size, ".2f")
    return ">0.99" if text == "1.00" and size < 1 - PRECISION else text


def cell_number(weight: float) -> str:
    """Returns a weight in a cell: two decimals, without the zero before the point.

    One that rounds to 0 is "", and one that only rounds to 1 is ">.99". The viewer's cells have the same.
    """
    size = abs(weight)
    text = _two_decimals(size).replace("1.00", "1").replace("0.", ".", 1) if size < 1.005 else short_number(size)
    return _with_sign(weight, text) if text.strip(".0") else ""


def _with_sign(value: float, text: str) -> str:
    """Returns the text of a number's size with its sign, which also turns a bound around."""
    return f"−{text}".replace("−>", "<−").replace("−<", ">−") if value < 0 else text


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
    """Returns a weight in a sentence: two decimals, one digit of small ones; only 0 is "0", and only 1 is "1.00"."""
    if not np.isfinite(value):
        return _number_text(value, "")
    size = abs(value)
    if size == 0:
        return "0"
    text = _two_decimals(size)
    if text == "0.00":
        text = "<0.0001" if size < 0.0001 else f"{float(_digits(size, '.1g')):.4f}".rstrip("0")
    return _with_sign(value, text)


def weight_texts(named: Sequence[float], others: float, write: Callable[[float], str] = short_weight) -> list[str]:
    """Returns weights as they are written, and behind them that of all others.

    Where the weights add up to 1, that is what the printed ones leave of it, so that the printed parts add up too.
    """
    texts, left = list(map(write, named)), 0.0
    if adds_up(np.array([*named, others])) and not any(text[0] in "<>−" for text in texts):
        left = round(1 - sum(map(float, texts)), 4)
    return [*texts, write(left if left > 0 else others)]


def subtraction(*pair: float) -> str:
    """Returns how two weights differ, the larger first, −inf (masked) as 0; "≈" where printed digits do not fit."""
    low, high = sorted(0.0 if weight == -math.inf else float(weight) for weight in pair)
    more, less, rest = map(short_weight, (high, low, high - low))
    sign = "=" if abs(printed(more) - printed(less) - printed(rest)) < 1e-9 else "≈"
    return f"{more} − {less} {sign} {rest}"


def percent(part: float, language: str = "en") -> str:
    """Returns a part as percent in whole numbers, as its two decimals; only the whole is 100, and only nothing is 0."""
    text = _two_decimals(part or 0.0).replace("nan", "NaN")
    text = "<0.01" if text == "0.00" and part > 0 else text
    text = re.sub(r"[\d.]+", lambda number: str(round(100 * float(number[0]))), text)
    text = text.replace("<", "<\xa0").replace(">", ">\xa0")
    return f"{text}%" if language == "zh" else f"{text}\xa0%"


def plain_percent(part: float) -> str:
    """Returns a part as `percent` does, with plain spaces, for a terminal."""
    return percent(part).replace("\xa0", " ")


def adds_up(weights: Matrix) -> NDArray[np.bool_]:
    """Returns whether each row adds up to 1 as it is printed, with two decimals."""
    return np.abs(weights.sum(axis=-1) - 1) < 0.005


def printed(text: str) -> float:
    """Returns a number as who reads its text has it; NaN for a bound."""
    return math.nan if text[:1] in "<>" else float(text.replace("−", "-").replace("∞", "inf"))
