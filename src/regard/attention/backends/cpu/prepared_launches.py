"""Launches of kernels that were prepared by an earlier call, for calls of the same sizes and strides.

Validating a call, choosing a backend and filling a kernel's arguments take longer than a small calculation. For tensors
of the same sizes and strides the arguments are the same but for the addresses of the tensors, so they are stored: in a
`PreparedCall` for `attend`, and in a `PreparedReading` for readings. The kernels are the same, and so is every bit.
"""

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, cast

import torch
from torch import Tensor

from regard.attention.backends.cpu.inputs import kernel_inputs, obstacle, with_heads_as_rows
from regard.attention.problem import Problem
from regard.attention.readings import Readings
from regard.attention.steps import KeptSteps
from regard.kernels.availability import why_missing
from regard.kernels.cpu.kernel_arguments import READINGS, KernelInputs, ReadingOptions, address_of, sum_of_chunks
from regard.kernels.cpu.sizes import ceil_div
from regard.masks import Mask, Spans
from regard.normalizers import softmax
from regard.scores import Additive, ScaledDot, TanhSum
from regard.shapes.grid import upcast
from regard.tracing.transforms import has_dense_cpu_storage

if TYPE_CHECKING:
    from regard.kernels.cpu.launch import PreparedLaunches

ROWS = 16
"""Number of rows of a head up to which one block has them all, whatever the number of keys."""

_OF_KEYS = ("keys", "key_batch", "key_head", "key_row", "value_batch", "value_head", "value_row")

_OF_SPANS = ("start", "stop", "runs", "span_run")

STATISTICS = ("entropy", "peak", "top_k", "received", "distance")
"""The readings that prepared launches take: those of rows and of columns."""

SMALL_CALL = 1 << 18
"""Elements of query and key up to which a reading is prepared; larger calls gain too little."""

READINGS_ROOM = 1 << 16
"""Bytes of readings up to which memory is allocated for several calls at once."""

LARGEST_READINGS = 1 << 20
"""Bytes of readings up to which they are prepared, since memory of this size is kept."""

MOST_CALLS = 8
"""The largest number of calls for which memory is allocated at once."""


@dataclass(eq=False)
class PreparedCall:
    """The launches of a call without bias, dropout and gradient, of tensors on a CPU in float32, or in half precision
    if `is_stored_in_half`.

    Attributes:
        scratch: the number of elements of the other tensors that kernels write, by name.
        any_keys: whether the call may be repeated with other numbers of keys and other strides of keys and values.
        spans: the visible keys of the mask, if it hides some; their addresses are among the arguments of the launches.
        steps: the visible keys of later calls, if the numbers of keys differ.
    """

    launches: "PreparedLaunches"
    output: tuple[int, ...]
    scratch: dict[str, int]
    any_keys: bool
    spans: Spans | None
    steps: KeptSteps[Spans | None] | None

    @classmethod
    def of(cls, problem: Problem, any_keys: bool = False) -> "PreparedCall | None":
        """Prepares the call of a problem that the fused kernels run; returns None if launches alone are not enough."""
        from regard.kernels.cpu import kernels, operators
        from regard.kernels.cpu.launch import (
            TRANSPOSED_ELEMENTS,
            PreparedLaunch,
            PreparedLaunches,
            Transposition,
            fill_arguments,
        )

        inputs, primitive = kernel_inputs(problem), problem.prepared.primitive
        tensors = {"query": problem.query, "key": problem.key, "value": problem.value}
        if inputs.is_stored_in_half and not isinstance(problem.prepared.scale, Tensor):
            tensors["query"] = inputs.query  # each call converts its own
        if isinstance(primitive, TanhSum):
            # The scale of an additive score is 1.
            tensors["weight"] = torch.atleast_2d(primitive.weight)
            inputs = inputs._replace(weight=tensors["weight"])
        inputs = with_heads_as_rows(inputs)
        if problem.dropout or operators.readable(inputs) is not inputs:
            return None
        spans = steps = None
        if inputs.start is not None and inputs.stop is not None:
            spans = Spans(inputs.start, inputs.stop)
            steps = KeptSteps(lambda mask, grid: mask.spans(grid)) if any_keys else None
        plain = inputs._replace(start=None, stop=None)
        kernel_tensors = {name: tensor for name, tensor in plain._asdict().items() if isinstance(tensor, Tensor)}
        are_unchanged = kernel_tensors.keys() == tensors.keys() and all(
            address_of(tensor) == address_of(tensors[name]) for name, tensor in kernel_tensors.items()
        )
        if not are_unchanged:
            return None
        transposes = kernels.needs_transposed(inputs, "key")
        if any_keys and (transposes or inputs.query.shape[2] > ROWS):
            return None
        launches: list[PreparedLaunch] = []
        batch, heads, queries, _ = inputs.query.shape
        key, scratch = inputs.key, {}
        if inputs.weight is not None:
            powers, extents = operators.exponentials_shapes(key)
            scratch = {"exponentials": powers.numel(), "extents": extents.numel()}
            kernel = kernels.exponentials(key.dtype)
            numbers = fill_arguments(KernelInputs(key, key, key, relu=inputs.relu))
            launches.append(PreparedLaunch.of(kernel, numbers, extents.numel(), 8.0 * key.numel(), ("key", *scratch)))
        elif transposes:
            each = Transposition.of(key)
            if each.elements * each.heads > TRANSPOSED_ELEMENTS:
                return None  # a few heads at a time
            scratch = {"key_transposed": each.elements * each.heads}
            launches.append(each.prepared())
        scratch["statistics"] = 2 * batch * heads * queries
        numbers, (kernel, tasks) = fill_arguments(inputs, inputs.block), kernels.forward(inputs)
        changed = (*_OF_KEYS, *(_OF_SPANS if steps is not None else ())) if any_keys else ()
        launches.append(
            PreparedLaunch.of(kernel, numbers, tasks, inputs.work, (*tensors, *scratch, "output", *changed))
        )
        return cls(
            PreparedLaunches(launches),
            (*problem.query.shape[:3], problem.value.shape[3]),
            scratch,
            any_keys,
            spans,
            steps,
        )

    def run(self, query: Tensor, key: Tensor, value: Tensor, score: object, mask: object) -> Tensor | None:
        """Returns the output for tensors of the same sizes and strides (but for ``any_keys``).

        It is None if a number that the mask hides may have reached the output.

        Args:
            query, key, value: the tensors of the call.
            score: the score; an additive one has a weight of the same layout.
            mask: hides the same keys; for ``any_keys`` those of a single query.
        """
        query = upcast(query)
        output, scratch = query.new_empty(self.output), query.new_empty(sum(self.scratch.values()))
        filled = {
            "query": address_of(query),
            "key": address_of(key),
            "value": address_of(value),
            "output": address_of(output),
        }
        if isinstance(score, Additive):
            filled["weight"] = address_of(score.weight)
        address = address_of(scratch)
        for name, elements in self.scratch.items():
            filled[name] = address
            address += elements * scratch.element_size()
        if self.any_keys:
            keys = key.shape[2]
            filled |= zip(_OF_KEYS, (keys, *key.stride()[:3], *value.stride()[:3]), strict=True)
            if self.steps is not None:
                spans, row = self.steps.at(cast(Mask, mask), keys)
                if spans is None:
                    return None
                first = spans.start.element_size() * spans.runs * row
                ends = address_of(spans.start) + first, address_of(spans.stop) + first
                filled |= zip(_OF_SPANS, (*ends, spans.runs, 1), strict=True)
        is_finite = self.launches.run(filled)
        return output.to(value.dtype) if self.spans is None or is_finite else None


class ReadingMemory(NamedTuple):
    """The part of the memory of all readings that belongs to one reading.

    Attributes:
        shape: ``[batch, heads, ...]``; sums over rows have an axis for chunks of rows after the heads.
    """

    first: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    is_sum: bool


class Room(threading.local):
    """Memory of one thread for the readings of its next calls.

    Attributes:
        memory: ``[calls, elements]``.
        address: its address.
        calls: the number of calls that it has room for.
        used: the number of calls that it has the readings of.
    """

    memory: Tensor
    address: int
    calls = 0
    used = 0


@dataclass(eq=False)
class PreparedReading:
    """The launches that read a call without a bias, of float32 tensors on a CPU.

    All readings of a call are in one piece of memory, which is allocated for several calls of a thread at once and cut
    into tensors when a reading is requested.

    Attributes:
        initial: the readings of a call whose queries see no key, as float32 elements.
        spans: the runs of visible keys of the mask, whose addresses are among the arguments of the launches.
    """

    statistics: tuple[int, ...]
    launches: "PreparedLaunches"
    initial: Tensor
    parts: dict[str, ReadingMemory]
    transposed: int
    spans: tuple[Tensor | None, ...]
    _room: Room = field(default_factory=Room, init=False)

    @classmethod
    @torch.no_grad()
    def of(cls, problem: Problem, read: Readings) -> "PreparedReading | None":
        """Prepares the readings of a small call; returns None if launches alone are not enough or not compiled yet.

        Args:
            problem: the problem of a call; its tensors are not stored.
            read: the readings; only `STATISTICS` can be prepared.
        """
        query, key, score = problem.query, problem.key, problem.score
        if query.numel() + key.numel() > SMALL_CALL or not query.shape[0] or not has_dense_cpu_storage(query, key):
            return None
        if problem.bias is not None or type(score) is not ScaledDot or isinstance(score.scale, Tensor):
            return None
        if problem.normalizer is not softmax or problem.memory is not None or reads_pairs(read):
            return None
        if why_missing() is not None or obstacle(problem) is not None or problem.lowered.dense_mask is not None:
            return None
        from regard.kernels.cpu import kernel, kernels, operators
        from regard.kernels.cpu.launch import TRANSPOSED_ELEMENTS, PreparedLaunch, PreparedLaunches, Transposition

        inputs, grid = kernel_inputs(problem), problem.grid
        as_given = inputs.query is query and address_of(inputs.key) == address_of(key)
        if not as_given or operators.readable(inputs) is not inputs or read.top_k > grid.keys:
            return None
        if inputs.query.dtype != torch.float32 or inputs.weight is not None or inputs.bias is not None:
            return None
        options = ReadingOptions(**{name: getattr(read, name) for name in STATISTICS}, key_offset=grid.offset)
        if not kernel.are_usable(kernels.for_readings(torch.float32, inputs.units, inputs.normalizer)):
            return None
        launches: list[PreparedLaunch] = []
        transposed = 0
        if kernels.needs_transposed(inputs, "key") and not options.fit_lanes(inputs):
            each = Transposition.of(inputs.key)
            transposed = each.elements * each.heads
            if transposed > TRANSPOSED_ELEMENTS:
                return None  # a few heads at a time
            launches.append(each.prepared())
        block, chunks = operators.blocks_of_readings(inputs, options)
        parts, elements = {}, 0
        for reading, tensor in zip(READINGS, options.tensors(inputs, chunks).values(), strict=True):
            if tensor.numel():
                parts[reading.name] = ReadingMemory(
                    elements, tuple(tensor.shape), tensor.dtype, reading.over_rows is not None
                )
                # An int64 begins at an even index.
                elements += 2 * ceil_div(tensor.numel() * tensor.element_size(), 8)
        if 4 * elements > LARGEST_READINGS:
            return None
        initial = inputs.query.new_zeros(elements)
        for reading in READINGS:
            if reading.name in parts and reading.initial:
                _cut(initial, parts[reading.name]).fill_(reading.initial)
        arguments = operators.readings_arguments(inputs, options, block, chunks)
        names = ("query", "key", *("key_transposed",) * bool(transposed), *parts)
        reading_kernel, tasks = kernels.readings(inputs, options), grid.batch * grid.heads * chunks
        launches.append(PreparedLaunch.of(reading_kernel, arguments, tasks, inputs.work, names))
        return cls(
            statistics(read), PreparedLaunches(launches), initial, parts, transposed, (inputs.start, inputs.stop)
        )

    def take(self, query: Tensor, key: Tensor) -> tuple[Tensor, int]:
        """Takes the readings of tensors of the same sizes and strides.

        Returns:
            The memory of several calls' readings, ``[calls, elements]``, and the index of this call in it.
        """
        room, size = self._room, self.initial.nbytes
        if room.used == room.calls:
            calls = max(1, min(MOST_CALLS, READINGS_ROOM // max(size, 1))) if room.calls else 1
            room.memory = self.initial.expand(calls, -1).clone(memory_format=torch.contiguous_format)
            room.address, room.calls, room.used = address_of(room.memory), calls, 0
        memory, index = room.memory, room.used
        room.used += 1
        address = room.address + size * index
        keys = self.initial.new_empty(self.transposed) if self.transposed else None
        filled = {"query": address_of(query), "key": address_of(key), "key_transposed": address_of(keys)}
        for name, part in self.parts.items():
            filled[name] = address + 4 * part.first
        self.launches.run(filled)
        return memory, index

    def named(self, memory: Tensor, index: int) -> dict[str, Tensor]:
        """Copies the readings that `take` returned, named as in `regard.Observed`."""
        own = memory[index].clone()
        readings = {name: _cut(own, part) for name, part in self.parts.items()}
        return {name: sum_of_chunks(each) if self.parts[name].is_sum else each for name, each in readings.items()}


def _cut(memory: Tensor, part: ReadingMemory) -> Tensor:
    """Returns a reading as a view of the memory of all readings."""
    size, count = part.dtype.itemsize // 4, torch.Size(part.shape).numel()
    return memory[part.first : part.first + size * count].view(part.dtype).view(part.shape)


def statistics(read: Readings) -> tuple[int, ...]:
    """Returns the values of the readings of rows and columns."""
    return tuple(getattr(read, name) for name in STATISTICS)


def reads_pairs(read: Readings) -> bool:
    """Whether weights of pairs are read, and not only statistics of rows and columns."""
    return bool(read.weights or read.pooled or read.tile or read.by_masks) or read.rows is not None
