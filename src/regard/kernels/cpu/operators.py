"""The kernels as PyTorch operators: ``torch.ops.regard_cpu.attend`` and its backward pass, with shapes for compilers.

Inputs are prepared by the caller: float32 or float64 on a CPU, four axes, features contiguous, nothing empty.
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
    address_of,
    differentiable,
    fields_of,
    schema_of,
    sum_of_chunks,
)
from regard.kernels.cpu.launch import (
    as_matrix,
    check_inputs,
    fill_arguments,
    launch,
    launch_on_transposed,
    transposed,
    write_named,
)
from regard.kernels.cpu.second_derivative import refuse_batched_gradients, refuse_second_derivative
from regard.kernels.cpu.sizes import LANES, TILE, ceil_div, even_length, padded_length
from regard.kernels.cpu.uncompiled import uncompiled
from regard.transforms import in_memory

_TENSORS = tuple(
    (field.name, index) for index, field in enumerate(fields_of(KernelInputs)) if field.type.startswith("Tensor")
)
_INPUTS, _OPTIONS = schema_of(KernelInputs), schema_of(ReadingOptions)
_READING_OPTIONS = Writer(ReadingOptions, POSITIONS)
_LIBRARY = Library("regard_cpu", "DEF")
_LIBRARY.define("exponentials(Tensor key, bool relu=False) -> (Tensor exponentials, Tensor extents)")
_LIBRARY.define(f"attend({_INPUTS}) -> (Tensor output, Tensor statistics, Tensor weights)")
_LIBRARY.define(
    "attend_backward(Tensor grad_output, Tensor? grad_weights, Tensor statistics, Tensor? kept_weights, "
    f"{_INPUTS}) -> Tensor[]"
)
_LIBRARY.define(f"readings({_INPUTS}, {_OPTIONS}) -> Tensor[]")

GRADIENTS = differentiable(KernelInputs)
"""What the backward operator returns, in this order; an empty tensor for an input that is not there."""

_CLEARED = ("key", "value")
"""The largest of them: the kernel itself sets their sums to zero."""


def _exponentials(key: Tensor, relu: bool = False) -> tuple[Tensor, Tensor]:
    """e^{2 key} of an additive score's keys, transposed, and the largest |2 key| of each tile of keys.

    Of rectified units these are the keys themselves, and zeros.
    """
    powers, extents = exponentials_shapes(key)
    key = as_matrix(key)
    inputs = KernelInputs(key, key, key, exponentials=powers, extents=extents, relu=relu)
    launch(kernels.exponentials(key.dtype), fill_arguments(inputs), extents.numel(), 8.0 * key.numel())
    return powers, extents


def exponentials_shapes(key: Tensor, relu: bool = False) -> tuple[Tensor, Tensor]:
    B, H, K, D = key.shape
    return key.new_empty(B, H, even_length(D), padded_length(K)), key.new_empty(B, H, ceil_div(K, TILE))


def _attend(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    inputs = readable(KernelInputs(*arguments))
    check_inputs(inputs)
    output, statistics, weights = _attend_shapes(*inputs)
    filled = fill_arguments(
        inputs,
        inputs.block,
        output=address_of(output),
        statistics=address_of(statistics),
        returned_weights=address_of(weights) if inputs.return_weights else 0,
    )
    _launch(*kernels.forward(inputs), inputs, filled)
    return output, statistics, weights


def _attend_shapes(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    inputs = KernelInputs(*arguments)
    rows, new = inputs.query.shape[:3], inputs.query.new_empty
    weights = new(*rows, inputs.key.shape[2]) if inputs.return_weights else new(0)
    return new(*rows, inputs.value.shape[3]), new(*rows, 2), weights


def _attend_backward(
    grad_output: Tensor, grad_weights: Tensor | None, statistics: Tensor, kept_weights: Tensor | None, *arguments: Any
) -> list[Tensor]:
    inputs = readable(KernelInputs(*arguments))
    B, H, Q, D = inputs.query.shape
    KV, K, V = inputs.key.shape[1], inputs.key.shape[2], inputs.value.shape[3]
    additive = inputs.weight is not None
    chunks = inputs.chunks(D + V, B * KV)
    grad_output = in_memory(grad_output).contiguous()
    grad_weights = None if grad_weights is None else in_memory(grad_weights).contiguous()
    # What a kernel writes: for each row of queries, or sums of each chunk of rows.
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(GRADIENTS, (B, H, Q))
    shapes["query"] = (B, H, Q, D)
    shapes["key"] = (B, KV, chunks, K, D)
    shapes["value"] = (B, KV, chunks, K, V)
    shapes["weight"] = (B, H, chunks, even_length(D))
    shapes["bias"] = (B, H, chunks, Q + K - 1) if inputs.diagonal else (B, H, Q, K)
    grads = {}
    for name, shape in shapes.items():
        new = inputs.query.new_empty if name in _CLEARED else inputs.query.new_zeros
        grads[name] = new(shape if getattr(inputs, name) is not None else 0)
    key_transposed, value_transposed = _transposed(inputs, "key"), _transposed(inputs, "value")
    filled = fill_arguments(
        inputs,
        inputs.block,
        chunks,
        key_transposed=address_of(key_transposed),
        value_transposed=address_of(value_transposed),
        statistics=address_of(statistics),
        returned_weights=address_of(kept_weights),
        grad_output=address_of(grad_output),
        grad_weights=address_of(grad_weights),
        **{f"grad_{name}": address_of(tensor) for name, tensor in grads.items()},
    )
    launch(kernels.backward(inputs), filled, B * KV * chunks, 3.0 * inputs.work)
    grads["key"], grads["value"] = sum_of_chunks(grads["key"]), sum_of_chunks(grads["value"])
    if additive:
        grads["weight"] = grads["weight"][..., :D].sum((0, 2))
    if inputs.bias is not None and inputs.diagonal:
        grads["bias"] = grads["bias"].sum((0, 2))
    for name in ("sink", "shift", "alphas"):
        if getattr(inputs, name) is not None:
            grads[name] = grads[name].sum((0, 2))
    # What rows, heads or batch rows share gets the sum of their gradients.
    for name in ("weight", "bias", "sink", "shift", "alphas"):
        shared = getattr(inputs, name)
        grads[name] = grads[name] if shared is None else grads[name].sum_to_size(shared.shape)
    return [grads[name] for name in GRADIENTS]


def _attend_backward_shapes(
    grad_output: Tensor, grad_weights: Tensor | None, statistics: Tensor, kept_weights: Tensor | None, *arguments: Any
) -> list[Tensor]:
    inputs = KernelInputs(*arguments)
    new, tensors = inputs.query.new_empty, [getattr(inputs, name) for name in GRADIENTS]
    return [new(0) if tensor is None else new(tensor.shape) for tensor in tensors]


def _readings(*arguments: Any) -> list[Tensor]:
    split = len(KernelInputs._fields)
    inputs, options = readable(KernelInputs(*arguments[:split])), ReadingOptions(*arguments[split:])
    check_inputs(inputs)
    B, H = inputs.query.shape[:2]
    block, chunks = blocks_of_readings(inputs, options)
    taken = options.tensors(inputs, chunks)
    for reading in READINGS:
        taken[reading.name].fill_(reading.initial)
    filled = readings_arguments(inputs, options, block, chunks)
    # In place of the options that have the name of the reading that they ask for.
    write_named({name: address_of(tensor) if tensor.numel() else 0 for name, tensor in taken.items()}, filled)
    kernel, tasks = kernels.readings(inputs, options), B * H * chunks
    if options.fit_lanes(inputs):
        launch(kernel, filled, tasks, inputs.work)
    else:
        _launch(kernel, tasks, inputs, filled)
    for reading in READINGS:
        if reading.over_rows is not None:
            sums = taken[reading.name]
            whole = sums.numel() > 0
            taken[reading.name] = reading.over_rows(sums) if whole else sums.new_empty(B, H, *sums.shape[3:])
    return list(taken.values())


def blocks_of_readings(inputs: KernelInputs, options: ReadingOptions) -> tuple[int, int]:
    """Rows of a block whose weights are only read, and into how many chunks the rows of a head are cut."""
    batch, heads, queries, _ = inputs.query.shape
    block = LANES if options.fit_lanes(inputs) else min(inputs.block, READING_ROWS)
    return block, min(ceil_div(queries, block), inputs.chunks(1, batch * heads) * 4)


def readings_arguments(inputs: KernelInputs, options: ReadingOptions, block: int, chunks: int) -> list[float]:
    """The arguments of the readings kernel, but for the addresses of the readings."""
    # The kernel of rows side by side makes its products itself.
    filled = fill_arguments(inputs, 0 if options.fit_lanes(inputs) else block, chunks)
    write_named({"block": block}, filled)
    _READING_OPTIONS.write(options, filled)
    return filled


def _readings_shapes(*arguments: Any) -> list[Tensor]:
    split = len(KernelInputs._fields)
    tensors = ReadingOptions(*arguments[split:]).tensors(KernelInputs(*arguments[:split]), 1)
    for reading in READINGS:
        if reading.over_rows is not None:
            sums = tensors[reading.name]
            tensors[reading.name] = sums.new_empty(*sums.shape[:2], *sums.shape[3:])
    return list(tensors.values())


def _save_inputs(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    called = KernelInputs(*inputs)
    given = called._asdict()
    ctx.tensors = [name for name, value in given.items() if isinstance(value, Tensor)]
    ctx.others = {name: value for name, value in given.items() if not isinstance(value, Tensor)}
    kept = output[2] if called.return_weights and called.keeps_weights else None
    ctx.save_for_backward(output[1], kept, *(given[name] for name in ctx.tensors))
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _differentiate(
    ctx: Any, grad_output: Tensor | None, _: Any, grad_weights: Tensor | None
) -> tuple[Tensor | None, ...]:
    refuse_batched_gradients(grad_output, grad_weights)
    statistics, kept, *tensors = ctx.saved_tensors
    inputs = KernelInputs(**dict(zip(ctx.tensors, tensors, strict=True)), **ctx.others)
    if grad_output is None:
        grad_output = inputs.query.new_zeros(*inputs.query.shape[:3], inputs.value.shape[3])
    grad_weights = grad_weights if inputs.return_weights else None
    gradients = torch.ops.regard_cpu.attend_backward(grad_output, grad_weights, statistics, kept, *inputs)
    grads = dict(zip(GRADIENTS, gradients, strict=True))
    return tuple(grads[name] if name in grads and name in ctx.tensors else None for name in KernelInputs._fields)


def readable(inputs: KernelInputs) -> KernelInputs:
    """The inputs with their numbers in memory, side by side where kernels read them so."""
    laid: dict[str, Tensor] = {}
    for name, index in _TENSORS:
        given: Any = inputs[index]
        if given is None:
            continue
        value = in_memory(given)
        if name in ("query", "key", "value"):
            value = as_matrix(value)
        elif name == "mask" or (name == "bias" and inputs.diagonal):
            value = value if value.stride(-1) == 1 or value.shape[-1] == 1 else value.contiguous()
        elif name != "bias":
            value = value.contiguous()
        if value is not given:
            laid[name] = value
    return inputs._replace(**laid) if laid else inputs


def _launch(kernel: Kernel, tasks: int, inputs: KernelInputs, filled: list[float]) -> None:
    """Launch a kernel that looks at each key for its score alone."""
    if kernels.needs_transposed(inputs, "key"):
        launch_on_transposed(kernel, filled, inputs.key, tasks, inputs.work)
    else:
        launch(kernel, filled, tasks, inputs.work)


def _transposed(inputs: KernelInputs, name: str) -> Tensor | None:
    return transposed(getattr(inputs, name)) if kernels.needs_transposed(inputs, name) else None


for _name, _run, _shapes in (
    ("exponentials", _exponentials, exponentials_shapes),
    ("attend", _attend, _attend_shapes),
    ("attend_backward", _attend_backward, _attend_backward_shapes),
    ("readings", _readings, _readings_shapes),
):
    # A compiler that meets the operator leaves what it does alone.
    _LIBRARY.impl(_name, uncompiled(_run), "CPU")
    torch.library.register_fake(f"regard_cpu::{_name}", _shapes, lib=_LIBRARY)
register_autograd("regard_cpu::attend", _differentiate, setup_context=_save_inputs, lib=_LIBRARY)
register_autograd("regard_cpu::attend_backward", refuse_second_derivative, lib=_LIBRARY)
register_autocast("regard_cpu::attend", "cpu", torch.float32, lib=_LIBRARY)

attend = torch.ops.regard_cpu.attend.default

attend_now = _attend
"""`attend` without PyTorch's dispatcher, which takes as long as a small problem: for inputs that want no gradient, and
that no transform, mode or compiler looks at."""

attend_backward = torch.ops.regard_cpu.attend_backward.default
exponentials = torch.ops.regard_cpu.exponentials.default
read = torch.ops.regard_cpu.readings.default
