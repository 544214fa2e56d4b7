"""Readings by the fused kernels that are taken again, of other calls with the same sizes and strides.

Filling the kernel's record and making a tensor for each reading take longer than to read a small call. So the record is
kept, and all readings of a call lie in one piece of memory, which is cut into tensors when one is asked for.
"""

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from regard.attention.backends.cpu.lowering import kernel_inputs, obstacle
from regard.attention.problem import Problem
from regard.attention.readings import Readings
from regard.kernels.availability import why_missing
from regard.kernels.cpu.reading_options import READINGS, ReadingOptions, sum_of_chunks
from regard.kernels.cpu.sizes import ceil_div

if TYPE_CHECKING:
    from regard.kernels.cpu.launch import KeptLaunch

STATISTICS = ("entropy", "peak", "top_k", "received", "distance")
"""The readings that can be taken again: those of rows and of columns."""


class Part(NamedTuple):
    """Where a reading lies in the memory of all.

    Attributes:
        first: the place of its first number.
        shape: ``[batch, heads, ...]``; sums over rows have an axis for the chunks of rows behind the heads.
        dtype: float32 or int64.
        is_sum: whether it is a sum over rows.
    """

    first: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    is_sum: bool


class RepeatedReading(NamedTuple):
    """The launches that read a call without a bias, of float32 tensors on a CPU.

    Attributes:
        launches: one after the other.
        initial: the readings of a call that sees nothing, as float32 numbers.
        parts: of these, by the readings' names.
        transposed: how many numbers the transposed keys have.
        spans: the runs of keys that the mask shows, whose addresses the launches have.
    """

    launches: "tuple[KeptLaunch, ...]"
    initial: Tensor
    parts: dict[str, Part]
    transposed: int
    spans: tuple[Tensor | None, ...]

    @classmethod
    @torch.no_grad()
    def of(cls, problem: Problem, read: Readings) -> "RepeatedReading | None":
        """The readings of a problem; None if more than launches belongs to them, or if a kernel is not compiled yet.

        Args:
            problem: of a call; its tensors are not kept.
            read: what is read; nothing but `STATISTICS`.
        """
        if why_missing() is not None or obstacle(problem) is not None or problem.lowered.dense_mask is not None:
            return None
        from regard.kernels.cpu import kernels, operators
        from regard.kernels.cpu.launch import TRANSPOSED_NUMBERS, KeptLaunch, Transposition

        inputs, grid = kernel_inputs(problem), problem.grid
        as_given = inputs.query is problem.query and inputs.key.data_ptr() == problem.key.data_ptr()
        if not as_given or operators.readable(inputs) is not inputs or read.top_k > grid.keys:
            return None
        if inputs.query.dtype != torch.float32 or inputs.weight is not None or inputs.bias is not None:
            return None
        asked = ReadingOptions(**{name: getattr(read, name) for name in STATISTICS}, key_offset=grid.offset)
        kernel, (block, chunks) = kernels.readings(inputs, asked), operators.blocks_of_readings(inputs, asked)
        beside = kernels.beside_readings(inputs, asked, block)
        if not all(needed.is_compiled for needed in (kernel, *beside)):
            return None
        launches: list[KeptLaunch] = []
        heads, transposed = grid.batch * inputs.key.shape[1], 0
        if kernels.transposed(inputs.key.dtype) in beside:
            each = Transposition.of(inputs.key)
            transposed = heads * each.numbers
            if transposed > TRANSPOSED_NUMBERS:
                return None  # a few heads at a time
            launches.append(each.kept(heads, ("key", "key_transposed")))
        parts, numbers = {}, 0
        for reading, tensor in zip(READINGS, asked.tensors(inputs, chunks).values(), strict=True):
            if tensor.numel():
                parts[reading.name] = Part(numbers, tuple(tensor.shape), tensor.dtype, reading.over_rows is not None)
                # An int64 begins at an even place.
                numbers += 2 * ceil_div(tensor.numel() * tensor.element_size(), 8)
        initial = inputs.query.new_zeros(numbers)
        for reading in READINGS:
            if reading.name in parts and reading.initial:
                _cut(initial, parts[reading.name]).fill_(reading.initial)
        record = operators.readings_record(inputs, asked, block, chunks)
        names = ("query", "key", *("key_transposed",) * bool(transposed), *parts)
        launches.append(KeptLaunch.of(kernel, record, grid.batch * grid.heads * chunks, inputs.work, names))
        return cls(tuple(launches), initial, parts, transposed, (inputs.start, inputs.stop))

    def take(self, query: Tensor, key: Tensor) -> Tensor:
        """The memory of all readings, for tensors of the same sizes and strides."""
        taken = self.initial.clone()
        address = taken.data_ptr()
        filled = {name: address + 4 * part.first for name, part in self.parts.items()}
        filled["query"], filled["key"] = query.data_ptr(), key.data_ptr()
        if self.transposed:
            keys = self.initial.new_empty(self.transposed)
            filled["key_transposed"] = keys.data_ptr()
        for launch in self.launches:
            launch.launch(filled)
        return taken

    def named(self, taken: Tensor) -> dict[str, Tensor]:
        """The readings in a piece of memory that `take` gave, as in `regard.Observed`."""
        found = {name: _cut(taken, part) for name, part in self.parts.items()}
        return {name: sum_of_chunks(each) if self.parts[name].is_sum else each for name, each in found.items()}


def _cut(memory: Tensor, part: Part) -> Tensor:
    """A reading as a tensor, which shares the memory of all."""
    size, count = part.dtype.itemsize // 4, torch.Size(part.shape).numel()
    return memory[part.first : part.first + size * count].view(part.dtype).view(part.shape)
