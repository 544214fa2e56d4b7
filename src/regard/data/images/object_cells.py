"""Which cells of a grid over an image are on an object."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Box = tuple[float, float, float, float]
"""x0, y0, x1, y1 in pixels."""


def cells_inside(boxes: Sequence[Box], grid: tuple[int, int], covered: Box) -> NDArray[np.bool_]:
    """Which cells of a grid have their middle inside of one of the boxes: ``[rows · columns]``.

    Args:
        boxes: x0, y0, x1, y1 of each, in pixels of the image.
        grid: rows and columns.
        covered: the part of the image that the grid covers.
    """
    rows, columns = grid
    x0, y0, x1, y1 = covered
    across = x0 + (np.arange(columns) + 0.5) * (x1 - x0) / columns
    down = y0 + (np.arange(rows) + 0.5) * (y1 - y0) / rows
    inside = np.zeros((rows, columns), np.bool_)
    for left, top, right, bottom in boxes:
        inside |= ((down >= top) & (down <= bottom))[:, None] & ((across >= left) & (across <= right))
    return inside.ravel()
