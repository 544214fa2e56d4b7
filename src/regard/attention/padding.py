"""Which queries see a key and which keys a query sees; and padding on a device, which reaches nothing.

Padding are keys that no query sees, and queries that see no key, whatever they hold. Kernels multiply hidden elements
by weights of 0, and 0 · NaN is NaN. The host cannot look at elements without waiting, so zeros replace the vectors of
padding, in one operation for each tensor. Masks that by their sizes hide no key from all queries, and leave no query
without a key, cost nothing. Vectors that some query sees are not replaced: under such a mask a NaN may spread to
queries that do not see it (contract 10).
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from regard.attention.problem import Problem
from regard.masks import Lengths
from regard.shapes.grid import Grid
from regard.tracing.transforms import shared_scalar

SLICE_PAIRS = 1 << 26
"""Pairs whose visibility is in memory at once: 64 MiB of bools."""


def attend_unpadded(problem: Problem, run: Callable[[Problem], Tensor]) -> Tensor:
    """Returns the output of a backend for a problem on a device, in which padding is 0."""
    if not (problem.may_hide_rows or problem.may_hide_keys):
        return run(problem)
    seen = seen_of(problem)
    query, key, value, (rows, keys, pairs) = problem.query, problem.key, problem.value, seen
    if keys is not None:
        key, value = _Cleared.apply(key, keys), _Cleared.apply(value, keys)
    is_whole = seen.are_whole_heads(key.shape[1])
    if rows is not None:
        query = _Cleared.apply(query, rows, "gradient" if is_whole else "both")
        if not is_whole and pairs is not None:
            # A kernel would divide by 0. These rows see all keys here.
            pairs = rows <= pairs
    cleared = replace(problem, query=query, key=key, value=value)
    # The backend adds a bias, and finds out which rows it hides.
    cleared.pairs_seen = None if problem.bias is not None else pairs
    output = run(cleared)
    return output if rows is None else _Cleared.apply(output, rows, "tensor" if is_whole else "both")


class Seen(NamedTuple):
    """The queries, keys and pairs that a mask and a bias show; bools, None where all of them are seen.

    Attributes:
        rows: which queries see a key, ``[batch or 1, heads or 1, queries or 1, 1]``.
        keys: which keys a query sees, ``[batch or 1, kv_heads or 1, keys or 1, 1]``.
        pairs: which pairs are visible, ``[batch or 1, heads or 1, queries or 1, keys or 1]``; None if they are so many
            that they were looked at in slices.
    """

    rows: Tensor | None
    keys: Tensor | None
    pairs: Tensor | None

    def are_whole_heads(self, kv_heads: int) -> bool:
        """Whether rows that see no key are whole heads of keys, all of whose keys and values are 0 and get no gradient.

        Then zeros of the output and of the gradients suffice: nothing else reads what a kernel makes of these rows.
        """
        pairs = self.pairs
        return self.keys is not None and pairs is not None and pairs.shape[2] == 1 and pairs.shape[1] in (1, kv_heads)


@torch.no_grad()
def seen_of(problem: Problem) -> Seen:
    """Returns what the mask and the bias of a problem show."""
    kv_heads, needs_rows, needs_keys = problem.key.shape[1], problem.may_hide_rows, problem.may_hide_keys
    rows, keys, pairs, count = [], None, None, 0
    for _, pairs in visible_slices(problem, problem.grid):
        count += 1
        if needs_rows:
            rows.append(_rows_of(problem, pairs))
        if needs_keys:
            part = pairs.mT if pairs.shape[2] == 1 else pairs.any(2, keepdim=True).mT
            keys = part if keys is None else keys | part
    if keys is not None and keys.shape[1] not in (1, kv_heads):
        keys = keys.unflatten(1, (kv_heads, -1)).any(2)
    joined = None if not rows else rows[0] if len(rows) == 1 else torch.cat(rows, dim=2)
    return Seen(joined, keys, pairs if count == 1 else None)


def _rows_of(problem: Problem, pairs: Tensor) -> Tensor:
    if problem.bias is None and isinstance(problem.mask, Lengths):
        return pairs[..., :1]  # the first key is seen if any is
    return pairs.any(-1, keepdim=True)


@torch.no_grad()
def visible_slices(problem: Problem, grid: Grid) -> Iterator[tuple[range, Tensor]]:
    """Yields query rows, and which of their pairs neither mask nor bias hides, of four axes that broadcast to these.

    It yields once if that is the same for all rows, or if they are few.

    Args:
        problem: may hide something.
        grid: the grid of all its pairs, or of some batch rows.
    """
    mask, bias, batch = problem.hiding_mask, problem.bias, grid.batch_span
    heads = 1 if bias is None else grid.heads
    step = max(1, SLICE_PAIRS // max(len(batch) * heads * grid.keys, 1))
    for first in range(0, grid.queries, step):
        part = range(first, min(first + step, grid.queries))
        tile = grid if len(part) == grid.queries else grid.tile(queries=part)
        pairs = None if mask is None else mask.with_four_axes(tile)
        if bias is not None:
            query = problem.query[batch.start : batch.stop, :, part.start : part.stop]
            shown = bias(query, tile) != -torch.inf
            shown = shown[(None,) * (4 - shown.dim())]
            pairs = shown if pairs is None else pairs & shown
        assert pairs is not None
        if tile is not grid and pairs.shape[2] == 1 < len(part):
            yield range(grid.queries), pairs
            return
        yield part, pairs if tile is grid else pairs.expand(-1, -1, len(part), -1)


class _Cleared(torch.autograd.Function):
    """Zeros in place of what is not seen, in a tensor, in its gradient, or in both.

    Each is one operation; `torch.where` with a number would write the number to the device before.
    """

    @staticmethod
    def forward(
        ctx: Any, tensor: Tensor, seen: Tensor, where: Literal["tensor", "gradient", "both"] = "both"
    ) -> Tensor:
        ctx.save_for_backward(None if where == "tensor" else seen)
        return tensor.view_as(tensor) if where == "gradient" else _cleared(tensor, seen)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (seen,), (gradient,) = ctx.saved_tensors, gradients
        return gradient if seen is None else _cleared(gradient, seen), None, None


def _cleared(tensor: Tensor, seen: Tensor) -> Tensor:
    return torch.where(seen, tensor, shared_scalar(0.0, tensor.dtype, tensor.device))
