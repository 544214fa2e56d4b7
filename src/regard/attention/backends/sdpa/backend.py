"""``sdpa``: PyTorch's own kernels, for what they compute exactly: inner product × softmax × masks."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.backends.backend import Backend
from regard.attention.backends.cpu.lowering import dense_mask, lower, obstacle
from regard.attention.backends.cpu.readings import read
from regard.attention.blocks import block_shape, blocks
from regard.attention.problem import Problem
from regard.attention.readings import Gatherer
from regard.attention.steps import Inputs, nothing, weigh
from regard.kernels.availability import why_missing
from regard.masks.mask import Visibility
from regard.masks.positional import Band
from regard.normalizers import Normalizer
from regard.scores.score import InnerProduct, Prepared
from regard.shapes import accurate, spread_heads

ROWS = 512
"""Query rows for which a mask is made dense at a time: memory stays linear, and tiles that it empties are skipped."""


class ScaledDotProduct(Backend):
    """`torch.nn.functional.scaled_dot_product_attention`, a slice of queries at a time where a mask must be dense."""

    name = "sdpa"

    def declines(self, problem: Problem) -> str | None:
        prepared = problem.prepared
        if problem.is_empty:
            return "there are no pairs"
        if not isinstance(prepared.primitive, InnerProduct):
            return f"the score lowers to {type(prepared.primitive).__name__}; the kernel computes inner products"
        if prepared.modifiers:
            return "the score is modified after its inner product"
        if folded_scale(problem.normalizer) is None:
            return "the normalizer is not a plain softmax"
        if problem.dropout and problem.query.device.type == "cpu":
            return "with dropout PyTorch's CPU kernel falls back to quadratic memory"
        if problem.bias is not None and torch.is_grad_enabled() and problem.bias.needs_gradient(problem.query):
            return "a bias that needs a gradient makes PyTorch's kernel fall back to quadratic memory"
        return None

    def run(self, problem: Problem, gatherer: Gatherer | None = None) -> Tensor:
        output = self._output(problem)
        if gatherer is None:
            return output
        if why_missing() is None and obstacle(problem) is None:
            read(lower(problem), dense_mask(problem), gatherer)
        else:
            with torch.no_grad():
                for inputs in blocks(problem, block_shape(problem)):
                    steps = weigh(problem, inputs)
                    gatherer.add(steps.masked, steps.weights, inputs.grid)
        return output

    def _output(self, problem: Problem) -> Tensor:
        if takes_no_mask(problem):
            return _kernel(problem, problem.prepared, problem.value, is_causal=problem.mask is not None)
        grid = problem.grid
        outputs = [_masked(problem, block) for block in blocks(problem, (grid.batch, ROWS))]
        return torch.cat(outputs, dim=2)


def takes_no_mask(problem: Problem) -> bool:
    """Whether the kernel needs no dense mask: there is none, or it is causal from the first key on."""
    mask = problem.mask
    if problem.bias is not None or not (mask is None or isinstance(mask, Band)):
        return False
    if mask is None:
        return True
    offset = mask.offset_on(problem.grid)
    return mask.before is None and mask.after == 0 and isinstance(offset, int) and offset == 0


def folded_scale(normalizer: Normalizer) -> float | None:
    """The factor on the scores if this is softmax with a temperature that is a number, and no more; else None."""
    primitive = normalizer.lower()
    if primitive is None or primitive.kind != "softmax" or primitive.sink is not None or primitive.center is not None:
        return None
    return None if isinstance(primitive.temperature, Tensor) else 1.0 / primitive.temperature


def _masked(problem: Problem, inputs: Inputs) -> Tensor:
    """One slice of queries under a mask, a bias or both."""
    grid = inputs.grid
    if not grid.key_span:
        return nothing(inputs)
    allowed = None
    if problem.mask is not None and problem.mask.visibility(grid) is not Visibility.FULL:
        allowed = problem.mask.allows(grid)
    empty = None
    if allowed is not None:
        allowed = allowed.expand(
            *torch.broadcast_shapes(allowed.shape, (1, 1, len(grid.query_span), len(grid.key_span)))
        )
        empty = ~allowed.any(dim=-1, keepdim=True)
        # A row that sees nothing would divide by zero: let it see everything, and forget what it saw.
        allowed = allowed | empty
    additive = allowed
    if problem.bias is not None:
        additive = accurate(problem.bias(inputs.query, grid)).to(accurate(inputs.query).dtype)
        additive = additive * (folded_scale(problem.normalizer) or 1.0)
        if allowed is not None:
            additive = torch.where(allowed, additive, -math.inf)
        additive = additive.expand(
            *torch.broadcast_shapes(additive.shape, (1, 1, len(grid.query_span), len(grid.key_span)))
        )
    output = _kernel(problem, inputs.prepared, inputs.value, attn_mask=additive)
    return output if empty is None else output.masked_fill(empty, 0.0)


def _kernel(
    problem: Problem, prepared: Prepared, value: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False
) -> Tensor:
    query, key = prepared.query, prepared.key
    scale = folded_scale(problem.normalizer) or 1.0
    if isinstance(prepared.scale, Tensor):
        query = query * prepared.scale
    else:
        scale *= prepared.scale
    if key.shape[0] != query.shape[0]:
        key = key.expand(query.shape[0], -1, -1, -1)
    key, value = spread_heads(key, query.shape[1]), spread_heads(value, query.shape[1])
    dtype, width, value_dim = value.dtype, query.shape[-1], value.shape[-1]
    if dtype != query.dtype:
        value = value.to(query.dtype)
    # The kernel with linear memory wants one width for queries and values; zeros change neither products nor mixtures.
    if value_dim < width:
        value = F.pad(value, (0, width - value_dim))
    elif width < value_dim:
        query, key = F.pad(query, (0, value_dim - width)), F.pad(key, (0, value_dim - width))
    output = F.scaled_dot_product_attention(
        query, key, value, attn_mask=attn_mask, dropout_p=problem.dropout, is_causal=is_causal, scale=scale
    )
    output = output if output.shape[-1] == value_dim else output[..., :value_dim]
    return output if output.dtype == dtype else output.to(dtype)
