"""``linear``: attention whose weights are scores or their shares of a row's sum, in time linear in the length.

A product of queries and keys can be taken in another order where no normalizer stands between the scores and the
values: keys with values first, into a state that all queries read. Under a causal mask the state grows token by token;
`regard.linear` computes that a chunk at a time. The sum of a row, which `Ratio` divides by, is the output for a value
of 1, so it is one more column of the values.
"""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.backends.backend import Backend
from regard.attention.guarded import finite_saved_tensors, is_guarded
from regard.attention.problem import Problem
from regard.attention.readings import Gatherer
from regard.linear import chunked, divided, with_ones
from regard.masks import Band
from regard.masks.content import Lengths
from regard.masks.mask import joined_masks
from regard.scores import DecayedProduct, DeltaProduct, InnerProduct, Primitive
from regard.shapes.grid import Grid, spread_heads, upcast

ROWS = ("identity", "ratio")
"""The row primitives that couple no scores before the values are summed."""


@dataclass(frozen=True)
class RecurrenceOrder:
    """The mask of a problem in terms of a recurrence.

    Attributes:
        offset: the position among the keys of query 0, which sees the keys up to it; None: every query sees all keys.
    """

    offset: int | None
    lengths: tuple[Lengths, ...] = ()


class Linear(Backend):
    """Runs products of features under causal masks and lengths, in linear time and memory."""

    name = "linear"
    isolates = True
    why = "keys and values are summed once, a chunk at a time"

    def declines(self, problem: Problem) -> str | None:
        row = problem.row
        if row is None or row.kind not in ROWS or row.center is not None:
            return "the normalizer is neither 'identity' nor 'ratio'"
        prepared = problem.prepared
        if not isinstance(_product(prepared.primitive), InnerProduct | DecayedProduct):
            return f"the score lowers to {type(prepared.primitive).__name__}, which is no product of features"
        if prepared.modifiers:
            return "the score is modified after its product"
        if problem.bias is not None:
            return "a bias is added to the scores, which are never made"
        if problem.dropout:
            return "weights are dropped, which are never made"
        order = order_of(problem)
        if order is None:
            return "the mask is neither causal, with one offset, nor one of lengths"
        decays = isinstance(_product(prepared.primitive), DecayedProduct)
        if decays and order.offset != problem.grid.offset:
            return "the score decays, and the mask is not causal with equal ends"
        return None

    def run(self, problem: Problem, gatherer: Gatherer | None = None) -> Tensor:
        order = order_of(problem)
        assert order is not None
        prepared, grid = problem.prepared, problem.grid
        key, value = (
            spread_heads(upcast(tensor).expand(grid.batch, -1, -1, -1), grid.heads)
            for tensor in (prepared.key, problem.value)
        )
        query, key, log_decay, beta = _factors(prepared.primitive, upcast(prepared.query), key)
        scale = upcast(prepared.scale) if isinstance(prepared.scale, Tensor) else prepared.scale
        query = query if isinstance(scale, float) and scale == 1.0 else query * scale
        for mask in order.lengths:
            key = torch.where(mask.of_keys.with_four_axes(grid).mT, key, 0.0)
        is_ratio = problem.row is not None and problem.row.kind == "ratio"
        inputs = query, key, value, log_decay, beta
        # On a CPU a look at the output tells whether elements have to be kept apart.
        poisoned = None
        if problem.may_hide and is_guarded(value):
            inputs, poisoned = _with_finite_keys(problem, order, *inputs)
        with nullcontext() if poisoned is None else finite_saved_tensors():
            output = _output(inputs, order.offset, is_ratio)
        if poisoned is not None:
            output = output * torch.where(poisoned, torch.nan, 1.0)
            rows = _rows_that_see(order, grid)
            output = output if rows is None else torch.where(rows, output, 0.0)
        for mask in order.lengths:
            if mask.queries is not None:
                output = torch.where(grid.query_index < mask.queries.on(grid), output, 0.0)
        return output.to(problem.value.dtype)


def _with_finite_keys(
    problem: Problem, order: RecurrenceOrder, query: Tensor, key: Tensor, value: Tensor, *gates: Tensor | None
) -> tuple[Any, Tensor]:
    """Returns the inputs with 0 for keys and values that are not finite, and which outputs depend on such elements.

    Products within a chunk multiply later keys by 0, and 0 · NaN is NaN. Each row sees the first keys up to its own, so
    it depends on such an element if the first one is among these.

    Args:
        problem: a problem on a device, whose host cannot look at elements.
        order: what its mask says.
        query, key, value, gates: ``[batch, heads, length, ...]``; log-decays and strengths of keys, or None.

    Returns:
        The inputs, and bool ``[batch, heads, queries or 1, value_dim]``.
    """
    grid = problem.grid
    for mask in order.lengths:
        value = torch.where(mask.of_keys.with_four_axes(grid).mT, value, 0.0)
    rows = _rows_that_see(order, grid)
    query = query if rows is None else torch.where(rows, query, 0.0)
    of_keys = (key, *(gate.reshape(*key.shape[:3], -1) for gate in gates if gate is not None))
    bad_key = torch.stack([~part.isfinite().all(-1) for part in of_keys]).any(0)[..., None]
    bad = bad_key | ~value.isfinite()
    key, value = torch.where(bad_key, 0.0, key), torch.where(bad, 0.0, value)
    finite_gates = (None if gate is None else gate.nan_to_num(0.0, 0.0, 0.0) for gate in gates)
    if order.offset is None:
        poisoned = bad.any(2, keepdim=True)
    else:
        last = torch.arange(order.offset, order.offset + grid.queries, device=grid.device)
        bad_counts = bad.cumsum(2, dtype=torch.int32).index_select(2, last.clamp(0, grid.keys - 1))
        poisoned = (bad_counts > 0) & (last >= 0)[:, None]
    return (query, key, value, *finite_gates), poisoned


def _rows_that_see(order: RecurrenceOrder, grid: Grid) -> Tensor | None:
    """Returns which queries see a key, ``[batch or 1, 1, queries or 1, 1]``, as far as lengths tell."""
    rows = None
    for mask in order.lengths:
        part = mask.with_four_axes(grid)[..., :1]
        rows = part if rows is None else rows & part
    return rows


def _output(inputs: tuple[Any, ...], offset: int | None, is_ratio: bool) -> Tensor:
    query, key, value, log_decay, beta = inputs
    output = _attend(query, key, with_ones(value) if is_ratio else value, log_decay, beta, offset)
    return divided(output) if is_ratio else output


def order_of(problem: Problem) -> RecurrenceOrder | None:
    """Returns what the mask of a problem says; None if it is not causal, with one offset for all rows, or lengths."""
    if problem.score.is_causal:
        return RecurrenceOrder(problem.grid.offset)
    grid, offset, lengths = problem.grid, None, []
    for part in joined_masks(problem.hiding_mask):
        if isinstance(part, Lengths):
            lengths.append(part)
        elif isinstance(part, Band) and part.is_causal and offset is None:
            offset = part.offset_on(grid)
            if not isinstance(offset, int):
                return None
        else:
            return None
    if offset is None and grid.queries == 1:
        # The only query sees what the last one sees.
        offset = grid.offset
    return RecurrenceOrder(offset, tuple(lengths))


def _product(primitive: Primitive) -> Primitive:
    return primitive.inner if isinstance(primitive, DeltaProduct) else primitive


def _factors(primitive: Primitive, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Returns the vectors of prepared queries and keys, and the log-decay and the strength of each key."""
    beta = log_decay = None
    if isinstance(primitive, DeltaProduct):
        query, key, beta = query[..., :-1], key[..., :-2], key[..., -2]
        primitive = primitive.inner
    if isinstance(primitive, DecayedProduct):
        query, *_ = primitive.parts(query)
        key, sums, rest, _ = primitive.parts(key)
        log_decay = _steps(sums) + _steps(rest)
    return query, key, log_decay, beta


def _steps(sums: Tensor) -> Tensor:
    """Returns the terms of cumulative sums; the first one decays a state of 0, so its value has no effect."""
    return F.pad(sums[:, :, 1:] - sums[:, :, :-1], (0, 0, 1, 0))


def _attend(
    query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor | None, beta: Tensor | None, offset: int | None
) -> Tensor:
    """Returns ``[batch, heads, queries, value_dim]``: query i reads the keys up to ``i + offset``, or all of them."""
    if offset is None:
        return query @ (key.mT @ value)
    unseeing, skipped = min(max(-offset, 0), query.shape[2]), max(offset, 0)
    read_rows = F.pad(query[:, :, unseeing:], (0, 0, skipped, 0))
    shortfall = read_rows.shape[2] - key.shape[2]
    # A negative padding cuts off the keys behind the last query.
    key, value = (F.pad(tensor, (0, 0, 0, shortfall)) for tensor in (key, value))
    output, _ = chunked(read_rows, key, value, log_decay, beta)
    return F.pad(output[:, :, skipped:], (0, 0, unseeing, 0))
