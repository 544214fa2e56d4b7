"""PyTorch's kernels on accelerators: no element is read on the host, and inputs are copied only if a kernel needs it.

PyTorch chooses the kernel (flash, efficient, cuDNN). On CUDA and ROCm it is asked beforehand in which `Form` one of
them takes a call with linear memory; where none does, `obstacle` says so. A causal mask is cut into parts without
hidden rows or keys:

::

    rows that see no key              zeros
    a square, or a trapezoid          the kernel's own causal mask
      whose last row sees all keys
    rows that see all keys            no mask

All other masks, and biases, are made dense for slices of rows. Every row of a dense bias is shifted by its maximum,
which changes no weight, so that a bias of −1e9 for all keys of a row costs no digits in the backward pass.
"""

from collections.abc import Callable
from enum import Enum, auto
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.backends.reference import TileInputs
from regard.attention.kinds import enabled_kernels
from regard.attention.problem import Problem
from regard.masks import Band
from regard.shapes.grid import span_length, spread_heads, upcast
from regard.tracing.transforms import shared_scalar

FORETELLING_DEVICES = {"cuda"}
"""Types of devices on which PyTorch says beforehand which kernel it takes; ROCm's is ``cuda`` as well."""

MASK_ELEMENTS = 1 << 26
"""Elements of a dense mask of all heads together that are made at a time: 128 MiB in half precision."""


class HiddenPairs(Enum):
    """The form in which a kernel gets the hidden pairs."""

    FULL = auto()
    CAUSAL = auto()
    LOWER_RIGHT = auto()
    MASKED = auto()
    BIASED = auto()


class SplitPart(NamedTuple):
    """Query rows and keys of a problem, and how its pairs are hidden; ``None`` if the rows see no key."""

    rows: range
    keys: range
    case: HiddenPairs | None


class Form(NamedTuple):
    """How query, key and value are passed.

    Attributes:
        spreads: whether keys and values are repeated for the query heads that share them.
        width: the width to which all are padded with zeros; 0 if they are passed as they are.
    """

    spreads: bool = False
    width: int = 0


class KernelSizes(NamedTuple):
    """What PyTorch's choice of a kernel depends on; widths and dtype are those that the kernel gets."""

    device: torch.device
    dtype: torch.dtype
    heads: int
    kv_heads: int
    dim: int
    value_dim: int
    gradient: bool
    dropout: bool


def obstacle(problem: Problem) -> str | None:
    """Returns why PyTorch would need quadratic memory; None if it would not, or on devices that it says nothing of."""
    if problem.query.device.type not in FORETELLING_DEVICES:
        return None
    for part in parts(problem):
        if part.case is not None and _form(_sizes(problem, part.case), part.case, enabled_kernels()) is None:
            return f"PyTorch has no kernel with linear memory for this, on {problem.query.device}"
    return None


def parts(problem: Problem) -> list[SplitPart]:
    """Returns the parts of a problem, in the order of its rows; one part for a mask that becomes dense."""
    Q, K = problem.grid.queries, problem.grid.keys
    mask, rows, keys = problem.hiding_mask, range(Q), range(K)
    if problem.bias is not None:
        return [SplitPart(rows, keys, HiddenPairs.BIASED)]
    if mask is None:
        return [SplitPart(rows, keys, HiddenPairs.FULL)]
    offset = mask.offset_on(problem.grid) if isinstance(mask, Band) and mask.offset is None else None
    if not (isinstance(mask, Band) and isinstance(offset, int) and mask.is_causal):
        return [SplitPart(rows, keys, HiddenPairs.MASKED)]
    empty, last = min(max(-offset, 0), Q), min(max(K - offset, 0), Q)
    offset = max(offset, 0)
    # Row `last` would be the first to see keys that do not exist.
    seen = range(min(offset + last - empty, K))
    is_square = len(seen) == last - empty
    causal = (
        HiddenPairs.CAUSAL
        if is_square
        else HiddenPairs.LOWER_RIGHT
        if problem.query.device.type in FORETELLING_DEVICES
        else HiddenPairs.MASKED
    )
    if causal is HiddenPairs.MASKED:
        return [SplitPart(rows, keys, HiddenPairs.MASKED)]
    cut = [
        SplitPart(range(empty), range(0), None),
        SplitPart(range(empty, last), seen, causal),
        SplitPart(range(last, Q), keys, HiddenPairs.FULL),
    ]
    return [part for part in cut if part.rows]


def rows_of_slice(problem: Problem, least: int) -> int:
    """Returns for how many query rows at a time a mask or a bias is made dense."""
    grid, mask = problem.grid, problem.hiding_mask
    if isinstance(mask, Band) and mask.before is not None and mask.after is not None:
        return max(least, mask.before + mask.after)
    heads = grid.heads if problem.bias is not None else 1
    return max(least, MASK_ELEMENTS // max(grid.batch * heads * grid.keys, 1))


def attend(problem: Problem, in_slices: Callable[[Problem], Tensor | None]) -> Tensor:
    """Returns the output ``[batch, heads, queries, value_dim]``.

    Args:
        in_slices: computes the output for a slice of rows at a time, by `masked_kernel`.
    """
    prepared, value = problem.prepared, problem.value
    outputs = []
    for rows, keys, case in parts(problem):
        if case is None:
            outputs.append(value.new_zeros(*problem.query.shape[:2], len(rows), value.shape[3]))
        elif case in (HiddenPairs.MASKED, HiddenPairs.BIASED):
            output = in_slices(problem)
            assert output is not None
            return output
        else:
            query, key, own_value = _cut(prepared.query, rows), _cut(prepared.key, keys), _cut(value, keys)
            outputs.append(_kernel(problem, query, key, own_value, case))
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=2)


def options_of_one_call(problem: Problem) -> tuple[bool, bool] | None:
    """Returns ``is_causal`` and ``enable_gqa`` if PyTorch's kernel takes the inputs as they are, in one call; or None.

    Args:
        problem: scores its own queries and keys, which are of one width with the values.
    """
    first, *others = parts(problem)
    if others or first.case not in (HiddenPairs.FULL, HiddenPairs.CAUSAL) or len(first.keys) != problem.grid.keys:
        return None
    sizes = _sizes(problem, first.case)
    form = _form(sizes, first.case, enabled_kernels()) if problem.query.device.type in FORETELLING_DEVICES else Form()
    if form != Form() or problem.key.shape[0] != problem.query.shape[0] or _are_one_head(sizes, first.case):
        return None
    return first.case is HiddenPairs.CAUSAL, problem.key.shape[1] != problem.query.shape[1]


def _cut(tensor: Tensor, positions: range) -> Tensor:
    """Returns some positions; the tensor itself if they are all, since the backward pass of a cut copies."""
    return tensor if len(positions) == tensor.shape[2] else tensor.narrow(2, positions.start, len(positions))


def masked_kernel(problem: Problem, inputs: TileInputs, attn_mask: Tensor | None) -> Tensor:
    """Returns the output of a slice of queries under a mask or bias of four axes, which is None if it needs none."""
    case = (
        HiddenPairs.FULL
        if attn_mask is None
        else HiddenPairs.BIASED
        if problem.bias is not None
        else HiddenPairs.MASKED
    )
    empty = None
    if attn_mask is not None:
        if attn_mask.is_floating_point():
            largest = attn_mask.amax(dim=-1, keepdim=True)
            attn_mask = attn_mask - largest.masked_fill(~largest.isfinite(), 0.0)
            if problem.may_hide_rows:
                # A row without visible keys would divide by zero. It sees all keys here.
                empty = largest == -torch.inf
                attn_mask = attn_mask.masked_fill(empty, 0.0)
        else:
            # PyTorch makes the same of a bool mask, in four operations and after it is expanded.
            dtype, device = _sizes(problem, case).dtype, attn_mask.device
            shown, hidden = (shared_scalar(value, dtype, device) for value in (0.0, -torch.inf))
            attn_mask = torch.where(attn_mask, shown, hidden)
        queries, keys = span_length(inputs.grid.query_span), span_length(inputs.grid.key_span)
        attn_mask = attn_mask.expand(-1, -1, queries, keys)
    output = _kernel(problem, inputs.prepared.query, inputs.prepared.key, inputs.value, case, attn_mask)
    return output if empty is None else output.masked_fill(empty, 0.0)


def _kernel(
    problem: Problem, query: Tensor, key: Tensor, value: Tensor, case: HiddenPairs, attn_mask: Tensor | None = None
) -> Tensor:
    """Returns the output of PyTorch's kernel for some rows, in the value's dtype.

    Args:
        problem: the problem, for its scale, temperature and dropout.
        query, key, value: ``[batch, heads, rows, dim]``, as `Prepared` has them.
        case: what the kernel is told about hidden pairs.
        attn_mask: what is added to the scores, for the cases MASKED and BIASED.
    """
    dtype, rows, value_dim = value.dtype, query.shape[:3], value.shape[3]
    sizes, scale = _sizes(problem, case), _scale(problem)
    if isinstance(problem.prepared.scale, Tensor):
        # Multiplied in float32: in half precision the product would lose digits.
        query = upcast(query) * problem.prepared.scale
    query, key, value = (tensor.to(sizes.dtype) for tensor in (query, key, value))
    if key.shape[0] != rows[0]:
        key = key.expand(rows[0], -1, -1, -1)
    if key.shape[1] != value.shape[1]:
        key, value = spread_heads(key, rows[1]), spread_heads(value, rows[1])
    if _are_one_head(sizes, case):
        query = query.reshape(rows[0], key.shape[1], -1, query.shape[3])
    form = (_form(sizes, case, enabled_kernels()) if query.device.type in FORETELLING_DEVICES else None) or Form()
    if form.spreads:
        key, value = spread_heads(key, rows[1]), spread_heads(value, rows[1])
    if form.width:
        query, key, value = (_widened(tensor, form.width) for tensor in (query, key, value))
    query, key, value = (tensor if tensor.stride(3) == 1 else tensor.contiguous() for tensor in (query, key, value))
    if case is HiddenPairs.LOWER_RIGHT:
        from torch.nn.attention.bias import causal_lower_right

        attn_mask = causal_lower_right(query.shape[2], key.shape[2])
    is_grouped = key.shape[1] != query.shape[1]
    output = F.scaled_dot_product_attention(
        query, key, value, attn_mask, problem.dropout, case is HiddenPairs.CAUSAL, scale=scale, enable_gqa=is_grouped
    )
    return output[..., :value_dim].reshape(*rows, value_dim).to(dtype)


def _sizes(problem: Problem, case: HiddenPairs) -> KernelSizes:
    prepared, value = problem.prepared, problem.value
    in_float32 = case is HiddenPairs.BIASED or isinstance(prepared.scale, Tensor)
    heads, kv_heads = problem.query.shape[1], value.shape[1]
    sizes = KernelSizes(
        problem.query.device,
        upcast(value).dtype if in_float32 else prepared.query.dtype,
        heads,
        kv_heads if prepared.key.shape[1] == kv_heads else heads,
        prepared.query.shape[3],
        value.shape[3],
        problem.wants_gradient,
        problem.dropout > 0.0,
    )
    return sizes._replace(heads=sizes.kv_heads) if _are_one_head(sizes, case) else sizes


def _are_one_head(sizes: KernelSizes, case: HiddenPairs) -> bool:
    """Whether the query heads that share keys are passed as rows of one head, since all of them see all keys."""
    return case is HiddenPairs.FULL and sizes.kv_heads < sizes.heads


def _scale(problem: Problem) -> float:
    row, scale = problem.row, problem.prepared.scale
    assert row is not None
    assert isinstance(row.temperature, float)
    return (1.0 if isinstance(scale, Tensor) else scale) / row.temperature


def _widened(tensor: Tensor, width: int) -> Tensor:
    """Pads features with zeros, which change no product and no mean."""
    return tensor if tensor.shape[3] == width else F.pad(tensor, (0, width - tensor.shape[3]))


@cache
def _form(sizes: KernelSizes, case: HiddenPairs, enabled: tuple[bool, ...]) -> Form | None:
    """Returns the form with the fewest copies in which a kernel with linear memory takes a call; None if none does.

    ``enabled`` makes the answer depend on which kernels the user allows.
    """
    width = -(-max(sizes.dim, sizes.value_dim) // 8) * 8
    is_grouped = sizes.kv_heads != sizes.heads
    for padded in (0, width):
        for spreads in (False, True) if is_grouped else (False,):
            form = Form(spreads, padded)
            if _is_taken(sizes, case, form):
                return form
    return None


def _is_taken(sizes: KernelSizes, case: HiddenPairs, form: Form) -> bool:
    """Whether one of PyTorch's kernels with linear memory takes a call of these sizes in this form."""
    kv_heads = sizes.heads if form.spreads else sizes.kv_heads
    queries, keys = (64, 64) if case is HiddenPairs.CAUSAL else (64, 128)

    def tensor(heads: int, length: int, dim: int) -> Tensor:
        shape = 1, heads, length, form.width or dim
        return torch.empty(shape, dtype=sizes.dtype, device=sizes.device, requires_grad=sizes.gradient)

    query = tensor(sizes.heads, queries, sizes.dim)
    key, value = tensor(kv_heads, keys, sizes.dim), tensor(kv_heads, keys, sizes.value_dim)
    is_grouped, dropout = kv_heads != sizes.heads, 0.5 if sizes.dropout else 0.0
    if case is HiddenPairs.LOWER_RIGHT:
        from torch.backends.cuda import SDPAParams, can_use_efficient_attention, can_use_flash_attention

        parameters = SDPAParams(query, key, value, None, dropout, False, is_grouped)
        return can_use_flash_attention(parameters) or can_use_efficient_attention(parameters)
    mask = None
    if case in (HiddenPairs.MASKED, HiddenPairs.BIASED):
        mask = torch.empty(1, 1, queries, keys, dtype=sizes.dtype, device=sizes.device)
    causal = case is HiddenPairs.CAUSAL
    return torch._fused_sdp_choice(query, key, value, mask, dropout, causal, enable_gqa=is_grouped) > 0
