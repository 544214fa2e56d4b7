"""Filling a kernel's arguments from its inputs, and running the kernel on all threads that PyTorch would use.

PyTorch keeps OpenMP threads, which go on spinning for a while after their work is done. Other threads beside them would
share the processors with those spinning ones. So kernels run on PyTorch's own threads, entered through the C interface
of the OpenMP library that PyTorch brought along; where that is not found, on plain Python threads.

Every thread calls the kernel with the same arguments, among them a counter: each takes the next task until none is
left. A task writes nothing that another one reads or writes, so results don't depend on who does what.
"""

import ctypes
import struct
import sys
import threading
from array import array
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.kernels.cpu import kernels
from regard.kernels.cpu.kernel import Kernel
from regard.kernels.cpu.kernel_arguments import FORMATS, POSITIONS, SIZES, KernelInputs, Writer, address_of
from regard.kernels.cpu.libraries import limit_address, openmp
from regard.kernels.cpu.sizes import TILE, ceil_div, padded_length
from regard.kernels.kinds import DENSE_BIAS, DIAGONAL_BIAS, SIGMOID, SOFTMAX
from regard.transforms import in_memory

_PACKED = struct.Struct("".join(FORMATS.values()))
_C: Any = ctypes.cdll.msvcrt if sys.platform == "win32" else ctypes.CDLL(None)
_NEW: list[float] = [0] * len(FORMATS)
"""A kernel's arguments before anything is known: where threads get their memory."""
for _name in ("malloc", "free"):
    _NEW[POSITIONS[_name]] = ctypes.cast(getattr(_C, _name), ctypes.c_void_p).value or 0

_SIZES = slice(POSITIONS[SIZES[0]], POSITIONS[SIZES[-1]] + 1)
_INPUTS = Writer(KernelInputs, POSITIONS)
_COUNTER, _TASKS, _KEY_TRANSPOSED, _GEMM, _LIMIT_THREADS, _PRODUCTS, _MULTIPLY = (
    POSITIONS[name] for name in ("counter", "tasks", "key_transposed", "gemm", "limit_threads", "products", "multiply")
)
_BIAS_KIND, _INVERSE_TEMPERATURE, _KEPT, _THRESHOLD, _SINK, _SHIFT = (
    POSITIONS[name] for name in ("bias_kind", "inverse_temperature", "kept", "threshold", "sink", "shift")
)


SERIAL_WORK = 1 << 17
"""Below this number of elementary operations, waking other threads costs more than it saves."""

TRANSPOSED_NUMBERS = 1 << 18
"""Numbers of transposed keys that are held at once: 1 MiB of float32."""

THREAD_TASKS = 4
"""Tasks that a launch on some heads should have for each thread, so that threads end at about the same time."""


def fill_arguments(inputs: KernelInputs, block: int = 0, chunks: int = 1, **more: float) -> list[float]:
    """The numbers of a kernel's arguments, in its order.

    Args:
        inputs: what the kernel is called with.
        block: rows of a block; 0 for a kernel that has none.
        chunks: how many the rows of one head are cut into.
        more: other numbers of the arguments, by name.
    """
    query, value = inputs.query, inputs.value
    batch, heads, queries, dim = query.shape
    _, kv_heads, keys, value_dim = value.shape
    numbers = _NEW.copy()
    if inputs.bias is not None:
        numbers[_BIAS_KIND] = DIAGONAL_BIAS if inputs.diagonal else DENSE_BIAS
        if inputs.diagonal:
            # As a dense bias has its axes: [1, heads or 1, 1, diagonals].
            inputs = inputs._replace(bias=inputs.bias[None, :, None])
    _INPUTS.write(inputs, numbers)
    # One that the normalizer does not have must not be found by a kernel.
    if inputs.normalizer != SOFTMAX:
        numbers[_SINK] = 0
    if inputs.normalizer != SIGMOID:
        numbers[_SHIFT] = 0
    numbers[_SIZES] = batch, heads, kv_heads, queries, keys, dim, value_dim, block, chunks, inputs.runs
    if block:
        way, numbers[_GEMM] = kernels.products(inputs)
        numbers[_PRODUCTS], numbers[_LIMIT_THREADS] = way, limit_address()
        if kernels.needs_multiply(way, query.dtype, block):
            numbers[_MULTIPLY] = kernels.multiply(query.dtype).address
    numbers[_INVERSE_TEMPERATURE] = 1.0 / inputs.temperature
    numbers[_KEPT], numbers[_THRESHOLD] = dropout_numbers(inputs.dropout)
    write_named(more, numbers)
    return numbers


def dropout_numbers(rate: float) -> tuple[float, int]:
    """The factor of what dropout keeps, and the threshold of the 32 random bits of what it drops."""
    return 1.0 / (1.0 - rate), min(round(rate * 2**32), 2**32 - 1)


def named_arguments(**named: float) -> list[float]:
    """Arguments in which all others are 0."""
    numbers = _NEW.copy()
    write_named(named, numbers)
    return numbers


def write_named(named: Mapping[str, float], numbers: list[float]) -> None:
    """Write arguments by their names."""
    for name, number in named.items():
        numbers[POSITIONS[name]] = number


def as_matrix(tensor: Tensor) -> Tensor:
    """Queries, keys or values as products take them: features side by side, rows apart."""
    tensor = in_memory(tensor)
    if tensor.stride(-1) == 1 and tensor.stride(-2) >= tensor.shape[-1]:
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


class Transposition(NamedTuple):
    """How keys or values ``[batch, kv_heads, keys, dim]`` are transposed.

    Attributes:
        kernel: what does it.
        arguments: its arguments, but for the address that it writes at.
        tiles: tasks of a head.
        work: of a head, as for `launch`.
        numbers: of a head, ``[dim, padded keys]``.
    """

    kernel: Kernel
    arguments: list[float]
    tiles: int
    work: float
    numbers: int

    @classmethod
    def of(cls, key: Tensor) -> "Transposition":
        """That of these keys, or values."""
        _, _, keys, dim = key.shape
        arguments = fill_arguments(KernelInputs(key[:, :, :1], key, key[..., :1]))
        tiles, work, numbers = ceil_div(keys, TILE), 4.0 * keys * dim, dim * padded_length(keys)
        return cls(kernels.transposed(key.dtype), arguments, tiles, work, numbers)

    def prepared(self, heads: int, names: Iterable[str]) -> "PreparedLaunch":
        """A launch for all of so many heads, which is made again: see `PreparedLaunch`."""
        return PreparedLaunch.of(self.kernel, self.arguments, heads * self.tiles, heads * self.work, names)

    def run(self, output: int, heads: range) -> None:
        """Transpose some heads, counted through all batch rows; ``output`` is the address of what head 0 would have."""
        self.arguments[_KEY_TRANSPOSED] = output
        launch(self.kernel, self.arguments, heads.stop * self.tiles, len(heads) * self.work, heads.start * self.tiles)


def transposed(tensor: Tensor) -> Tensor:
    """Keys or values ``[batch, kv_heads, keys, dim]`` as ``[batch, kv_heads, dim, padded keys]``."""
    batch, heads, keys, dim = tensor.shape
    output = tensor.new_empty(batch, heads, dim, padded_length(keys))
    Transposition.of(tensor).run(address_of(output), range(batch * heads))
    return output


def launch_on_transposed(kernel: Kernel, numbers: list[float], key: Tensor, tasks: int, work: float) -> None:
    """`launch` for a kernel that needs the keys transposed: these are made, and used, for a few heads at a time.

    Args:
        kernel, numbers, tasks, work: as for `launch`; of the tasks, each head of the keys has as many as any other.
        key: ``[batch, kv_heads, keys, dim]``.
    """
    heads, transposition = key.shape[0] * key.shape[1], Transposition.of(key)
    each, wanted = tasks // heads, THREAD_TASKS * torch.get_num_threads()
    step = min(heads, max(TRANSPOSED_NUMBERS // transposition.numbers, ceil_div(wanted, each)))
    memory = key.new_empty(step * transposition.numbers)
    for first in range(0, heads, step):
        some = range(first, min(first + step, heads))
        address = address_of(memory) - first * transposition.numbers * memory.element_size()
        transposition.run(address, some)
        numbers[_KEY_TRANSPOSED] = address
        launch(kernel, numbers, some.stop * each, work * len(some) / heads, some.start * each)


def launch(kernel: Kernel, numbers: list[float], tasks: int, work: float, first: int = 0) -> None:
    """Run a kernel on these numbers.

    Args:
        kernel: what runs.
        numbers: of its arguments.
        tasks: how many there are.
        work: a rough number of elementary operations.
        first: the task to begin with.
    """
    numbers[_COUNTER], numbers[_TASKS] = first, tasks
    _run(kernel, packed(numbers), tasks, work, first)


def _run(kernel: Kernel, arguments: "array[int]", tasks: int, work: float, first: int = 0) -> None:
    run_on_threads(kernel, arguments.buffer_info()[0], tasks - first, work)
    # A thread without memory takes no task, and leaves all to the others.
    if arguments[_COUNTER] < tasks:
        raise MemoryError(f"no thread got the memory that the CPU kernel {kernel.name!r} needs")


class PreparedLaunch(NamedTuple):
    """A launch that is made again with other tensors of the same sizes and strides.

    Attributes:
        kernel: what runs.
        arguments: its arguments' bytes, with addresses of an earlier launch.
        positions: where the numbers belong that each launch brings, by their names.
        tasks, work: as for `launch`.
    """

    kernel: Kernel
    arguments: bytes
    positions: tuple[tuple[str, int], ...]
    tasks: int
    work: float

    @classmethod
    def of(
        cls, kernel: Kernel, numbers: list[float], tasks: int, work: float, names: Iterable[str]
    ) -> "PreparedLaunch":
        """A launch on these numbers.

        Args:
            kernel, numbers, tasks, work: as for `launch`.
            names: of the integers that each launch brings: addresses of tensors, sizes and strides.
        """
        numbers[_TASKS] = tasks
        positions = tuple((name, POSITIONS[name]) for name in names)
        return cls(kernel, packed(numbers).tobytes(), positions, tasks, work)

    def launch(self, filled: Mapping[str, int]) -> None:
        """Run the kernel on the arguments with these numbers filled in."""
        arguments = array("q", self.arguments)
        for name, position in self.positions:
            arguments[position] = filled[name]
        self.run(arguments)

    def run(self, arguments: "array[int]") -> None:
        """Run the kernel on a copy of the arguments, which has the numbers of this launch."""
        _run(self.kernel, arguments, self.tasks, self.work)


def packed(numbers: list[float]) -> "array[int]":
    """The arguments as they lie in memory, those of ``float`` by their bits."""
    return array("q", _PACKED.pack(*numbers))


def check_inputs(inputs: KernelInputs) -> None:
    """Raise ValueError for what would make a kernel read beyond a tensor; for callers of the operators themselves."""
    query, key, value = inputs.query, inputs.key, inputs.value
    real = (torch.float32, torch.float64)
    if query.dtype not in real or not query.dtype == key.dtype == value.dtype:
        raise ValueError(f"operators take float32 or float64; got {query.dtype}, {key.dtype}, {value.dtype}")
    B, H, _Q, D = query.shape
    if key.shape[0] != B or H % key.shape[1] or key.shape[3] != D or value.shape[:3] != key.shape[:3]:
        raise ValueError(f"shapes do not fit: {list(query.shape)}, {list(key.shape)}, {list(value.shape)}")


def run_on_threads(kernel: Kernel, arguments: int, tasks: int, work: float) -> None:
    """Run a kernel and wait until its tasks are done; the interpreter is free meanwhile.

    Args:
        kernel: takes tasks from the counter in its arguments.
        arguments: their address.
        tasks: how many there are.
        work: a rough number of elementary operations.
    """
    threads = min(torch.get_num_threads(), tasks) if work >= SERIAL_WORK else 1
    if threads <= 1:
        function_at(kernel.address)(arguments)
        return
    enter = openmp()
    if enter is not None:
        enter(kernel.address, arguments, threads, 0)
        return
    call = function_at(kernel.address)
    others = [threading.Thread(target=call, args=(arguments,)) for _ in range(threads - 1)]
    for thread in others:
        thread.start()
    call(arguments)
    for thread in others:
        thread.join()


@cache
def function_at(address: int) -> Callable[[int], None]:
    """A kernel's machine code as a function; it runs without the interpreter's lock."""
    return ctypes.CFUNCTYPE(None, ctypes.c_int64)(address)


class KernelArguments:
    """The arguments of a few kernels that do not have those of attention.

    Args:
        layout: of integers and float64 numbers; the first one is the counter of tasks.
    """

    def __init__(self, layout: np.dtype):
        assert layout.fields is not None
        self._names = tuple(layout.fields)
        self._format = struct.Struct("".join("d" if kind == np.float64 else "q" for kind, *_ in layout.fields.values()))

    def launch(self, kernel: Kernel, tasks: int, work: float, **numbers: float) -> None:
        """Run a kernel.

        Args:
            kernel: what runs.
            tasks: how many there are.
            work: a rough number of elementary operations.
            numbers: the arguments by name; all but the counter.
        """
        packed = self._format.pack(0, *(numbers[name] for name in self._names[1:]))
        arguments = ctypes.create_string_buffer(packed, len(packed))
        run_on_threads(kernel, ctypes.addressof(arguments), tasks, work)
