"""A call composed of PyTorch's own operations, for programs that run without regard.

A softmax of scaled inner products is ``torch.nn.functional.scaled_dot_product_attention``, which ONNX has as one
operator too (``Attention``, from opset 23); any other call is the steps of the specification. Keys that no query may
see are 0 before anything is computed, so that whatever padding holds reaches no output (contract 10); a hidden NaN or
infinity of a key that some query sees does reach the others, since a product multiplies it by 0.
"""

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.backends.reference import specified
from regard.attention.problem import Capabilities, Problem
from regard.attention.readings import Gatherer
from regard.attention.result import Attended
from regard.masks import Band, keep
from regard.scores import InnerProduct
from regard.shapes.grid import spread_heads

CAPABILITIES = Capabilities(primitives=(InnerProduct,), rows=frozenset({"softmax"}))
"""What ``scaled_dot_product_attention`` computes, in a dtype that it computes in throughout."""


def composed(problem: Problem, gatherer: Gatherer | None = None, need_weights: bool = False) -> Attended:
    """Runs a problem by PyTorch's own operations, whose number and kind depend on no size and no element."""
    is_kernel = gatherer is None and not need_weights and _is_scaled_dot_product(problem)
    if is_kernel and _is_causal_square(problem):
        return Attended(_kernel(problem, None, True), None)
    problem, allowed = _without_hidden_keys(problem)
    if is_kernel:
        return Attended(_masked(problem, allowed), None)
    attended = specified(problem, gatherer)
    return attended if need_weights else Attended(attended.output, None)


def _is_scaled_dot_product(problem: Problem) -> bool:
    row = problem.row
    return (
        row is not None
        and row.sink is None
        and row.center is None
        and problem.query.dtype in (torch.float32, torch.float64)
        and not problem.dropout
        and CAPABILITIES.obstacle(problem.lowered) is None
    )


def _is_causal_square(problem: Problem) -> bool:
    """Whether query i sees the keys up to i, of as many keys as queries, whatever their number."""
    mask, grid = problem.mask, problem.grid
    if not (isinstance(mask, Band) and mask.is_causal and mask.offset is None and problem.bias is None):
        return False
    from torch.fx.experimental.symbolic_shapes import statically_known_true  # imports SymPy

    return statically_known_true(grid.queries == grid.keys)


def _without_hidden_keys(problem: Problem) -> tuple[Problem, Tensor | None]:
    """Returns the problem with 0 for keys and values that no query may see, and its dense mask of four axes."""
    if problem.hiding_mask is None:
        return problem, None
    allowed = problem.hiding_mask.with_four_axes(problem.grid)
    kv_heads = problem.key.shape[1]
    seen = allowed.any(2)
    if seen.shape[1] not in (1, kv_heads):
        seen = seen.unflatten(1, (kv_heads, -1)).any(2)
    key, value = (torch.where(seen[..., None], tensor, 0.0) for tensor in (problem.key, problem.value))
    return replace(problem, key=key, value=value, mask=keep(allowed)), allowed


def _masked(problem: Problem, allowed: Tensor | None) -> Tensor:
    """Returns the output under a dense mask, a bias or both; a row without visible keys is 0."""
    bias, empty = problem.lowered.dense_bias(), None
    if allowed is not None:
        pairs = problem.grid.queries, problem.grid.keys
        allowed = allowed.expand(*allowed.shape[:2], *pairs)
        empty = ~allowed.any(-1, keepdim=True)
        # Such a row sees all keys here, since no softmax is defined over none; then its output is replaced.
        allowed = allowed | empty
    added = allowed
    if bias is not None:
        bias = bias.expand(*bias.shape[:2], problem.grid.queries, problem.grid.keys)
        finite = bias > -torch.inf
        shown = finite if allowed is None else allowed & finite
        without = ~shown.any(-1, keepdim=True)
        empty = without if empty is None else empty | without
        added = torch.where(shown, bias, -torch.inf).masked_fill(without, 0.0) / _temperature(problem)
    output = _kernel(problem, added, False)
    return output if empty is None else output.masked_fill(empty, 0.0)


def _kernel(problem: Problem, added: Tensor | None, is_causal: bool) -> Tensor:
    """Calls PyTorch's function with a mask, or with a bias that hides by −∞."""
    prepared, value, grid = problem.prepared, problem.value, problem.grid
    query, key, scale = prepared.query, prepared.key, 1.0 / _temperature(problem)
    if isinstance(prepared.scale, Tensor):
        query = query * prepared.scale
    else:
        scale *= prepared.scale
    if key is not problem.key:
        key = key.expand(grid.batch, -1, -1, -1)
    if key.shape[1] != value.shape[1]:
        key, value = spread_heads(key, grid.heads), spread_heads(value, grid.heads)
    is_grouped = key.shape[1] != grid.heads
    return F.scaled_dot_product_attention(
        query, key, value, added, 0.0, is_causal, scale=scale, enable_gqa=is_grouped
    )  # fmt: skip


def _temperature(problem: Problem) -> float:
    assert problem.row is not None
    assert isinstance(problem.row.temperature, float)
    return problem.row.temperature
