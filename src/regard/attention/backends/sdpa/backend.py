"""``sdpa``: PyTorch's own kernels, for what they compute exactly: inner product × softmax × masks.

On a CPU, PyTorch's kernels break the contracts in four cases that only the elements show. A query of NaN can give 0.
The backward pass computes weights as exp(score − lse), which loses log K if all scores of a row are near −1e9. It
multiplies the gradient of a hidden pair's weight by 0, even if a huge value made it infinite. A row without visible
keys divides by 0. The specification runs the first three cases, in blocks; the rows of the fourth are masked.

On a device no element is read (`regard.attention.backends.sdpa.device`). There a trial tells whether a query of NaN
gives NaN (`regard.attention.trials`), and a bias is shifted so that it makes no score of a row large. Scores of
magnitude 10⁴ and more that queries and keys make, and values of 10¹⁸ and more, lose digits in the backward pass there.
"""

import math
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.backends.backend import Backend, Bound
from regard.attention.backends.reference import TileInputs, empty_output
from regard.attention.backends.sdpa import device
from regard.attention.backends.tiled import attend_in_blocks, blocks
from regard.attention.kinds import SHORT_ROW, enabled_kernels
from regard.attention.problem import Capabilities, Lowered, Problem
from regard.attention.readings import Gatherer
from regard.errors import BackendError
from regard.masks.mask import Visibility
from regard.scores import InnerProduct, Prepared
from regard.shapes.grid import span_length, spread_heads, upcast
from regard.tracing.transforms import active_transform, has_saved_tensor_hooks, in_memory, is_finite

ROWS = 512
"""Query rows for which a mask is made dense at a time: memory stays linear, and keys that no row sees are skipped."""

LARGEST_SUM = 1.0e4
"""Log-sum-exps above which exp(score − lse) loses more than three of float32's digits."""

LARGEST_VALUE = 1.0e18
"""Magnitude of values below which their products with gradients below it are finite."""

CAPABILITIES = Capabilities(primitives=(InnerProduct,), rows=frozenset({"softmax"}))


class ScaledDotProduct(Backend):
    """Calls `torch.nn.functional.scaled_dot_product_attention`, with a slice of queries at a time for dense masks."""

    name = "sdpa"
    why = "PyTorch's own kernel computes this exactly, and is the fastest that does"
    measured = ("tiny", "dot-128")

    def declines(self, problem: Problem) -> str | None:
        if problem.pairs == 0:
            return "there are no pairs"
        lowered = problem.lowered
        row = lowered.row
        if row is None or row.kind != "softmax" or row.sink is not None or row.center is not None:
            return "the normalizer is not a plain softmax"
        obstacle = CAPABILITIES.obstacle(lowered)
        if obstacle is not None:
            return obstacle
        transform = active_transform()
        if transform is not None:
            return f"{transform}, and PyTorch's kernel has a reverse mode only"
        if problem.dropout and problem.query.device.type == "cpu":
            return "with dropout PyTorch's CPU kernel falls back to quadratic memory"
        if problem.bias is not None and torch.is_grad_enabled() and problem.bias.needs_gradient(problem.query):
            return "a bias that needs a gradient makes PyTorch's kernel fall back to quadratic memory"
        return None if problem.query.is_cpu else device.obstacle(problem)

    def kind_of_call(self, problem: Problem, gatherer: Gatherer | None = None) -> tuple[object, ...]:
        return *super().kind_of_call(problem), *enabled_kernels()

    def run(self, problem: Problem, gatherer: Gatherer | None = None) -> Tensor:
        output = self._run_on_cpu(problem) if problem.query.is_cpu else device.attend(problem, _in_slices)
        return _without_second_derivative(output)

    def bind(self, problem: Problem, any_keys: bool) -> Bound | None:
        lowered = problem.lowered
        score, tensors = lowered.score, (problem.query, problem.key, problem.value)
        query, key, value = tensors
        if isinstance(score.scale, Tensor) or score.query is not query or score.key is not key:
            return None
        # PyTorch needs one width, and adjacent features.
        if (
            key.shape != value.shape
            or query.shape[3] != key.shape[3]
            or any(one.stride(3) != 1 or one._is_zerotensor() for one in tensors)
        ):
            return None
        scale = _inverse_temperature(lowered) * score.scale
        if not query.is_cpu:
            options = device.options_of_one_call(problem)
            return None if options is None else partial(_attend_on_device, scale, problem.dropout, *options)
        if not lowered.needs_no_mask or problem.dropout or query.shape[:2] != key.shape[:2]:
            return None
        is_causal, is_short = lowered.mask is not None, key.shape[2] < SHORT_ROW
        if torch.is_grad_enabled() and any(one.requires_grad for one in tensors):
            return partial(_attend_with_gradient, scale, is_causal, is_short)
        return partial(_attend, scale, is_causal, is_short)

    def _run_on_cpu(self, problem: Problem) -> Tensor:
        lowered = problem.lowered
        prepared = lowered.score
        if prepared.key.shape[2] < SHORT_ROW and not is_finite(prepared.query):
            return attend_in_blocks(problem)
        if problem.may_hide and problem.wants_gradient and not _are_below(problem.value, LARGEST_VALUE):
            return attend_in_blocks(problem)
        if not problem.may_hide or lowered.needs_no_mask:
            output = _kernel(problem, prepared, problem.value, None, lowered.mask is not None)
        else:
            output = _in_slices(problem)
        return attend_in_blocks(problem) if output is None else output


def _attend(
    scale: float, is_causal: bool, is_short: bool, query: Tensor, key: Tensor, value: Tensor, *_: object
) -> Tensor | None:
    """Returns the output of a bound call; None if a NaN could be lost, or if something hidden may have reached it."""
    if is_short and not is_finite(query):
        return None
    output = F.scaled_dot_product_attention(query, key, value, None, 0.0, is_causal, scale=scale)
    return None if is_causal and not is_finite(output) else output


def _attend_with_gradient(
    scale: float, is_causal: bool, is_short: bool, query: Tensor, key: Tensor, value: Tensor, *_: object
) -> Tensor | None:
    """Returns the same where a gradient is wanted: all elements are finite, and their magnitudes are below the limits.

    The norm of the values bounds each of them. A query that is not finite makes the log-sum-exp of its row so, unless
    the row is short. With hooks for saved tensors, `ScaledDotProduct.run` reads none.
    """
    if has_saved_tensor_hooks():
        return None
    torch._C._set_grad_enabled(False)
    try:
        are_small = (not is_short or is_finite(query)) and (
            not is_causal or (is_finite(key) and torch.linalg.vector_norm(value).item() < LARGEST_VALUE)
        )
    finally:
        torch._C._set_grad_enabled(True)
    if not are_small:
        return None
    output = F.scaled_dot_product_attention(query, key, value, None, 0.0, is_causal, scale=scale)
    largest = _largest_log_sum(output)
    if largest is None or not largest <= LARGEST_SUM:  # NaN is not
        return None
    return _without_second_derivative(output)


def _attend_on_device(
    scale: float,
    dropout: float,
    is_causal: bool,
    is_grouped: bool,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *_: object,
) -> Tensor | None:
    """Returns the output of a bound call on a device, where no element is read; None with hooks for saved tensors."""
    if has_saved_tensor_hooks():
        return None
    output = F.scaled_dot_product_attention(
        query, key, value, None, dropout, is_causal, scale=scale, enable_gqa=is_grouped
    )
    return _without_second_derivative(output)


def _without_second_derivative(output: Tensor) -> Tensor:
    """Returns the output, whose gradient's gradient is one clear error."""
    if output.grad_fn is not None:
        output.grad_fn.register_prehook(_refuse_second_derivative)
    return output


def _refuse_second_derivative(gradient: object) -> None:
    """Raises a clear error if a gradient of the gradient will be needed; a hook of what made the output."""
    if torch.is_grad_enabled():
        raise BackendError(
            "PyTorch's kernel (backend 'sdpa') has no second derivative; backend='reference' has, for any score"
        )


def _in_slices(problem: Problem) -> Tensor | None:
    """Returns the output, computed for a slice of queries at a time; None as from `_kernel`."""
    outputs = []
    rows = ROWS if problem.query.is_cpu else device.rows_of_slice(problem, ROWS)
    for block in blocks(problem, (problem.grid.batch, rows)):
        output = _masked(problem, block)
        if output is None:
            return None
        outputs.append(output)
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=2)


def _masked(problem: Problem, inputs: TileInputs) -> Tensor | None:
    """Returns the output of one slice of queries under a mask, a bias or both; None as from `_kernel`."""
    grid = inputs.grid
    if not grid.key_span:
        return empty_output(inputs)
    allowed = empty = None
    if problem.pairs_seen is not None:
        allowed = grid.cut(problem.pairs_seen)
    elif problem.mask is not None and problem.mask.visibility(grid) is not Visibility.FULL:
        allowed = problem.mask.with_four_axes(grid)
        if problem.may_hide_rows:
            allowed = allowed.expand(-1, -1, -1, span_length(grid.key_span))
            empty = ~allowed.any(dim=-1, keepdim=True)
            # A row without visible keys would divide by zero. It sees all keys here, and its output is replaced by 0.
            allowed = allowed | empty
    additive = allowed
    if problem.bias is not None:
        additive = upcast(problem.bias(inputs.query, grid)).to(upcast(inputs.query).dtype)
        additive = additive * _inverse_temperature(problem.lowered)
        if allowed is not None:
            # Rows without visible keys see all keys here, but no bias, which may be NaN.
            additive = torch.where(allowed, additive if empty is None else additive.masked_fill(empty, 0.0), -math.inf)
        additive = additive[(None,) * (4 - additive.dim())]
    if not problem.query.is_cpu:
        output = device.masked_kernel(problem, inputs, additive)
    else:
        if additive is not None:
            additive = additive.expand(-1, -1, span_length(grid.query_span), span_length(grid.key_span))
        output = _kernel(problem, inputs.prepared, inputs.value, attn_mask=additive)
    return output if empty is None or output is None else output.masked_fill(empty, 0.0)


def _kernel(
    problem: Problem, prepared: Prepared, value: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False
) -> Tensor | None:
    """Returns the kernel's output; None if its backward pass would lose digits because its scores are too large."""
    query, key = prepared.query, prepared.key
    scale = _inverse_temperature(problem.lowered)
    if isinstance(prepared.scale, Tensor):
        # Multiplied in float32: in half precision the product would lose digits.
        query, key = upcast(query) * prepared.scale, upcast(key)
    else:
        scale *= prepared.scale
    dtype, value_dim = value.dtype, value.shape[3]
    rows = query.shape[:3]
    if _are_one_head(query, key, value, attn_mask, is_causal):
        query = query.reshape(rows[0], key.shape[1], -1, query.shape[3])
    if dtype != query.dtype:
        value = value.to(query.dtype)
    if not query.shape == key.shape == value.shape:
        query, key, value = _of_one_width(query, key, value)
    query, key, value = _with_adjacent_features(query), _with_adjacent_features(key), _with_adjacent_features(value)
    attn_mask = None if attn_mask is None else in_memory(attn_mask)
    output = F.scaled_dot_product_attention(query, key, value, attn_mask, problem.dropout, is_causal, scale=scale)
    if output.requires_grad and not _are_surely_small(query, key, scale, attn_mask) and _loses_digits(output):
        return None
    if value_dim != value.shape[3]:
        output = output[..., :value_dim]
    if output.shape[:3] != rows:
        output = output.reshape(*rows, value_dim)
    return output if dtype == query.dtype else output.to(dtype)


def _are_one_head(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, is_causal: bool) -> bool:
    """Whether the query heads that share keys may be rows of one head, so that keys and values are not copied.

    They may if all of these rows see the same keys with the same bias.
    """
    if not key.shape[1] == value.shape[1] < query.shape[1] or key.shape[0] != query.shape[0]:
        return False
    if attn_mask is not None:
        return attn_mask.shape[1:3] == (1, 1)
    return not is_causal or query.shape[2] == key.shape[2] == 1


def _of_one_width(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns query, key and value with equal batches and heads, padded with zeros to one width."""
    batch, heads, _, width = query.shape
    key_batch, key_heads, _, _ = key.shape
    _, value_heads, _, value_dim = value.shape
    if key_batch != batch:
        key = key.expand(batch, -1, -1, -1)
    if key_heads != heads:
        key = spread_heads(key, heads)
    if value_heads != heads:
        value = spread_heads(value, heads)
    # The kernel with linear memory needs one width for queries and values; zeros change no product and no mean.
    if value_dim < width:
        value = F.pad(value, (0, width - value_dim))
    elif width < value_dim:
        query, key = F.pad(query, (0, value_dim - width)), F.pad(key, (0, value_dim - width))
    return query, key, value


def _are_surely_small(query: Tensor, key: Tensor, scale: float, attn_mask: Tensor | None) -> bool:
    """Whether the Cauchy-Schwarz inequality bounds the log-sum-exps, so that the saved ones need not be read.

    With hooks for saved tensors, as in activation checkpointing, reading them would run the checkpointed part again.
    """
    if not has_saved_tensor_hooks() or key.shape[2] == 0:
        return False
    if attn_mask is not None and attn_mask.dtype != torch.bool:
        return False
    longest = [float(vectors.detach().float().norm(dim=-1).amax()) for vectors in (query, key)]
    return abs(scale) * longest[0] * longest[1] + math.log(key.shape[2]) < LARGEST_SUM


def _are_below(tensor: Tensor, bound: float) -> bool:
    """Whether all magnitudes are below a bound; NaN is not."""
    return tensor.numel() == 0 or float(torch.linalg.vector_norm(tensor.detach(), math.inf)) < bound


def _with_adjacent_features(tensor: Tensor) -> Tensor:
    """Returns the tensor with the features of a position next to each other in memory.

    For any other order, such as that of a feature map, PyTorch falls back to quadratic memory. A zero tensor without
    memory is copied, because the kernel would read from address 0.
    """
    return in_memory(tensor) if tensor.stride(-1) == 1 else tensor.clone(memory_format=torch.contiguous_format)


def _loses_digits(output: Tensor) -> bool:
    """Whether the backward pass of this output's kernel would lose digits."""
    largest = _largest_log_sum(output)
    return largest is not None and largest > LARGEST_SUM


def _largest_log_sum(output: Tensor) -> float | None:
    """Returns the largest magnitude of the log-sum-exps that this output's kernel saved; None if it saved none."""
    log_sums = getattr(output.grad_fn, "_saved_logsumexp", None)
    return None if log_sums is None or not log_sums.numel() else torch.linalg.vector_norm(log_sums, math.inf).item()


def _inverse_temperature(lowered: Lowered) -> float:
    assert lowered.row is not None
    assert isinstance(lowered.row.temperature, float)
    return 1.0 / lowered.row.temperature
