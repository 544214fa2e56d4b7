"""The kernels as PyTorch operators: ``torch.ops.regard_cpu.attend`` and its backward pass, with shapes for the compiler.

Inputs are prepared by the caller: float32 or float64 on a CPU, four axes, features contiguous, nothing empty.
"""

from typing import Any

import torch
from torch import Tensor
from torch.library import Library, register_autocast, register_autograd

from regard.kernels.cpu import prepare
from regard.kernels.cpu.backward import backward
from regard.kernels.cpu.forward import forward
from regard.kernels.cpu.kernel_inputs import KernelInputs
from regard.kernels.cpu.launch import as_matrix, check_inputs, is_wide, launch, parameters, transposed
from regard.kernels.cpu.reading_options import SUMMED, ReadingOptions
from regard.kernels.cpu.readings import readings
from regard.kernels.cpu.second_derivative import refuse_second_derivative
from regard.kernels.cpu.tanh_sum import TILE, even, padded_length

_INPUTS = (
    "Tensor query, Tensor key, Tensor value, Tensor? weight, Tensor? exponentials, Tensor? extents, "
    "Tensor? start, Tensor? stop, Tensor? mask, Tensor? bias, bool diagonal, "
    "Tensor? sink, Tensor? shift, Tensor? center, Tensor? sigma, "
    "int normalizer, float alpha, float scale, float temperature, float cap, float dropout, int seed, "
    "bool return_weights"
)
_LIBRARY = Library("regard_cpu", "DEF")
_LIBRARY.define("exponentials(Tensor key) -> (Tensor exponentials, Tensor extents, Tensor nonfinite)")
_LIBRARY.define(f"attend({_INPUTS}) -> (Tensor output, Tensor statistics, Tensor weights, Tensor nonfinite)")
_LIBRARY.define(f"attend_backward(Tensor gradient, Tensor? weights_gradient, Tensor statistics, {_INPUTS}) -> Tensor[]")
_LIBRARY.define(
    f"readings({_INPUTS}, bool entropy, bool peak, int top_k, bool received, bool distance, int[] pooled, "
    "Tensor? row_slots, int stored_rows, int first_stored_key, int stored_keys, bool only_stored, "
    "int key_offset, int first_row, int all_rows) -> Tensor[]"
)

GRADIENTS = ("query", "key", "value", "weight", "bias", "sink", "shift", "center", "sigma")
"""What the backward operator returns, in this order; an empty tensor for an input that is not there. Then the flag."""


def _exponentials(key: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """e^{2 key} of an additive score's keys, transposed, the largest |2 key| of each tile of keys, and the flag."""
    powers, extents, nonfinite = _exponentials_shapes(key)
    nonfinite.zero_()
    key = as_matrix(key)
    call = KernelInputs(key, key, key)
    record = parameters(
        call, exponentials=powers.data_ptr(), extents=extents.data_ptr(), nonfinite=nonfinite.data_ptr()
    )
    launch(prepare.exponentials(key.dtype), record, extents.numel(), 8.0 * key.numel())
    return powers, extents, nonfinite


def _exponentials_shapes(key: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    B, H, K, D = key.shape
    return key.new_empty(B, H, even(D), padded_length(K)), key.new_empty(B, H, -(-K // TILE)), _flag(key)


def _attend(*inputs: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    call = _readable(KernelInputs(*inputs))
    check_inputs(call)
    output, statistics, weights, nonfinite = _attend_shapes(*call)
    nonfinite.zero_()
    turned = _turned(call, "key")
    record = parameters(
        call,
        key_transposed=0 if turned is None else turned.data_ptr(),
        output=output.data_ptr(),
        statistics=statistics.data_ptr(),
        returned_weights=weights.data_ptr() if call.return_weights else 0,
        nonfinite=nonfinite.data_ptr(),
    )
    batch, heads, queries, _ = call.query.shape
    launch(forward(call.query.dtype), record, batch * heads * -(-queries // call.block), call.work)
    return output, statistics, weights, nonfinite


def _attend_shapes(*inputs: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    call = KernelInputs(*inputs)
    rows, new = call.query.shape[:3], call.query.new_empty
    weights = new(*rows, call.key.shape[2]) if call.return_weights else new(0)
    return new(*rows, call.value.shape[3]), new(*rows, 2), weights, _flag(call.query)


def _attend_backward(
    gradient: Tensor, weights_gradient: Tensor | None, statistics: Tensor, *inputs: Any
) -> list[Tensor]:
    call = _readable(KernelInputs(*inputs))
    B, H, Q, D = call.query.shape
    KV, K, V = call.key.shape[1], call.key.shape[2], call.value.shape[3]
    additive = call.weight is not None
    chunks = call.chunks(D + V, B * KV)
    gradient = gradient.contiguous()
    weights_gradient = None if weights_gradient is None else weights_gradient.contiguous()
    new = call.query.new_zeros
    by_query = new(B, H, Q, D)
    by_key = new(B, KV, chunks, even(D), padded_length(K)) if additive else new(B, KV, chunks, K, D)
    by_value = new(B, KV, chunks, K, V)
    by_weight = new(B, H, chunks, even(D)) if additive else new(0)
    by_bias = new(0)
    if call.bias is not None:
        by_bias = new(B, H, chunks, Q + K - 1) if call.diagonal else new(B, H, Q, K)
    by_sink = new(B, H, Q) if call.sink is not None else new(0)
    by_shift = new(B, H, Q) if call.shift is not None else new(0)
    by_center, by_sigma = (new(B, H, Q), new(B, H, Q)) if call.center is not None else (new(0), new(0))
    nonfinite = _flag(call.query).zero_()
    key_turned, value_turned = _turned(call, "key"), _turned(call, "value")
    record = parameters(
        call,
        chunks=chunks,
        key_transposed=0 if key_turned is None else key_turned.data_ptr(),
        value_transposed=0 if value_turned is None else value_turned.data_ptr(),
        statistics=statistics.data_ptr(),
        grad_output=gradient.data_ptr(),
        grad_weights=0 if weights_gradient is None else weights_gradient.data_ptr(),
        grad_query=by_query.data_ptr(),
        grad_key=by_key.data_ptr(),
        grad_value=by_value.data_ptr(),
        grad_weight=by_weight.data_ptr(),
        grad_bias=by_bias.data_ptr() if call.bias is not None else 0,
        grad_sink=by_sink.data_ptr(),
        grad_shift=by_shift.data_ptr(),
        grad_center=by_center.data_ptr(),
        grad_sigma=by_sigma.data_ptr(),
        nonfinite=nonfinite.data_ptr(),
    )
    launch(backward(call.query.dtype), record, B * KV * chunks, 3.0 * call.work)
    by_key = _added(by_key)
    if additive:
        by_key = by_key[..., :D, :K].transpose(-1, -2).contiguous()
        assert call.weight is not None
        by_weight = by_weight[..., :D].sum((0, 2)).sum_to_size(call.weight.shape)
    if call.bias is not None:
        by_bias = by_bias.sum((0, 2)) if call.diagonal else by_bias
        by_bias = by_bias.sum_to_size(call.bias.shape)
    if call.sink is not None:
        by_sink = by_sink.sum((0, 2)).sum_to_size(call.sink.shape)
    if call.shift is not None:
        by_shift = by_shift.sum((0, 2)).sum_to_size(call.shift.shape)
    return [by_query, by_key, _added(by_value), by_weight, by_bias, by_sink, by_shift, by_center, by_sigma, nonfinite]


def _attend_backward_shapes(
    gradient: Tensor, weights_gradient: Tensor | None, statistics: Tensor, *inputs: Any
) -> list[Tensor]:
    call = KernelInputs(*inputs)
    given = (call.query, call.key, call.value, call.weight, call.bias, call.sink, call.shift, call.center, call.sigma)
    nothing = call.query.new_empty
    return [*(nothing(0) if tensor is None else nothing(tensor.shape) for tensor in given), _flag(call.query)]


def _readings(*inputs: Any) -> list[Tensor]:
    split = len(KernelInputs._fields)
    call, read = _readable(KernelInputs(*inputs[:split])), ReadingOptions(*inputs[split:])
    check_inputs(call)
    B, H, Q, _ = call.query.shape
    _K, blocks = call.key.shape[2], -(-Q // call.block)
    chunks = min(blocks, call.chunks(1, B * H) * 4)
    filled = {name: tensor.zero_() for name, tensor in read.tensors(call, chunks).items()}
    filled["lse"].fill_(-torch.inf)
    filled["top_indices"].fill_(-1)
    nonfinite = _flag(call.query).zero_()
    rows, columns = read.pooled or (0, 0)
    turned = _turned(call, "key")
    record = parameters(
        call,
        chunks=chunks,
        key_transposed=0 if turned is None else turned.data_ptr(),
        **{name: tensor.data_ptr() if tensor.numel() else 0 for name, tensor in filled.items()},
        top=read.top_k,
        key_offset=read.key_offset,
        first_row=read.first_row,
        all_rows=read.all_rows,
        pooled_rows=rows,
        pooled_columns=columns,
        row_slots=0 if read.row_slots is None else read.row_slots.data_ptr(),
        stored_rows=read.stored_rows,
        first_stored_key=read.first_stored_key,
        stored_keys=read.stored_keys,
        only_stored=read.only_stored,
        nonfinite=nonfinite.data_ptr(),
    )
    launch(readings(call.query.dtype), record, B * H * chunks, call.work)
    for name in SUMMED:
        if filled[name].numel() == 0:
            filled[name] = filled[name].new_empty(B, H, *filled[name].shape[3:])
        else:
            filled[name] = filled[name].amax(2) if name == "pooled_max" else _added(filled[name])
    return [*filled.values(), nonfinite]


def _readings_shapes(*inputs: Any) -> list[Tensor]:
    split = len(KernelInputs._fields)
    tensors = ReadingOptions(*inputs[split:]).tensors(KernelInputs(*inputs[:split]), 1)
    shaped = (
        tensor.new_empty(*tensor.shape[:2], *tensor.shape[3:]) if name in SUMMED else tensor
        for name, tensor in tensors.items()
    )
    return [*shaped, _flag(inputs[0])]


def _flag(like: Tensor) -> Tensor:
    """The last result of each operator, ``nonfinite``: not 0 if another one has a number that is not finite."""
    return like.new_empty(1, dtype=torch.int64)


def _added(chunks: Tensor) -> Tensor:
    """The sum over chunks, axis 2."""
    return chunks[:, :, 0].contiguous() if chunks.shape[2] == 1 else chunks.sum(2)


def _keep_inputs(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    call = KernelInputs(*inputs)
    ctx.tensors = [name for name, value in call._asdict().items() if isinstance(value, Tensor)]
    ctx.others = {name: value for name, value in call._asdict().items() if not isinstance(value, Tensor)}
    ctx.save_for_backward(output[1], *(getattr(call, name) for name in ctx.tensors))
    ctx.mark_non_differentiable(output[1], output[3])
    ctx.set_materialize_grads(False)


def _pass_back(
    ctx: Any, gradient: Tensor | None, _: Any, by_weights: Tensor | None, __: Any
) -> tuple[Tensor | None, ...]:
    statistics, *tensors = ctx.saved_tensors
    call = KernelInputs(**dict(zip(ctx.tensors, tensors, strict=True)), **ctx.others)
    if gradient is None:
        gradient = call.query.new_zeros(*call.query.shape[:3], call.value.shape[3])
    passed = torch.ops.regard_cpu.attend_backward(
        gradient, by_weights if call.return_weights else None, statistics, *call
    )
    gradients = dict(zip(GRADIENTS, passed[:-1], strict=True))
    return tuple(
        gradients[name] if name in gradients and name in ctx.tensors else None for name in KernelInputs._fields
    )


def _readable(call: KernelInputs) -> KernelInputs:
    """The call with features contiguous, as kernels read them."""
    bias = call.bias
    return call._replace(
        query=as_matrix(call.query),
        key=as_matrix(call.key),
        value=as_matrix(call.value),
        weight=None if call.weight is None else call.weight.contiguous(),
        start=None if call.start is None else call.start.contiguous(),
        stop=None if call.stop is None else call.stop.contiguous(),
        mask=None if call.mask is None else _rows(call.mask),
        bias=bias if bias is None or not call.diagonal else _rows(bias),
        center=None if call.center is None else call.center.contiguous(),
        sigma=None if call.sigma is None else call.sigma.contiguous(),
    )


def _turned(call: KernelInputs, name: str) -> Tensor | None:
    """Keys or values transposed, if products are made of wide vectors that need it."""
    needed = is_wide(call.query.dtype) and call.turns and not (name == "key" and call.weight is not None)
    return transposed(getattr(call, name)) if needed else None


def _rows(tensor: Tensor) -> Tensor:
    return tensor if tensor.stride(-1) == 1 or tensor.shape[-1] == 1 else tensor.contiguous()


for _name, _run, _shapes in (
    ("exponentials", _exponentials, _exponentials_shapes),
    ("attend", _attend, _attend_shapes),
    ("attend_backward", _attend_backward, _attend_backward_shapes),
    ("readings", _readings, _readings_shapes),
):
    # A compiler that meets the operator leaves what it does alone.
    _LIBRARY.impl(_name, torch.compiler.disable(_run), "CPU")
    torch.library.register_fake(f"regard_cpu::{_name}", _shapes, lib=_LIBRARY)
register_autograd("regard_cpu::attend", _pass_back, setup_context=_keep_inputs, lib=_LIBRARY)
register_autograd("regard_cpu::attend_backward", refuse_second_derivative, lib=_LIBRARY)
register_autocast("regard_cpu::attend", "cpu", torch.float32, lib=_LIBRARY)

attend = torch.ops.regard_cpu.attend.default
attend_backward = torch.ops.regard_cpu.attend_backward.default
exponentials = torch.ops.regard_cpu.exponentials.default
read = torch.ops.regard_cpu.readings.default
