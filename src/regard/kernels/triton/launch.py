"""Launches the kernels: their arguments, the visible blocks, forward and backward as one differentiable function."""

# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from torch.nn import functional as F
from torch.utils.weak import WeakTensorKeyDictionary

from regard.errors import BackendError
from regard.kernels.triton.backward import backward_columns, backward_rows
from regard.kernels.triton.blocks import Blocks, of_mask, of_runs
from regard.kernels.triton.call import CODES, Call, Tile, scaling, tile_of
from regard.kernels.triton.forward import forward
from regard.kernels.triton.reading import read_rows
from regard.kernels.triton.tiles import DENSE, NO_MASK, SPANS
from regard.kernels.triton.units import unit_powers
from regard.tracing.transforms import in_memory, is_batched, is_capturing

PRECISION = "tf32x3"
"""How matrices of float32 are multiplied: as sums of three products of 11 bits, which keeps float32's digits but the
last one or two. Products without tensor cores (``ieee``) spill registers. Half precision is exact in tensor cores."""


def visible_blocks(call: Call, tile: Tile, by_columns: bool) -> Blocks | None:
    """Returns the visible blocks of keys for each block of rows, or the other way around; None if there is no mask.

    Those of runs are kept as long as the runs are (`regard.attention.device_runs`).
    """
    sizes, queries, keys = (tile.rows, tile.columns), call.query.shape[2], call.key.shape[2]
    if call.mask is not None:
        blocks = of_mask(call.mask, queries, keys, sizes, by_columns)
        return _all_partial(blocks) if call.bias is not None else blocks
    if call.start is not None and call.stop is not None:
        kept_blocks: dict[tuple[int, int, int, bool, bool], Blocks] = _BLOCKS.setdefault(call.start, {})  # type: ignore[assignment]
        form = *sizes, keys, by_columns, call.bias is not None
        if form in kept_blocks:
            return kept_blocks[form]
        blocks = of_runs(call.start, call.stop, keys, sizes, by_columns)
        if call.bias is not None:
            blocks = _all_partial(blocks)
        if not is_capturing(call.start.device):
            kept_blocks[form] = blocks
        return blocks
    return None


_BLOCKS: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
"""Blocks of runs, by the tile's rows and columns, the number of keys, the axis, and whether all are partial."""


def _all_partial(blocks: Blocks) -> Blocks:
    """Returns blocks of which none is full, since a bias may hide a pair."""
    bounds = blocks.bounds.clone()
    bounds[..., 1:3] = 0
    return Blocks(blocks.order, bounds)


def attend(call: Call) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the output ``[batch, heads, queries, value_dim]`` in the dtype of the values, differentiable.

    The others are two statistics of each row: the maximum of its scores, and the sum of softmax or the threshold of
    entmax less (α − 1) times the maximum.
    """
    return Attend.apply(call, call.query, call.key, call.value, call.weight, call.bias, call.sink)  # type: ignore[return-value]


class Attend(torch.autograd.Function):
    """The kernels as a differentiable function."""

    @staticmethod
    def forward(ctx: Any, call: Call, *tensors: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        call = call._replace(
            **{
                name: None if tensor is None else in_memory(tensor.detach())
                for name, tensor in zip(_TENSORS, tensors, strict=True)
            }
        )
        output, statistics = _run_forward(call, any(ctx.needs_input_grad))
        others = [getattr(call, name) for name in (*_TENSORS, *_MASKS)]
        ctx.call = call._replace(**dict.fromkeys((*_TENSORS, *_MASKS)))
        ctx.save_for_backward(output, *statistics, *others)
        maximum, total = statistics[:2]
        ctx.mark_non_differentiable(maximum, total)
        return output, maximum, total

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor, *_: Any) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            raise BackendError(
                "the fused kernels (backend 'triton') have no second derivative; backend='reference' has one for any "
                "score"
            )
        if is_batched(grad_output):
            raise BackendError(
                "the fused kernels (backend 'triton') take one gradient at a time, not a batch of gradients; "
                "backend='reference' takes both"
            )
        output, maximum, total, sloped, slope_total, *others = ctx.saved_tensors
        call = ctx.call._replace(**dict(zip((*_TENSORS, *_MASKS), others, strict=True)))
        statistics = output, maximum, total, sloped, slope_total
        return None, *_run_backward(call, statistics, in_memory(grad_output), ctx.needs_input_grad[1:])


_TENSORS = ("query", "key", "value", "weight", "bias", "sink")
_MASKS = ("start", "stop", "mask")


def _run_forward(call: Call, with_gradient: bool) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor | None, Tensor | None]]:
    rows = call.query.shape[:3]
    output = call.value.new_empty(*rows, call.value.shape[3])
    maximum, total = (output.new_empty(rows, dtype=torch.float32) for _ in range(2))
    sloped = slope_total = None
    if with_gradient and call.is_entmax:
        sloped, slope_total = output.new_empty(output.shape, dtype=torch.float32), torch.empty_like(total)
    statistics = maximum, total, sloped, slope_total
    _run_tiles(forward, "forward", call, None, output, *statistics, WITH_SLOPES=sloped is not None)
    return output, statistics


def _run_backward(
    call: Call, saved: tuple[Tensor | None, ...], grad_output: Tensor, needed: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    output, maximum, total, sloped, slope_total = saved
    assert output is not None
    assert maximum is not None
    assert total is not None
    grad_output = grad_output.to(call.value.dtype).contiguous()
    delta = _deltas(call, output, total, sloped, slope_total, grad_output)
    statistics = maximum, total, delta, grad_output
    powers = None if call.weight is None else _powers(call)
    grad_query = grad_weight = grad_bias = grad_key = grad_value = None
    if needed[0] or needed[3] or needed[4]:
        grad_query, grad_weight, grad_bias = _row_gradients(call, powers, statistics, needed[4])
    if needed[1] or needed[2]:
        grad_key, grad_value = _column_gradients(call, powers, statistics)
    grad_sink = None
    if needed[5] and call.sink is not None:
        share = torch.exp(call.sink[None, :, None] - maximum * scaling(call).factor) / total
        grad_sink = -(share * delta).sum((0, 2))
        if call.sink.shape[0] == 1:
            grad_sink = grad_sink.sum(0, keepdim=True)
    return grad_query, grad_key, grad_value, grad_weight, grad_bias, grad_sink


def _row_gradients(
    call: Call, powers: "Powers | None", statistics: tuple[Tensor, ...], with_bias: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Returns the gradients of the queries, of the weights of an additive score, and of the bias."""
    batch, heads, queries, dim = call.query.shape
    grad_bias = partial = None
    if with_bias and call.bias is not None:
        grad_bias = torch.zeros_like(call.bias, memory_format=torch.contiguous_format)
    if powers is None:
        grad_query = torch.empty_like(call.query, memory_format=torch.contiguous_format)
    else:
        grad_query = torch.zeros_like(powers.query)
        partial = grad_query.new_zeros(batch, heads, powers.units + 1, powers.query.shape[3])
    bias_start, *bias_strides = _bias_start(call, grad_bias)
    own = *statistics, grad_query, bias_start, partial, *bias_strides
    _run_tiles(backward_rows, "rows", call, powers, *own, WITH_BIAS=grad_bias is not None)
    if partial is None or call.weight is None:
        return grad_query, None, grad_bias
    sums = partial[..., :queries].sum(3)
    grad_weight = (sums[..., -1:] - 2.0 * sums[..., :dim]).sum(0)
    if call.weight.shape[0] == 1:
        grad_weight = grad_weight.sum(0, keepdim=True)
    return grad_query[:, :, :dim, :queries].transpose(2, 3).to(call.query.dtype), grad_weight, grad_bias


def _column_gradients(call: Call, powers: "Powers | None", statistics: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """Returns the gradients of the keys and the values."""
    _, _, keys, dim = call.key.shape
    if powers is None:
        grad_key = torch.empty_like(call.key, memory_format=torch.contiguous_format)
    else:
        grad_key = torch.zeros_like(powers.key)
    grad_value = torch.empty_like(call.value, memory_format=torch.contiguous_format)
    _run_tiles(backward_columns, "columns", call, powers, *statistics, grad_key, grad_value)
    if powers is not None:
        grad_key = grad_key[:, :, :dim, :keys].transpose(2, 3).to(call.key.dtype)
    return grad_key, grad_value


def read(call: Call, maximum: Tensor, total: Tensor, readings: dict[str, Tensor], offset: int) -> None:
    """Fills readings of the weights.

    Args:
        call: the call.
        maximum, total: the statistics of `attend`.
        readings: ``lse``, and any of ``entropy``, ``peak`` and ``distance``, float32 ``[batch, heads, queries]``;
            ``received``, zeros ``[batch, heads, keys]``.
        offset: the key position that belongs to the first query.
    """
    call = call._replace(
        **{name: in_memory(tensor.detach()) for name in _TENSORS if (tensor := getattr(call, name)) is not None},
        dropout=0.0,
    )
    names = ("lse", "entropy", "peak", "distance", "received")
    own = maximum, total, *map(readings.get, names), offset
    requested = {name.upper(): name in readings for name in names[1:]}
    _run_tiles(read_rows, "forward", call, None, *own, **requested)


def _run_tiles(kernel: Any, part: str, call: Call, powers: "Powers | None", *own: Any, **own_options: Any) -> None:
    """Runs a kernel: a program for each block of rows of a head, or of columns of a key head.

    Args:
        kernel: the kernel.
        part: what it computes, as `tile_of` names it.
        call: the call.
        powers: the units of an additive score, if they are known.
        own: the arguments after those that all kernels take.
        own_options: what the kernel is compiled for besides.
    """
    tile, by_columns = tile_of(call, part), part == "columns"
    arguments, options = _arguments(call, tile, visible_blocks(call, tile, by_columns), powers)
    rows, size = (call.key, tile.columns) if by_columns else (call.query, tile.rows)
    batch, heads, length, _ = rows.shape
    _launch(kernel, (-(-length // size), batch * heads), *arguments, *own, **options, **own_options)


def _launch(kernel: Any, grid: tuple[int, int], *arguments: Any, **options: Any) -> None:
    """Runs a kernel's programs on the device of its tensors."""
    with torch.cuda.device_of(arguments[0]):
        kernel[grid](*arguments, **options)


def _deltas(
    call: Call, output: Tensor, total: Tensor, sloped: Tensor | None, slope_total: Tensor | None, grad_output: Tensor
) -> Tensor:
    """Returns δ of each row: the mean of the weights' gradients, weighted by the derivatives of the weights."""
    if sloped is not None and slope_total is not None:
        # A row without visible keys has no slope.
        return (sloped * grad_output).sum(3) / slope_total.masked_fill(slope_total == 0.0, 1.0)
    if call.normalizer == "sigmoid":
        return torch.zeros_like(total)
    return (output.float() * grad_output.float()).sum(3)


class Powers(NamedTuple):
    """The units of an additive score, as the kernels read them; lengths are padded to whole tiles.

    Attributes:
        query, key: e^{2a}, float32 ``[batch, heads, units, length]``.
        query_extent, key_extent: max |a|, ``[batch, heads, length]``.
        units: number of units, a multiple of 4.
    """

    query: Tensor
    key: Tensor
    query_extent: Tensor
    key_extent: Tensor
    units: int


PADDING = 64
"""Lengths of exponentials are multiples of this, as no tile of units is longer."""


def _powers(call: Call) -> Powers:
    units = -(-call.query.shape[3] // 4) * 4
    parts = []
    for tensor in (call.query, call.key):
        batch, heads, length, dim = tensor.shape
        padded = -(-length // PADDING) * PADDING
        powers = tensor.new_empty(batch, heads, units, padded, dtype=torch.float32)
        extent = tensor.new_empty(batch, heads, padded, dtype=torch.float32)
        grid = padded // PADDING, batch * heads
        sizes = {"D": dim, "UNITS": units, "BLOCK": PADDING, "BLOCK_D": 16}
        _launch(unit_powers, grid, tensor.contiguous(), powers, extent, length, padded, **sizes)
        parts.append((powers, extent))
    (query, query_extent), (key, key_extent) = parts
    return Powers(query, key, query_extent, key_extent, units)


def _arguments(
    call: Call, tile: Tile, blocks: Blocks | None, powers: Powers | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the arguments that all kernels take, in their order, and what the kernels are compiled for."""
    heads, queries, dim = call.query.shape[1:]
    kv_heads, keys, value_dim = call.value.shape[1:]
    query, key, value = call.query.contiguous(), call.key.contiguous(), call.value.contiguous()
    weight, is_units = call.weight, call.weight is not None
    units: tuple[Any, ...] = (None,) * 4
    sizes, count = (0, 0, 0), 0
    if weight is not None:
        powers = powers or _powers(call)
        count = powers.units
        units = powers.query, powers.query_extent, powers.key, powers.key_extent
        weight = F.pad(weight.float(), (0, count - weight.shape[1])).contiguous()
        sizes = powers.query.shape[3], powers.key.shape[3], count if weight.shape[0] > 1 else 0
    scale, factor, is_scaled = scaling(call)
    mask, spans = call.mask, call.start
    masks = (0, 0, 0, 0) if mask is None else _strides(mask)
    runs = (0, 0) if spans is None else _strides(spans)[:2]
    # The lists of blocks have the axes of the mask; their strides count lists.
    own = spans.shape[:2] if spans is not None else mask.shape[:2] if mask is not None else (1, 1)
    lists = (own[1] if own[0] > 1 else 0, 1 if own[1] > 1 else 0)
    order, bounds = (None, None) if blocks is None else blocks
    bias, *bias_strides = _bias_start(call, call.bias)
    kind = SPANS if spans is not None else DENSE if mask is not None else NO_MASK
    arguments = (
        query, units[0], units[1], key, units[2], units[3], value, weight, bias, call.sink, spans, call.stop,
        None if mask is None else mask.view(torch.uint8), call.seed, call.dropout, scale, call.cap, factor, call.shift,
        call.alpha - 1.0, heads, kv_heads, queries, keys, *sizes,
        0 if call.sink is None or call.sink.shape[0] == 1 else 1, *bias_strides, *masks, *runs, *lists,
        -(-queries // tile.rows), -(-keys // tile.columns), order, bounds,
    )  # fmt: skip
    options = {
        "D": dim,
        "V": value_dim,
        "UNITS": count,
        "BLOCK_Q": tile.rows,
        "BLOCK_K": tile.columns,
        "BLOCK_D": 16 if is_units else max(16, triton.next_power_of_2(dim)),
        "BLOCK_V": max(16, triton.next_power_of_2(value_dim)),
        "NORMALIZER": CODES[call.normalizer],
        "IS_UNITS": is_units,
        "SCALED": is_scaled,
        "CAP": call.cap != 0.0,
        "BIAS": call.bias is not None,
        "MASK": kind.value,
        "RUNS": 1 if spans is None else spans.shape[3],
        "GAPS": order is not None,
        "SINK": call.sink is not None,
        "DROPOUT": call.dropout > 0.0,
        "PRECISION": PRECISION,
        "num_warps": tile.warps,
        "num_stages": tile.stages,
    }
    if tile.registers is not None:
        options["maxnreg"] = tile.registers
    return arguments, options


def _strides(tensor: Tensor) -> tuple[int, ...]:
    """Returns the strides of a tensor that is broadcast."""
    return tuple(0 if size == 1 else stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def _bias_start(call: Call, bias: Tensor | None) -> tuple[Any, ...]:
    """Returns a bias from its first pair on, and its strides over batch, heads, rows and columns."""
    if bias is None:
        return None, 0, 0, 0, 0
    if bias.dim() == 4:
        return bias, *_strides(bias)
    head, diagonal = bias.stride()
    return bias[:, call.query.shape[2] - 1 :], 0, head if bias.shape[0] > 1 else 0, -diagonal, diagonal
