"""The diagonals of a tile of pairs: the pairs of one diagonal have the same key − query."""

import torch
from torch import Tensor

from regard.shapes import Grid


def relative_positions(grid: Grid) -> Tensor:
    """``key − query − offset`` on each diagonal of a tile, from its last query's first key on.

    The last query stands at the last key: ``offset = keys − queries`` of the whole problem.

    Returns:
        int64 ``[queries + keys − 1]`` of the tile, on the grid's device.
    """
    _, _, queries, keys = grid.shape
    least = grid.key_span.start - (grid.query_span.stop - 1) - grid.offset
    return torch.arange(least, least + max(queries + keys - 1, 0), device=grid.device)


def dense_from_diagonals(diagonals: Tensor, grid: Grid) -> Tensor:
    """The matrix of a tile that has one number for each diagonal.

    Args:
        diagonals: ``[heads or 1, queries + keys − 1]``: entry ``j − i + queries − 1`` belongs to the tile's query i and
            key j, both counted from its first.
        grid: which tile.

    Returns:
        ``[heads or 1, queries, keys]``, differentiable.
    """
    _, _, queries, keys = grid.shape
    if queries == 0 or keys == 0:
        # A slice and not new zeros, so that a parameter of the bias gets a gradient of 0 and not None.
        return diagonals[:, :0].reshape(len(diagonals), queries, keys)
    # Each row is a window of the diagonals that begins one entry before the window of the row above it.
    return diagonals.unfold(-1, keys, 1).flip(-2)  # H Q K
