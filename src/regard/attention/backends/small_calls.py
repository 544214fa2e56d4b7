"""Small calls of inner products, in fewer operations than the specification's.

``"auto"`` takes `reference` for them; a call that names that backend runs the specification itself.
"""

from dataclasses import dataclass, replace
from math import isfinite
from typing import cast

import torch
from torch import Tensor

from regard.attention.kinds import fixed_kind
from regard.attention.problem import Problem
from regard.attention.steps import KEPT_PAIRS, KeptSteps
from regard.masks import Lengths, Mask, as_mask
from regard.normalizers.normalizer import Normalizer, plain_rows
from regard.scores import InnerProduct
from regard.shapes import Grid
from regard.transforms import has_saved_tensor_hooks, is_finite

LARGEST_VALUE = 1.0e18
"""Magnitude of values below which their products with gradients below it are finite."""


def bound_steps(problem: Problem, any_keys: bool) -> "BoundSteps | None":
    """Returns what runs the calls of a small problem's kind; None if these steps are not enough.

    Args:
        problem: the problem of a call.
        any_keys: whether later calls may have other numbers of keys; they have one query, if there is a mask.
    """
    prepared, row, mask = problem.prepared, problem.row, problem.hiding_mask
    is_plain = prepared.query is problem.query and prepared.key is problem.key and not prepared.modifiers
    if not is_plain or not isinstance(prepared.primitive, InnerProduct) or isinstance(prepared.scale, Tensor):
        return None
    if problem.bias is not None or problem.dropout or not problem.query.is_cpu:
        return None
    if row is None or any(isinstance(one, Tensor) for one in row) or problem.key.shape[1] != problem.query.shape[1]:
        return None
    if problem.query.dtype not in (torch.float32, torch.float64) or problem.pairs == 0:
        return None
    normalizer = None if row.kind == "softmax" and row.temperature == 1.0 else problem.normalizer
    if row.sink is not None or row.center is not None or problem.normalizer.random:
        return None
    if problem.wants_gradient and normalizer is not None:
        return None
    steps = BoundSteps(prepared.scale, normalizer, problem.grid, mask is not None, problem.wants_gradient)
    if any_keys:
        dtype = problem.query.dtype
        return replace(steps, rows=KeptSteps(lambda mask, grid: _added(mask.allows(grid), dtype), pairs=KEPT_PAIRS))
    if mask is not None and fixed_kind(mask) is not None and problem.grid.queries * problem.grid.keys <= KEPT_PAIRS:
        return replace(steps, shared=steps.added(mask, problem.grid.keys, problem.query.dtype))
    return steps


@dataclass(frozen=True, eq=False)
class BoundSteps:
    """The specification of one kind of inner products in fewer operations, none of which rounds in another way.

    A row that sees no key becomes NaN, and is looked at as any output that is not finite.

    Attributes:
        scale: the factor of the scores.
        normalizer: the normalizer; None for softmax.
        grid: the grid of all pairs.
        hides: whether there is a mask.
        has_gradient: whether a gradient is wanted; then the softmax's gradient of a hidden score is 0 if what is hidden
            is finite, and the values are not huge.
        shared: what `added` returns, if it is the same for all calls.
        rows: what it returns for calls with other numbers of keys, if there are some; a row for each.
    """

    scale: float
    normalizer: Normalizer | None
    grid: Grid
    hides: bool
    has_gradient: bool
    shared: Tensor | None = None
    rows: KeptSteps[Tensor] | None = None

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, score: object, mask: object) -> Tensor | None:
        # Activation checkpointing expects the tensors that the first call saved, whose kind was new.
        if self.has_gradient and has_saved_tensor_hooks():
            return None
        if self.has_gradient and self.hides:
            # The norm bounds every magnitude.
            norm = torch.linalg.vector_norm(value.detach())
            if not (is_finite(query, key) and norm.item() < LARGEST_VALUE):
                return None
        scores = torch.bmm(query.flatten(0, 1), key.flatten(0, 1).transpose(1, 2)).view(*query.shape[:3], -1)
        if self.hides:
            added = self.added(mask, key.shape[2], query.dtype) if self.shared is None else self.shared
            # Adding 0 does not change how scaled scores are rounded.
            scores = torch.add(added, scores, alpha=self.scale)
        elif self.scale != 1.0:
            scores = scores.mul_(self.scale)
        if self.normalizer is None:
            weights = torch.softmax(scores, -1)
        else:
            with plain_rows():
                weights = self.normalizer.weigh(scores, self.grid)
        output = torch.bmm(weights.flatten(0, 1), value.flatten(0, 1)).view(*query.shape[:3], -1)
        return output if isfinite(output.detach().sum()) else None

    def added(self, mask: object, keys: int, dtype: torch.dtype) -> Tensor:
        """Returns a mask as a tensor to add to scores, 0 or −∞."""
        if self.rows is not None:
            rows, row = self.rows.at(cast(Mask, mask), keys)
            return rows[row, :keys]
        if type(mask) is Lengths and mask.queries is None:
            return mask.added_keys(self.grid, dtype)
        if isinstance(mask, Tensor):
            return _added(mask, dtype)
        own = as_mask(mask)
        assert own is not None
        own.check(self.grid)
        return _added(own.allows(self.grid), dtype)


def _added(allowed: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.zeros(allowed.shape, dtype=dtype, device=allowed.device).masked_fill_(~allowed, -torch.inf)
