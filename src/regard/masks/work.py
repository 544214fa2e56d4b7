"""The work that a mask gives to each key: how many queries see it."""

import torch
from torch import Tensor

from regard.errors import KindError
from regard.masks.mask import Mask
from regard.shapes.checks import type_text, whole_number
from regard.shapes.grid import Grid

BLOCK_ELEMENTS = 1 << 20
"""Pairs of a block that is looked at densely at once."""


def work_of_keys(mask: Mask, queries: int, keys: int, *, batch: int = 1, heads: int = 1) -> Tensor:
    r"""Returns how many queries see each key, over all batch rows and heads.

    .. math::

        work_j = \sum_{b,\,h,\,i} \text{(query i sees key j in batch row b and head h)}

    In a sharded call a process scores the keys that it holds, so this is what each position costs:
    `regard.distributed.Shards.balanced` makes of it shards with as much work for each process.

    The cost is linear in queries + keys where each row of the mask has a few runs of visible keys (`Mask.spans`), as
    causal masks, windows, lengths, prefixes and documents have; of other masks all pairs are looked at, in blocks.

    Args:
        mask: the mask.
        queries, keys: the lengths of the whole sequences.
        batch, heads: the sizes of a problem whose batch rows or heads have masks of their own.

    Returns:
        The counts, int64 ``[keys]``, on the CPU.

    Raises:
        KindError: ``mask`` is no mask.
        ArgumentError, ShapeError: a size is below 0, or the mask does not fit these sizes.

    Example:
        >>> from regard import masks
        >>> masks.work_of_keys(masks.causal(), 4, 4)
        tensor([4, 3, 2, 1])
        >>> masks.work_of_keys(masks.window(1, 0), 4, 4)
        tensor([2, 2, 2, 1])
    """
    if not isinstance(mask, Mask):
        raise KindError(f"mask must be a Mask, such as masks.causal(); it is {type_text(mask)}")
    for name, value in {"batch": batch, "heads": heads, "queries": queries, "keys": keys}.items():
        whole_number(name, value, low=0)
    grid = Grid.whole(batch, heads, queries, keys)
    mask.check(grid)
    work = torch.zeros(keys, dtype=torch.int64, device="cpu")
    if 0 in grid.shape:
        return work
    spans = mask.spans(grid)
    if spans is not None:
        repeats = batch // spans.start.shape[0] * (heads // spans.start.shape[1])
        begins, ends = (torch.bincount(end.flatten(), minlength=keys + 1) for end in spans)
        return (begins - ends).cumsum(0)[:keys] * repeats
    rows = max(1, BLOCK_ELEMENTS // (batch * heads * keys))
    for first in range(0, queries, rows):
        tile = grid.tile(queries=range(first, min(first + rows, queries)))
        work += mask.dense(tile).sum((0, 1, 2)).cpu()
    return work
