"""The inputs of the fused kernels: why a problem has none, and how it is turned into them."""

from dataclasses import replace

import torch
from torch import Tensor

from regard.attention.backends.cpu.row_functions import row_functions
from regard.attention.problem import Capabilities, Problem
from regard.biases import Bias, TensorBias
from regard.kernels.availability import multiplies_bfloat16
from regard.kernels.cpu.kernel_arguments import FEW_ROWS, TRANSPOSED_ROWS, KernelInputs
from regard.normalizers.local import check_each_row
from regard.scores import InnerProduct, ReluSum, TanhSum
from regard.scores.additive_scores import UnitSum
from regard.scores.modifiers import Cap
from regard.shapes.grid import upcast, with_one_grouping
from regard.tracing.transforms import active_transform, has_dense_cpu_storage, reverse_mode_only

CAPABILITIES = Capabilities(
    primitives=(InnerProduct, TanhSum, ReluSum),
    rows=frozenset({"softmax", "entmax", "sigmoid", "hard"}),
    devices=frozenset({"cpu"}),
    modifiers=(Cap,),
    row_tensors=frozenset({"sink", "shift", "alpha", "center", "sigma"}),
)

SHARED_GRADIENT = 1 << 22
"""Number of pairs up to which the gradient of a shared bias may be stored for each batch row and head."""


def obstacle(problem: Problem) -> str | None:
    """Returns why the kernels cannot run a problem; None if they can."""
    if problem.pairs == 0:
        return "there are no pairs"
    transform = active_transform()
    if transform is not None:
        return f"{transform}, and the fused kernels have a reverse mode only"
    lowered = problem.lowered
    functions = row_functions(problem)
    if functions.score is None:
        reason = functions.score_obstacle or CAPABILITIES.obstacle(lowered)
    else:
        plain = replace(lowered, score=replace(lowered.score, modifiers=()))
        reason = functions.score_obstacle or CAPABILITIES.obstacle(plain)
    if reason is not None:
        return reason
    prepared = lowered.score
    if prepared.query.shape[-1] == 0 or problem.value.shape[-1] == 0:
        return "there are no features"
    if isinstance(prepared.primitive, UnitSum) and isinstance(prepared.scale, Tensor):
        return "the scale of an additive score is a tensor"
    return None if problem.bias is None else _bias_obstacle(problem, problem.bias)


def _bias_obstacle(problem: Problem, bias: Bias) -> str | None:
    if not isinstance(bias, TensorBias):
        return None if bias.is_diagonal else f"{bias.class_name} is not a function of distance alone"
    if torch.is_grad_enabled() and bias.tensor.requires_grad:
        batch, heads = problem.grid.batch, problem.grid.heads
        own = 1
        for size in bias.tensor.shape[:-2][-2:]:
            own *= size
        if own < batch * heads and problem.pairs > SHARED_GRADIENT:
            return "the gradient of a bias that batch rows or heads share would be stored for each of them"
    return None


def kernel_inputs(problem: Problem) -> KernelInputs:
    """Returns the kernels' inputs for a problem that has no `obstacle`; the functions of a row are compiled.

    A mask that is not a few runs of keys in each row is not part of them, nor are the seed and an additive score's
    exponentials.
    """
    from regard.kernels.cpu import kernels

    lowered, grid = problem.lowered, problem.grid
    prepared, row, spans = lowered.score, lowered.row, lowered.spans
    assert row is not None
    functions = row_functions(problem)
    query, key, value = upcast(prepared.query), prepared.key, problem.value
    if not is_stored_in_half(problem):
        key, value = upcast(key), upcast(value).to(query.dtype)
    scale, weight = prepared.scale, None
    if isinstance(scale, Tensor):
        query, scale = query * scale.to(query.dtype), 1.0
    if isinstance(prepared.primitive, UnitSum):
        weight = prepared.primitive.weight.to(query.dtype) * scale
        weight = weight[None] if weight.dim() == 1 else weight
    key, value = with_one_grouping(key, value, grid.batch, grid.heads)
    rows = (grid.batch, grid.heads, grid.queries)
    diagonals = lowered.diagonals
    bias = lowered.dense_bias() if diagonals is None else diagonals
    if row.kind == "hard":
        query, key = query.detach(), key.detach()
        weight, bias = (None if one is None else one.detach() for one in (weight, bias))
    inputs = KernelInputs(
        query=query,
        key=key,
        value=value,
        weight=weight,
        relu=isinstance(prepared.primitive, ReluSum),
        paired=is_paired(problem),
        start=None if spans is None else spans.start,
        stop=None if spans is None else spans.stop,
        bias=bias,
        diagonal=diagonals is not None,
        sink=None if row.sink is None else _each_head(row.sink, query),
        shift=None if row.shift is None or _is_zero(row.shift) else _each_head(row.shift, query),
        alphas=_each_head(row.alpha, query) if isinstance(row.alpha, Tensor) else None,
        center=None if row.center is None else _each_row("center", row.center, rows, query),
        sigma=None if row.sigma is None else _each_row("sigma", row.sigma, rows, query),
        scale=float(scale),
        cap=next((one.cap for one in prepared.modifiers if isinstance(one, Cap)), 0.0)
        if functions.score is None
        else 0.0,
        dropout=problem.dropout,
        **kernels.row_normalizer(row.kind, row.temperature, row.alpha),  # type: ignore[arg-type]
    )
    return inputs._replace(**functions.fields(grid, gradient=problem.wants_gradient or functions.wants_gradient))


def is_softmax_of_products(problem: Problem) -> bool:
    """Whether a problem is the plain softmax of inner products, in float32 or half precision, without a bias, and its
    tensors can be read where they are."""
    if problem.bias is not None or problem.query.dtype == torch.float64 or not reverse_mode_only(problem.query):
        return False
    row, prepared = problem.row, problem.prepared
    if row is None or row != type(row)("softmax") or isinstance(prepared.scale, Tensor) or prepared.modifiers:
        return False
    if not isinstance(prepared.primitive, InnerProduct):
        return False
    return has_dense_cpu_storage(prepared.query, prepared.key, problem.value)


def is_stored_in_half(problem: Problem) -> bool:
    """Whether the kernels read keys and values in half precision as they are: those of a few queries, without a
    gradient."""
    from regard.kernels.cpu.launch import is_readable_in_half

    prepared = problem.lowered.score
    few = prepared.query.shape[2] <= FEW_ROWS and not problem.wants_gradient
    return few and isinstance(prepared.primitive, InnerProduct) and is_readable_in_half(prepared.key, problem.value)


def is_paired(problem: Problem) -> bool:
    """Whether the kernels multiply bfloat16 queries, keys and values in pairs, and round weights to bfloat16."""
    prepared = problem.lowered.score
    if not multiplies_bfloat16() or prepared.query.shape[2] < TRANSPOSED_ROWS:
        return False
    dtypes = {prepared.query.dtype, prepared.key.dtype, problem.value.dtype}
    is_product = isinstance(prepared.primitive, InnerProduct) and not isinstance(prepared.scale, Tensor)
    return is_product and dtypes == {torch.bfloat16}


def with_heads_as_rows(inputs: KernelInputs) -> KernelInputs:
    """Joins the query heads that share keys to one head with all of their rows, if there are few rows.

    A decoder's step then reads the keys and values of a group once. The order of rows, and so dropout, does not change.
    """
    batch, heads, queries, dim = inputs.query.shape
    kv_heads = inputs.key.shape[1]
    is_function = inputs.score_function != 0 or inputs.mask_function != 0
    if kv_heads == heads or queries > FEW_ROWS or inputs.bias is not None or is_function:
        return inputs
    of_heads = (inputs.weight, inputs.sink, inputs.shift, inputs.alphas)
    if any(tensor is not None and tensor.shape[0] != 1 for tensor in of_heads):
        return inputs
    if inputs.start is not None and inputs.start.shape[1] != 1:
        return inputs
    group = heads // kv_heads
    rows = {
        name: tensor.reshape(batch, kv_heads, group * queries)
        for name, tensor in (("center", inputs.center), ("sigma", inputs.sigma))
        if tensor is not None
    }
    ends = {
        name: tensor.repeat(1, 1, group, 1)
        for name, tensor in (("start", inputs.start), ("stop", inputs.stop))
        if tensor is not None and tensor.shape[2] != 1
    }
    return inputs._replace(query=inputs.query.reshape(batch, kv_heads, group * queries, dim), **rows, **ends)


def with_exponentials(inputs: KernelInputs) -> KernelInputs:
    """Returns the inputs with the exponentials of an additive score's keys."""
    if inputs.weight is None or inputs.exponentials is not None:
        return inputs
    from regard.kernels.cpu import operators

    exponentials, extents = operators.exponentials(inputs.key.detach(), inputs.relu)
    return inputs._replace(exponentials=exponentials, extents=extents)


def _is_zero(number: float | Tensor) -> bool:
    return not isinstance(number, Tensor) and number == 0.0


def _each_head(parameter: float | Tensor, like: Tensor) -> Tensor:
    return torch.as_tensor(parameter, dtype=like.dtype).reshape(-1)


def _each_row(name: str, parameter: float | Tensor, rows: tuple[int, int, int], like: Tensor) -> Tensor:
    if isinstance(parameter, Tensor):
        check_each_row(name, parameter, rows)
        return parameter.to(like.dtype).expand(rows)
    return like.new_full((1, 1, 1), parameter).expand(rows)
