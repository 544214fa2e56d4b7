"""What a step of a decoder sees of the steps before it."""

from typing import NamedTuple

from torch import Tensor

from regard.errors import KindError, ShapeError
from regard.shapes.checks import check_floating, type_text
from regard.summaries import summarized


@summarized
class EarlierWeights(NamedTuple):
    """The attention weights of earlier steps: the memory of scores and normalizers that depend on them.

    Attributes:
        previous: weights of the previous step, ``[batch, keys]``.
        total: the sum of the weights of all earlier steps, ``[batch, keys]``; None: there is one such step.
        transition: the probability to move on in this step, ``[batch]``, of a `ForwardAttention`; otherwise None.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> first = nn.EarlierWeights(torch.tensor([[1.0, 0.0]]))
        >>> first.followed_by(torch.tensor([[0.5, 0.5]])).total
        tensor([[1.5000, 0.5000]])
    """

    previous: Tensor
    total: Tensor | None = None
    transition: Tensor | None = None

    def followed_by(self, weights: Tensor) -> "EarlierWeights":
        """Returns what the step after one with these weights sees, ``[batch, keys]`` or ``[batch, queries, keys]``."""
        total = self.previous if self.total is None else self.total
        if weights.dim() == 2:
            return self._replace(previous=weights, total=total + weights)
        return self._replace(previous=weights[:, -1], total=total + weights.sum(1))

    @staticmethod
    def check(earlier: object, key: Tensor) -> None:
        """Raises KindError unless the argument ``earlier`` of attention is `EarlierWeights` or None, and ShapeError
        unless its weights are those of a memory's keys ``[batch, keys, dim]``."""
        if earlier is not None and not isinstance(earlier, EarlierWeights):
            raise KindError(
                f"earlier must be an EarlierWeights or None; it is {type_text(earlier)}: write "
                "earlier=nn.EarlierWeights(previous, total)"
            )
        for name, part, axes in zip(EarlierWeights._fields, earlier or (), (2, 2, 1), strict=False):
            if part is None:
                continue
            check_floating(f"earlier.{name}", part)
            if part.shape != key.shape[:axes]:
                of_memory = f"{'[batch, keys]' if axes == 2 else '[batch]'} of the memory, {list(key.shape[:axes])}"
                raise ShapeError(f"earlier.{name} must be {of_memory}; it has shape {list(part.shape)}")

    def select(self, index: Tensor) -> "EarlierWeights":
        """Returns the batch rows ``index [rows]``, in that order."""
        return EarlierWeights(*(None if part is None else part[index] for part in self))  # type: ignore[arg-type]
