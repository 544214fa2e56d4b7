"""The arguments of attention to listed keys. Nothing here imports Numba."""

from typing import NamedTuple

from torch import Tensor


class ColumnCall(NamedTuple):
    """A call of attention to listed keys.

    Attributes:
        listed: int64 ``[batch or 1, heads of lists, rows, listed]`` with adjacent elements: the blocks of keys that the
            queries of a row see; a negative one is none.
        size: keys of a block.
        query_size: queries of a row.
        start, stop: of the listed keys a query sees ``start <= j < stop``, int32 ``[batch or 1, heads or 1, queries]``;
            None: all.
        scale: factor of the inner products.
    """

    listed: Tensor
    size: int
    query_size: int
    start: Tensor | None
    stop: Tensor | None
    scale: float
