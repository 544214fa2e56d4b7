"""The kernels that there are, each compiled for a few words: a dtype, what a score is made of, a normalizer.

Their bodies are in `regard.kernels.cpu.bodies`; asking for a kernel loads none of them.
"""

from functools import cache

import torch

from regard.kernels.availability import microkernel_is_faster
from regard.kernels.cpu.kernel import Kernel
from regard.kernels.cpu.kernel_arguments import BLAS, FEW_ROWS, PLAIN, WIDE, KernelInputs, ReadingOptions
from regard.kernels.cpu.libraries import gemm_address
from regard.kernels.cpu.sizes import ceil_div
from regard.kernels.kinds import ENTMAX, ENTMAX15, HARD, NORMALIZERS, SIGMOID, SOFTMAX, SPARSEMAX

_BODIES = "regard.kernels.cpu.bodies"

_MAKERS = {
    "forward": ("forward", "attention_forward"),
    "backward": ("backward", "attention_backward"),
    "readings": ("readings", "attention_readings"),
    "step_backward": ("steps", "attention_step_backward"),
}
"""Kernels that are compiled for a dtype, a score's units and a normalizer: module and maker."""


def row_normalizer(kind: str, temperature: float | torch.Tensor, alpha: float | torch.Tensor) -> dict[str, int | float]:
    """The fields of `KernelInputs` that say how a row is normalized, those that are numbers.

    Args:
        kind: of a row primitive: ``softmax``, ``entmax``, ``sigmoid`` or ``hard``.
        temperature: of softmax; a number.
        alpha: of entmax; where it is a tensor, `KernelInputs.alphas` has it.
    """
    if kind == "sigmoid":
        return {"normalizer": SIGMOID}
    if kind == "hard":
        return {"normalizer": HARD}
    if kind == "softmax":
        assert not isinstance(temperature, torch.Tensor)
        return {"normalizer": SOFTMAX, "temperature": temperature}
    if isinstance(alpha, torch.Tensor):
        return {"normalizer": ENTMAX}
    return {"normalizer": {2.0: SPARSEMAX, 1.5: ENTMAX15}.get(alpha, ENTMAX), "alpha": alpha}


def is_wide(inputs: KernelInputs) -> bool:
    """Whether products are made by the microkernel instead of BLAS.

    With additive scores they are a small part of the work, and values would have to be transposed for them.
    """
    if inputs.query.dtype != torch.float32 or not microkernel_is_faster():
        return False
    return inputs.units == "product" or gemm_address(torch.float32) == 0


def needs_transposed(inputs: KernelInputs, name: str) -> bool:
    """Whether products are made by the microkernel, of so many rows that it needs keys or values transposed."""
    by_units = name == "key" and inputs.weight is not None
    return inputs.transposes and not by_units and is_wide(inputs)


def products(inputs: KernelInputs) -> tuple[int, int]:
    """How products are made, `BLAS`, `WIDE` or `PLAIN`, and the address of BLAS's."""
    gemm = gemm_address(inputs.query.dtype)
    return WIDE if is_wide(inputs) else BLAS if gemm else PLAIN, gemm


def forward(inputs: KernelInputs) -> tuple[Kernel, int]:
    """The kernel for these inputs, and into how many tasks it cuts them."""
    batch, heads, queries, _ = inputs.query.shape
    return _of_inputs("forward", inputs), batch * heads * ceil_div(queries, inputs.block)


def backward(inputs: KernelInputs) -> Kernel:
    """The kernel of all gradients."""
    return _of_inputs("backward", inputs)


def readings(inputs: KernelInputs, options: ReadingOptions) -> Kernel:
    """The kernel that reads the weights."""
    if options.fit_lanes(inputs):
        return _lane_readings(inputs.query.dtype)
    return _of_inputs("readings", inputs)


def required_for_readings(inputs: KernelInputs, options: ReadingOptions, block: int) -> list[Kernel]:
    """The kernels that the one of readings calls or follows: see `required_kernels`."""
    return [] if options.fit_lanes(inputs) else required_kernels(inputs, block)


def step_backward(inputs: KernelInputs) -> Kernel:
    """The kernel of the gradients of one step over a memory, a batch row for each task; rectified units have none."""
    return _of_inputs("step_backward", inputs)


def keys_backward(dtype: torch.dtype) -> Kernel:
    """The kernel of the gradients of an additive score's keys and weight, for all steps; a batch row for each task."""
    return _kernel("steps", "additive_keys_backward", _name(dtype))


def exponentials(dtype: torch.dtype) -> Kernel:
    """The kernel that prepares an additive score's keys: exponentials, or copies for rectified units; a tile a task."""
    return _kernel("prepare", "prepare_additive_keys", _name(dtype))


def transposed(dtype: torch.dtype) -> Kernel:
    """The kernel that transposes keys, a tile of them for each task."""
    return _kernel("prepare", "transpose_keys", _name(dtype))


def rows(dtype: torch.dtype, normalizer: int, backward: bool) -> Kernel:
    """The kernel of a sparse normalizer on plain rows, or of its gradient."""
    return _kernel("rows", "entmax_rows_backward" if backward else "entmax_rows", _name(dtype), NORMALIZERS[normalizer])


def packed_attention(dtype: torch.dtype) -> Kernel:
    """The kernel of attention of packed rows, a sequence and a head of keys for each task; float32."""
    return _kernel("packed_attention", "packed_attention", _name(dtype))


def packed_attention_gradients(dtype: torch.dtype) -> Kernel:
    """The kernel of its gradients, likewise."""
    return _kernel("packed_attention", "packed_attention_gradients", _name(dtype))


def multiply(dtype: torch.dtype) -> Kernel:
    """The kernel of one product, which other kernels call."""
    return _kernel("multiply", "multiply", _name(dtype))


def needs_multiply(way: int, dtype: torch.dtype, block: int) -> bool:
    """Whether there are products that BLAS does not make.

    Args:
        way: how those are made that need not be made in another way.
        dtype: of the numbers.
        block: rows of a block; products of a few have a way of their own.
    """
    return way != BLAS or (block <= FEW_ROWS and dtype == torch.float32)


def required_kernels(inputs: KernelInputs, block: int) -> list[Kernel]:
    """The kernels that the one of these inputs calls or follows; exponentials may be missing.

    Args:
        inputs: of the kernel.
        block: rows of a block.
    """
    dtype, required = inputs.query.dtype, []
    if needs_multiply(products(inputs)[0], dtype, block):
        required.append(multiply(dtype))
    if inputs.units != "product" and inputs.exponentials is None:
        required.append(exponentials(dtype))
    if needs_transposed(inputs, "key"):
        required.append(transposed(dtype))
    return required


@cache
def of_calls(dtype: torch.dtype, units: str, normalizer: int, gradient: bool) -> tuple[Kernel, ...]:
    """All kernels that calls of one kind may need, whatever their sizes are, in the order in which they run.

    Args:
        dtype: of the kernels' inputs.
        units: as `KernelInputs.units`.
        normalizer: of `regard.kernels.kinds`.
        gradient: whether a backward pass may follow.
    """
    kernels = [*_of_all_products(dtype, units), _of_words("forward", dtype, units, normalizer)]
    return (*kernels, _of_words("backward", dtype, units, normalizer)) if gradient else tuple(kernels)


@cache
def of_readings(dtype: torch.dtype, units: str, normalizer: int) -> tuple[Kernel, ...]:
    """All kernels that readings of such calls may need."""
    kernels = [*_of_all_products(dtype, units), _of_words("readings", dtype, units, normalizer)]
    if (dtype, units, normalizer) == (torch.float32, "product", SOFTMAX):
        kernels.append(_lane_readings(dtype))
    return tuple(kernels)


@cache
def of_steps(dtype: torch.dtype, units: str, normalizer: int, gradient: bool) -> tuple[Kernel, ...]:
    """All kernels that steps over a cached memory may need."""
    kernels = list(of_calls(dtype, units, normalizer, False))
    if gradient:
        kernels.append(_of_words("step_backward", dtype, units, normalizer))
        if units != "product":
            kernels.append(keys_backward(dtype))
    return tuple(kernels)


def _of_all_products(dtype: torch.dtype, units: str) -> list[Kernel]:
    """The kernels that prepare keys and make products, for inputs of any size."""
    kernels = [multiply(dtype)] if dtype == torch.float32 or not gemm_address(dtype) else []
    if units != "product":
        kernels.append(exponentials(dtype))
    if dtype == torch.float32 and microkernel_is_faster():
        kernels.append(transposed(dtype))
    return kernels


def _lane_readings(dtype: torch.dtype) -> Kernel:
    return _kernel("lane_readings", "lane_readings", _name(dtype))


def _of_inputs(name: str, inputs: KernelInputs) -> Kernel:
    return _of_words(name, inputs.query.dtype, inputs.units, inputs.normalizer)


@cache
def _of_words(name: str, dtype: torch.dtype, units: str, normalizer: int) -> Kernel:
    return _kernel(*_MAKERS[name], _name(dtype), units, NORMALIZERS[normalizer])


@cache
def _kernel(module: str, maker: str, *words: str) -> Kernel:
    return Kernel(f"{_BODIES}.{module}", maker, *words)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
