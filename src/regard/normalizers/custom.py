"""A normalizer made of any function of scores."""

from collections.abc import Callable

import torch
from torch import Tensor

from regard.axes import Float
from regard.errors import KindError, ShapeError
from regard.normalizers.normalizer import Normalizer
from regard.normalizers.rows import check_rows, largest
from regard.shapes import accurate


class Custom(Normalizer):
    """A function of scores as a normalizer that keeps contract 2, whatever the function does.

    ::

        squared_relu = normalizers.Custom(lambda scores: scores.relu().square())

    Args:
        function: ``(scores [..., keys]) -> weights [..., keys]``, normalizing the last axis. A module's parameters are
            registered.

    Raises:
        KindError: a function that cannot be called, or returned something else than floating-point weights.
        ShapeError: weights of another shape than the scores.

    The function sees −inf where a key is hidden; a row that sees nothing is shown to it as zeros. Whatever it returns
    for hidden keys, their weights are 0 and their gradient is 0. It sees float32 for half precision.
    """

    def __init__(self, function: Callable[[Tensor], Tensor]):
        super().__init__()
        if not callable(function) or isinstance(function, type):
            raise KindError(f"a normalizer's function must be callable; it is a {type(function).__name__}")
        self.function = function

    def forward(self, scores: Float[Tensor, "*shape"], dim: int = -1) -> Float[Tensor, "*shape"]:
        check_rows(scores, dim)
        row = accurate(scores).movedim(dim, -1)
        hidden = row == -torch.inf
        # The first filling changes no number: it only stops gradients at hidden keys.
        shown = row.masked_fill(hidden, -torch.inf).masked_fill(largest(row, -1)[1], 0.0)
        weights = self.function(shown)
        if not isinstance(weights, Tensor) or not weights.is_floating_point():
            got = weights.dtype if isinstance(weights, Tensor) else type(weights).__name__
            raise KindError(f"a normalizer's function must return floating-point weights; it returned {got}")
        if weights.shape != row.shape:
            raise ShapeError(
                f"a normalizer's function must return weights of the scores' shape {list(row.shape)}; "
                f"it returned {list(weights.shape)}"
            )
        return weights.masked_fill(hidden, 0.0).movedim(-1, dim).to(scores.dtype)

    def extra_repr(self) -> str:
        return "" if isinstance(self.function, torch.nn.Module) else f"function={self.function!r}"
