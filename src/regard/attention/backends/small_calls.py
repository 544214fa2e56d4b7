"""Small calls of inner products, in fewer operations than the specification's.

``"auto"`` takes `reference` for them; a call that names that backend runs the specification itself.
"""

from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor

from regard.attention.encoding import Parts, decode, encode
from regard.attention.kinds import fixed_kind
from regard.attention.problem import Problem
from regard.attention.steps import KEPT_PAIRS, KeptSteps
from regard.masks import Lengths, Mask, as_mask
from regard.masks.mask import as_added
from regard.normalizers.normalizer import Normalizer, plain_rows
from regard.scores import InnerProduct
from regard.shapes.grid import Grid
from regard.tracing.transforms import has_saved_tensor_hooks, is_finite


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
    if row.sink is not None or row.center is not None or problem.normalizer.random:
        return None
    added = None if problem.wants_gradient else problem.query.dtype
    is_plain = row.kind == "softmax" and row.temperature == 1.0 and not problem.wants_gradient
    # The user's own may change after this call.
    parts = Parts()
    text = None if is_plain else encode(problem.normalizer, parts)
    if not is_plain and text is None:
        return None
    normalizer = None if text is None else decode(text, parts)
    steps = BoundSteps(prepared.scale, normalizer, problem.grid, mask is not None, added)
    if any_keys:
        return replace(steps, rows=KeptSteps(lambda mask, grid: as_added(mask.allows(grid), added), pairs=KEPT_PAIRS))
    if mask is not None and fixed_kind(mask) is not None and problem.grid.queries * problem.grid.keys <= KEPT_PAIRS:
        return replace(steps, shared=steps.visible(mask, problem.grid.keys))
    return steps


@dataclass(frozen=True, eq=False)
class BoundSteps:
    """The specification of one kind of inner products in fewer operations, none of which rounds in another way.

    A row that sees no key becomes NaN, and is looked at as any output that is not finite.

    Attributes:
        normalizer: the normalizer, which no user has; None for softmax without a gradient.
        added: the dtype of what is added to the scores, 0 or −∞, in place of a mask; None if a gradient is wanted. Then
            hidden scores are replaced as in the specification, so that no gradient reaches them.
        shared: what `visible` returns, if it is the same for all calls.
        rows: what it returns for calls with other numbers of keys, if there are some; a row for each.
    """

    scale: float
    normalizer: Normalizer | None
    grid: Grid
    hides: bool
    added: torch.dtype | None
    shared: Tensor | None = None
    rows: KeptSteps[Tensor] | None = None

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, score: object, mask: object) -> Tensor | None:
        # Activation checkpointing expects the tensors that the first call saved, whose kind was new.
        if self.added is None and (has_saved_tensor_hooks() or (self.hides and not is_finite(query, key, value))):
            return None
        # As ``@`` does: the transposed keys are what is copied in other layouts.
        scores = torch.bmm(query.flatten(0, 1), key.mT.flatten(0, 1)).view(*query.shape[:3], -1)
        visible = None
        if self.hides:
            visible = self.visible(mask, key.shape[2]) if self.shared is None else self.shared
        if visible is not None and self.added is not None:
            # Adding 0 does not change how scaled scores are rounded.
            scores = torch.add(visible, scores, alpha=self.scale)
        else:
            scores = scores.mul_(self.scale) if self.scale != 1.0 else scores
            scores = scores if visible is None else torch.where(visible, scores, -torch.inf)
        if self.normalizer is None:
            weights = torch.softmax(scores, -1)
        else:
            with plain_rows():
                weights = self.normalizer.weigh(scores, self.grid)
        output = torch.bmm(weights.flatten(0, 1), value.flatten(0, 1)).view(*query.shape[:3], -1)
        return output if is_finite(output) else None

    def visible(self, mask: object, keys: int) -> Tensor:
        """Returns a mask as a tensor to add to scores, or as bools if a gradient is wanted."""
        if self.rows is not None:
            rows, row = self.rows.at(cast(Mask, mask), keys)
            return rows[row, :keys]
        if type(mask) is Lengths and mask.queries is None:
            return mask.of_keys_added(self.grid, self.added)
        if isinstance(mask, Tensor):
            return as_added(mask, self.added)
        own = as_mask(mask)
        assert own is not None
        own.check(self.grid)
        return as_added(own.allows(self.grid), self.added)
