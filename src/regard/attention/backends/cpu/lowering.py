"""From a problem to what the fused kernels take; or the reason why they can't."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.attention.problem import Problem
from regard.biases import Bias, TensorBias
from regard.kernels.cpu.kernel_inputs import KernelInputs
from regard.kernels.kinds import ENTMAX, ENTMAX15, SIGMOID, SOFTMAX, SPARSEMAX
from regard.masks import Mask
from regard.normalizers import Entmax, LocalGaussian, Normalizer, Sigmoid, Softmax, SoftmaxWithSink, Sparsemax
from regard.scores.score import Cap, InnerProduct, TanhSum
from regard.shapes import accurate, spread_heads


@dataclass(frozen=True)
class Weighing:
    """A normalizer as the kernels know it.

    Attributes:
        kind: its number.
        alpha: entmax's.
        factor: what scores are multiplied with, 1 / temperature.
        offset: a sink's score or sigmoid's bias, ``[heads or 1]``; None without.
        center, width: the Gaussian window laid over the weights; None without.
    """

    kind: int
    alpha: float = 0.0
    factor: float = 1.0
    offset: float | Tensor | None = None
    center: Tensor | None = None
    width: float | Tensor | None = None


def weighing(normalizer: Normalizer) -> Weighing | str:
    """The normalizer for the kernels, or why they don't have it."""
    kind = type(normalizer)
    if isinstance(normalizer, Softmax) and kind is Softmax:
        if isinstance(normalizer.temperature, Tensor):
            return "the temperature is a tensor"
        return Weighing(SOFTMAX, factor=1.0 / normalizer.temperature)
    if isinstance(normalizer, SoftmaxWithSink) and kind is SoftmaxWithSink:
        return Weighing(SOFTMAX, offset=normalizer.sink)
    if isinstance(normalizer, Entmax) and kind in (Entmax, Sparsemax):
        if isinstance(normalizer.alpha, Tensor):
            return "entmax's alpha is a tensor"
        named = {2.0: SPARSEMAX, 1.5: ENTMAX15}
        return Weighing(named.get(normalizer.alpha, ENTMAX), alpha=normalizer.alpha)
    if isinstance(normalizer, Sigmoid) and kind is Sigmoid:
        return Weighing(SIGMOID, offset=normalizer.bias)
    if isinstance(normalizer, LocalGaussian) and kind is LocalGaussian:
        inner = weighing(normalizer.normalizer)
        if isinstance(inner, str):
            return inner
        if inner.center is not None:
            return "there are two Gaussian windows"
        return replace(inner, center=normalizer.center, width=normalizer.sigma)
    return f"there is no kernel for {kind.__name__}"


def obstacle(problem: Problem) -> str | None:
    """Why the kernels can't run a problem; None if they can."""
    if problem.query.device.type != "cpu":
        return f"the inputs are on {problem.query.device}"
    if problem.is_empty:
        return "there are no pairs"
    prepared = problem.prepared
    if not isinstance(prepared.primitive, InnerProduct | TanhSum):
        return (
            f"the score lowers to {type(prepared.primitive).__name__}; there are kernels for InnerProduct and TanhSum"
        )
    if prepared.query.shape[-1] == 0 or problem.value.shape[-1] == 0:
        return "there are no features"
    if isinstance(prepared.primitive, TanhSum) and isinstance(prepared.scale, Tensor):
        return "the scale of an additive score is a tensor"
    if len(prepared.modifiers) > 1 or not all(isinstance(modifier, Cap) for modifier in prepared.modifiers):
        return "the score is modified by a function"
    normalizer = weighing(problem.normalizer)
    if isinstance(normalizer, str):
        return normalizer
    return None if problem.bias is None else _bias_obstacle(problem, problem.bias)


def _bias_obstacle(problem: Problem, bias: Bias) -> str | None:
    if not isinstance(bias, TensorBias):
        return None if bias.is_diagonal else f"{type(bias).__name__} is not a function of distance alone"
    if torch.is_grad_enabled() and bias.tensor.requires_grad:
        batch, heads = problem.grid.batch, problem.grid.heads
        own = 1
        for size in bias.tensor.shape[:-2][-2:]:
            own *= size
        if own < batch * heads and batch * heads * problem.grid.queries * problem.grid.keys > SHARED_GRADIENT:
            return "the gradient of a bias that batch rows or heads share would be held for each of them"
    return None


SHARED_GRADIENT = 1 << 22
"""Pairs up to which a shared bias's gradient may be held apart for each batch row and head."""


def lower(problem: Problem) -> KernelInputs:
    """The problem for the kernels; `obstacle` must have found nothing against it.

    A mask whose rows aren't runs is left out, and so are the seed and an additive score's exponentials.
    """
    prepared, grid = problem.prepared, problem.grid
    normalizer = weighing(problem.normalizer)
    assert isinstance(normalizer, Weighing)
    query, key, value = accurate(prepared.query), accurate(prepared.key), accurate(problem.value)
    value = value.to(query.dtype)
    scale, weight = prepared.scale, None
    if isinstance(scale, Tensor):
        query, scale = query * scale.to(query.dtype), 1.0
    if isinstance(prepared.primitive, TanhSum):
        weight = prepared.primitive.weight.to(query.dtype) * scale
        weight = weight[None] if weight.dim() == 1 else weight
    key, value = _one_grouping(key, value, grid.batch, grid.heads)
    dtype = query.dtype
    rows = (grid.batch, grid.heads, grid.queries)
    center = width = None
    if normalizer.center is not None:
        center, width = _expanded(normalizer.center, rows, query), _expanded(normalizer.width, rows, query)
    bias, diagonal = None, False
    if problem.bias is not None:
        bias = problem.bias.diagonals(grid, dtype)
        diagonal = bias is not None
        if bias is None:
            bias = problem.bias(problem.query, grid).to(dtype)
            bias = bias[(None,) * (4 - bias.dim())]
    offset = None
    if normalizer.offset is not None and not (normalizer.kind == SIGMOID and normalizer.offset == 0.0):
        offset = torch.as_tensor(normalizer.offset, dtype=dtype).reshape(-1)
    return KernelInputs(
        query=query,
        key=key,
        value=value,
        weight=weight,
        start=None if problem.spans is None else problem.spans.start,
        stop=None if problem.spans is None else problem.spans.stop,
        bias=bias,
        diagonal=diagonal,
        offset=offset,
        center=center,
        width=width,
        normalizer=normalizer.kind,
        alpha=normalizer.alpha,
        scale=float(scale),
        factor=normalizer.factor,
        cap=next((modifier.cap for modifier in prepared.modifiers if isinstance(modifier, Cap)), 0.0),
        dropout=problem.dropout,
    )


def dense_mask(problem: Problem) -> Mask | None:
    """The mask, if the visible keys of its rows are not runs, so that it has to be made dense."""
    return problem.mask if problem.spans is None else None


def with_exponentials(call: KernelInputs) -> KernelInputs:
    """The call with the exponentials of an additive score's keys, unless it has them."""
    if call.weight is None or call.exponentials is not None:
        return call
    from regard.kernels.cpu import operators

    exponentials, extents = operators.exponentials(call.key.detach())
    return call._replace(exponentials=exponentials, extents=extents)


def _one_grouping(key: Tensor, value: Tensor, batch: int, heads: int) -> tuple[Tensor, Tensor]:
    """Keys and values with equally many heads; what is the same for all is repeated without a copy."""
    key = key.expand(batch, -1, -1, -1)
    if key.shape[1] == value.shape[1]:
        return key, value
    if key.shape[1] == 1:
        return key.expand(-1, value.shape[1], -1, -1), value
    if value.shape[1] == 1:
        return key, value.expand(-1, key.shape[1], -1, -1)
    return spread_heads(key, heads), spread_heads(value, heads)


def _expanded(given: float | Tensor | None, rows: tuple[int, int, int], like: Tensor) -> Tensor:
    assert given is not None
    if isinstance(given, Tensor):
        return given.to(like.dtype).expand(rows)
    return like.new_full((1, 1, 1), given).expand(rows)
