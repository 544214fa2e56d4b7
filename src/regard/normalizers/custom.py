"""Turns any function of scores into a normalizer."""

import inspect
import re
from collections.abc import Callable
from functools import partial

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from regard.errors import ArgumentError, KindError, ShapeError
from regard.normalizers.normalizer import Normalizer, check_rows, row_maximum
from regard.shapes.axes import Float
from regard.shapes.checks import check_arguments, type_text
from regard.shapes.grid import upcast
from regard.tracing.locality import is_local, needs_trial, remember_trial, trial_values


class Custom(Normalizer):
    """A normalizer that calls a function of scores and keeps contract 2, whatever the function does.

    .. math:: weights = function(scores)

    For example::

        rectified = normalizers.Custom(lambda scores: scores.relu())

    Args:
        function: ``(scores [..., keys]) -> weights [..., keys]``; normalizes the last axis, each row independently. If
            it has an argument ``dim``, like `torch.nn.functional.softmax`, it is called with ``dim=-1``. If it is a
            module, its parameters are registered.

    Raises:
        KindError: the function is not callable, or returned something other than floating-point weights.
        ShapeError: the weights have another shape than the scores.
        ArgumentError: the weights of a row depend on other rows, heads or batch rows. To find out, the function is run
            once on a small CPU tensor, without effects on random generators, buffers or hooks, unless PyTorch traces.
            Or the function is ``log_softmax``, whose logarithms are no weights.

    The function sees −inf at hidden keys, and zeros in a row without visible keys. Weights and gradients of hidden keys
    are 0, whatever the function returns there. Half-precision scores are passed in float32.

    Example:
        >>> import torch
        >>> from regard import normalizers
        >>> scores = torch.tensor([1.0, 0.0, -1.0])
        >>> normalizers.Custom(lambda scores: scores.relu())(scores)
        tensor([1., 0., 0.])
    """

    def __init__(self, function: Callable[[Tensor], Tensor]):
        super().__init__()
        if not callable(function) or isinstance(function, type):
            raise KindError(f"a normalizer's function must be callable; it is {type_text(function)}")
        inner = function.func if isinstance(function, partial) else function
        if _name(inner).lower().replace("_", "") == "logsoftmax":
            raise ArgumentError('log_softmax gives logarithms, which are no weights: write normalizer="softmax"')
        self.function = function
        self._options = {"dim": -1} if _has_dim(function) else {}
        if not self._options:
            check_arguments("a normalizer's function", function, 1)

    def forward(self, scores: Float[Tensor, "*shape"] | ArrayLike, dim: int = -1) -> Float[Tensor, "*shape"]:
        scores = check_rows(scores, dim)
        row = upcast(scores).movedim(dim, -1)
        hidden = row == -torch.inf
        # The first fill changes no value: it only stops gradients at hidden keys.
        visible = row.masked_fill(hidden, -torch.inf).masked_fill(row_maximum(row, -1)[1], 0.0)
        if row.dim() > 1 and needs_trial(self.function, ("normalizer", row.dim()), row):
            self._check_independence(row)
            remember_trial(self.function, ("normalizer", row.dim()))
        weights = self.function(visible, **self._options)
        if not isinstance(weights, Tensor) or not weights.is_floating_point():
            kind = weights.dtype if isinstance(weights, Tensor) else type(weights).__name__
            raise KindError(f"a normalizer's function must return floating-point weights; it returned {kind}")
        if weights.shape != row.shape:
            raise ShapeError(
                f"a normalizer's function must return weights of the scores' shape {list(row.shape)}; "
                f"it returned {list(weights.shape)}"
            )
        return weights.masked_fill(hidden, 0.0).movedim(-1, dim).to(scores.dtype)

    def _check_independence(self, row: Tensor) -> None:
        """Raises ArgumentError if the weights of one row depend on another row."""
        for heads in (3, row.shape[-3] if row.dim() > 2 else 3):
            shape = (*(2,) * max(row.dim() - 3, 0), *(heads, 4, 5)[-row.dim() :])
            scores, first_row = trial_values(shape, row), (0,) * (row.dim() - 1)
            others = trial_values(shape, row, phase=1.0)
            others[first_row] = scores[first_row]
            independent = is_local(
                self.function, [scores], [others], lambda weights, row=first_row: weights[row], **self._options
            )
            if independent is False:
                raise ArgumentError(
                    "normalizer must weigh each row of scores by itself, along the last axis; "
                    f"{_name(self.function)} mixes rows, heads or batch rows: name the axis, "
                    "as in normalizer=lambda scores: torch.softmax(scores, dim=-1)"
                )
            if independent:
                return

    def extra_repr(self) -> str:
        return "" if isinstance(self.function, torch.nn.Module) else f"function={self.function!r}"


def _has_dim(function: Callable[..., object]) -> bool:
    """Whether a function has an argument ``dim`` that is not bound yet."""
    if isinstance(function, partial) and "dim" in function.keywords:
        return False
    try:
        signature = inspect.signature(function.forward if isinstance(function, nn.Module) else function)
    except (TypeError, ValueError):
        # The docstrings of PyTorch's own functions begin with their signature: ``softmax(input, dim, *, …)``.
        return re.match(r"\s*\w+\([^)]*\bdim\b", function.__doc__ or "") is not None
    parameter = signature.parameters.get("dim")
    return parameter is not None and parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)


def _name(function: object) -> str:
    return getattr(function, "__name__", type(function).__name__)
