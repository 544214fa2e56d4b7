"""The kernels as PyTorch operators: ``torch.ops.regard_cpu.attend`` and its backward pass, with shapes for compilers.

Callers prepare the inputs: float32 or float64 on a CPU, four axes, contiguous features, no empty tensors. Keys and
values of a few queries may be in half precision.
"""

from typing import Any

import torch
from torch import Tensor
from torch.library import Library, register_autocast, register_autograd

from regard.kernels.cpu import kernels
from regard.kernels.cpu.kernel import Kernel
from regard.kernels.cpu.kernel_arguments import (
    POSITIONS,
    READING_ROWS,
    READINGS,
    KernelInputs,
    ReadingOptions,
    Writer,
    differentiable,
    fields_of,
    schema_of,
    sum_of_chunks,
)
from regard.kernels.cpu.launch import (
    Stage,
    as_matrix,
    check_inputs,
    fill_arguments,
    launch,
    launch_on_transposed,
    run_stages,
    transposed,
    write_named,
)
from regard.kernels.cpu.second_derivative import refuse_batched_gradients, refuse_second_derivative
from regard.kernels.cpu.sizes import LANES, TILE, ceil_div, even_length, padded_length
from regard.kernels.cpu.uncompiled import uncompiled
from regard.tracing.transforms import in_memory

_TENSORS = tuple(
    (field.name, index) for index, field in enumerate(fields_of(KernelInputs)) if field.type.startswith("Tensor")
)
_INPUTS, _OPTIONS = schema_of(KernelInputs), schema_of(ReadingOptions)
_READING_OPTIONS = Writer(ReadingOptions, POSITIONS)
_LIBRARY = Library("regard_cpu", "DEF")
_LIBRARY.define("exponentials(Tensor key, bool relu=False) -> (Tensor exponentials, Tensor extents)")
_LIBRARY.define(f"attend({_INPUTS}) -> (Tensor output, Tensor statistics, Tensor weights)")
_LIBRARY.define(
    "attend_backward(Tensor grad_output, Tensor? grad_weights, Tensor statistics, Tensor? saved_weights, "
    f"{_INPUTS}) -> Tensor[]"
)
_LIBRARY.define(f"readings({_INPUTS}, {_OPTIONS}) -> Tensor[]")

GRADIENTS = differentiable(KernelInputs)
"""The gradients that the backward operator returns, in this order; an empty tensor for an input that is None."""

_TRANSPOSED = ("key", "value")
"""The inputs that the microkernel may read transposed."""

_CLEARED_GRADIENTS = ("query", *_TRANSPOSED)
"""The largest gradients; the kernel itself sets them to zero."""


def _exponentials(key: Tensor, relu: bool = False) -> tuple[Tensor, Tensor]:
    """Returns e^{2 key} of an additive score's keys, transposed, and the maximum of |2 key| in each tile of keys.

    For rectified units, these are the keys themselves and zeros.
    """
    exponentials, extents = exponentials_shapes(key)
    key = as_matrix(key)
    inputs = KernelInputs(key, key, key, exponentials=exponentials, extents=extents, relu=relu)
    launch(kernels.exponentials(key.dtype), fill_arguments(inputs), extents.numel(), 8.0 * key.numel())
    return exponentials, extents


def exponentials_shapes(key: Tensor, relu: bool = False) -> tuple[Tensor, Tensor]:
    B, H, K, D = key.shape
    return key.new_empty(B, H, even_length(D), padded_length(K)), key.new_empty(B, H, ceil_div(K, TILE))


def _attend(*fields: Any) -> tuple[Tensor, Tensor, Tensor]:
    inputs = readable(KernelInputs(*fields))
    check_inputs(inputs)
    output, statistics, weights = _attend_shapes(*inputs)
    returned = weights if inputs.return_weights else None
    arguments = fill_arguments(inputs, inputs.block, output=output, statistics=statistics, returned_weights=returned)
    _launch(*kernels.forward(inputs), inputs, arguments)
    return output, statistics, weights


def _attend_shapes(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    inputs = KernelInputs(*arguments)
    rows, new = inputs.query.shape[:3], inputs.query.new_empty
    weights = new(*rows, inputs.key.shape[2]) if inputs.return_weights else new(0)
    return new(*rows, inputs.value.shape[3]), new(*rows, 2), weights


def chunks_of(inputs: KernelInputs) -> int:
    """Returns the number of chunks of a head's rows in the backward pass."""
    batch, kv_heads, _, dim = inputs.key.shape
    return inputs.chunks(dim + inputs.value.shape[3], batch * kv_heads)


def _attend_backward(
    grad_output: Tensor, grad_weights: Tensor | None, statistics: Tensor, saved_weights: Tensor | None, *fields: Any
) -> list[Tensor]:
    inputs = readable(KernelInputs(*fields))
    if inputs.is_stored_in_half:
        raise ValueError(f"gradients need keys and values in float32; got {inputs.key.dtype}")
    B, H, Q, D = inputs.query.shape
    KV, K, V = inputs.key.shape[1], inputs.key.shape[2], inputs.value.shape[3]
    chunks = chunks_of(inputs)
    grad_output = in_memory(grad_output).contiguous()
    grad_weights = None if grad_weights is None else in_memory(grad_weights).contiguous()
    # The kernel writes an element for each row of queries, or sums for each chunk of rows.
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(GRADIENTS, (B, H, Q))
    shapes["query"] = (B, H, Q, D)
    shapes["key"] = (B, KV, chunks, K, D)
    shapes["value"] = (B, KV, chunks, K, V)
    shapes["weight"] = (B, H, chunks, even_length(D))
    shapes["bias"] = (B, H, chunks, Q + K - 1) if inputs.diagonal else (B, H, Q, K)
    grads = {}
    for name, shape in shapes.items():
        new = inputs.query.new_empty if name in _CLEARED_GRADIENTS else inputs.query.new_zeros
        grads[name] = new(shape if getattr(inputs, name) is not None else 0)
    filled = {name: transposed(getattr(inputs, name)) for name in _TRANSPOSED if kernels.needs_transposed(inputs, name)}
    arguments = fill_arguments(
        inputs,
        inputs.block,
        chunks,
        **{f"{name}_transposed": tensor for name, (tensor, _) in filled.items()},
        statistics=statistics,
        returned_weights=saved_weights,
        grad_output=grad_output,
        grad_weights=grad_weights,
        **{f"grad_{name}": tensor for name, tensor in grads.items()},
    )
    backward = Stage.of(kernels.backward(inputs), arguments, B * KV * chunks, 3.0 * inputs.work)
    run_stages([*(stage for _, stage in filled.values()), backward])
    grads["key"], grads["value"] = sum_of_chunks(grads["key"]), sum_of_chunks(grads["value"])
    if inputs.weight is not None:
        grads["weight"] = grads["weight"][..., :D].sum((0, 2))
    if inputs.bias is not None and inputs.diagonal:
        grads["bias"] = grads["bias"].sum((0, 2))
    for name in ("sink", "shift", "alphas"):
        if getattr(inputs, name) is not None:
            grads[name] = grads[name].sum((0, 2))
    # An input that rows, heads or batch rows share gets the sum of their gradients.
    for name in ("weight", "bias", "sink", "shift", "alphas"):
        shared = getattr(inputs, name)
        grads[name] = grads[name] if shared is None else grads[name].sum_to_size(shared.shape)
    return [grads[name] for name in GRADIENTS]


def _attend_backward_shapes(
    grad_output: Tensor, grad_weights: Tensor | None, statistics: Tensor, saved_weights: Tensor | None, *arguments: Any
) -> list[Tensor]:
    inputs = KernelInputs(*arguments)
    new, tensors = inputs.query.new_empty, [getattr(inputs, name) for name in GRADIENTS]
    return [new(0) if tensor is None else new(tensor.shape) for tensor in tensors]


def _readings(*fields: Any) -> list[Tensor]:
    split = len(KernelInputs._fields)
    inputs, options = readable(KernelInputs(*fields[:split])), ReadingOptions(*fields[split:])
    check_inputs(inputs)
    B, H = inputs.query.shape[:2]
    block, chunks = blocks_of_readings(inputs, options)
    tensors = options.tensors(inputs, chunks)
    for reading in READINGS:
        tensors[reading.name].fill_(reading.initial)
    arguments = readings_arguments(inputs, options, block, chunks)
    # These replace the options of the same names.
    write_named({name: tensor if tensor.numel() else 0 for name, tensor in tensors.items()}, arguments)
    kernel, tasks = kernels.readings(inputs, options), B * H * chunks
    if options.fit_lanes(inputs):
        launch(kernel, arguments, tasks, inputs.work)
    else:
        _launch(kernel, tasks, inputs, arguments)
    for reading in READINGS:
        if reading.over_rows is not None:
            sums = tensors[reading.name]
            is_filled = sums.numel() > 0
            tensors[reading.name] = reading.over_rows(sums) if is_filled else sums.new_empty(B, H, *sums.shape[3:])
    return list(tensors.values())


def blocks_of_readings(inputs: KernelInputs, options: ReadingOptions) -> tuple[int, int]:
    """Returns the rows of a block of the readings kernel, and the number of chunks of a head's rows."""
    batch, heads, queries, _ = inputs.query.shape
    block = LANES if options.fit_lanes(inputs) else min(inputs.block, READING_ROWS)
    return block, min(ceil_div(queries, block), inputs.chunks(1, batch * heads) * 4)


def readings_arguments(inputs: KernelInputs, options: ReadingOptions, block: int, chunks: int) -> list[float]:
    """Returns the arguments of the readings kernel without the addresses of the readings."""
    # The kernel that reads rows side by side computes its products itself.
    arguments = fill_arguments(inputs, 0 if options.fit_lanes(inputs) else block, chunks)
    write_named({"block": block}, arguments)
    _READING_OPTIONS.write(options, arguments)
    return arguments


def _readings_shapes(*arguments: Any) -> list[Tensor]:
    split = len(KernelInputs._fields)
    tensors = ReadingOptions(*arguments[split:]).tensors(KernelInputs(*arguments[:split]), 1)
    for reading in READINGS:
        if reading.over_rows is not None:
            sums = tensors[reading.name]
            tensors[reading.name] = sums.new_empty(*sums.shape[:2], *sums.shape[3:])
    return list(tensors.values())


def _save_inputs(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    kernel_inputs = KernelInputs(*inputs)
    fields = kernel_inputs._asdict()
    ctx.tensors = [name for name, value in fields.items() if isinstance(value, Tensor)]
    ctx.others = {name: value for name, value in fields.items() if not isinstance(value, Tensor)}
    saved_weights = output[2] if kernel_inputs.return_weights and kernel_inputs.saves_weights else None
    ctx.save_for_backward(output[1], saved_weights, *(fields[name] for name in ctx.tensors))
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _differentiate(
    ctx: Any, grad_output: Tensor | None, _: Any, grad_weights: Tensor | None
) -> tuple[Tensor | None, ...]:
    refuse_batched_gradients(grad_output, grad_weights)
    statistics, saved_weights, *tensors = ctx.saved_tensors
    inputs = KernelInputs(**dict(zip(ctx.tensors, tensors, strict=True)), **ctx.others)
    if grad_output is None:
        grad_output = inputs.query.new_zeros(*inputs.query.shape[:3], inputs.value.shape[3])
    grad_weights = grad_weights if inputs.return_weights else None
    gradients = torch.ops.regard_cpu.attend_backward(grad_output, grad_weights, statistics, saved_weights, *inputs)
    grads = dict(zip(GRADIENTS, gradients, strict=True))
    return tuple(grads[name] if name in grads and name in ctx.tensors else None for name in KernelInputs._fields)


def readable(inputs: KernelInputs) -> KernelInputs:
    """Returns the inputs with tensors stored in memory, and contiguous where kernels need that."""
    replacements: dict[str, Tensor] = {}
    for name, index in _TENSORS:
        tensor: Any = inputs[index]
        if tensor is None:
            continue
        value = in_memory(tensor)
        if name in ("query", "key", "value"):
            value = as_matrix(value)
        elif name == "mask" or (name == "bias" and inputs.diagonal):
            value = value if value.stride(-1) == 1 or value.shape[-1] == 1 else value.contiguous()
        elif name != "bias":
            value = value.contiguous()
        if value is not tensor:
            replacements[name] = value
    return inputs._replace(**replacements) if replacements else inputs


def _launch(kernel: Kernel, tasks: int, inputs: KernelInputs, arguments: list[float]) -> None:
    """Launches a kernel, on transposed keys if it needs them for scores."""
    if kernels.needs_transposed(inputs, "key"):
        launch_on_transposed(kernel, arguments, inputs.key, tasks, inputs.work)
    else:
        launch(kernel, arguments, tasks, inputs.work)


for _name, _run, _shapes in (
    ("exponentials", _exponentials, exponentials_shapes),
    ("attend", _attend, _attend_shapes),
    ("attend_backward", _attend_backward, _attend_backward_shapes),
    ("readings", _readings, _readings_shapes),
):
    # Compilers do not trace into the operator.
    _LIBRARY.impl(_name, uncompiled(_run), "CPU")
    torch.library.register_fake(f"regard_cpu::{_name}", _shapes, lib=_LIBRARY)
register_autograd("regard_cpu::attend", _differentiate, setup_context=_save_inputs, lib=_LIBRARY)
register_autograd("regard_cpu::attend_backward", refuse_second_derivative, lib=_LIBRARY)
register_autocast("regard_cpu::attend", "cpu", torch.float32, lib=_LIBRARY)

attend = torch.ops.regard_cpu.attend.default

attend_now = _attend
"""`attend` without PyTorch's dispatcher, which takes as long as a small problem: for inputs that need no gradient, and
outside of transforms, modes and compilers."""

attend_backward = torch.ops.regard_cpu.attend_backward.default
exponentials = torch.ops.regard_cpu.exponentials.default
read = torch.ops.regard_cpu.readings.default
