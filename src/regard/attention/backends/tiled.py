"""``tiled``: the specification on blocks of query rows, which the backward pass computes again, in linear memory.

A block has all the keys that its rows may see, so any normalizer sees whole rows; keys that no row of a block sees are
never computed. Only the inputs are stored for the backward pass: checkpointing computes a block's scores and weights
again, with the same random numbers.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from regard.attention.backends.backend import Backend
from regard.attention.backends.reference import TileInputs, guarded, mix, weigh, weights_alone, whole
from regard.attention.problem import Problem
from regard.attention.readings import Gatherer
from regard.masks.mask import visible_keys
from regard.shapes.axes import Float
from regard.tracing.transforms import active_transform
from regard.tracing.versions import Versions

BLOCK_ELEMENTS = 1 << 20
"""Elements that the pairs of one block may have in memory at once on a CPU: 4 MiB of float32, which a second-level
cache holds. On a device it is the least number."""

DEVICE_BYTES = 512
"""Bytes of a device's memory for each element of a block. The steps of a block hold some eight float32 numbers for each
element, so that they take about a sixteenth of the memory."""

KEY_BLOCK = 64
"""Granularity of the range of keys that a block of rows can see."""


class Tiled(Backend):
    """Runs the specification a block of query rows at a time."""

    name = "tiled"
    why = "runs everything in linear memory"
    measured = ("score-mlp",)
    reads = True
    isolates = True

    def declines(self, problem: Problem) -> str | None:
        if torch.is_grad_enabled() and problem.normalizer.generator is not None:
            return "the normalizer draws from a generator of its own, which the backward pass cannot rewind"
        return None

    def run(self, problem: Problem, gatherer: Gatherer | None = None) -> Tensor:
        return attend_in_blocks(problem, gatherer)

    @torch.no_grad()
    def read(self, problem: Problem, gatherer: Gatherer) -> None:
        for inputs in blocks(problem, block_shape(problem)):
            steps = weigh(problem, guarded(problem, inputs))
            gatherer.add(steps.masked, steps.weights, inputs.grid)


@cache
def device_memory(device: torch.device) -> int:
    """Returns a device's bytes of memory, known without waiting for it; 0 if PyTorch cannot tell."""
    module = torch.get_device_module(device)
    if hasattr(module, "get_device_properties"):
        return module.get_device_properties(device).total_memory
    return module.recommended_max_memory() if hasattr(module, "recommended_max_memory") else 0


def block_elements(device: torch.device) -> int:
    """Returns how many elements the pairs of one block may have in memory at once on a device."""
    if device.type in ("cpu", "meta"):
        return BLOCK_ELEMENTS
    return max(BLOCK_ELEMENTS, device_memory(device) // DEVICE_BYTES)


def block_shape(problem: Problem) -> tuple[int, int]:
    r"""Returns ``(batch rows, query rows)`` of a block: the largest with at most `block_elements` elements, or one row.

    On a device, where every operation of a block is a launch, a block has all queries of several batch rows, or else
    some queries of one. With e elements in all, there are at most

    .. math:: \max(1, 4 e / \mathrm{block\_elements})

    blocks, or one for each query row if a row exceeds the limit. Each has as many operations as its score, mask, bias
    and normalizer, however large it is.
    """
    prepared, grid = problem.prepared, problem.grid
    per_query = grid.heads * grid.keys * prepared.primitive.elements_per_pair(prepared.query, prepared.key)
    limit = block_elements(grid.device)
    if grid.device.type not in ("cpu", "meta"):
        queries = max(1, min(grid.queries, limit // max(per_query, 1)))
        whole_rows = limit // max(per_query * grid.queries, 1) if queries == grid.queries else 1
        return max(1, min(grid.batch, whole_rows)), queries
    batch = max(1, min(grid.batch, limit // max(per_query, 1)))
    queries = max(1, min(grid.queries, limit // max(per_query * batch, 1)))
    return batch, queries


def blocks(problem: Problem, shape: tuple[int, int]) -> Iterator[TileInputs]:
    """Yields the problem in blocks of ``shape`` (batch rows, query rows), some batch rows after the other.

    Queries are cut by `split`, whose backward pass is one concatenation.
    """
    batch_rows, query_rows = shape
    prepared, grid = problem.prepared, problem.grid
    if problem.mask is None and batch_rows >= grid.batch and query_rows >= grid.queries and problem.pairs:
        yield whole(problem)
        return
    for first in range(0, grid.batch, batch_rows):
        batch = range(first, min(first + batch_rows, grid.batch))
        key, value = _batch(prepared.key, batch), _batch(problem.value, batch)
        queries = unprepared = _rows(_batch(prepared.query, batch), query_rows)
        if problem.query is not prepared.query:
            unprepared = _rows(_batch(problem.query, batch), query_rows)
        start = 0
        for query, own_query in zip(queries, unprepared, strict=True):
            tile = grid.tile(batch=batch, queries=range(start, start + query.shape[2]))
            start += query.shape[2]
            if problem.mask is not None:
                tile = tile.tile(keys=visible_keys(problem.mask, tile, KEY_BLOCK))
            keys = tile.key_span
            cut = replace(prepared, query=query, key=_keys(key, keys))
            yield TileInputs(cut, own_query, _keys(value, keys), tile)


def attend_in_blocks(
    problem: Problem, gatherer: Gatherer | None = None
) -> Float[Tensor, "batch heads queries value_dim"]:
    """Returns the output ``[batch, heads, queries, value_dim]`` of the specification, run a block at a time."""
    # Recomputation would hide the calculation from `torch.func` transforms.
    recomputes = torch.is_grad_enabled() and active_transform() is None
    versions = problem.versions if recomputes else None
    shape = block_shape(problem) if problem.pairs else None
    parts = [whole(problem)] if shape is None else blocks(problem, shape)
    outputs = [_attend_block(problem, inputs, gatherer, versions) for inputs in parts]
    if versions is not None:
        versions.forget_changed()
    if shape is None:
        return outputs[0]
    per_batch = -(-problem.grid.queries // shape[1])
    rows = [torch.cat(outputs[i : i + per_batch], dim=2) for i in range(0, len(outputs), per_batch)]
    return torch.cat(rows, dim=0)


@torch.no_grad()
def read_shares(problem: Problem, gatherer: Gatherer) -> None:
    """Shows the weights to a gatherer for its ``shares`` alone, on behalf of kernels that take the other readings."""
    if gatherer.read.shares and problem.pairs:
        for inputs in blocks(problem, block_shape(problem)):
            gatherer.add_shares(weights_alone(problem, guarded(problem, inputs)), inputs.grid)


def _attend_block(problem: Problem, inputs: TileInputs, gatherer: Gatherer | None, versions: Versions | None) -> Tensor:
    """Returns the output of one block; with versions, the backward pass computes the block again."""
    reader, is_again = gatherer, False

    def calculate(*drawn_on: Tensor) -> Tensor:
        if is_again and versions is not None:
            versions.check()
        tile = guarded(problem, inputs)
        if reader is None:
            return mix(problem, tile, weights_alone(problem, tile))
        steps = weigh(problem, tile)
        reader.add(steps.masked, steps.weights, tile.grid)
        return mix(problem, tile, steps.weights)

    if versions is None:
        return calculate()
    draws = problem.dropout > 0.0 or problem.normalizer.random
    # PyTorch restores the random generator of the device that it finds among the arguments.
    drawn_on = () if inputs.value.is_cpu or not draws else (inputs.value.new_empty(0),)
    output = checkpoint(calculate, *drawn_on, use_reentrant=False)
    # The backward pass calls `calculate` again, but must not read the weights again.
    reader, is_again = None, True
    return output


def _batch(tensor: Tensor, rows: range) -> Tensor:
    """Returns some batch rows; a tensor that all batch rows share stays whole."""
    return tensor if tensor.shape[0] in (1, len(rows)) else tensor.narrow(0, rows.start, len(rows))


def _rows(tensor: Tensor, rows: int) -> tuple[Tensor, ...]:
    return (tensor,) if tensor.shape[2] <= rows else tensor.split(rows, dim=2)


def _keys(tensor: Tensor, keys: range) -> Tensor:
    return tensor if tensor.shape[2] == len(keys) else tensor.narrow(2, keys.start, len(keys))
