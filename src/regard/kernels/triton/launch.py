"""Launches the kernels: the sizes of tiles, the visible blocks, forward and backward as one differentiable function."""

# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from torch.nn import functional as F

from regard.errors import BackendError
from regard.kernels.triton.backward import backward_columns, backward_rows
from regard.kernels.triton.forward import forward
from regard.kernels.triton.reading import read_rows
from regard.kernels.triton.tiles import DENSE, NO_MASK, SPANS
from regard.transforms import in_memory, is_batched

CODES = {"softmax": 0, "entmax15": 1, "sparsemax": 2, "entmax": 3, "sigmoid": 4}
"""The normalizers by name, as `regard.kernels.triton.tiles` numbers them."""

PRECISION = "tf32x3"
"""How matrices of float32 are multiplied: as sums of three products of 11 bits, which keeps float32's digits but the
last one or two. Products without tensor cores (``ieee``) spill registers. Half precision is exact in tensor cores."""


class Call(NamedTuple):
    """One call of the kernels.

    Attributes:
        query: ``[batch, heads, queries, dim]``.
        key: ``[batch, kv_heads, keys, dim]`` of the same dtype.
        value: ``[batch, kv_heads, keys, value_dim]``.
        weight: weights ``[heads or 1, dim]`` of an additive score, with its scale; None for an inner product.
        bias: float32 ``[batch or 1, heads or 1, queries or 1, keys or 1]``, or diagonals ``[heads or 1, queries + keys
            − 1]``; None for no bias.
        sink: float32 ``[heads or 1]``, or None.
        start, stop: int32 ``[batch or 1, heads or 1, queries, runs]`` of a mask's runs, or None.
        mask: bool, broadcastable to all pairs, in place of runs; or None.
        normalizer: a name in `CODES`.
        scale: factor of an inner product.
        cap: the soft cap of the scores; 0 for none.
        temperature: of softmax.
        shift: what sigmoid adds to a score.
        alpha: of entmax.
        dropout: probability of dropping a weight.
        seed: of dropout.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    weight: Tensor | None = None
    bias: Tensor | None = None
    sink: Tensor | None = None
    start: Tensor | None = None
    stop: Tensor | None = None
    mask: Tensor | None = None
    normalizer: str = "softmax"
    scale: float = 1.0
    cap: float = 0.0
    temperature: float = 1.0
    shift: float = 0.0
    alpha: float = 1.5
    dropout: float = 0.0
    seed: int = 0

    @property
    def is_entmax(self) -> bool:
        return self.normalizer in ("entmax15", "sparsemax", "entmax")


class Tile(NamedTuple):
    """Rows and columns of a tile, and how a program runs it."""

    rows: int
    columns: int
    warps: int
    stages: int


def tile_of(call: Call, backward: bool) -> Tile:
    """Returns the tile of a call's kernels."""
    if call.weight is not None:
        return Tile(32, 64, 4, 1) if backward else Tile(64, 32, 4, 1)
    width = max(call.query.shape[3], call.value.shape[3])
    if torch.float32 in (call.query.dtype, call.value.dtype):
        return Tile(64, 32, 4, 2) if width <= 64 else Tile(64, 32, 8, 1) if width <= 128 else Tile(32, 32, 4, 1)
    if width > 128:
        return Tile(64, 32, 4, 1)
    if backward:
        return Tile(64, 64, 4 if width <= 64 else 8, 2)
    return Tile(128, 64, 4 if width <= 64 else 8, 2 if call.is_entmax else 3)


def padded_width(width: int, tile: Tile) -> int:
    """Returns the number of features with which a tile of these many is computed.

    It is above the number of a tile's columns where there are more than 4 warps. Otherwise the compiler gives the
    product of transposed weights to warps by its 32 rows, each with the whole other matrix in its registers; such a
    kernel of float32 accessed memory illegally on an H100.
    """
    return max(16 if tile.warps <= 4 else 2 * tile.columns, triton.next_power_of_2(width))


class Blocks(NamedTuple):
    """The tiles with visible pairs.

    Attributes:
        order: int32 ``[batch or 1, heads or 1, blocks of one axis, blocks of the other]``: the visible ones first.
        first: the first visible one of each, int32 without the last axis.
        count: how many are visible; without gaps, they adjoin.
        gaps: whether others may lie between visible ones.
    """

    order: Tensor
    first: Tensor
    count: Tensor
    gaps: bool


def visible_blocks(call: Call, tile: Tile) -> tuple[Blocks, Blocks] | None:
    """Returns the visible blocks of keys for each block of rows, and the other way around; None if there is no mask."""
    queries, keys = call.query.shape[2], call.key.shape[2]
    many_rows, many_columns = -(-queries // tile.rows), -(-keys // tile.columns)
    if call.start is not None and call.stop is not None:
        is_empty = call.start >= call.stop
        room = (0, 0, 0, many_rows * tile.rows - queries)
        low = F.pad(call.start.masked_fill(is_empty, keys), room, value=keys)
        high = F.pad(call.stop.masked_fill(is_empty, 0), room)
        low, high = low.unflatten(2, (many_rows, tile.rows)).amin(3), high.unflatten(2, (many_rows, tile.rows)).amax(3)
        begin = torch.arange(many_columns, device=low.device) * tile.columns
        seen = ((low[..., None] < begin + tile.columns) & (high[..., None] > begin)).any(3)
        gaps = call.start.shape[3] > 1
    elif call.mask is not None:
        mask = call.mask
        for axis, block in ((2, tile.rows), (3, tile.columns)):
            if mask.shape[axis] > 1:
                room = -mask.shape[axis] % block
                mask = F.pad(mask, (0, 0, 0, room) if axis == 2 else (0, room))
                mask = mask.unflatten(axis, (-1, block)).any(axis + 1)
        seen, gaps = mask.expand(*mask.shape[:2], many_rows, many_columns), True
    else:
        return None
    return _listed(seen, gaps), _listed(seen.transpose(2, 3), gaps)


def _listed(seen: Tensor, gaps: bool) -> Blocks:
    many = seen.shape[3]
    index = torch.arange(many, device=seen.device, dtype=torch.int32)
    if gaps:
        count = seen.sum(3, dtype=torch.int32)
        order = torch.where(seen, index, index + many).sort(3).values
        return Blocks(order.contiguous(), count, count, gaps)
    first = torch.where(seen, index, many).amin(3)
    last = torch.where(seen, index + 1, 0).amax(3)
    return Blocks(first, first.contiguous(), (last - first).clamp(min=0).contiguous(), gaps)


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
    batch, heads, queries, _ = call.query.shape
    tile = tile_of(call, backward=False)
    output = call.value.new_empty(batch, heads, queries, call.value.shape[3])
    maximum, total = (output.new_empty(batch, heads, queries, dtype=torch.float32) for _ in range(2))
    sloped = slope_total = None
    if with_gradient and call.is_entmax:
        sloped, slope_total = output.new_empty(output.shape, dtype=torch.float32), torch.empty_like(total)
    blocks = visible_blocks(call, tile)
    _launch(
        forward,
        (-(-queries // tile.rows), batch * heads),
        *_shared(call, tile),
        *_block_arguments(None if blocks is None else blocks[0]),
        output,
        maximum,
        total,
        sloped,
        slope_total,
        **_options(call, tile, blocks),
        WITH_SLOPES=sloped is not None,
    )
    return output, (maximum, total, sloped, slope_total)


def _run_backward(
    call: Call, saved: tuple[Tensor | None, ...], grad_output: Tensor, needed: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    output, maximum, total, sloped, slope_total = saved
    assert output is not None
    assert maximum is not None
    assert total is not None
    batch, heads, queries, dim = call.query.shape
    kv_heads, keys = call.key.shape[1:3]
    grad_output = grad_output.to(call.value.dtype).contiguous()
    delta = _deltas(call, output, total, sloped, slope_total, grad_output)
    tile = tile_of(call, backward=True)
    many_rows = -(-queries // tile.rows)
    blocks = visible_blocks(call, tile)
    options = _options(call, tile, blocks)
    shared = _shared(call, tile)
    statistics = maximum, total, delta, grad_output
    new, units = output.new_zeros, _units(call)
    grad_query = grad_weight = grad_bias = grad_key = grad_value = None
    if needed[0] or needed[3] or needed[4]:
        grad_query = torch.empty_like(call.query, memory_format=torch.contiguous_format)
        partial = None
        if call.weight is not None:
            grad_query = new(batch, heads, units, queries, dtype=torch.float32)
            partial = new(batch, heads, many_rows, units + 1, dtype=torch.float32)
        grad_bias = (
            torch.zeros_like(call.bias, memory_format=torch.contiguous_format)
            if needed[4] and call.bias is not None
            else None
        )
        _launch(
            backward_rows,
            (many_rows, batch * heads),
            *shared,
            *_block_arguments(None if blocks is None else blocks[0]),
            *statistics,
            grad_query,
            *_bias_start(call, grad_bias)[:1],
            partial,
            *_bias_start(call, grad_bias)[1:],
            **options,
            WITH_BIAS=grad_bias is not None,
        )
        if partial is not None:
            grad_query = grad_query[:, :, :dim].transpose(2, 3).to(call.query.dtype)
            sums = partial.sum(2)
            grad_weight = (sums[..., units:] - 2.0 * sums[..., :dim]).sum(0)
            if call.weight is not None and call.weight.shape[0] == 1:
                grad_weight = grad_weight.sum(0, keepdim=True)
    if needed[1] or needed[2]:
        grad_key = torch.empty_like(call.key, memory_format=torch.contiguous_format)
        if call.weight is not None:
            grad_key = new(batch, kv_heads, units, keys, dtype=torch.float32)
        grad_value = torch.empty_like(call.value, memory_format=torch.contiguous_format)
        _launch(
            backward_columns,
            (-(-keys // tile.columns), batch * kv_heads),
            *shared,
            *_block_arguments(None if blocks is None else blocks[1]),
            *statistics,
            grad_key,
            grad_value,
            **options,
        )
        if call.weight is not None:
            grad_key = grad_key[:, :, :dim].transpose(2, 3).to(call.key.dtype)
    grad_sink = None
    if needed[5] and call.sink is not None:
        share = torch.exp(call.sink[None, :, None] - maximum) / total
        grad_sink = -(share * delta).sum((0, 2))
        if call.sink.shape[0] == 1:
            grad_sink = grad_sink.sum(0, keepdim=True)
    return grad_query, grad_key, grad_value, grad_weight, grad_bias, grad_sink


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
        **{name: tensor.detach() for name in _TENSORS if (tensor := getattr(call, name)) is not None}, dropout=0.0
    )
    batch, heads, queries, _ = call.query.shape
    tile = tile_of(call, backward=False)
    blocks = visible_blocks(call, tile)
    names = ("lse", "entropy", "peak", "distance", "received")
    _launch(
        read_rows,
        (-(-queries // tile.rows), batch * heads),
        *_shared(call, tile),
        *_block_arguments(None if blocks is None else blocks[0]),
        maximum,
        total,
        *(readings.get(name) for name in names),
        offset,
        **_options(call, tile, blocks),
        **{name.upper(): name in readings for name in names[1:]},
    )


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


def _units(call: Call) -> int:
    return -(-call.query.shape[3] // 4) * 4


def _transposed(tensor: Tensor, units: int) -> Tensor:
    """Returns a unit's number for each position next to each other: float32 ``[batch, heads, units, length]``."""
    return F.pad(tensor.float().transpose(2, 3), (0, 0, 0, units - tensor.shape[3])).contiguous()


def _shared(call: Call, tile: Tile) -> tuple[Any, ...]:
    """Returns the arguments that all kernels take, in their order."""
    heads, queries = call.query.shape[1:3]
    kv_heads, keys = call.value.shape[1:3]
    query, key, value = call.query.contiguous(), call.key.contiguous(), call.value.contiguous()
    weight, weight_head = call.weight, 0
    query_powers = key_powers = query_extent = key_extent = None
    if weight is not None:
        dim = _units(call)
        query_extent, key_extent = query.float().abs().amax(3), key.float().abs().amax(3)
        query, key = _transposed(query, dim), _transposed(key, dim)
        query_powers, key_powers = (2.0 * query).exp(), (2.0 * key).exp()
        weight = F.pad(weight.float(), (0, dim - weight.shape[1])).contiguous()
        weight_head = dim if weight.shape[0] > 1 else 0
    mask, spans = call.mask, call.start
    masks = (0, 0, 0, 0) if mask is None else _strides(mask)
    runs = (0, 0) if spans is None else _strides(spans)[:2]
    many_rows, many_columns = -(-queries // tile.rows), -(-keys // tile.columns)
    # The lists of blocks have the axes of the mask; their strides count lists.
    sizes = spans.shape[:2] if spans is not None else mask.shape[:2] if mask is not None else (1, 1)
    lists = (sizes[1] if sizes[0] > 1 else 0, 1 if sizes[1] > 1 else 0)
    bias, *bias_strides = _bias_start(call, call.bias)
    return (
        query, query_powers, query_extent, key, key_powers, key_extent, value, weight, bias, call.sink, call.start,
        call.stop, None if mask is None else mask.view(torch.uint8), call.seed, call.dropout, call.scale, call.cap,
        1.0 / call.temperature, call.shift, call.alpha - 1.0, heads, kv_heads, queries, keys,
        weight_head, 0 if call.sink is None or call.sink.shape[0] == 1 else 1, *bias_strides, *masks, *runs, *lists,
        many_rows, many_columns,
    )  # fmt: skip


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


def _block_arguments(blocks: Blocks | None) -> tuple[Any, ...]:
    return (None, None, None) if blocks is None else blocks[:3]


def _options(call: Call, tile: Tile, blocks: tuple[Blocks, Blocks] | None) -> dict[str, Any]:
    """Returns what a kernel is compiled for."""
    is_units = call.weight is not None
    kind = SPANS if call.start is not None else DENSE if call.mask is not None else NO_MASK
    return {
        "D": _units(call) if is_units else call.query.shape[3],
        "V": call.value.shape[3],
        "BLOCK_Q": tile.rows,
        "BLOCK_K": tile.columns,
        "BLOCK_D": 16 if is_units else padded_width(call.query.shape[3], tile),
        "BLOCK_V": padded_width(call.value.shape[3], tile),
        "NORMALIZER": CODES[call.normalizer],
        "IS_UNITS": is_units,
        "CAP": call.cap != 0.0,
        "BIAS": call.bias is not None,
        "MASK": kind.value,
        "RUNS": 1 if call.start is None else call.start.shape[3],
        "GAPS": blocks is not None and blocks[0].gaps,
        "SINK": call.sink is not None,
        "DROPOUT": call.dropout > 0.0,
        "PRECISION": PRECISION,
        "num_warps": tile.warps,
        "num_stages": tile.stages,
    }
