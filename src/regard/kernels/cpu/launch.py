"""Filling a kernel's arguments, and running the kernel on all threads that PyTorch would use.

PyTorch's OpenMP threads spin for a while after their work is done, and would compete with other threads for the cores.
So kernels run on PyTorch's own threads, through the C interface of the OpenMP library that ships with PyTorch; if that
is not available, on plain Python threads.

Every thread calls the kernel with the same arguments, among them a counter: each thread takes the next task until none
is left. No task writes anything that another one reads or writes, so results do not depend on how tasks are assigned.
"""

import ctypes
import struct
import sys
import threading
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.kernels.cpu import kernels
from regard.kernels.cpu.kernel import Kernel
from regard.kernels.cpu.kernel_arguments import FORMATS, POSITIONS, SIZES, KernelInputs, Writer, address_of
from regard.kernels.cpu.libraries import limit_address, openmp
from regard.kernels.cpu.sizes import LANES, TILE, ceil_div, padded_length
from regard.kernels.kinds import DENSE_BIAS, DIAGONAL_BIAS, SIGMOID, SOFTMAX
from regard.tracing.transforms import in_memory

_PACKED_FORMAT = struct.Struct("".join(FORMATS.values()))
_C: Any = ctypes.cdll.msvcrt if sys.platform == "win32" else ctypes.CDLL(None)
_SHARED_ARGUMENTS: list[float] = [0] * len(FORMATS)
"""The arguments that all launches share: the addresses of ``malloc`` and ``free``."""


def _c_function(name: str) -> int:
    """Returns the address of a function of the C library; 0 if there is none."""
    function = getattr(_C, name, None)
    return 0 if function is None else ctypes.cast(function, ctypes.c_void_p).value or 0


for _name in ("malloc", "free"):
    _SHARED_ARGUMENTS[POSITIONS[_name]] = _c_function(_name)

_GIVE_WAY = _c_function("sched_yield")
"""The address of the function that lets another thread run on this core; 0 where there is none."""

_SIZES = slice(POSITIONS[SIZES[0]], POSITIONS[SIZES[-1]] + 1)
_INPUTS = Writer(KernelInputs, POSITIONS)
_COUNTER, _TASKS, _NONFINITE, _KEY_TRANSPOSED, _GEMM, _LIMIT_THREADS, _PRODUCTS, _MULTIPLY = (
    POSITIONS[name]
    for name in (
        "counter", "tasks", "nonfinite", "key_transposed", "gemm", "limit_threads", "products", "multiply",
    )
)  # fmt: skip
_STORED_BYTES, _BIAS_KIND, _INVERSE_TEMPERATURE, _DROPOUT_SCALE, _THRESHOLD, _SINK, _SHIFT = (
    POSITIONS[name]
    for name in (
        "stored_bytes", "bias_kind", "inverse_temperature", "dropout_scale", "threshold", "sink", "shift",
    )
)  # fmt: skip


SERIAL_WORK = 1 << 17
"""With fewer elementary operations than this, waking other threads costs more than it saves."""

TRANSPOSED_ELEMENTS = 1 << 18
"""Maximum number of elements of transposed keys that are held at once: 1 MiB of float32."""

THREAD_TASKS = 4
"""Tasks per thread of a launch on some of the heads, so that threads finish at about the same time."""


def fill_arguments(inputs: KernelInputs, block: int = 0, chunks: int = 1, **more: float | Tensor | None) -> list[float]:
    """Returns a kernel's arguments, in the order of its record.

    Args:
        block: rows of a block; 0 for a kernel without blocks.
        chunks: the number of chunks of a head's rows.
        more: further arguments by name, as for `write_named`.
    """
    query, value = inputs.query, inputs.value
    batch, heads, queries, dim = query.shape
    _, kv_heads, keys, value_dim = value.shape
    arguments = _SHARED_ARGUMENTS.copy()
    if inputs.bias is not None:
        arguments[_BIAS_KIND] = DIAGONAL_BIAS if inputs.diagonal else DENSE_BIAS
        if inputs.diagonal:
            # The axes of a dense bias: [1, heads or 1, 1, diagonals].
            inputs = inputs._replace(bias=inputs.bias[None, :, None])
    _INPUTS.write(inputs, arguments)
    # A kernel must not read a sink or shift that its normalizer does not have.
    if inputs.normalizer != SOFTMAX:
        arguments[_SINK] = 0
    if inputs.normalizer != SIGMOID:
        arguments[_SHIFT] = 0
    arguments[_STORED_BYTES] = value.element_size()
    arguments[_SIZES] = batch, heads, kv_heads, queries, keys, dim, value_dim, block, chunks, inputs.runs
    if block:
        method, arguments[_GEMM] = kernels.products(inputs)
        arguments[_PRODUCTS], arguments[_LIMIT_THREADS] = method, limit_address()
        if kernels.needs_multiply(method, query.dtype, block):
            multiply = kernels.multiply_pairs() if inputs.paired else kernels.multiply(inputs.key.dtype)
            arguments[_MULTIPLY] = multiply.address
    arguments[_INVERSE_TEMPERATURE] = 1.0 / inputs.temperature
    arguments[_DROPOUT_SCALE], arguments[_THRESHOLD] = dropout_numbers(inputs.dropout)
    write_named(more, arguments)
    return arguments


def dropout_numbers(rate: float) -> tuple[float, int]:
    """Returns the factor of the weights that dropout keeps, and the threshold below which random bits drop a weight."""
    return 1.0 / (1.0 - rate), min(round(rate * 2**32), 2**32 - 1)


def named_arguments(**values: float | Tensor | None) -> list[float]:
    """Returns a kernel's arguments with these values; all others are 0."""
    arguments = _SHARED_ARGUMENTS.copy()
    write_named(values, arguments)
    return arguments


def write_named(values: Mapping[str, float | Tensor | None], arguments: list[float]) -> None:
    """Writes arguments by name: numbers, and the addresses of tensors."""
    for name, value in values.items():
        arguments[POSITIONS[name]] = value if isinstance(value, (int, float)) else address_of(value)


def as_matrix(tensor: Tensor) -> Tensor:
    """Returns queries, keys or values with contiguous features and rows that do not overlap, as products need them."""
    tensor = in_memory(tensor)
    if tensor.stride(-1) == 1 and tensor.stride(-2) >= tensor.shape[-1]:
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


NO_TENSOR = 0, 0, 0, 0
"""The `TENSOR_RECORD` of a tensor that is missing."""


def tensor_record(tensor: Tensor) -> tuple[int, ...]:
    """Returns a tensor's `TENSOR_RECORD`; an axis of length 1 broadcasts."""
    axes = zip(tensor.stride()[:3], tensor.shape, strict=False)
    return address_of(tensor), *(0 if length == 1 else stride for stride, length in axes)


class Transposition(NamedTuple):
    """The transposition of keys or values ``[batch, kv_heads, keys, dim]``.

    Attributes:
        heads: the number of heads of all batch rows.
        tiles: tasks per head.
        work: elementary operations per head, as for `launch`.
        elements: elements of the output per head, ``[dim, padded keys]``.
    """

    kernel: Kernel
    arguments: list[float]
    heads: int
    tiles: int
    work: float
    elements: int

    @classmethod
    def of(cls, key: Tensor) -> "Transposition":
        """Returns the transposition of these keys or values."""
        batch, heads, keys, dim = key.shape
        arguments = fill_arguments(KernelInputs(key[:, :, :1], key, key[..., :1]))
        tiles, work, elements = ceil_div(keys, TILE), 4.0 * keys * dim, dim * padded_length(keys)
        return cls(kernels.transposed(key.dtype), arguments, batch * heads, tiles, work, elements)

    def prepared(self) -> "PreparedLaunch":
        """Returns the prepared launch for all heads: see `PreparedLaunch`."""
        tasks, work = self.heads * self.tiles, self.heads * self.work
        return PreparedLaunch.of(self.kernel, self.arguments, tasks, work, ("key", "key_transposed"))

    def stage(self, output: int, heads: range) -> "Stage":
        """Returns the stage for some heads, counted through all batch rows.

        Args:
            output: the address that head 0 would have.
        """
        self.arguments[_KEY_TRANSPOSED] = output
        work, first = len(heads) * self.work, heads.start * self.tiles
        return Stage.of(self.kernel, self.arguments, heads.stop * self.tiles, work, first)


def transposed(tensor: Tensor) -> "tuple[Tensor, Stage]":
    """Returns memory for transposed keys or values, ``[batch, kv_heads, dim, padded keys]``, and what fills it.

    Args:
        tensor: ``[batch, kv_heads, keys, dim]``.
    """
    batch, heads, keys, dim = tensor.shape
    output, transposition = tensor.new_empty(batch, heads, dim, padded_length(keys)), Transposition.of(tensor)
    return output, transposition.stage(address_of(output), range(transposition.heads))


def launch_on_transposed(kernel: Kernel, arguments: list[float], key: Tensor, tasks: int, work: float) -> None:
    """Launches a kernel that needs transposed keys, which are made for a few heads at a time.

    Args:
        kernel, arguments, tasks, work: as for `launch`; all heads of the keys have the same number of tasks.
        key: ``[batch, kv_heads, keys, dim]``.
    """
    transposition = Transposition.of(key)
    heads = transposition.heads
    head_tasks, min_tasks = tasks // heads, THREAD_TASKS * torch.get_num_threads()
    step = min(heads, max(TRANSPOSED_ELEMENTS // transposition.elements, ceil_div(min_tasks, head_tasks)))
    memory, stages = key.new_empty(step * transposition.elements), []
    for first in range(0, heads, step):
        group = range(first, min(first + step, heads))
        address = address_of(memory) - first * transposition.elements * memory.element_size()
        stages.append(transposition.stage(address, group))
        arguments[_KEY_TRANSPOSED] = address
        part = work * len(group) / heads
        stages.append(Stage.of(kernel, arguments, group.stop * head_tasks, part, group.start * head_tasks))
    run_stages(stages)


def launch(kernel: Kernel, arguments: list[float], tasks: int, work: float) -> None:
    """Runs a kernel.

    Args:
        tasks: the number of tasks, counted from 0.
        work: a rough number of elementary operations.
    """
    run_stages([Stage.of(kernel, arguments, tasks, work)])


class Stage(NamedTuple):
    """A kernel with its arguments, as a part of a launch.

    Attributes:
        record: the arguments, as kernels read them.
        work: a rough number of elementary operations.
    """

    kernel: Kernel
    record: "array[int]"
    work: float

    @classmethod
    def of(cls, kernel: Kernel, arguments: list[float], tasks: int, work: float, first: int = 0) -> "Stage":
        """Returns the stage that runs the tasks from ``first`` on; ``tasks`` is the end of their numbers."""
        arguments[_COUNTER], arguments[_TASKS] = first, tasks
        return cls(kernel, packed(arguments), work)


def run_stages(stages: "Sequence[Stage]") -> None:
    """Runs kernels, one after the other: no task begins before all tasks of the stage before are done.

    All stages are one parallel region. Each region ends with a wait for all threads, and one that shares its core with
    another process may come milliseconds later.
    """
    tasks = [record[_TASKS] - record[_COUNTER] for _, record, _ in stages]
    total = sum(work for _, _, work in stages)
    if len(stages) == 1 or _threads(max(tasks), total) == 1:
        for (kernel, record, work), count in zip(stages, tasks, strict=True):
            run_on_threads(kernel, record.buffer_info()[0], count, work)
    else:
        numbers = (number for stage in stages for number in (stage.kernel.address, stage.record.buffer_info()[0], 0, 0))
        sequence = array("q", (len(stages), _GIVE_WAY, *numbers))
        run_on_threads(kernels.stages(), sequence.buffer_info()[0], max(tasks), total)
    for kernel, record, _ in stages:
        # A thread without memory takes no task and leaves all of them to the others.
        if record[_COUNTER] < record[_TASKS]:
            raise MemoryError(f"no thread got the memory that the CPU kernel {kernel.name!r} needs")


class PreparedLaunch(NamedTuple):
    """A launch that can be repeated with other tensors of the same sizes and strides.

    Attributes:
        record: the bytes of its arguments, with the addresses of an earlier launch.
        positions: name and position of each argument that changes from launch to launch.
        work: as for `launch`.
    """

    kernel: Kernel
    record: bytes
    positions: tuple[tuple[str, int], ...]
    work: float

    @classmethod
    def of(
        cls, kernel: Kernel, arguments: list[float], tasks: int, work: float, names: Iterable[str]
    ) -> "PreparedLaunch":
        """Prepares a launch with these arguments.

        Args:
            kernel, arguments, tasks, work: as for `launch`.
            names: names of the arguments that change from launch to launch: addresses of tensors, sizes and strides.
        """
        arguments[_TASKS] = tasks
        positions = tuple((name, POSITIONS[name]) for name in names)
        return cls(kernel, packed(arguments).tobytes(), positions, work)

    def stage(self, changed: Mapping[str, int]) -> Stage:
        """Returns the launch with these values of the arguments that change, and maybe of others."""
        record = array("q", self.record)
        for name, position in self.positions:
            record[position] = changed[name]
        return Stage(self.kernel, record, self.work)


class PreparedLaunches(tuple[PreparedLaunch, ...]):
    """Prepared launches that run one after the other."""

    def run(self, changed: Mapping[str, int]) -> bool:
        """Runs the launches with these values, as `PreparedLaunch.stage`; returns whether the output is finite."""
        stages = [launch.stage(changed) for launch in self]
        run_stages(stages)
        return stages[-1].record[_NONFINITE] == 0


def packed(arguments: list[float]) -> "array[int]":
    """Returns the arguments as the record that kernels read; a ``float`` is stored as its bits."""
    return array("q", _PACKED_FORMAT.pack(*arguments))


def check_inputs(inputs: KernelInputs) -> None:
    """Raises ValueError for inputs with which a kernel would read beyond a tensor; operators may be called directly."""
    query, key, value = inputs.query, inputs.key, inputs.value
    real = (torch.float32, torch.float64)
    is_stored = query.dtype == torch.float32 and inputs.weight is None and is_readable_in_half(key, value)
    if query.dtype not in real or not (query.dtype == key.dtype == value.dtype or is_stored):
        raise ValueError(f"operators take float32 or float64; got {query.dtype}, {key.dtype}, {value.dtype}")
    B, H, _Q, D = query.shape
    if key.shape[0] != B or H % key.shape[1] or key.shape[3] != D or value.shape[:3] != key.shape[:3]:
        raise ValueError(f"shapes do not fit: {list(query.shape)}, {list(key.shape)}, {list(value.shape)}")


def is_readable_in_half(key: Tensor, value: Tensor) -> bool:
    """Whether the products of few rows read keys and values in half precision as they are."""
    is_half = key.dtype == value.dtype and key.dtype in (torch.bfloat16, torch.float16)
    return is_half and key.shape[-1] % LANES == 0 == value.shape[-1] % LANES


def run_on_threads(kernel: Kernel, arguments: int, tasks: int, work: float) -> None:
    """Runs a kernel and waits until its tasks are done, without the interpreter's lock.

    Args:
        kernel: a kernel that takes tasks from the counter in its arguments.
        arguments: the address of the arguments.
    """
    threads = _threads(tasks, work)
    if threads == 1:
        function_at(kernel.address)(arguments)
        return
    parallel = openmp()
    if parallel is not None:
        parallel(kernel.address, arguments, threads, 0)
        return
    call = function_at(kernel.address)
    other_threads = [threading.Thread(target=call, args=(arguments,)) for _ in range(threads - 1)]
    for thread in other_threads:
        thread.start()
    call(arguments)
    for thread in other_threads:
        thread.join()


def _threads(tasks: int, work: float) -> int:
    """Returns how many threads a launch uses."""
    return max(1, min(torch.get_num_threads(), tasks)) if work >= SERIAL_WORK else 1


@cache
def function_at(address: int) -> Callable[[int], None]:
    """Returns the machine code at an address as a function, which runs without the interpreter's lock."""
    return ctypes.CFUNCTYPE(None, ctypes.c_int64)(address)


class KernelArguments:
    """The arguments of kernels with a record of their own.

    Args:
        layout: layout of the record, of int64, float64 and records of int64; the first one is the counter of tasks.
    """

    def __init__(self, layout: np.dtype):
        assert layout.fields is not None
        self._names = tuple(layout.fields)
        kinds = [kind for kind, *_ in layout.fields.values()]
        self._format = struct.Struct(
            "".join("d" if kind == np.float64 else "q" * (kind.itemsize // 8) for kind in kinds)
        )

    def launch(self, kernel: Kernel, tasks: int, work: float, **values: float | tuple[int, ...]) -> None:
        """Runs a kernel.

        Args:
            values: all arguments but the counter, by name; those of a record in the record as a tuple.
        """
        numbers: list[float] = [0]
        for name in self._names[1:]:
            value = values[name]
            numbers.extend(value) if isinstance(value, tuple) else numbers.append(value)
        packed = self._format.pack(*numbers)
        arguments = ctypes.create_string_buffer(packed, len(packed))
        run_on_threads(kernel, ctypes.addressof(arguments), tasks, work)
