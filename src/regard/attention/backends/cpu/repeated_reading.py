"""Readings by the fused kernels that are taken again, of other calls with the same sizes and strides.

Filling the kernel's record and making a tensor for each reading take longer than to read a small call. So the record is
kept, and all readings of a call lie in one piece of memory, which is taken for several calls at once and cut into
tensors when a reading is asked for.
"""

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from regard.attention.backends.cpu.lowering import kernel_inputs, obstacle
from regard.attention.problem import Problem
from regard.attention.readings import Readings
from regard.kernels.availability import why_missing
from regard.kernels.cpu.fields import address_of
from regard.kernels.cpu.reading_options import READINGS, ReadingOptions, sum_of_chunks
from regard.kernels.cpu.sizes import ceil_div

if TYPE_CHECKING:
    from regard.kernels.cpu.launch import KeptLaunch

STATISTICS = ("entropy", "peak", "top_k", "received", "distance")
"""The readings that can be taken again: those of rows and of columns."""

ROOM = 1 << 16
"""Bytes of readings up to which memory is taken for several calls at once."""

MOST_CALLS = 8
"""Calls for which memory is taken at once, at most."""

_TENSORS = ("query", "key", "key_transposed")
"""What launches read and write beside the readings."""


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


@dataclass(eq=False)
class RepeatedReading:
    """The launches that read a call without a bias, of float32 tensors on a CPU; for one thread.

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
    _memory: Tensor = field(init=False)
    _address: int = field(init=False)
    _room: int = field(init=False)
    _used: int = field(init=False)

    def __post_init__(self) -> None:
        # Where the addresses of a call go: those of its tensors by their names, those of its readings as they lie.
        self._places = [
            (
                launch,
                [(place, _TENSORS.index(name)) for name, place in launch.places if name in _TENSORS],
                [(place, 4 * self.parts[name].first) for name, place in launch.places if name in self.parts],
            )
            for launch in self.launches
        ]
        self._bytes = 4 * self.initial.numel()
        self._make_room(1)

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
        as_given = inputs.query is problem.query and address_of(inputs.key) == address_of(problem.key)
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

    def take(self, query: Tensor, key: Tensor) -> tuple[Tensor, int]:
        """Take the readings for tensors of the same sizes and strides.

        Returns:
            the memory of several calls' readings, ``[calls, numbers]``, and the place of this call in it.
        """
        if self._used == self._room:
            self._make_room(max(1, min(MOST_CALLS, ROOM // max(self._bytes, 1))))
        memory, place = self._memory, self._used
        self._used += 1
        address = self._address + self._bytes * place
        keys = self.initial.new_empty(self.transposed) if self.transposed else None
        tensors = address_of(query), address_of(key), address_of(keys)
        for launch, of_tensors, of_readings in self._places:
            record = array("q", launch.record)
            for at, tensor in of_tensors:
                record[at] = tensors[tensor]
            for at, offset in of_readings:
                record[at] = address + offset
            launch.run(record)
        return memory, place

    def _make_room(self, calls: int) -> None:
        """Take memory for the readings of further calls."""
        self._memory = self.initial.expand(calls, -1).clone(memory_format=torch.contiguous_format)
        self._address, self._room, self._used = address_of(self._memory), calls, 0

    def named(self, memory: Tensor, place: int) -> dict[str, Tensor]:
        """The readings that `take` gave, as in `regard.Observed`, in memory of their own."""
        own = memory[place].clone()
        found = {name: _cut(own, part) for name, part in self.parts.items()}
        return {name: sum_of_chunks(each) if self.parts[name].is_sum else each for name, each in found.items()}


def _cut(memory: Tensor, part: Part) -> Tensor:
    """A reading as a tensor, which shares the memory of all."""
    size, count = part.dtype.itemsize // 4, torch.Size(part.shape).numel()
    return memory[part.first : part.first + size * count].view(part.dtype).view(part.shape)
