"""Readings by the fused kernels, for any backend: one pass over blocks of weights, and one for the rows to store."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from regard.attention.backends.cpu.dense_rows import row_slices
from regard.attention.readings import Gatherer
from regard.kernels.cpu.kernel_inputs import KernelInputs
from regard.masks import Mask


@torch.no_grad()
def read(call: KernelInputs, mask: Mask | None, gatherer: Gatherer) -> None:
    """Fill a gatherer.

    Args:
        call: the lowered problem.
        mask: what has to be made dense, a slice of rows at a time.
        gatherer: gets everything that it wants.
    """
    from regard.kernels.cpu import operators
    from regard.kernels.cpu.reading_options import ReadingOptions

    grid, wanted = gatherer.grid, gatherer.read
    for part, rows in row_slices(call, mask, grid):
        asked = ReadingOptions(
            entropy=wanted.entropy,
            peak=wanted.peak,
            top_k=min(wanted.top_k, grid.keys),
            received=wanted.received,
            distance=wanted.distance,
            pooled=list(gatherer.cells) if wanted.pooled is not None else [],
            key_offset=grid.offset + rows.start,
            first_row=rows.start,
            all_rows=grid.queries,
        )
        _store(operators.read(*part, *asked), rows, gatherer)
        for kept, chosen, keys in _kept(gatherer):
            slots = torch.full((grid.queries,), -1)
            slots[list(chosen)] = torch.arange(len(chosen))
            asked = ReadingOptions(
                row_slots=slots[rows.start : rows.stop].contiguous(),
                stored_rows=len(chosen),
                first_stored_key=keys.start,
                stored_keys=len(keys),
                only_stored=True,
            )
            kept += operators.read(*part, *asked)[-1]


def _kept(gatherer: Gatherer) -> Iterator[tuple[Tensor, Sequence[int], range]]:
    """What is kept of the weights themselves: where, which rows, which keys."""
    wanted, grid = gatherer.read, gatherer.grid
    if wanted.rows is not None:
        yield gatherer.rows, gatherer.chosen, range(grid.keys)
    if wanted.tile is not None:
        queries, keys = gatherer.rectangle
        yield gatherer.tile, range(*queries), range(*keys)
    if wanted.weights:
        yield gatherer.weights, range(grid.queries), range(grid.keys)


def _store(taken: list[Tensor], rows: range, gatherer: Gatherer) -> None:
    """Put the statistics of some rows where they belong."""
    lse, entropy, peak, top_weights, top_indices, received, distance, pooled_sum, pooled_max, _ = taken
    wanted, part = gatherer.read, slice(rows.start, rows.stop)
    gatherer.lse[:, :, part] = lse
    if wanted.entropy:
        gatherer.entropy[:, :, part] = entropy
    if wanted.peak:
        gatherer.peak[:, :, part] = peak
    if wanted.top_k:
        width = top_weights.shape[-1]
        gatherer.top_weights[:, :, part, :width] = top_weights
        gatherer.top_indices[:, :, part, :width] = top_indices
    if wanted.received:
        gatherer.received += received
    if wanted.distance:
        gatherer.distance[:, :, part] = distance
    if wanted.pooled is not None:
        gatherer.pooled_sum += pooled_sum
        torch.maximum(gatherer.pooled_max, pooled_max, out=gatherer.pooled_max)
