"""Readings by the fused kernels, for any backend: one pass over blocks of weights, and one for the rows to store."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from regard.attention.backends.cpu.dense_rows import row_slices
from regard.attention.readings import Gatherer
from regard.kernels.cpu.kernel_arguments import READINGS, KernelInputs, ReadingOptions
from regard.masks import Mask

_OF_ROWS = ("lse", "entropy", "peak", "top_weights", "top_indices", "distance")
"""Readings with one element, or a few, for each row."""


@torch.no_grad()
def read(call: KernelInputs, mask: Mask | None, gatherer: Gatherer) -> None:
    """Fills a gatherer.

    Args:
        mask: a mask that has to be made dense, a slice of rows at a time, or None.
    """
    from regard.kernels.cpu import operators

    grid, readings = gatherer.grid, gatherer.read
    # All rows come at once, so the kernel's tensors replace these, whose memory is freed first.
    whole = mask is None and readings.top_k <= grid.keys
    if whole:
        vars(gatherer).update(dict.fromkeys(_OF_ROWS, gatherer.lse.new_empty(0)))
    for part, rows in row_slices(call, mask, grid):
        options = statistics_of(gatherer, rows.start)
        _store(operators.read(*part, *options), None if whole else rows, gatherer)
        for stored, chosen, keys in _stored(gatherer):
            slots = torch.full((grid.queries,), -1)
            slots[list(chosen)] = torch.arange(len(chosen))
            options = ReadingOptions(
                row_slots=slots[rows.start : rows.stop].contiguous(),
                stored_rows=len(chosen),
                first_stored_key=keys.start,
                stored_keys=len(keys),
                only_stored=True,
            )
            stored += operators.read(*part, *options)[-1]


def statistics_of(gatherer: Gatherer, first_row: int = 0) -> ReadingOptions:
    """Returns the options for a gatherer's statistics of rows and columns, for rows from ``first_row`` on."""
    grid, readings = gatherer.grid, gatherer.read
    return ReadingOptions(
        entropy=readings.entropy,
        peak=readings.peak,
        top_k=min(readings.top_k, grid.keys),
        received=readings.received,
        distance=readings.distance,
        pooled=list(gatherer.cells) if readings.pooled is not None else [],
        key_offset=grid.offset + first_row,
        first_row=first_row,
        all_rows=grid.queries,
    )


def _stored(gatherer: Gatherer) -> Iterator[tuple[Tensor, Sequence[int], range]]:
    """Yields the weights that are stored: the tensor for them, their rows, and their keys."""
    readings, grid = gatherer.read, gatherer.grid
    if readings.rows is not None:
        yield gatherer.rows, gatherer.chosen, range(grid.keys)
    if readings.tile is not None:
        queries, keys = gatherer.rectangle
        yield gatherer.tile, range(*queries), range(*keys)
    if readings.weights:
        yield gatherer.weights, range(grid.queries), range(grid.keys)


def _store(tensors: list[Tensor], rows: range | None, gatherer: Gatherer) -> None:
    """Stores the statistics of some rows in the gatherer; those of all rows (None) replace its tensors."""
    tensor_of = dict(zip((reading.name for reading in READINGS), tensors, strict=True))
    for name in _OF_ROWS:
        if rows is None:
            setattr(gatherer, name, tensor_of[name])
        elif tensor_of[name].numel() > 0:
            part = getattr(gatherer, name)[:, :, rows.start : rows.stop]
            (part[..., : tensor_of[name].shape[3]] if part.dim() == 4 else part).copy_(tensor_of[name])
    if gatherer.read.received:
        gatherer.received += tensor_of["received"]
    if gatherer.read.pooled is not None:
        gatherer.pooled_sum += tensor_of["pooled_sum"]
        torch.maximum(gatherer.pooled_max, tensor_of["pooled_max"], out=gatherer.pooled_max)
