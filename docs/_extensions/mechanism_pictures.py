"""The pictures of mechanisms: weights of the words and feature maps, in the colours of `regard.palette`."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.image import imsave
from mechanism_catalogue import Mechanism
from numpy.typing import NDArray

from regard import masks
from regard.palette import HATCH, MASKED_PAPER
from regard.pictures.fonts import Lettering
from regard.pictures.heatmap import color_map, draw_cells, draw_lines, write_labels, write_numbers
from regard.pictures.sheet import new_sheet
from regard.shapes.grid import Grid

Matrix = NDArray[np.float64]
SIDE = 288
"""Pixels of a side of a small picture."""


def panels(mechanism: Mechanism, names: dict[str, Any]) -> list[tuple[str, Matrix]]:
    """The matrices that show a mechanism, each with its title; a matrix a head."""
    if mechanism["panels"]:
        return [(title, _matrix(eval(code, names))) for title, code in mechanism["panels"].items()]
    weights = _matrix(names["weights"])
    if mechanism.kind == "masks":  # a mask hides what has no weight: each visible pair has some
        weights = np.where(weights == 0, -np.inf, weights)
    if weights.ndim == 2:
        return [("", weights)]
    each = mechanism["each"] or "head"
    return [(f"{each} {number}", head) for number, head in enumerate(weights)]


def _matrix(tensor: torch.Tensor) -> Matrix:
    return tensor.detach().double().numpy()


def draw(file: Path, mechanism: Mechanism, names: dict[str, Any]) -> None:
    """Draws the picture of a page: heat maps side by side; one alone has its numbers."""
    words = names.get("words", [])
    labels = [eval(mechanism[side], names) if mechanism[side] else words for side in ("rows", "columns")]
    shown = panels(mechanism, names)
    cell = 0.42 if len(shown) == 1 else 2.4 / max(shown[0][1].shape)
    sizes = [_size(matrix, cell) for _, matrix in shown]
    left, top, bottom, gap = (0.75, 0.65, 0.1, 0.95) if words else (0.15, 0.1, 0.1, 0.25)
    if len(shown) > 1:
        bottom += 0.3
    elif words:
        top = 0.35
    width = left + sum(width for width, _ in sizes) + gap * (len(sizes) - 1) + 0.15
    height = top + max(height for _, height in sizes) + bottom
    figure = new_sheet(width, height)
    for (title, matrix), size in zip(shown, sizes, strict=True):
        axes = figure.add_axes((left / width, (height - top - size[1]) / height, size[0] / width, size[1] / height))
        left += size[0] + gap
        colors, low, high = _scale(matrix, [other for other_title, other in shown if _compared(title, other_title)])
        image = draw_cells(axes, matrix, colors=colors, low=low, high=high)
        rows, columns = (_fitting(some, length) for some, length in zip(labels, matrix.shape, strict=True))
        if rows or columns:
            write_labels(axes, Lettering([*rows, *columns]), rows, columns, 8.0, (1, 1), cell)
        else:
            axes.set(xticks=[], yticks=[])
        if len(shown) == 1:
            draw_lines(axes, *matrix.shape, color="#ffffff", width=1.0)
            texts = [[f"{value:.2f}" if value else "" for value in row] for row in matrix.tolist()]
            write_numbers(axes, image, texts, 7.5)
        else:
            axes.set_xlabel(title, fontsize=9)
    figure.savefig(file, dpi=144)


def _size(matrix: Matrix, cell: float) -> tuple[float, float]:
    """Width and height in inches; a row or a column alone is drawn wider than its cells are high."""
    rows, columns = matrix.shape
    return max(cell * columns, 0.3), max(cell * rows, 0.3)


def _compared(title: str, other: str) -> bool:
    """Whether two panels have one scale: all but weights beside something else."""
    return title == other or not ("weights" in title or "weights" in other)


def _fitting(labels: list[str], length: int) -> list[str]:
    """The labels, if there is one for each row or column."""
    return labels if len(labels) == length else []


def _scale(matrix: Matrix, compared: list[Matrix]) -> tuple[str, float, float]:
    """The colour map, and the numbers of its ends, of a matrix and those of its shape beside it."""
    finite = np.concatenate([other[np.isfinite(other)] for other in compared if other.shape == matrix.shape])
    high = float(np.abs(finite).max(initial=0.0)) or 1.0
    return ("sign", -high, high) if finite.min(initial=0.0) < 0 else ("amount", 0.0, high)


def draw_small(file: Path, mechanism: Mechanism, names: dict[str, Any]) -> None:
    """Draws the picture of a card, without letters: the heads, or the panel that says most, by default the last one."""
    titled = panels(mechanism, names)
    shown = [matrix for _, matrix in titled]
    if mechanism["panels"] or len(shown) == 1:
        _save_cells(file, dict(titled).get(mechanism["small"], shown[-1]))
        return
    side = int(np.ceil(np.sqrt(len(shown))))
    rows, columns = (length + 1 for length in shown[0].shape)
    sheet = np.full((side * rows - 1, side * columns - 1), np.nan)
    for number, matrix in enumerate(shown):
        top, left = number // side * rows, number % side * columns
        sheet[top : top + matrix.shape[0], left : left + matrix.shape[1]] = matrix
    _save_cells(file, sheet)


def draw_pattern(file: Path, code: str) -> None:
    """Draws who sees whom with a mask of 24 queries and keys."""
    mask = eval(code, {"masks": masks, "torch": torch})
    visible = mask.dense(Grid.whole(1, 1, 24, 24)).expand(1, 1, 24, 24)[0, 0].numpy()
    _save_cells(file, np.where(visible, 0.75, -np.inf), high=1.0)


def _save_cells(file: Path, matrix: Matrix, high: float | None = None) -> None:
    """Draws cells with thin lines between them and hatches over hidden ones; NaN is left out."""
    colors, low, top = _scale(matrix, [matrix])
    top = top if high is None else high
    rows, columns = matrix.shape
    cell = max(6, SIDE // max(rows, columns))
    share = np.where(np.isfinite(matrix), (matrix - low) / (top - low), 0.0)
    image = np.kron(color_map(colors)(share)[..., :3], np.ones((cell, cell, 1)))
    blank = np.kron(np.isnan(matrix) | (matrix == 0), np.ones((cell, cell), bool)).astype(bool)
    hidden = np.kron(np.isneginf(matrix), np.ones((cell, cell), bool)).astype(bool)
    down, across = np.indices(hidden.shape)
    image[blank] = 1.0
    image[hidden] = _color(MASKED_PAPER)
    image[hidden & ((down + across) % 12 < 2)] = _color(HATCH)
    if cell > 8:
        image[::cell] = image[:, ::cell] = 1.0
    height, width = image.shape[:2]
    side = max(height, width)
    square = np.ones((side + 16, side + 16, 3))
    top_edge, left_edge = (side - height) // 2 + 8, (side - width) // 2 + 8
    square[top_edge : top_edge + height, left_edge : left_edge + width] = image
    imsave(file, square)


def _color(code: str) -> tuple[float, ...]:
    return tuple(byte / 255 for byte in bytes.fromhex(code.removeprefix("#")))
