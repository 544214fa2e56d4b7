"""Softmax, with a temperature or with a sink; `safe_softmax` defines contract 2: a row without visible keys gets
weights 0."""

from typing import Any

import torch
from torch import Tensor

from regard.axes import Float
from regard.normalizers.normalizer import Normalizer, RowPrimitive
from regard.normalizers.parameter import along_heads, set_parameter
from regard.normalizers.rows import check_rows, first_is_finite, log_sum_exp, row_maximum
from regard.shapes import upcast
from regard.summaries import parameter_summary
from regard.transforms import reverse_mode_only

_PLAIN = RowPrimitive("softmax")


class Softmax(Normalizer):
    """Computes weights proportional to the exponentials of the scores.

    .. math:: w_j = \\exp(s_j / T) \\,/\\, \\sum_k \\exp(s_k / T)

    Bahdanau et al. 2015 (eq. 6), Vaswani et al. 2017 (eq. 1) with :math:`T = 1`; a small temperature sharpens the
    weights, a large one flattens them.

    Args:
        temperature: :math:`T > 0`: a number, or a tensor ``[]`` or ``[heads]`` that may be learned; default 1.

    Raises:
        ArgumentError: the temperature is not finite or not above 0.

    Numerics: the row's maximum is subtracted first; half precision is computed in float32 and returned in its own
    dtype.
    """

    temperature: float | Tensor

    def __init__(self, temperature: float | Tensor = 1.0):
        super().__init__()
        set_parameter(self, "temperature", temperature, above=0.0)

    def forward(self, scores: Float[Tensor, "*shape"], dim: int = -1) -> Float[Tensor, "*shape"]:
        check_rows(scores, dim)
        return safe_softmax(tempered(upcast(scores), self.temperature, dim), dim).to(scores.dtype)

    def log_sum_exp(self, scores: Float[Tensor, "*rows keys"]) -> Float[Tensor, "*rows"]:
        return log_sum_exp(tempered(upcast(scores), self.temperature, -1)).to(scores.dtype)

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
    """Computes softmax with one more term in the denominator, so that a query may attend to nothing.

    .. math:: w_j = \\exp(s_j) \\,/\\, \\big(\\exp(b) + \\sum_k \\exp(s_k)\\big)

    The sink :math:`b = 0` is Miller's "softmax off by one" (2023). With one learned sink a head, it is the sink of
    gpt-oss (2025); it acts as a key without a value (Xiao et al. 2024, "Efficient streaming language models with
    attention sinks"). Weights sum to less than 1.

    Args:
        sink: the sink's score :math:`b`: a number, or a tensor ``[]`` or ``[heads]`` that may be learned.

    Raises:
        ArgumentError: the sink is not finite.

    Numerics: the maximum of the scores and the sink is subtracted first; half precision is computed in float32.
    `log_sum_exp` is over the keys alone.
    """

    sink: float | Tensor

    def __init__(self, sink: float | Tensor):
        super().__init__()
        set_parameter(self, "sink", sink)

    def forward(self, scores: Float[Tensor, "*shape"], dim: int = -1) -> Float[Tensor, "*shape"]:
        check_rows(scores, dim)
        row = upcast(scores)
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
    """Returns a softmax with a sink, which is a number or a learned tensor: see `SoftmaxWithSink`."""
    return SoftmaxWithSink(sink)


def tempered(scores: Tensor, temperature: float | Tensor, dim: int) -> Tensor:
    """Returns ``scores / temperature``; −inf stays −inf and contributes no gradient to the temperature."""
    if not isinstance(temperature, Tensor):
        return scores if temperature == 1.0 else scores * (1.0 / temperature)
    divisor = along_heads("temperature", temperature, scores, dim)
    # The derivative of −inf / T by T is infinite, and 0 · inf is NaN, so −inf stays out of the quotient.
    hidden = scores == -torch.inf
    return (scores.masked_fill(hidden, 0.0) / divisor).masked_fill(hidden, -torch.inf)


def safe_softmax(scores: Tensor, dim: int) -> Tensor:
    """Computes ``torch.softmax``, but with weight 0 and gradient 0 at −inf, even if a row has nothing else."""
    if scores.device.type == "cpu" and reverse_mode_only(scores):
        wants_gradient = scores.requires_grad and torch.is_grad_enabled()
        return _Softmax.apply(scores, dim) if wants_gradient else plain_softmax(scores, dim)
    hidden = scores == -torch.inf
    # The first fill changes no value: it only stops gradients at hidden pairs.
    visible = scores.masked_fill(hidden, -torch.inf).masked_fill(hidden.all(dim, keepdim=True), 0.0)
    return torch.softmax(visible, dim).masked_fill(hidden, 0.0)


def sink_softmax(scores: Tensor, sinks: Tensor, dim: int) -> Tensor:
    """Computes softmax over each row and its sink, without concatenating them.

    Args:
        scores: scores of any shape.
        sinks: the sinks, in the shape of scores with length 1 along ``dim``.
        dim: the axis to normalize.
    """
    if reverse_mode_only(scores):
        return _SinkSoftmax.apply(scores, sinks, dim)[0]
    hidden = scores == -torch.inf
    # The first fill changes no value: it only stops gradients at hidden pairs.
    visible = scores.masked_fill(hidden, -torch.inf)
    maximum = _maximum_with_sink(visible.detach(), sinks.detach(), dim)
    powers, sink_powers = (visible - maximum).exp(), (sinks - maximum).exp()
    return (powers / (powers.sum(dim, keepdim=True) + sink_powers)).masked_fill(hidden, 0.0)


def _maximum_with_sink(scores: Tensor, sinks: Tensor, dim: int) -> Tensor:
    maximum, empty = row_maximum(scores, dim)
    return torch.where(empty, sinks, torch.maximum(maximum, sinks))


def plain_softmax(scores: Tensor, dim: int) -> Tensor:
    """Computes `safe_softmax` without a gradient."""
    weights = torch.softmax(scores, dim)
    # PyTorch returns NaN in rows of only −inf, and at hidden pairs of rows with NaN or +inf.
    return weights if first_is_finite(weights, dim) else weights.masked_fill(scores == -torch.inf, 0.0)


class _Softmax(torch.autograd.Function):
    """Implements `safe_softmax` at nearly the cost of ``torch.softmax``; reverse mode only."""

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
            # PyTorch's kernel for the backward pass of softmax takes half the time of public operations.
            grad_scores = torch.ops.aten._softmax_backward_data(grad_weights, weights, ctx.dim, weights.dtype)
            # One infinite or NaN gradient, even at a hidden pair, makes the whole row infinite or NaN.
            if first_is_finite(grad_scores, ctx.dim):
                return grad_scores, None
        hidden = scores == -torch.inf
        product = grad_weights.masked_fill(hidden, 0.0) * weights
        grad_scores = product - weights * product.sum(ctx.dim, keepdim=True)
        return grad_scores.masked_fill(hidden, 0.0), None


class _SinkSoftmax(torch.autograd.Function):
    """Implements `sink_softmax`, returning the weights and the sink's own weight; reverse mode only."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, sinks: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        maximum = _maximum_with_sink(scores, sinks, dim)
        weights = (scores - maximum).exp_()
        sink_weights = (sinks - maximum).exp_()
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
            # One infinite or NaN gradient, even at a hidden pair, makes the whole row infinite or NaN.
            if first_is_finite(grad_scores, ctx.dim):
                return grad_scores, grad_sinks - sink_weights * mean, None
        hidden = scores == -torch.inf
        product = grad_weights.masked_fill(hidden, 0.0) * weights
        mean = product.sum(ctx.dim, keepdim=True) + grad_sinks
        grad_scores = (product - weights * mean).masked_fill(hidden, 0.0)
        return grad_scores, grad_sinks - sink_weights * mean, None
