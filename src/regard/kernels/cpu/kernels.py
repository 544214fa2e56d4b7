"""The kernels that there are, each compiled for a few words: a dtype, how scores become weights, how products are made.

Their bodies are in `regard.kernels.cpu.bodies`; asking for a kernel loads none of them.
"""

from functools import cache

import torch

from regard.kernels.availability import microkernel_is_faster
from regard.kernels.cpu.blas import gemm_address
from regard.kernels.cpu.kernel import Kernel, compile_together
from regard.kernels.cpu.kernel_inputs import KernelInputs
from regard.kernels.cpu.sizes import ceil_div
from regard.kernels.kinds import NORMALIZERS

_BODIES = "regard.kernels.cpu.bodies"

_MAKERS = {
    "forward": ("forward", "attention_forward"),
    "backward": ("backward", "attention_backward"),
    "readings": ("readings", "attention_readings"),
    "step_backward": ("steps", "attention_step_backward"),
}
"""Kernels that are compiled for a score's units, a normalizer and a routine for products: module and maker."""


def is_wide(inputs: KernelInputs) -> bool:
    """Whether products are made by the microkernel instead of BLAS.

    With additive scores they are a small part of the work, and the microkernel a large part of compiling.
    """
    if inputs.query.dtype != torch.float32 or not microkernel_is_faster():
        return False
    return inputs.units == "product" or gemm_address(torch.float32) == 0


def forward(inputs: KernelInputs) -> tuple[Kernel, int]:
    """The kernel for these inputs, and into how many tasks it cuts them."""
    batch, heads, queries, _ = inputs.query.shape
    return _of_inputs("forward", inputs), batch * heads * ceil_div(queries, inputs.block)


def backward(inputs: KernelInputs) -> Kernel:
    """Of all gradients."""
    return _of_inputs("backward", inputs)


def readings(inputs: KernelInputs) -> Kernel:
    """Of readings of the weights."""
    return _of_inputs("readings", inputs)


def step_backward(inputs: KernelInputs) -> Kernel:
    """Of one step over a memory, a batch row for each task; there is none for rectified units."""
    return _of_inputs("step_backward", inputs)


def keys_backward(dtype: torch.dtype) -> Kernel:
    """Of all steps' gradient of an additive score's keys and weight, a batch row for each task."""
    return _kernel("steps", "additive_keys_backward", _name(dtype))


def exponentials(dtype: torch.dtype) -> Kernel:
    """Of an additive score's keys, a tile of keys for each task; of rectified units the keys themselves."""
    return _kernel("prepare", "prepare_additive_keys", _name(dtype))


def transposed(dtype: torch.dtype) -> Kernel:
    """Of keys, a tile of them for each task."""
    return _kernel("prepare", "transpose_keys", _name(dtype))


def rows(dtype: torch.dtype, normalizer: int, backward: bool) -> Kernel:
    """Of a sparse normalizer on plain rows, or of its gradient."""
    return _kernel("rows", "entmax_rows_backward" if backward else "entmax_rows", _name(dtype), NORMALIZERS[normalizer])


def drop(dtype: torch.dtype, before_or_after: str) -> Kernel:
    """Of dropout with what stands beside it: ``plain``, ``relu`` or ``residual``."""
    return _kernel("dropping", "drop_numbers", _name(dtype), before_or_after)


def gate(dtype: torch.dtype) -> Kernel:
    """Of the gradient of a ReLU and dropout."""
    return _kernel("dropping", "gate_numbers", _name(dtype))


def measured_product() -> Kernel:
    """One product by the microkernel."""
    return _kernel("prepare", "measured_product", "float32")


def compile_missing(inputs: KernelInputs, later: tuple[str, ...]) -> None:
    """Compile what a call needs and does not find, in two processes if there are two processors.

    Args:
        inputs: of the forward pass; exponentials may be missing.
        later: other kernels that are wanted after ``forward``, in this order: ``readings``, ``backward``,
            ``step_backward``.
    """
    wide = is_wide(inputs)
    prepared = inputs.exponentials is None if inputs.units != "product" else wide and inputs.transposes
    if later or prepared:
        _compile_missing(inputs.query.dtype, inputs.units, inputs.normalizer, wide, prepared, later)


@cache
def _compile_missing(
    dtype: torch.dtype, units: str, normalizer: int, wide: bool, prepared: bool, later: tuple[str, ...]
) -> None:
    others = [_of_words(name, dtype, units, normalizer, wide) for name in later]
    if prepared:
        others.insert(0, transposed(dtype) if units == "product" else exponentials(dtype))
    if "step_backward" in later and units != "product":
        others.append(keys_backward(dtype))
    compile_together(_of_words("forward", dtype, units, normalizer, wide), *others)


def _of_inputs(name: str, inputs: KernelInputs) -> Kernel:
    return _of_words(name, inputs.query.dtype, inputs.units, inputs.normalizer, is_wide(inputs))


@cache
def _of_words(name: str, dtype: torch.dtype, units: str, normalizer: int, wide: bool) -> Kernel:
    words = _name(dtype), units, NORMALIZERS[normalizer], "microkernel" if wide else "blas"
    return _kernel(*_MAKERS[name], *words)


@cache
def _kernel(module: str, maker: str, *words: str) -> Kernel:
    return Kernel(f"{_BODIES}.{module}", maker, *words)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
