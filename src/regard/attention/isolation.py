"""Masked keys and values never affect a result, even if they are NaN: the path for inputs that are not finite.

Products of whole matrices multiply hidden values with weights of 0, and 0 · NaN is NaN. If all inputs and scores are
finite, that cannot happen, and backends run as they are. Otherwise:

1. Queries that see no key, and keys and values that no query sees, are replaced by zeros. Padding and unfilled caches
   are finite after that, and the backend runs.
2. If a key or a value is still not finite, some queries see it and others do not. Then the specification computes the
   output in runs of query rows that are so short that all rows of a run, or none of them, see such a key; in the second
   case zeros replace it. A query that is not finite shares a run only with rows that see the same keys.
3. It does the same if the backend's output is not finite: a hidden score may overflow, or a bias may be +∞ or NaN for
   one pair and −∞ for another.
4. If a weight depends on all queries, there are no such runs. The specification computes the whole grid as on a device.

A pair whose bias is −∞ counts as hidden.

On a device the host cannot look at elements without waiting. There `reference` and `tiled` calculate so that hidden
elements never enter (`regard.attention.guarded`), and `attend_shielded` gives other backends finite inputs.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.backends.reference import Inputs, guarded, mix, weigh, whole, with_visible_pairs
from regard.attention.device_runs import DeviceRuns, device_runs
from regard.attention.problem import Problem
from regard.attention.readings import Gatherer
from regard.attention.result import Attended
from regard.shapes import Grid, spread_heads
from regard.versions import Versions

SLICE_PAIRS = 1 << 24
"""Pairs whose visibility is in memory at once: 16 MiB of bools."""


def cleaned(problem: Problem) -> Problem:
    """Returns the problem with zeros for queries that see no key, and for keys and values that no query sees."""
    grid = problem.grid
    queries, keys = _seeing(problem)
    group = grid.heads // problem.key.shape[1]
    keys = keys.unflatten(1, (-1, group)).any(2) if group > 1 else keys
    return replace(
        problem,
        query=_filled(problem.query, queries),
        key=_filled(problem.key, keys),
        value=_filled(problem.value, keys),
        memory=None,
    )


def attend_isolated(problem: Problem, gatherer: Gatherer | None = None, need_weights: bool = False) -> Attended:
    """Returns the output, and the weights if they are needed, by the specification on isolated runs of rows.

    Args:
        problem: after `cleaned`.
        gatherer: is shown the weights of every run.
        need_weights: whether to return the weights; quadratic memory.
    """
    if problem.couples_queries:
        inputs = with_visible_pairs(problem, whole(problem))
        steps = weigh(problem, inputs)
        if gatherer is not None:
            gatherer.add(steps.masked, steps.weights, problem.grid)
        return Attended(mix(problem, inputs, steps.weights), steps.weights if need_weights else None)
    outputs, weights = [], []
    for batch_row in range(problem.grid.batch):
        mixed, weighed = [], []
        for inputs in _isolated(problem, batch_row):
            steps = weigh(problem, inputs)
            if gatherer is not None:
                gatherer.add(steps.masked, steps.weights, inputs.grid)
            mixed.append(mix(problem, inputs, steps.weights))
            if need_weights:
                weighed.append(steps.weights)
        outputs.append(torch.cat(mixed, dim=2))
        if need_weights:
            weights.append(torch.cat(weighed, dim=2))
    return Attended(torch.cat(outputs), torch.cat(weights) if need_weights else None)


def attend_shielded(problem: Problem, run: Callable[[Problem], Tensor]) -> Tensor:
    """Returns the output of a fused kernel on a device, whose products may multiply hidden elements by 0.

    The kernel gets zeros for what no query sees and for elements that are not finite. Rows that see one of these in a
    query or a key are NaN in the output, and in the gradients of all that they see. So are the output's features in
    which a visible value is not finite, and the gradients of the queries and keys of their rows.

    Args:
        problem: may hide something.
        run: computes the output of a problem.
    """
    finite, bad = [], []
    for tensor in (problem.query, problem.key, problem.value):
        finite.append(_Finite.apply(tensor))
        bad.append(finite[-1].detach() != tensor.detach())
    query, key, value = finite
    heads, kv_heads = query.shape[1], key.shape[1]
    runs = None if problem.bias is not None else device_runs(problem)
    with torch.no_grad():
        # PyTorch's sums along the last axis are many times as fast as along another one.
        marks = torch.cat((bad[1].any(-1, keepdim=True), bad[2]), dim=-1).mT.contiguous()  # B Hkv 1+V K
        if runs is None:
            sight = _sight_of_pairs(problem, spread_heads(marks, heads))
        else:
            sight = _sight_of_runs(runs, marks if runs.start.shape[1] == 1 else spread_heads(marks, heads))
        seen_marks = spread_heads(sight.marks, heads)
        of_row = seen_marks[..., :1] | (sight.sees_any & bad[0].any(-1, keepdim=True))
        seen = sight.seen
        if seen is not None and seen.shape[1] not in (1, kv_heads):
            seen = seen.unflatten(1, (kv_heads, -1)).any(2)
    if seen is not None:
        key, value = _filled(key, seen), _filled(value, seen)
    output = run(replace(problem, query=query, key=key, value=value))
    inputs = problem.query, problem.key, problem.value
    return _Poison.apply(output, *inputs, of_row, seen_marks[..., 1:], problem.without_numbers, runs)


class _Sight(NamedTuple):
    """What the queries of a problem see.

    Attributes:
        marks: which marks of keys each query sees, ``[batch, heads, queries, n]``.
        sees_any: which queries see a key, ``[batch or 1, heads or 1, queries or 1, 1]``.
        seen: which keys a query sees, ``[batch or 1, heads or 1, keys]``; None: all.
    """

    marks: Tensor
    sees_any: Tensor
    seen: Tensor | None


def _sight_of_runs(runs: DeviceRuns, marks: Tensor) -> _Sight:
    """Returns what queries see of ``marks [batch, heads, n, keys]``, by sums over their runs of visible keys.

    Time is linear in queries and keys.
    """
    sums = F.pad(marks.cumsum(-1, dtype=torch.int32), (1, 0))

    def before(ends: Tensor) -> Tensor:
        return sums.gather(-1, ends.long()[:, :, None].expand(*marks.shape[:3], -1))

    count = None
    for start, stop in zip(runs.start.unbind(-1), runs.stop.unbind(-1), strict=True):
        seen = before(stop) if runs.are_prefixes else before(stop) - before(start)
        count = seen if count is None else count + seen
    assert count is not None
    return _Sight((count > 0).mT, (runs.start < runs.stop).any(-1, keepdim=True), runs.seen)


def _reached_by_runs(runs: DeviceRuns, rows: Tensor, keys: int) -> Tensor:
    """Returns which keys a marked row sees, ``[batch, heads, keys, n]``, of rows ``[batch, heads, queries, n]``."""
    rows = rows.movedim(-1, 0)
    sizes = rows.shape[:3]
    first = torch.arange(sizes.numel(), device=rows.device).view(*sizes, 1) * (keys + 1)
    steps = rows.to(torch.int32).flatten()
    # Sums into a tensor of one axis are deterministic.
    ends = steps.new_zeros(sizes.numel() * (keys + 1))
    for start, stop in zip(runs.start.unbind(-1), runs.stop.unbind(-1), strict=True):
        ends.scatter_add_(0, (start + first).flatten(), steps).scatter_add_(0, (stop + first).flatten(), -steps)
    return (ends.view(*sizes, keys + 1).cumsum(-1)[..., :keys] > 0).movedim(0, -1)


def _sight_of_pairs(problem: Problem, marks: Tensor) -> _Sight:
    """Returns the same by products with the visible pairs, a slice of queries at a time."""
    parts, sees_any, seen = [], [], []
    for _, shown in _shown_slices(problem):
        parts.append(_any_of(shown, marks.mT).expand(*marks.shape[:2], shown.shape[2], -1))
        sees_any.append(shown.any(-1, keepdim=True))
        seen.append(shown.any(-2))
    return _Sight(torch.cat(parts, dim=2), torch.cat(sees_any, dim=2), torch.stack(seen).any(0))


def _any_of(shown: Tensor, marks: Tensor) -> Tensor:
    """Returns whether each row of ``[..., queries, keys]`` shows a marked key of ``[batch, heads, keys, n]``."""
    shown = shown.expand(*shown.shape[:-1], marks.shape[-2])
    # The sums only tell 0 from more than 0, for which half precision suffices.
    return shown.to(torch.float16) @ marks.to(torch.float16) > 0


def _shown_slices(problem: Problem) -> Iterator[tuple[range, Tensor]]:
    """Yields runs of query rows, and which of their pairs are visible, bool that broadcasts over batch and heads."""
    grid = problem.grid
    step = max(1, SLICE_PAIRS // max(grid.keys, 1))
    for first in range(0, grid.queries, step):
        rows = range(first, min(first + step, grid.queries))
        query = problem.query[:, :, rows.start : rows.stop]
        inputs = Inputs(problem.prepared, query, problem.value, grid.tile(queries=rows))
        shown = guarded(problem, inputs).shown
        assert shown is not None
        yield rows, shown.expand(*shown.shape[:2], len(rows), grid.keys)


class _Finite(torch.autograd.Function):
    """Returns 0 for what is not finite, with the gradient of the tensor itself."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        return torch.nan_to_num(tensor, 0.0, 0.0, 0.0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0]


class _Poison(torch.autograd.Function):
    """Returns the output with NaN where it is poisoned, and such gradients of what the poisoned rows see.

    A row that sees NaN in a query or a key has no weights: all that it gives is NaN. Where only values are not finite,
    the weights are numbers, and so are the gradients of values as far as those of the output are.
    """

    @staticmethod
    def forward(
        ctx: Any,
        output: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        of_row: Tensor,
        of_value: Tensor,
        problem: Problem,
        runs: DeviceRuns | None,
    ) -> Tensor:
        ctx.save_for_backward(of_row, of_value)
        ctx.problem, ctx.runs = problem, runs
        if runs is None:
            ctx.versions = Versions(mask=problem.mask, bias=problem.bias, query=problem.query)
        ctx.tensors = [(tensor.shape, tensor.dtype) for tensor in (query, key, value)]
        return output.masked_fill(of_row | of_value, torch.nan)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (of_row, of_value), (gradient,) = ctx.saved_tensors, gradients
        rows = of_row | of_value.any(-1, keepdim=True)
        # A gradient that is no number there would be multiplied by the weights of hidden pairs.
        lost = of_value & ~of_row & ~gradient.isfinite()
        marks = torch.cat((rows, of_row, lost.any(-1, keepdim=True)), dim=-1)
        if ctx.runs is None:
            ctx.versions.check()
            slices = _shown_slices(ctx.problem)
            parts = [_any_of(shown.mT, marks[:, :, part.start : part.stop]) for part, shown in slices]
            reached = torch.stack(parts).any(0)
        else:
            reached = _reached_by_runs(ctx.runs, marks, ctx.tensors[1][0][2])
        by_row, by_weights, by_lost = reached.split(1, dim=-1)
        of_keys = by_row, by_weights | (by_lost & lost.any(-2, keepdim=True))
        kv_heads = ctx.tensors[1][0][1]
        key, value = (marked.unflatten(1, (kv_heads, -1)).any(2) for marked in of_keys)
        results: list[Tensor | None] = [gradient.masked_fill(of_row | lost, 0.0)]
        for (shape, dtype), needed, marked in zip(
            ctx.tensors, ctx.needs_input_grad[1:4], (rows, key, value), strict=True
        ):
            nan = torch.where(marked, torch.nan, 0.0).to(dtype) if needed else None
            results.append(None if nan is None else nan.expand(shape))
        return *results, None, None, None, None


def empty_rows(problem: Problem) -> Tensor:
    """Returns which queries see no key, bool ``[batch, heads, queries]``."""
    return ~_seeing(problem)[0]


def _isolated(problem: Problem, batch_row: int) -> Iterator[Inputs]:
    """Yields one batch row in runs of query rows, in which everything that is hidden from a row is finite."""
    prepared, whole = problem.prepared, problem.grid
    query, own_query, value = (t[batch_row, None] for t in (prepared.query, problem.query, problem.value))
    key = prepared.key.expand(whole.batch, -1, -1, -1)[batch_row, None]
    key, value = spread_heads(key, whole.heads), spread_heads(value, whole.heads)
    bad_key = ~(key.isfinite().all(-1) & value.isfinite().all(-1))[0]  # H K
    bad_query = bool((~query.isfinite()).any() or (~own_query.isfinite()).any())
    for rows, visible in _slices(problem, batch_row):
        allowed = visible[0]  # H Q K
        differing = allowed if bad_query else allowed & bad_key[:, None]
        changes = (differing[:, 1:] != differing[:, :-1]).any(-1).any(0).nonzero()[:, 0].tolist()
        ends = [0, *(change + 1 for change in changes), len(rows)]
        for start, stop in pairwise(ends):
            visible_part = allowed[:, start:stop]
            row_sees, key_seen = visible_part.any(-1), visible_part.any(-2)
            part = slice(rows.start + start, rows.start + stop)
            cut = replace(prepared, query=_filled(query[:, :, part], row_sees), key=_filled(key, key_seen))
            grid = whole.tile(batch=range(batch_row, batch_row + 1), queries=range(part.start, part.stop))
            yield Inputs(cut, _filled(own_query[:, :, part], row_sees), _filled(value, key_seen), grid)


def _filled(tensor: Tensor, seen: Tensor) -> Tensor:
    """Replaces the vectors ``[..., length, dim]`` that are not seen (bool ``[..., length]``) by zeros."""
    return torch.where(seen[..., None], tensor, 0.0)


def _slices(problem: Problem, batch_row: int) -> Iterator[tuple[range, Tensor]]:
    """Yields one batch row in runs of query rows with at most `SLICE_PAIRS` pairs each, and which pairs are visible."""
    whole = problem.grid
    step = max(1, SLICE_PAIRS // max(whole.heads * whole.keys, 1))
    for first in range(0, whole.queries, step):
        rows = range(first, min(first + step, whole.queries))
        yield rows, _visible(problem, whole.tile(batch=range(batch_row, batch_row + 1), queries=rows))


def _visible(problem: Problem, grid: Grid) -> Tensor:
    """Returns which pairs of a tile neither mask nor bias hides, bool ``[batch, heads, queries, keys]``."""
    allowed = torch.ones((), dtype=torch.bool, device=grid.device)
    if problem.mask is not None:
        allowed = problem.mask.allows(grid)
    if problem.bias is not None:
        query = problem.query[grid.batch_span.start : grid.batch_span.stop]
        query = query[:, :, grid.query_span.start : grid.query_span.stop].detach()
        allowed = allowed & (problem.bias(query, grid).detach() != -torch.inf)
    return allowed.expand(grid.shape)


def _seeing(problem: Problem) -> tuple[Tensor, Tensor]:
    """Returns which queries see a key ``[batch, heads, queries]``, and which keys are seen ``[batch, heads, keys]``."""
    whole = problem.grid
    batches_queries, batches_keys = [], []
    for batch_row in range(whole.batch):
        queries = []
        keys = torch.zeros(1, whole.heads, whole.keys, dtype=torch.bool, device=whole.device)
        for _, seen in _slices(problem, batch_row):
            queries.append(seen.any(-1))
            keys = keys | seen.any(-2)
        batches_queries.append(torch.cat(queries, dim=-1))
        batches_keys.append(keys)
    return torch.cat(batches_queries), torch.cat(batches_keys)
