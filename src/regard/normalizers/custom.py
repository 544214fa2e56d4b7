"""A normalizer made of any function of scores."""

import inspect
import re
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from regard.axes import Float
from regard.errors import ArgumentError, KindError, ShapeError
from regard.locality import is_local, needs_trial, numbers, remember_trial
from regard.normalizers.normalizer import Normalizer
from regard.normalizers.rows import check_rows, largest
from regard.shapes import accurate


class Custom(Normalizer):
    """A function of scores as a normalizer that keeps contract 2, whatever the function does.

    ::

        squared_relu = normalizers.Custom(lambda scores: scores.relu().square())

    Args:
        function: ``(scores [..., keys]) -> weights [..., keys]``, normalizing the last axis; each row by itself. One
            that has an argument ``dim``, as `torch.nn.functional.softmax`, is called with ``dim=-1``. A module's
            parameters are registered.

    Raises:
        KindError: a function that cannot be called, or returned something else than floating-point weights.
        ShapeError: weights of another shape than the scores.
        ArgumentError: a function whose weights of a row depend on other rows, heads or batch rows. It is tried once, on
            a few numbers on a CPU, without a trace in random generators, buffers or hooks; not where PyTorch traces.

    The function sees −inf where a key is hidden; a row that sees nothing is shown to it as zeros. Whatever it returns
    for hidden keys, their weights are 0 and their gradient is 0. It sees float32 for half precision.
    """

    def __init__(self, function: Callable[[Tensor], Tensor]):
        super().__init__()
        if not callable(function) or isinstance(function, type):
            raise KindError(f"a normalizer's function must be callable; it is a {type(function).__name__}")
        self.function = function
        self._options = {"dim": -1} if _has_dim(function) else {}

    def forward(self, scores: Float[Tensor, "*shape"], dim: int = -1) -> Float[Tensor, "*shape"]:
        check_rows(scores, dim)
        row = accurate(scores).movedim(dim, -1)
        hidden = row == -torch.inf
        # The first filling changes no number: it only stops gradients at hidden keys.
        shown = row.masked_fill(hidden, -torch.inf).masked_fill(largest(row, -1)[1], 0.0)
        if row.dim() > 1 and needs_trial(self.function, ("normalizer", row.dim()), row):
            self._try(row)
            remember_trial(self.function, ("normalizer", row.dim()))
        weights = self.function(shown, **self._options)
        if not isinstance(weights, Tensor) or not weights.is_floating_point():
            got = weights.dtype if isinstance(weights, Tensor) else type(weights).__name__
            raise KindError(f"a normalizer's function must return floating-point weights; it returned {got}")
        if weights.shape != row.shape:
            raise ShapeError(
                f"a normalizer's function must return weights of the scores' shape {list(row.shape)}; "
                f"it returned {list(weights.shape)}"
            )
        return weights.masked_fill(hidden, 0.0).movedim(-1, dim).to(scores.dtype)

    def _try(self, row: Tensor) -> None:
        """Raise ArgumentError if the weights of one row depend on another."""
        for heads in (3, row.shape[-3] if row.dim() > 2 else 3):
            shape = (*(2,) * max(row.dim() - 3, 0), *(heads, 4, 5)[-row.dim() :])
            one, first = numbers(shape, row), (0,) * (row.dim() - 1)
            other = numbers(shape, row, first=1.0)
            other[first] = one[first]
            local = is_local(
                self.function, [one], [other], lambda weights, first=first: weights[first], **self._options
            )
            if local is False:
                raise ArgumentError(
                    "normalizer must weigh each row of scores by itself, along the last axis; "
                    f"{_name(self.function)} mixes rows, heads or batch rows: name the axis, "
                    "as in normalizer=lambda scores: torch.softmax(scores, dim=-1)"
                )
            if local:
                return

    def extra_repr(self) -> str:
        return "" if isinstance(self.function, torch.nn.Module) else f"function={self.function!r}"


def _has_dim(function: Callable[..., object]) -> bool:
    """Whether a function takes an argument ``dim`` that is not bound already."""
    if isinstance(function, partial) and "dim" in function.keywords:
        return False
    try:
        signature = inspect.signature(function.forward if isinstance(function, nn.Module) else function)
    except (TypeError, ValueError):
        # PyTorch's own functions say in the first line of their help what they take: ``softmax(input, dim, *, …)``.
        return re.match(r"\s*\w+\([^)]*\bdim\b", function.__doc__ or "") is not None
    parameter = signature.parameters.get("dim")
    return parameter is not None and parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)


def _name(function: object) -> str:
    return getattr(function, "__name__", type(function).__name__)
