"""One step: the rows that a process received, scored against its own keys, and mixed with its own values."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from regard.attention.backends.reference import TileInputs, masked_scores, with_visible_pairs
from regard.attention.guarded import visible_product
from regard.attention.problem import Problem
from regard.attention.sharding.placement import Placed
from regard.attention.sharding.rows import Rows, ScoredRows
from regard.attention.sharding.steps import ExchangeStep, RowBlock, Steps, part_of_keys
from regard.distributed.exchange import RowRoute
from regard.masks import Mask
from regard.scores import Places, Prepared
from regard.shapes.grid import Grid, spread_heads, upcast


@dataclass(eq=False)
class ShardedCall:
    """One call on this process.

    Attributes:
        problem: the whole problem, whose tensors have no elements.
        placed: this process's parts.
        prepared: the score, lowered for this process's queries and keys.
        seed: what the choice of dropped weights depends on, the same on all processes.
    """

    problem: Problem
    placed: Placed
    prepared: Prepared
    seed: int = 0

    @cached_property
    def plan(self) -> Steps:
        """The steps of the call."""
        each = self.prepared.primitive.elements_per_pair(self.prepared.query, self.prepared.key)
        return Steps(self.problem, self.placed.queries, self.placed.keys, each)

    @cached_property
    def is_finite(self) -> bool:
        """Whether this process's keys and values are finite, so that hidden ones need no care."""
        return all(bool(one.isfinite().all()) for one in (self.prepared.key, self.placed.value))

    @property
    def steps(self) -> list[ExchangeStep]:
        return self.plan.steps

    def route(self, step: ExchangeStep) -> RowRoute:
        """Returns the ways of the rows of a step."""
        return RowRoute(self.placed.keys, step.counts, step.seen)

    def own_rows(self, tensor: Tensor, step: ExchangeStep) -> Tensor:
        """Returns the part of a tensor ``[batch, heads, own queries, ...]`` that belongs to a step."""
        parts = [tensor.narrow(2, self._index_of(rows.start), len(rows)) for rows in step.own]
        return torch.cat(parts, 2) if parts else tensor.narrow(2, 0, 0)

    def put_rows(self, whole: Tensor, step: ExchangeStep, rows: Tensor) -> None:
        """Writes the rows of a step into such a tensor: the inverse of `own_rows`."""
        for span, part in zip(
            step.own, rows.split([len(span) for span in step.own], dim=2) if step.own else (), strict=True
        ):
            whole.narrow(2, self._index_of(span.start), len(span)).copy_(part)

    def _index_of(self, position: int) -> int:
        """Returns where a query's position is among those that this process holds."""
        before = 0
        for span in self.placed.queries.own:
            if position in span:
                return before + position - span.start
            before += len(span)
        raise AssertionError(f"{position} is not one of this process's queries")


def without_unseen(problem: Problem) -> Placed:
    """Returns this process's parts with 0 in place of NaN and infinities that no pair shows.

    These are keys and values that no query sees, and queries that see no key; the projections of a score would bring
    them into its gradients (contract 10).
    """
    placed, mask = problem.placed, problem.hiding_mask
    assert placed is not None
    parts = placed.query, placed.key, placed.value
    if mask is None or all(bool(part.isfinite().all()) for part in parts):
        return placed
    grid = problem.grid.tile(batch=placed.batch)
    queries_seen = _joined_spans([_seen(mask, grid.tile(queries=span), -1) for span in placed.queries.own], placed)
    keys_seen = _joined_spans([_seen(mask, grid.tile(keys=span), -2) for span in placed.keys.own], placed)
    query, key, value = (
        torch.where(seen | part.isfinite(), part, 0.0)
        for part, seen in zip(parts, (queries_seen, keys_seen, keys_seen), strict=True)
    )
    return replace(placed, query=query, key=key, value=value)


ROWS = 1024
"""Query rows of which the visible pairs are looked at at once."""


def _seen(mask: Mask, grid: Grid, axis: int) -> Tensor:
    """Returns which queries of a tile see a key in some head, or which keys are seen, ``[batch, n]``.

    Args:
        axis: −1 for queries, −2 for keys.
    """
    span = grid.query_span
    blocks = [range(first, min(first + ROWS, span.stop)) for first in range(span.start, span.stop, ROWS)]
    seen = [mask.allows(grid.tile(queries=rows)).expand(*grid.tile(queries=rows).shape) for rows in blocks]
    parts = [each.any(axis).any(1) for each in seen]
    if axis == -1:
        return torch.cat(parts, 1)
    return torch.stack(parts).any(0) if parts else torch.zeros(grid.shape[0], grid.shape[3], dtype=torch.bool)


def _joined_spans(seen: list[Tensor], placed: Placed) -> Tensor:
    """Returns ``[batch, 1, n, 1]`` of all own positions."""
    joined = torch.cat(seen, 1) if seen else torch.zeros(len(placed.batch), 0, dtype=torch.bool)
    return joined.to(placed.query.device)[:, None, :, None]


def prepared_call(problem: Problem, seed: int = 0) -> ShardedCall:
    """Returns the call of a placed problem, with the score lowered for this process's queries and keys."""
    placed = without_unseen(problem)
    places = Places(
        placed.queries.length,
        placed.keys.length,
        placed.queries.positions(device=placed.query.device),
        placed.keys.positions(device=placed.key.device),
        slice(placed.batch.start, placed.batch.stop),
        placed.queries.of_first,
    )
    return ShardedCall(problem, placed, problem.score.prepare_at(placed.query, placed.key, places), seed)


@dataclass(eq=False)
class Received:
    """The rows, keys and values of one step on one process.

    Attributes:
        query: prepared queries of the rows, ``[batch, heads, rows, dim']``.
        own_query: the user's queries of the rows, which some biases read; ``[batch, heads, rows, dim]``, or None.
        key, value: of this process, ``[batch, kv_heads, own keys, ...]``.
        parts: in a backward pass the keys and values that were read: where they begin, and the two leaves. A gradient
            of a part of one leaf would be as large as all of it.
    """

    query: Tensor
    own_query: Tensor | None
    key: Tensor
    value: Tensor
    parts: "list[tuple[int, Tensor, Tensor]] | None" = None

    def part(self, first: int, count: int) -> tuple[Tensor, Tensor]:
        """Returns some keys and their values; in a backward pass as leaves of its graph."""
        key, value = self.key.narrow(2, first, count), self.value.narrow(2, first, count)
        if self.parts is not None:
            key, value = key.detach().requires_grad_(), value.detach().requires_grad_()
            self.parts.append((first, key, value))
        return key, value


@dataclass(eq=False)
class Calculated:
    """The result of one step on one process.

    Attributes:
        weights: the weights of each piece, before dropout.
        partial: the sum over this process's keys, ``[batch, heads, rows, value_dim]``, in the dtype of the scores.
    """

    rows: Rows
    weights: list[Tensor]
    partial: Tensor


def calculate(call: ShardedCall, step: ExchangeStep, route: RowRoute, received: Received) -> Calculated:
    """Returns weights and partial output of a step."""
    problem, placed = call.problem, call.placed
    is_finite = not problem.may_hide or (call.is_finite and bool(received.query.isfinite().all()))
    scored = [_score(call, received, block, first, is_finite) for block, first in _with_starts(step.blocks)]
    pieces = [piece for piece, _, _ in scored]
    query = received.query.to(upcast(placed.value).dtype)
    # An empty slice of what has a gradient on every process.
    anchor = (query[..., :1] if query.shape[3] else query.sum(-1, keepdim=True))[:, :, :0]
    own = [problem.grid.tile(batch=placed.batch, queries=rows) for rows in step.own]
    rows = Rows(route, pieces, anchor, own)
    weights = rows.weigh(problem)
    outputs = [rows.anchor.expand(*rows.anchor.shape[:3], placed.value.shape[3])]
    for (piece, value, shown), weight in zip(scored, weights, strict=True):
        mixed = weight * keep_factors(call, piece, weight.dtype) if problem.dropout else weight
        spread = spread_heads(value, problem.grid.heads)
        outputs.append(mixed @ spread if shown is None else visible_product(mixed, spread, shown))
    return Calculated(rows, weights, torch.cat(outputs, dim=2))


def _with_starts(blocks: Sequence[RowBlock]) -> list[tuple[RowBlock, int]]:
    """Returns each block with its first row among the received rows."""
    starts, before = [], 0
    for block in blocks:
        starts.append((block, before))
        before += len(block.rows)
    return starts


def _score(
    call: ShardedCall, received: Received, block: RowBlock, first: int, is_finite: bool
) -> tuple[ScoredRows, Tensor, Tensor | None]:
    """Returns the scores of a block, its values, and which pairs are visible where some inputs are not finite."""
    problem, placed = call.problem, call.placed
    count = len(block.rows)
    query = received.query.narrow(2, first, count)
    own_query = query if received.own_query is None else received.own_query.narrow(2, first, count)
    whole_rows = problem.grid.tile(batch=placed.batch, queries=block.rows)
    scores, values, shown, positions, columns = [], [], [], [], []
    for keys, at in part_of_keys(block, placed.keys.own):
        key, own_value = received.part(at, len(keys))
        value = upcast(own_value)
        cut = replace(call.prepared, query=query, key=key)
        inputs = TileInputs(cut, own_query, value, whole_rows.tile(keys=keys))
        if problem.may_hide and not is_finite:
            inputs = with_visible_pairs(problem, inputs)
            assert inputs.shown is not None
            shown.append(inputs.shown.expand(inputs.grid.shape))
        score = masked_scores(problem, inputs)
        # Pairs that a bias of −∞ hides get no gradient, as those that the mask hides.
        scores.append(score if problem.bias is None else score.masked_fill(score == -torch.inf, -torch.inf))
        values.append(value)
        positions.append(inputs.grid.key_index)
        columns.append(torch.arange(at, at + len(keys), device=value.device))
    if not scores:
        empty = query.new_empty(0, dtype=torch.int64)
        piece = ScoredRows(upcast(query)[..., :0], empty, empty, whole_rows)
        return piece, upcast(received.value)[:, :, :0], None
    piece = ScoredRows(torch.cat(scores, -1), torch.cat(positions), torch.cat(columns), whole_rows)
    return piece, torch.cat(values, 2), torch.cat(shown, -1) if shown else None


_MIX = 0x9E3779B97F4A7C15


def _signed(number: int) -> int:
    """Returns an unsigned number of 64 bits as the signed one with the same bits."""
    number &= (1 << 64) - 1
    return number - (1 << 64) if number >> 63 else number


def _shifted(bits: Tensor, places: int) -> Tensor:
    """Returns the logical shift to the right of 64 bits."""
    return (bits >> places) & ((1 << (64 - places)) - 1)


_LOW = (1 << 32) - 1


def keep_factors(call: ShardedCall, piece: ScoredRows, dtype: torch.dtype) -> Tensor:
    """Returns 0 for each dropped weight and ``1 / (1 − p)`` for the others, ``[batch, heads, rows, keys]``.

    The choice depends on the seed, the row and the key alone, as in the CPU kernels
    (docs/en/understand/derivations/dropout.md), so that one process drops the same weights.
    """
    grid, rate = piece.grid, call.problem.dropout
    rows = (grid.batch_index * grid.heads + grid.head_index) * grid.queries + grid.query_index
    state = (rows + 1) * _signed(_MIX) + call.seed
    state = (state ^ _shifted(state, 30)) * _signed(0xBF58476D1CE4E5B9)
    state = (state ^ _shifted(state, 27)) * _signed(0x94D049BB133111EB)
    state = state ^ _shifted(state, 31)
    low, high = state & _LOW, _shifted(state, 32)
    bits = ((piece.key_index * 0x9E3779B1) & _LOW) ^ low
    bits = (((bits ^ (bits >> 16)) * 0x85EBCA6B) & _LOW) ^ high
    bits = ((bits ^ (bits >> 13)) * 0xC2B2AE35) & _LOW
    bits = bits ^ (bits >> 16)
    factor = torch.tensor(1.0 / (1.0 - rate), dtype=dtype, device=bits.device)
    return torch.where(bits < round(rate * (1 << 32)), torch.zeros_like(factor), factor)
