"""Masked keys and values never affect a result of a fused kernel on a device, even if they are NaN or huge.

The host cannot look at elements without waiting, and a kernel multiplies hidden elements with weights of 0. So the
kernel gets elements whose products are finite, and the results that depend on replaced elements become NaN afterwards:
of the queries that see them, and of the keys that these see.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import reduce
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.backends.reference import Inputs, guarded
from regard.attention.device_runs import DeviceRuns, device_runs
from regard.attention.isolation import SLICE_PAIRS
from regard.attention.problem import Problem
from regard.errors import BackendError
from regard.shapes import spread_heads
from regard.transforms import is_batched
from regard.versions import Versions


def attend_shielded(problem: Problem, run: Callable[[Problem], Tensor]) -> Tensor:
    """Returns the output of a fused kernel on a device, whose products may multiply hidden elements by 0.

    Hidden products are 0 if both factors are finite, so no factor that the kernel gets, and no product of two of
    them, exceeds the largest number:

    - Queries and keys with an element that is not finite, or above `largest_factor`, are zeros. Rows that see one are
      NaN in the output, and in the gradients of all that they see.
    - Elements of values that are not finite are zeros. Rows that see one are NaN in this feature of the output, and in
      the gradients of their query and of the keys that they see.
    - Elements of the output's gradient that are not finite are zeros, and what their rows see has NaN in its gradients.
      If products of the others with values could overflow, the kernel gets a fraction of the gradient.

    Args:
        problem: may hide something.
        run: computes the output of a problem.
    """
    runs = None if problem.bias is not None else device_runs(problem)
    wants_gradient = problem.wants_gradient
    with torch.no_grad():
        good_query, good_key = _are_factors(problem.query), _are_factors(problem.key)
        finite_value, bad_value = _finite_part(problem.value)
        sight = _Sight.of(problem, runs, ~good_key, bad_value)
        of_row = sight.of_key | (sight.sees_any & ~good_query)
        largest_value = _largest(finite_value) if wants_gradient else None
    # Rows of the output do not depend on other rows' queries; gradients do.
    cleared = good_query if wants_gradient else None
    query, key, value, *marks = _Shield.apply(
        problem.query, problem.key, problem.value, cleared, good_key, finite_value
    )
    output = run(replace(problem, query=query, key=key, value=value))
    return _Poison.apply(output, *marks, of_row, largest_value, sight, problem.without_numbers, runs)


def largest_factor(dtype: torch.dtype) -> float:
    """Returns the magnitude below which sums of 2²⁰ products of two numbers are finite, in a kernel's precision."""
    return torch.finfo(torch.promote_types(dtype, torch.float32)).max ** 0.5 / 1024


def _are_factors(vectors: Tensor) -> Tensor:
    """Returns which vectors have no element that is NaN or above `largest_factor`, bool ``[..., length, 1]``."""
    if not vectors.shape[-1]:
        return vectors.new_ones(*vectors.shape[:-1], 1, dtype=torch.bool)
    return torch.linalg.vector_norm(vectors, torch.inf, dim=-1, keepdim=True) <= largest_factor(vectors.dtype)


def _finite_part(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the tensor with 0 for what is not finite, and which elements these are."""
    finite = torch.nan_to_num(tensor, 0.0, 0.0, 0.0)
    return finite, finite != tensor


def _largest(tensor: Tensor) -> Tensor:
    """Returns the largest magnitude as a tensor without axes, at least float32; 0 if there is none."""
    if not tensor.numel():
        return tensor.new_zeros((), dtype=torch.float32)
    largest = torch.linalg.vector_norm(tensor, torch.inf)
    return largest.to(torch.promote_types(tensor.dtype, torch.float32))


class _Sight(NamedTuple):
    """Which rows see a bad key or a bad element of a value.

    Attributes:
        of_key: which rows see a bad key, ``[batch, heads, queries, 1]``.
        sees_any: which rows see a key, ``[batch or 1, heads or 1, queries or 1, 1]``.
        first, stop: a row sees a bad element of a feature where ``first < stop``; integers that broadcast to ``[batch,
            heads, queries, value_dim]``, the first of them with all features, the second with one.
    """

    of_key: Tensor
    sees_any: Tensor
    first: Tensor
    stop: Tensor

    @classmethod
    def of(cls, problem: Problem, runs: DeviceRuns | None, bad_key: Tensor, bad_value: Tensor) -> "_Sight":
        heads = problem.query.shape[1]
        if runs is not None and runs.are_prefixes:
            # The first bad key tells for all rows.
            first_key, first = (spread_heads(_first(bad), heads) for bad in (bad_key, bad_value))
            stop = runs.longest
            return cls(first_key < stop, stop > 0, first, stop)
        # PyTorch's sums along the last axis are many times as fast as along another one.
        marks = torch.cat((bad_key, bad_value), dim=-1).mT.contiguous()  # B Hkv 1+V K
        if runs is None:
            seen, sees_any = _seen_of_pairs(problem, spread_heads(marks, heads))
        else:
            seen = _seen_of_runs(runs, marks if runs.start.shape[1] == 1 else spread_heads(marks, heads))
            seen, sees_any = spread_heads(seen, heads), (runs.start < runs.stop).any(-1, keepdim=True)
        hidden = (~seen[..., 1:]).view(torch.uint8)
        return cls(seen[..., :1], sees_any, hidden, hidden.new_ones(1, 1, 1, 1))

    @property
    def of_any_value(self) -> Tensor:
        """Which rows see a bad element in any feature, ``[batch, heads, queries, 1]``."""
        first = self.first.amin(-1, keepdim=True) if self.first.shape[-1] else self.stop
        return first < self.stop

    def of_value(self, always: Tensor) -> Tensor:
        """Returns which elements of the output a row poisons, by what it sees in values or ``always``."""
        return self.first < self.stop.masked_fill(always, torch.iinfo(self.stop.dtype).max)


def _first(bad: Tensor) -> Tensor:
    """Returns the first position of True, ``[..., 1, n]`` of ``[..., keys, n]``; the number of keys if there is none.

    Of equal elements PyTorch returns the first.
    """
    largest, first = bad.view(torch.uint8).max(dim=-2, keepdim=True)
    return torch.add(first, largest == 0, alpha=bad.shape[-2])


def _seen_of_runs(runs: DeviceRuns, marks: Tensor) -> Tensor:
    """Returns which of ``marks [batch, heads, n, keys]`` queries see, by sums over their runs of visible keys.

    Time is linear in queries and keys.
    """
    sums = F.pad(marks, (1, 0)).cumsum(-1, dtype=torch.int32)

    def before(ends: Tensor) -> Tensor:
        return sums.gather(-1, ends.long()[:, :, None].expand(*marks.shape[:3], -1))

    ends = zip(runs.start.unbind(-1), runs.stop.unbind(-1), strict=True)
    return reduce(torch.bitwise_or, (before(stop) > before(start) for start, stop in ends)).mT


def _reached_by_runs(runs: DeviceRuns, rows: Tensor, keys: int) -> Tensor:
    """Returns which keys a marked row sees, ``[batch, heads, keys, n]``, of rows ``[batch, heads, queries, n]``."""
    if runs.are_prefixes:
        last = torch.where(rows, runs.longest, 0).amax(-2, keepdim=True)
        return torch.arange(keys, device=rows.device)[:, None] < last
    rows = rows.movedim(-1, 0)
    sizes = rows.shape[:3]
    first = torch.arange(sizes.numel(), device=rows.device).view(*sizes, 1) * (keys + 1)
    steps = rows.to(torch.int32).flatten()
    # Sums into a tensor of one axis are deterministic.
    ends = steps.new_zeros(sizes.numel() * (keys + 1))
    for start, stop in zip(runs.start.unbind(-1), runs.stop.unbind(-1), strict=True):
        ends.scatter_add_(0, (start + first).flatten(), steps).scatter_add_(0, (stop + first).flatten(), -steps)
    return (ends.view(*sizes, keys + 1).cumsum(-1)[..., :keys] > 0).movedim(0, -1)


def _seen_of_pairs(problem: Problem, marks: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the same by products with the visible pairs, a slice of queries at a time, and which rows see a key."""
    parts, sees_any = [], []
    for _, shown in _shown_slices(problem):
        parts.append(_any_of(shown, marks.mT).expand(*marks.shape[:2], shown.shape[2], -1))
        sees_any.append(shown.any(-1, keepdim=True))
    return torch.cat(parts, dim=2), torch.cat(sees_any, dim=2)


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


class _Shield(torch.autograd.Function):
    """Returns query, key and value as a kernel gets them, and a mark of zeros for each, and one for the fraction.

    The "gradients" of the marks, which `_Poison` returns, are NaN where the gradient of a tensor is NaN, and the factor
    that undoes the fraction of the output's gradient.
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        good_query: Tensor | None,
        good_key: Tensor,
        finite_value: Tensor,
    ) -> tuple[Tensor, ...]:
        cleared = query if good_query is None else torch.where(good_query, query, 0.0)
        zero = query.new_zeros(())
        shapes = (*query.shape[:-1], 1), (*key.shape[:-1], 1), value.shape, (1,)
        return cleared, torch.where(good_key, key, 0.0), finite_value, *map(zero.expand, shapes)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        factor = gradients[6]
        marked = zip(gradients[:3], gradients[3:6], ctx.needs_input_grad, strict=False)
        results = [torch.addcmul(mark, one, factor) if needed else None for one, mark, needed in marked]
        return *results, None, None, None


class _Poison(torch.autograd.Function):
    """Returns the output with NaN where it is poisoned, and marks of such gradients of what the poisoned rows see.

    A row that sees NaN in a query or a key has no weights: all that it gives is NaN. Where only values are not finite,
    the weights are numbers, and so are the gradients of values as far as those of the output are.
    """

    @staticmethod
    def forward(
        ctx: Any,
        output: Tensor,
        query_mark: Tensor,
        key_mark: Tensor,
        value_mark: Tensor,
        factor_mark: Tensor,
        of_row: Tensor,
        largest_value: Tensor | None,
        sight: _Sight,
        problem: Problem,
        runs: DeviceRuns | None,
    ) -> Tensor:
        ctx.save_for_backward(of_row, largest_value, *sight)
        ctx.problem, ctx.runs = problem, runs
        if runs is None:
            ctx.versions = Versions(mask=problem.mask, bias=problem.bias, query=problem.query)
        return torch.where(sight.of_value(of_row), torch.nan, output)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        gradient = gradients[0]
        if is_batched(gradient):
            raise BackendError(
                "this backend has no batched derivatives under a mask on a device; backend='reference' has"
            )
        of_row, largest_value, *rest = ctx.saved_tensors
        sight, problem = _Sight(*rest), ctx.problem
        with torch.no_grad():
            finite, differs = _finite_part(gradient)
            lost = differs & (sight.sees_any & ~of_row)
            lost_row = lost.any(-1, keepdim=True)
            rows = of_row | lost_row | sight.of_any_value
            marks = torch.cat((rows, of_row, lost_row), dim=-1)
            if ctx.runs is None:
                ctx.versions.check()
                slices = _shown_slices(problem)
                parts = [_any_of(shown.mT, marks[:, :, part.start : part.stop]) for part, shown in slices]
                reached = torch.stack(parts).any(0)
            else:
                reached = _reached_by_runs(ctx.runs, marks, problem.key.shape[2])
            kv_heads = problem.key.shape[1]
            if kv_heads != marks.shape[1]:
                reached = reached.unflatten(1, (kv_heads, -1)).any(2)
                lost = lost.unflatten(1, (kv_heads, -1)).any(2)
            key, by_weights, by_lost = reached.split(1, dim=-1)
            value = by_weights | (by_lost & lost.any(-2, keepdim=True))
            zero, nan = gradient.new_zeros(()), gradient.new_full((), torch.nan)
            nans = [torch.where(marked, nan, zero) for marked in (rows, key, value)]
            excess = _excess(_largest(finite), largest_value)
            fractions = torch.where(of_row, 0.0, 1.0 / excess).to(gradient.dtype)
            factor = excess.to(gradient.dtype).view(1)
        return finite * fractions, *nans, factor, None, None, None, None, None


def _excess(first: Tensor, second: Tensor) -> Tensor:
    """Returns by what two tensors must be divided, so that sums of their products do not overflow; 1 if they do not.

    Args:
        first, second: the largest magnitudes of the tensors.
    """
    limit = largest_factor(first.dtype)
    return (first / limit * (second / limit)).clamp(1.0, limit * limit)
