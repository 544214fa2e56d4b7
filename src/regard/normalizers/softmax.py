"""Softmax, plain, tempered, and with a sink. The plain one owns contract 2: a row that sees nothing has weights 0."""

from typing import Any

import torch
from torch import Tensor

from regard.normalizers.normalizer import Normalizer
from regard.normalizers.parameter import along_heads, set_parameter
from regard.normalizers.row_primitive import RowPrimitive
from regard.normalizers.rows import check_rows, largest
from regard.shapes import accurate


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

    def forward(self, scores: Tensor, dim: int = -1) -> Tensor:
        check_rows(scores, dim)
        return safe_softmax(self._tempered(accurate(scores), dim), dim).to(scores.dtype)

    def log_sum_exp(self, scores: Tensor) -> Tensor:
        return torch.logsumexp(self._tempered(scores, -1), dim=-1)

    def lower(self) -> RowPrimitive | None:
        return RowPrimitive("softmax", temperature=self.temperature)

    def _tempered(self, scores: Tensor, dim: int) -> Tensor:
        return tempered(scores, self.temperature, dim)

    def extra_repr(self) -> str:
        return "" if self.temperature == 1.0 else f"temperature={self.temperature}"


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

    def forward(self, scores: Tensor, dim: int = -1) -> Tensor:
        check_rows(scores, dim)
        row = accurate(scores)
        sink = along_heads("sink", self.sink, row, dim)
        shape = list(row.shape)
        shape[dim] = 1
        sinks = sink.expand(shape) if isinstance(sink, Tensor) else row.new_full(shape, sink)
        weights, _ = _SinkSoftmax.apply(row, sinks, dim)
        return weights.to(scores.dtype)

    def lower(self) -> RowPrimitive | None:
        return RowPrimitive("softmax", sink=self.sink)

    def extra_repr(self) -> str:
        return f"sink={self.sink}"


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
    """``torch.softmax``, but weights 0 and gradient 0 for rows of −inf only; at nearly its cost."""
    return _Softmax.apply(scores, dim)


class _Softmax(torch.autograd.Function):
    """PyTorch's softmax makes such a row NaN, and keeps the NaN for its backward pass; here it is mended in place."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, dim: int) -> Tensor:
        weights = torch.softmax(scores, dim)
        # A broken row is NaN throughout, so one element of each tells. Asking costs little where nothing has to wait
        # for the answer; elsewhere it is cheaper to mend without asking.
        first = weights.narrow(dim, 0, min(1, weights.shape[dim]))
        if scores.device.type != "cpu" or torch.compiler.is_compiling() or bool(first.sum().isnan()):
            weights.masked_fill_(largest(scores, dim)[1], 0.0)
        ctx.dim = dim
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (weights,) = ctx.saved_tensors
        # PyTorch's own kernel for softmax's backward pass: half the time of the same in public operations.
        return torch.ops.aten._softmax_backward_data(gradients[0], weights, ctx.dim, weights.dtype), None


class _SinkSoftmax(torch.autograd.Function):
    """Softmax over a row and its sink, without joining them: ``(weights, the sink's own weight)``."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, sinks: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        top, empty = largest(scores, dim)
        top = torch.where(empty, sinks, torch.maximum(top, sinks))
        weights = (scores - top).exp_()
        sink_weights = (sinks - top).exp_()
        total = weights.sum(dim, keepdim=True).add_(sink_weights)
        weights.div_(total)
        sink_weights.div_(total)
        ctx.dim = dim
        ctx.save_for_backward(weights, sink_weights)
        return weights, sink_weights

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        weights, sink_weights = ctx.saved_tensors
        by_weights, by_sinks = gradients
        product, sink_product = by_weights * weights, by_sinks * sink_weights
        mean = product.sum(ctx.dim, keepdim=True) + sink_product
        return product.addcmul_(weights, mean, value=-1), sink_product - sink_weights * mean, None
