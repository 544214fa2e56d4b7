"""Launches the kernels: their arguments, the visible blocks, forward and backward as one differentiable function."""

# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
# pyright: reportCallIssue=false, reportIndexIssue=false
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from torch.nn import functional as F
from torch.utils.weak import WeakTensorKeyDictionary

from regard.errors import BackendError
from regard.kernels.triton.backward import ColumnGradients, RowGradients, backward_columns, backward_rows
from regard.kernels.triton.blocks import TileBlocks, of_mask, of_runs
from regard.kernels.triton.call import CODES, Call, Tile, scaling, tile_of
from regard.kernels.triton.forward import Outputs, forward
from regard.kernels.triton.program import DENSE, NO_MASK, SPANS, Form, Matrix, Numbers, Sizes, Tensors, program
from regard.kernels.triton.reading import Readings, read_rows
from regard.kernels.triton.units import unit_powers
from regard.tracing.transforms import in_memory, is_batched, is_capturing

PRECISION = "tf32x3"
"""How matrices of float32 are multiplied: as sums of three products of 11 bits, which keeps float32's digits but the
last one or two. Products without tensor cores (``ieee``) spill registers. Half precision is exact in tensor cores."""


def visible_blocks(call: Call, tile: Tile, by_columns: bool) -> TileBlocks | None:
    """Returns the visible blocks of keys for each block of rows, or the other way around; None if there is no mask.

    Those of runs are kept as long as the runs are (`regard.attention.device_runs`).
    """
    sizes, queries, keys = (tile.rows, tile.columns), call.query.shape[2], call.key.shape[2]
    if call.mask is not None:
        blocks = of_mask(call.mask, queries, keys, sizes, by_columns)
        return _all_partial(blocks) if call.bias is not None else blocks
    if call.start is not None and call.stop is not None:
        kept_blocks: dict[tuple[int, int, int, bool, bool], TileBlocks] = _BLOCKS.setdefault(call.start, {})  # type: ignore[assignment]
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


def _all_partial(blocks: TileBlocks) -> TileBlocks:
    """Returns blocks of which none is full, since a bias may hide a pair."""
    bounds = blocks.bounds.clone()
    bounds[..., 1:3] = 0
    return TileBlocks(blocks.order, bounds)


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
        outputs = _run_forward(call, any(ctx.needs_input_grad))
        others = [getattr(call, name) for name in (*_TENSORS, *_MASKS)]
        ctx.call = call._replace(**dict.fromkeys((*_TENSORS, *_MASKS)))
        ctx.save_for_backward(*outputs, *others)
        ctx.mark_non_differentiable(outputs.maximum, outputs.total)
        return outputs[:3]

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
        count = len(Outputs._fields)
        outputs, others = Outputs(*ctx.saved_tensors[:count]), ctx.saved_tensors[count:]
        call = ctx.call._replace(**dict(zip((*_TENSORS, *_MASKS), others, strict=True)))
        return None, *_run_backward(call, outputs, in_memory(grad_output), ctx.needs_input_grad[1:])


_TENSORS = ("query", "key", "value", "weight", "bias", "sink")
_MASKS = ("start", "stop", "mask")


def _run_forward(call: Call, with_gradient: bool) -> Outputs:
    rows = call.query.shape[:3]
    output = call.value.new_empty(*rows, call.value.shape[3])
    maximum, total = (output.new_empty(rows, dtype=torch.float32) for _ in range(2))
    sloped = slope_total = None
    if with_gradient and call.is_entmax:
        sloped, slope_total = output.new_empty(output.shape, dtype=torch.float32), torch.empty_like(total)
    outputs = Outputs(output, maximum, total, sloped, slope_total)
    _run_tiles(forward, "forward", call, None, outputs)
    return outputs


def _run_backward(
    call: Call, outputs: Outputs, grad_output: Tensor, needed: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    maximum, total = outputs.maximum, outputs.total
    grad_output = grad_output.to(call.value.dtype).contiguous()
    delta = _deltas(call, outputs, grad_output)
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
    _run_tiles(backward_rows, "rows", call, powers, RowGradients(*statistics, grad_query, partial), grad_bias)
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
    _run_tiles(backward_columns, "columns", call, powers, ColumnGradients(*statistics, grad_key, grad_value))
    if powers is not None:
        grad_key = grad_key[:, :, :dim, :keys].transpose(2, 3).to(call.key.dtype)
    return grad_key, grad_value


def read(call: Call, maximum: Tensor, total: Tensor, readings: dict[str, Tensor], offset: int) -> None:
    """Fills readings of the weights.

    Args:
        maximum, total: the statistics of `attend`.
        readings: ``lse``, and any of ``entropy``, ``peak`` and ``distance``, float32 ``[batch, heads, queries]``;
            ``received``, zeros ``[batch, heads, keys]``.
        offset: the key position that belongs to the first query.
    """
    call = call._replace(
        **{name: in_memory(tensor.detach()) for name in _TENSORS if (tensor := getattr(call, name)) is not None},
        dropout=0.0,
    )
    own = Readings(maximum, total, *map(readings.get, Readings._fields[2:]))
    _run_tiles(read_rows, "forward", call, None, own, offset=offset)


def _run_tiles(
    kernel: Any,
    part: str,
    call: Call,
    powers: "Powers | None",
    own: NamedTuple,
    grad_bias: Tensor | None = None,
    offset: int = 0,
) -> None:
    """Runs a kernel: a program for each block of rows of a head, or of columns of a key head.

    Args:
        part: what it computes, as `tile_of` names it.
        powers: the units of an additive score, if they are known.
        own: the tensors that only this kernel takes.
        grad_bias: the gradient of the bias, which the kernel fills.
        offset: the key position that belongs to the first query.
    """
    tile, by_columns = tile_of(call, part), part == "columns"
    blocks = visible_blocks(call, tile, by_columns)
    _, heads, queries, dim = call.query.shape
    batch, kv_heads, keys, value_dim = call.value.shape
    weight, sink, mask, spans = call.weight, call.sink, call.mask, call.start
    if weight is not None:
        powers = powers or _powers(call)
        weight = F.pad(weight.float(), (0, powers.units - weight.shape[1])).contiguous()
    scale, factor, is_scaled = scaling(call)
    # The lists of blocks have the axes of the mask; their strides count lists.
    lists = spans.shape[:2] if spans is not None else mask.shape[:2] if mask is not None else (1, 1)
    span_batch, span_head = (0, 0) if spans is None else _strides(spans)[:2]
    tensors = Tensors(
        query=call.query.contiguous(), key=call.key.contiguous(), value=call.value.contiguous(),
        query_powers=powers and powers.query, query_extent=powers and powers.query_extent,
        key_powers=powers and powers.key, key_extent=powers and powers.key_extent, weight=weight, sink=sink,
        order=blocks and blocks.order, bounds=blocks and blocks.bounds,
    )  # fmt: skip
    numbers = Numbers(
        rate=float(call.dropout), scale=float(scale), cap=float(call.cap), factor=float(factor),
        shift=float(call.shift), exponent=call.alpha - 1.0,
    )  # fmt: skip
    sizes = Sizes(
        seed=call.seed, heads=heads, kv_heads=kv_heads, queries=queries, keys=keys,
        padded_queries=powers.query.shape[3] if powers else 0, padded_keys=powers.key.shape[3] if powers else 0,
        row_blocks=-(-queries // tile.rows), column_blocks=-(-keys // tile.columns), offset=offset,
        weight_head=weight.shape[1] if weight is not None and weight.shape[0] > 1 else 0,
        sink_head=1 if sink is not None and sink.shape[0] > 1 else 0, span_batch=span_batch, span_head=span_head,
        list_batch=lists[1] if lists[0] > 1 else 0, list_head=1 if lists[1] > 1 else 0,
    )  # fmt: skip
    form = Form(
        dim=dim, value_dim=value_dim, units=powers.units if powers else 0, block_q=tile.rows, block_k=tile.columns,
        block_d=16 if powers else max(16, triton.next_power_of_2(dim)),
        block_v=max(16, triton.next_power_of_2(value_dim)), normalizer=CODES[call.normalizer],
        is_units=weight is not None, is_scaled=is_scaled, has_cap=call.cap != 0.0, has_bias=call.bias is not None,
        has_bias_gradient=grad_bias is not None,
        mask=(SPANS if spans is not None else DENSE if mask is not None else NO_MASK).value,
        runs=1 if spans is None else spans.shape[3], has_gaps=tensors.order is not None, has_sink=sink is not None,
        has_dropout=call.dropout > 0.0, precision=PRECISION,
    )  # fmt: skip
    options = {} if tile.registers is None else {"maxnreg": tile.registers}
    grid = (sizes.column_blocks, batch * kv_heads) if by_columns else (sizes.row_blocks, batch * heads)
    with torch.cuda.device_of(call.query):
        program[grid](
            kernel, tensors, own, numbers, *sizes, *_matrix(call, call.bias), *_matrix(call, grad_bias),
            *_matrix(call, None if mask is None else mask.view(torch.uint8)), spans, call.stop, form,
            num_warps=tile.warps, num_stages=tile.stages, **options,
        )  # fmt: skip


def _deltas(call: Call, outputs: Outputs, grad_output: Tensor) -> Tensor:
    """Returns δ of each row: the mean of the weights' gradients, weighted by the derivatives of the weights."""
    if outputs.sloped is not None:
        # A row without visible keys has no slope.
        slope_total = outputs.slope_total.masked_fill(outputs.slope_total == 0.0, 1.0)
        return (outputs.sloped * grad_output).sum(3) / slope_total
    if call.normalizer == "sigmoid":
        return torch.zeros_like(outputs.total)
    return (outputs.output.float() * grad_output.float()).sum(3)


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
        with torch.cuda.device_of(tensor):
            unit_powers[grid](tensor.contiguous(), powers, extent, length, padded, **sizes)
        parts.append((powers, extent))
    (query, query_extent), (key, key_extent) = parts
    return Powers(query, key, query_extent, key_extent, units)


def _strides(tensor: Tensor) -> tuple[int, ...]:
    """Returns the strides of a tensor that is broadcast."""
    return tuple(0 if size == 1 else stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def _matrix(call: Call, tensor: Tensor | None) -> Matrix:
    """Returns a mask, a bias or the diagonals of a bias from the first pair on."""
    if tensor is None:
        return Matrix(None, 0, 0, 0, 0)
    if tensor.dim() == 4:
        return Matrix(tensor, *_strides(tensor))
    head, diagonal = tensor.stride()
    return Matrix(tensor[:, call.query.shape[2] - 1 :], 0, head if tensor.shape[0] > 1 else 0, -diagonal, diagonal)
