"""Softmax, plain, tempered, and with a sink. The plain one owns contract 2: a row that sees nothing has weights 0."""

from typing import Any

import torch
from torch import Tensor

from regard.axes import Float
from regard.normalizers.normalizer import Normalizer
from regard.normalizers.parameter import along_heads, set_parameter
from regard.normalizers.row_primitive import RowPrimitive
from regard.normalizers.rows import check_rows, first_is_finite, largest, log_sum_exp
from regard.shapes import accurate
from regard.summaries import parameter_summary
from regard.transforms import reverse_mode_only

_PLAIN = RowPrimitive("softmax")


class Softmax(Normalizer):
    """Weights in proportion to the exponentials of the scores.

    .. math:: w_j = \\exp(s_j / T) \\,/\\, \\sum_k \\exp(s_k / T)

    Bahdanau et al. 2015 (eq. 6), Vaswani et al. 2017 (eq. 1) with :math:`T = 1`; a small temperature sharpens the
    weights, a large one evens them.

    Args:
        temperature: :math:`T > 0`: a number, or a tensor ``[]`` or ``[heads]`` that may be learned; 1 unless told.

    Raises:
        ArgumentError: a temperature that is not finite or not above 0.

    Numerics: the largest score is subtracted first; half precision is computed in float32 and returned in its own
    dtype.
    """

    temperature: float | Tensor

    def __init__(self, temperature: float | Tensor = 1.0):
        super().__init__()
        set_parameter(self, "temperature", temperature, above=0.0)

    def forward(self, scores: Float[Tensor, "*shape"], dim: int = -1) -> Float[Tensor, "*shape"]:
        check_rows(scores, dim)
        return safe_softmax(tempered(accurate(scores), self.temperature, dim), dim).to(scores.dtype)

    def log_sum_exp(self, scores: Float[Tensor, "*rows keys"]) -> Float[Tensor, "*rows"]:
        return log_sum_exp(tempered(accurate(scores), self.temperature, -1)).to(scores.dtype)

    def lower(self) -> RowPrimitive | None:
        temperature = self.temperature
        if type(temperature) is float and temperature == 1.0:
            return _PLAIN
        return RowPrimitive("softmax", temperature=temperature)

    def extra_repr(self) -> str:
        plain = not isinstance(self.temperature, Tensor) and self.temperature == 1.0
        return "" if plain else f"temperature={parameter_summary(self.temperature)}"


softmax = Softmax()


class SoftmaxWithSink(Normalizer):
    """Softmax with one more term in the denominator, so that a query may look at nothing.

    .. math:: w_j = \\exp(s_j) \\,/\\, \\big(\\exp(b) + \\sum_k \\exp(s_k)\\big)

    The sink :math:`b = 0` is Miller's "softmax off by one" (2023); learned, one a head, it is the sink of gpt-oss
    (2025), and stands for a key without a value (Xiao et al. 2024, "Efficient streaming language models with
    attention sinks"). Weights sum to less than 1.

    Args:
        sink: the sink's score :math:`b`: a number, or a tensor ``[]`` or ``[heads]`` that may be learned.

    Raises:
        ArgumentError: a sink that is not finite.

    Numerics: the largest of scores and sink is subtracted first; half precision is computed in float32. `log_sum_exp`
    is over the keys alone.
    """

    sink: float | Tensor

    def __init__(self, sink: float | Tensor):
        super().__init__()
        set_parameter(self, "sink", sink)

    def forward(self, scores: Float[Tensor, "*shape"], dim: int = -1) -> Float[Tensor, "*shape"]:
        check_rows(scores, dim)
        row = accurate(scores)
        sink = along_heads("sink", self.sink, row, dim)
        shape = list(row.shape)
        shape[dim] = 1
        sinks = sink.expand(shape) if isinstance(sink, Tensor) else row.new_full(shape, sink)
        return sink_softmax(row, sinks, dim).to(scores.dtype)

    def lower(self) -> RowPrimitive | None:
        return RowPrimitive("softmax", sink=self.sink)

    def extra_repr(self) -> str:
        return f"sink={parameter_summary(self.sink)}"


def softmax_with_sink(sink: float | Tensor) -> SoftmaxWithSink:
    """Softmax with a sink, a number or a learned tensor: see `SoftmaxWithSink`."""
    return SoftmaxWithSink(sink)


def tempered(scores: Tensor, temperature: float | Tensor, dim: int) -> Tensor:
    """``scores / temperature``; −inf stays −inf and gives the temperature no gradient."""
    if not isinstance(temperature, Tensor):
        return scores if temperature == 1.0 else scores * (1.0 / temperature)
    divisor = along_heads("temperature", temperature, scores, dim)
    # The derivative of −inf / T by T is infinite, and 0 · inf is NaN: keep −inf out of the quotient.
    hidden = scores == -torch.inf
    return (scores.masked_fill(hidden, 0.0) / divisor).masked_fill(hidden, -torch.inf)


def safe_softmax(scores: Tensor, dim: int) -> Tensor:
    """``torch.softmax``, but weight 0 and gradient 0 for scores of −inf, also in rows that have no others."""
    if scores.device.type == "cpu" and reverse_mode_only(scores):
        wants_gradient = scores.requires_grad and torch.is_grad_enabled()
        return _Softmax.apply(scores, dim) if wants_gradient else plain_softmax(scores, dim)
    hidden = scores == -torch.inf
    # The first filling changes no number: it only stops gradients at hidden pairs.
    shown = scores.masked_fill(hidden, -torch.inf).masked_fill(hidden.all(dim, keepdim=True), 0.0)
    return torch.softmax(shown, dim).masked_fill(hidden, 0.0)


def sink_softmax(scores: Tensor, sinks: Tensor, dim: int) -> Tensor:
    """Softmax over each row and its sink, without joining them.

    Args:
        scores: any shape.
        sinks: of the shape of scores, but with length 1 along ``dim``.
        dim: the axis to normalize.
    """
    if reverse_mode_only(scores):
        return _SinkSoftmax.apply(scores, sinks, dim)[0]
    hidden = scores == -torch.inf
    # The first filling changes no number: it only stops gradients at hidden pairs.
    shown = scores.masked_fill(hidden, -torch.inf)
    top = _top_with_sink(shown.detach(), sinks.detach(), dim)
    powers, sink_powers = (shown - top).exp(), (sinks - top).exp()
    return (powers / (powers.sum(dim, keepdim=True) + sink_powers)).masked_fill(hidden, 0.0)


def _top_with_sink(scores: Tensor, sinks: Tensor, dim: int) -> Tensor:
    top, empty = largest(scores, dim)
    return torch.where(empty, sinks, torch.maximum(top, sinks))


def plain_softmax(scores: Tensor, dim: int) -> Tensor:
    """``torch.softmax``, but 0 for scores of −inf, also in rows of nothing else. For calls without a gradient."""
    weights = torch.softmax(scores, dim)
    # PyTorch makes rows of −inf only NaN throughout, and rows with NaN or +inf also where they are hidden.
    return weights if first_is_finite(weights, dim) else weights.masked_fill(scores == -torch.inf, 0.0)


class _Softmax(torch.autograd.Function):
    """`safe_softmax` at nearly the cost of ``torch.softmax``; reverse mode only."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, dim: int) -> Tensor:
        weights = plain_softmax(scores, dim)
        ctx.dim = dim
        ctx.save_for_backward(weights, scores)
        return weights

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (weights, scores), (grad_weights,) = ctx.saved_tensors, gradients
        if not torch.is_grad_enabled() and reverse_mode_only(grad_weights):
            # PyTorch's own kernel for softmax's backward pass: half the time of the same in public operations.
            grad_scores = torch.ops.aten._softmax_backward_data(grad_weights, weights, ctx.dim, weights.dtype)
            # One gradient that is not finite, at a hidden pair too, makes the whole row so.
            if first_is_finite(grad_scores, ctx.dim):
                return grad_scores, None
        hidden = scores == -torch.inf
        product = grad_weights.masked_fill(hidden, 0.0) * weights
        grad_scores = product - weights * product.sum(ctx.dim, keepdim=True)
        return grad_scores.masked_fill(hidden, 0.0), None


class _SinkSoftmax(torch.autograd.Function):
    """`sink_softmax`, ``(weights, the sink's own weight)``; reverse mode only."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, sinks: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        top = _top_with_sink(scores, sinks, dim)
        weights = (scores - top).exp_()
        sink_weights = (sinks - top).exp_()
        total = weights.sum(dim, keepdim=True).add_(sink_weights)
        weights.div_(total)
        sink_weights.div_(total)
        if not first_is_finite(weights, dim):
            weights.masked_fill_(scores == -torch.inf, 0.0)
        ctx.dim = dim
        ctx.save_for_backward(weights, sink_weights, scores)
        return weights, sink_weights

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        weights, sink_weights, scores = ctx.saved_tensors
        grad_weights, grad_sink_weights = gradients
        product, grad_sinks = grad_weights * weights, grad_sink_weights * sink_weights
        mean = product.sum(ctx.dim, keepdim=True) + grad_sinks
        if not torch.is_grad_enabled() and reverse_mode_only(grad_weights):
            grad_scores = product.addcmul_(weights, mean, value=-1)
            # One gradient that is not finite, at a hidden pair too, makes the whole row so.
            if first_is_finite(grad_scores, ctx.dim):
                return grad_scores, grad_sinks - sink_weights * mean, None
        hidden = scores == -torch.inf
        product = grad_weights.masked_fill(hidden, 0.0) * weights
        mean = product.sum(ctx.dim, keepdim=True) + grad_sinks
        grad_scores = (product - weights * mean).masked_fill(hidden, 0.0)
        return grad_scores, grad_sinks - sink_weights * mean, None
