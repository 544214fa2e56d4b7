"""All kernels, each specialized by a few words: a dtype, the units of a score, a normalizer.

Their bodies are in `regard.kernels.cpu.bodies`; naming a kernel imports none of them.
"""

from functools import cache, lru_cache

import torch

from regard.kernels.availability import microkernel_is_faster
from regard.kernels.cpu.kernel import Kernel
from regard.kernels.cpu.kernel_arguments import BLAS, FEW_ROWS, PAIRED, PLAIN, WIDE, KernelInputs, ReadingOptions
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
"""Module and maker of the kernels that are specialized by dtype, units of the score and normalizer."""


def row_normalizer(kind: str, temperature: float | torch.Tensor, alpha: float | torch.Tensor) -> dict[str, int | float]:
    """Returns the scalar fields of `KernelInputs` that describe how a row is normalized.

    Args:
        alpha: alpha of entmax; a tensor is passed in `KernelInputs.alphas` instead.
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
    return {"normalizer": _entmax_of(alpha), "alpha": alpha}


def _entmax_of(alpha: float) -> int:
    return {2.0: SPARSEMAX, 1.5: ENTMAX15}.get(alpha, ENTMAX)


def is_wide(inputs: KernelInputs) -> bool:
    """Whether the microkernel computes the products instead of BLAS.

    With additive scores, products are a small part of the work and would need transposed values.
    """
    if inputs.paired:
        return True
    if inputs.query.dtype != torch.float32 or not microkernel_is_faster():
        return False
    return inputs.units == "product" or gemm_address(torch.float32) == 0


def needs_transposed(inputs: KernelInputs, name: str) -> bool:
    """Whether the microkernel computes products of enough rows to need transposed keys or values."""
    is_additive_key = name == "key" and inputs.weight is not None
    return inputs.transposes and not is_additive_key and is_wide(inputs)


def products(inputs: KernelInputs) -> tuple[int, int]:
    """Returns how products are computed, `BLAS`, `WIDE`, `PAIRED` or `PLAIN`, and the address of BLAS's
    ``gemm``."""
    gemm = gemm_address(inputs.query.dtype)
    if inputs.paired:
        return PAIRED, gemm
    return WIDE if is_wide(inputs) else BLAS if gemm else PLAIN, gemm


def forward(inputs: KernelInputs) -> tuple[Kernel, int]:
    """Returns the forward kernel for these inputs, and the number of its tasks."""
    batch, heads, queries, _ = inputs.query.shape
    return _kernel_for("forward", inputs), batch * heads * ceil_div(queries, inputs.block)


def backward(inputs: KernelInputs) -> Kernel:
    """Returns the kernel that computes all gradients."""
    return _kernel_for("backward", inputs)


def readings(inputs: KernelInputs, options: ReadingOptions) -> Kernel:
    """Returns the kernel that computes readings of the weights."""
    if options.fit_lanes(inputs):
        return _lane_readings(inputs.query.dtype)
    return _kernel_for("readings", inputs)


def step_backward(inputs: KernelInputs) -> Kernel:
    """Returns the kernel for the gradients of one step over a memory; a task is a batch row. Not for rectified
    units."""
    return _kernel_for("step_backward", inputs)


def keys_backward(dtype: torch.dtype) -> Kernel:
    """Returns the kernel for the gradients of an additive score's keys and weight over all steps, by batch rows."""
    return _kernel("steps", "additive_keys_backward", _dtype_name(dtype))


def exponentials(dtype: torch.dtype) -> Kernel:
    """Returns the kernel that prepares an additive score's keys: exponentials, or copies for rectified units."""
    return _kernel("prepare", "prepare_additive_keys", _dtype_name(dtype))


def transposed(dtype: torch.dtype) -> Kernel:
    """Returns the kernel that transposes keys; a task is a tile of keys."""
    return _kernel("prepare", "transpose_keys", _dtype_name(dtype))


def rows(dtype: torch.dtype, alpha: float, backward: bool) -> Kernel:
    """Returns the kernel of entmax on plain rows, or of its gradient."""
    name = NORMALIZERS[_entmax_of(alpha)]
    return _kernel("rows", "entmax_rows_backward" if backward else "entmax_rows", _dtype_name(dtype), name)


def packed_attention(dtype: torch.dtype) -> Kernel:
    """Returns the kernel of attention on packed float32 rows; a task is a sequence and a key head."""
    return _kernel("packed_attention", "packed_attention", _dtype_name(dtype))


def packed_attention_gradients(dtype: torch.dtype) -> Kernel:
    """Returns the kernel of the gradients of `packed_attention`."""
    return _kernel("packed_attention", "packed_attention_gradients", _dtype_name(dtype))


def stages() -> Kernel:
    """Returns the kernel that runs several others, one after the other."""
    return _kernel("stages", "run_stages")


@lru_cache(maxsize=256)
def row_function(maker: str, program: str, dtype: torch.dtype) -> Kernel:
    """Returns the function of a row that a program describes: see `bodies.row_functions`."""
    return Kernel(f"{_BODIES}.row_functions", maker, _dtype_name(dtype), program)


def column_attention(dtype: torch.dtype) -> Kernel:
    """Returns the kernel of attention to listed float32 keys; a task is a chunk of the rows of a key head."""
    return _kernel("column_attention", "column_attention", _dtype_name(dtype))


def column_attention_gradients(dtype: torch.dtype) -> Kernel:
    """Returns the kernel of the gradients of `column_attention`."""
    return _kernel("column_attention", "column_attention_gradients", _dtype_name(dtype))


def multiply(dtype: torch.dtype) -> Kernel:
    """Returns the kernel of one matrix product, which other kernels call; in half precision, of a few rows with keys or
    values that are stored so."""
    return _kernel("multiply", "multiply", _dtype_name(dtype))


def multiply_pairs() -> Kernel:
    """Returns the kernel of one product of matrices that are rounded to bfloat16, which other kernels call."""
    return _kernel("multiply", "multiply", "pairs")


def needs_multiply(method: int, dtype: torch.dtype, block: int) -> bool:
    """Whether some products are not computed by BLAS.

    Args:
        method: the method for products that no special method covers.
        block: rows of a block; products of a few rows have a special method.
    """
    return method != BLAS or (block <= FEW_ROWS and dtype == torch.float32)


@cache
def for_calls(dtype: torch.dtype, units: str, normalizer: int, gradient: bool) -> tuple[Kernel, ...]:
    """Returns all kernels that calls of one kind may need, whatever their sizes, in the order in which they run."""
    kernels = [*_preparing_kernels(dtype, units), _specialized("forward", dtype, units, normalizer)]
    return (*kernels, _specialized("backward", dtype, units, normalizer)) if gradient else tuple(kernels)


@cache
def for_documents(gradient: bool) -> tuple[Kernel, ...]:
    """Returns all kernels of attention on packed rows; ``gradient`` as for `for_calls`."""
    kernels = multiply(torch.float32), packed_attention(torch.float32)
    return (*kernels, packed_attention_gradients(torch.float32)) if gradient else kernels


def linear_chunks(dtype: torch.dtype) -> Kernel:
    """Returns the kernel of linear attention in chunks; float32."""
    return _kernel("linear_chunks", "linear_chunks", _dtype_name(dtype))


def linear_gradients(dtype: torch.dtype) -> Kernel:
    """Returns the kernel of the gradients of `linear_chunks`."""
    return _kernel("linear_gradients", "linear_gradients", _dtype_name(dtype))


@cache
def for_linear(gradient: bool) -> tuple[Kernel, ...]:
    """Returns all kernels of linear attention; ``gradient`` as for `for_calls`."""
    kernels = multiply(torch.float32), linear_chunks(torch.float32)
    return (*kernels, linear_gradients(torch.float32)) if gradient else kernels


@cache
def for_columns(gradient: bool) -> tuple[Kernel, ...]:
    """Returns all kernels of attention to listed keys; ``gradient`` as for `for_calls`."""
    kernels = (column_attention(torch.float32),)
    return (*kernels, column_attention_gradients(torch.float32)) if gradient else kernels


@cache
def for_readings(dtype: torch.dtype, units: str, normalizer: int) -> tuple[Kernel, ...]:
    """Returns all kernels that readings of such calls may need."""
    kernels = [*_preparing_kernels(dtype, units), _specialized("readings", dtype, units, normalizer)]
    if (dtype, units, normalizer) == (torch.float32, "product", SOFTMAX):
        kernels.append(_lane_readings(dtype))
    return tuple(kernels)


@cache
def for_steps(dtype: torch.dtype, units: str, normalizer: int, gradient: bool) -> tuple[Kernel, ...]:
    """Returns all kernels that steps over a cached memory may need."""
    kernels = list(for_calls(dtype, units, normalizer, False))
    if gradient:
        kernels.append(_specialized("step_backward", dtype, units, normalizer))
        if units != "product":
            kernels.append(keys_backward(dtype))
    return tuple(kernels)


def _preparing_kernels(dtype: torch.dtype, units: str) -> list[Kernel]:
    """Returns the kernels that prepare keys and compute products, for inputs of any size."""
    kernels = [multiply(dtype)] if dtype == torch.float32 or not gemm_address(dtype) else []
    if units != "product":
        kernels += exponentials(dtype), stages()
    if dtype == torch.float32 and microkernel_is_faster():
        kernels += transposed(dtype), stages()
    return kernels


def _lane_readings(dtype: torch.dtype) -> Kernel:
    return _kernel("lane_readings", "lane_readings", _dtype_name(dtype))


def _kernel_for(name: str, inputs: KernelInputs) -> Kernel:
    return _specialized(name, inputs.query.dtype, inputs.units, inputs.normalizer)


@cache
def _specialized(name: str, dtype: torch.dtype, units: str, normalizer: int) -> Kernel:
    return _kernel(*_MAKERS[name], _dtype_name(dtype), units, NORMALIZERS[normalizer])


@cache
def _kernel(module: str, maker: str, *words: str) -> Kernel:
    return Kernel(f"{_BODIES}.{module}", maker, *words)


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
