"""Reads matrices from the command line, as numbers, JSON or files, or draws those of a sentence from a seed."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.errors import ArgumentError, DataError
from regard.files.regular import LARGEST_TEXT, open_regular, read_text
from regard.shapes.checks import whole_number

FILES = (".json", ".npy")


def read_matrix(option: str, text: str, axes: tuple[int, ...] = (2,)) -> Tensor:
    """Reads the matrix of an option, float64, of one of these numbers of ``axes``, 2 or 4.

    It is rows between semicolons, numbers between spaces or commas (``"1 0 1; 0 2 0"``); or nested lists as JSON; or
    the path of a ``.json`` or ``.npy`` file. A single row is a matrix of one row.
    """
    text = text.strip()
    if text.startswith("["):
        values = _json(option, text)
    elif text.lower().endswith(FILES):
        values = _file(option, Path(text))
    else:
        values = _inline(option, text)
    return _tensor(option, values, axes)


def _inline(option: str, text: str) -> list[list[float]]:
    rows = [row.replace(",", " ").split() for row in text.replace("\n", ";").split(";")]
    rows = [row for row in rows if row]
    if not rows:
        raise DataError(f"{option} is empty; give numbers, as in '5 1 20; 3 12 45', or a .json or .npy file")
    values = []
    for number, row in enumerate(rows, start=1):
        if len(row) != len(rows[0]):
            raise DataError(
                f"{option}: row {number} has {len(row)} numbers and row 1 has {len(rows[0])}; they must be equal"
            )
        values.append([_number(option, number, cell) for cell in row])
    return values


def _number(option: str, row: int, cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        files = " or ".join(FILES)
        raise DataError(
            f"{option}: {cell!r} in row {row} is not a number (a file's name must end in {files})"
        ) from None


def _file(option: str, path: Path) -> Any:
    try:
        if path.suffix.lower() == ".json":
            return _json(f"{option}: {path}", read_text(path, LARGEST_TEXT))
        with open_regular(path, LARGEST_TEXT) as file:
            return np.lib.format.read_array(file, allow_pickle=False)
    except UnicodeDecodeError as error:
        raise DataError(f"{option}: {path} is not UTF-8 text (byte {error.start})") from error
    except OSError as error:
        raise DataError(f"{option}: cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{option}: {path} is not a NumPy array of numbers: {error}") from error


def _json(where: str, text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(f"{where}: not JSON: {error.msg}, line {error.lineno}, column {error.colno}") from error
    except RecursionError:
        raise DataError(f"{where}: the lists are nested too deeply") from None


def _tensor(option: str, values: Any, axes: tuple[int, ...]) -> Tensor:
    try:
        array = np.asarray(values)
    except ValueError:
        raise DataError(f"{option}: rows have different lengths") from None
    if array.dtype.kind not in "iuf":
        raise DataError(f"{option}: must hold numbers; it holds {_kind(array)}")
    array = array.astype(np.float64)
    if array.ndim == 1:
        array = array[None]
    if array.ndim not in axes:
        shapes = {2: "[rows, columns]", 4: "[1, heads, rows, columns]"}
        expected = " or ".join(shapes[count] for count in axes)
        raise DataError(f"{option}: must be {expected}; it has shape {list(array.shape)}")
    if not array.size:
        raise DataError(f"{option}: holds no numbers; it has shape {list(array.shape)}")
    if not np.isfinite(array).all():
        index = np.argwhere(~np.isfinite(array))[0]
        value = array[tuple(index)]
        raise DataError(
            f"{option}: must be finite; row {index[-2] + 1}, column {index[-1] + 1} is "
            f"{'NaN' if math.isnan(value) else value}"
        )
    return torch.from_numpy(np.ascontiguousarray(array))


def _kind(array: Any) -> str:
    kinds = {"b": "true and false", "U": "text", "S": "bytes", "c": "complex numbers"}
    return kinds.get(array.dtype.kind, "something else")


MOST_NUMBERS = 20_000_000
"""Largest number of elements of one random matrix."""

MOST_HEADS = 1000
"""Largest number of heads, since each has its own tables."""


def seeded_sentence(words: list[str], dim: int, head_dim: int, heads: int, seed: int) -> dict[str, Tensor]:
    """Returns inputs and weights for a sentence, by the options of the same tensors, float64: ``--input [words, dim]``,
    ``--w-query``, ``--w-key``, ``--w-value [dim, heads · head_dim]``, and with several heads
    ``--w-output [heads · head_dim, dim]``, which projects them back to ``dim``.

    Embeddings are standard normal, and equal words have equal embeddings; weights have variance 1 / rows. All values
    are rounded to two decimals, so that the user can calculate with them.
    """
    for name, size in (("--dim", dim), ("--head-dim", head_dim), ("--heads", heads)):
        whole_number(name, size, low=1)
    for text, count in (
        (f"--dim {dim} × --head-dim {head_dim} × --heads {heads}", dim * head_dim * heads),
        (f"{len(words)} words × --dim {dim}", len(words) * dim),
    ):
        if count > MOST_NUMBERS:
            raise ArgumentError(
                f"{text} are more than the {MOST_NUMBERS:,} random numbers of a matrix; make them smaller"
            )
    whole_number("--heads", heads, high=MOST_HEADS)
    generator = torch.Generator().manual_seed(seed % 2**63)

    def draw(rows: int, columns: int, deviation: float) -> Tensor:
        numbers = torch.randn(rows, columns, generator=generator, dtype=torch.float64) * deviation
        # Adding 0 turns −0 into 0.
        return (numbers * 100).round() / 100 + 0.0

    vocabulary = list(dict.fromkeys(words))
    embeddings = draw(len(vocabulary), dim, 1.0)
    width = heads * head_dim
    tensors = {"--input": embeddings[[vocabulary.index(word) for word in words]]}
    tensors |= {name: draw(dim, width, dim**-0.5) for name in ("--w-query", "--w-key", "--w-value")}
    if heads > 1:
        tensors["--w-output"] = draw(width, dim, width**-0.5)
    return tensors
