"""The kernels that there are, each compiled for a few words: a dtype, what a score is made of, a normalizer.

Their bodies are in `regard.kernels.cpu.bodies`; asking for a kernel loads none of them.
"""

from functools import cache

import torch

from regard.kernels.availability import microkernel_is_faster
from regard.kernels.cpu.blas import gemm_address
from regard.kernels.cpu.kernel import Kernel, compile_together
from regard.kernels.cpu.kernel_inputs import FEW_ROWS, KernelInputs
from regard.kernels.cpu.reading_options import ReadingOptions
from regard.kernels.cpu.record import BLAS, PLAIN, WIDE
from regard.kernels.cpu.sizes import ceil_div
from regard.kernels.kinds import NORMALIZERS

_BODIES = "regard.kernels.cpu.bodies"

_MAKERS = {
    "forward": ("forward", "attention_forward"),
    "backward": ("backward", "attention_backward"),
    "readings": ("readings", "attention_readings"),
    "step_backward": ("steps", "attention_step_backward"),
}
"""Kernels that are compiled for a dtype, a score's units and a normalizer: module and maker."""


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
    """Of all gradients."""
    return _of_inputs("backward", inputs)


def readings(inputs: KernelInputs, asked: ReadingOptions) -> Kernel:
    """Of readings of the weights."""
    if asked.fit_lanes(inputs):
        return _kernel("lane_readings", "lane_readings", _name(inputs.query.dtype))
    return _of_inputs("readings", inputs)


def beside_readings(inputs: KernelInputs, asked: ReadingOptions, block: int) -> list[Kernel]:
    """The kernels that the one of readings needs beside itself: see `beside`."""
    return [] if asked.fit_lanes(inputs) else beside(inputs, block)


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


def packed_attention(dtype: torch.dtype) -> Kernel:
    """Of packed rows, a sequence and a head of keys for each task; float32."""
    return _kernel("packed_attention", "packed_attention", _name(dtype))


def packed_attention_gradients(dtype: torch.dtype) -> Kernel:
    """Of its gradients, likewise."""
    return _kernel("packed_attention", "packed_attention_gradients", _name(dtype))


def multiply(dtype: torch.dtype) -> Kernel:
    """Of one product, for other kernels."""
    return _kernel("multiply", "multiply", _name(dtype))


def needs_multiply(way: int, dtype: torch.dtype, block: int) -> bool:
    """Whether there are products that BLAS does not make.

    Args:
        way: how those are made that need not be made in another way.
        dtype: of the numbers.
        block: rows of a block; products of a few have a way of their own.
    """
    return way != BLAS or (block <= FEW_ROWS and dtype == torch.float32)


def beside(inputs: KernelInputs, block: int) -> list[Kernel]:
    """The kernels that one of these inputs needs beside itself; exponentials may be missing.

    Args:
        inputs: of the kernel.
        block: rows of a block.
    """
    dtype, found = inputs.query.dtype, []
    if needs_multiply(products(inputs)[0], dtype, block):
        found.append(multiply(dtype))
    if inputs.units != "product" and inputs.exponentials is None:
        found.append(exponentials(dtype))
    if needs_transposed(inputs, "key"):
        found.append(transposed(dtype))
    return found


def compile_missing(inputs: KernelInputs, later: tuple[str, ...], asked: ReadingOptions | None = None) -> None:
    """Compile a call's kernels at the same time, if that of the forward pass is missing and there are processors.

    Args:
        inputs: of the forward pass; exponentials may be missing.
        later: other kernels that are wanted after ``forward`` and the readings, in this order: ``backward``,
            ``step_backward``.
        asked: which readings are wanted; None: none.
    """
    first = _of_inputs("forward", inputs)
    if first.is_loaded:
        return
    dtype, others = inputs.query.dtype, beside(inputs, inputs.block)
    if asked is not None:
        others.append(readings(inputs, asked))
    others += (_of_inputs(name, inputs) for name in later)
    if "step_backward" in later and inputs.units != "product":
        others.append(keys_backward(dtype))
    compile_together(first, *others)


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
