"""Takes the readings of a context's calls, and determines each call's layer and kind from the calls before it.

- A small call takes longer to start reading than to read. If the fused kernels for it are compiled, it is read by
  launches that are prepared for all calls of its kind (`regard.attention.routes`); its readings become tensors on
  first access.
- Any other call is read at once, as `regard.observe` reads one.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attention.backends.cpu.prepared_launches import PreparedReading, reads_pairs, statistics
from regard.attention.readings import Readings, checked_readings
from regard.masks import Mask
from regard.records.attention_record import Kind
from regard.shapes.grid import Grid
from regard.tracing.transforms import is_on_host
from regard.watching.attention_call import POSTPONED_ATTRIBUTES, AttentionCall
from regard.watching.call_records import mask_on_host
from regard.watching.intercepted_call import InterceptedCall
from regard.watching.owners import Owner


class LaunchedReadings(NamedTuple):
    """The readings of one call in the memory of its launches, until one is accessed.

    Attributes:
        chosen: the heads of the call's readings; None: all.
        memory, row: the result of `PreparedReading.take`.
    """

    launches: PreparedReading
    chosen: tuple[int, ...] | None
    memory: Tensor
    row: int

    def settle(self, call: AttentionCall) -> None:
        """Stores the readings in the call."""
        named = self.launches.named(self.memory, self.row).items()
        call.receive({name: chosen_heads(reading.detach(), self.chosen) for name, reading in named})


class DeviceReadings(NamedTuple):
    """The readings of one call on the call's device, for which nothing waits until one is accessed.

    Attributes:
        tensors: by the names of the call's attributes; None for those that were not requested.
        reach: the result of `InterceptedCall.reach`.
        visible: the call's mask, if it was requested; None: none.
        chosen: the heads of the call's readings; None: all.
    """

    tensors: dict[str, Tensor | None]
    reach: Tensor | int
    visible: Mask | None
    grid: Grid
    chosen: tuple[int, ...] | None

    def settle(self, call: AttentionCall) -> None:
        """Stores the readings in the call, on the CPU."""
        self.deliver(call, on_host(self.on_device()))

    def on_device(self) -> list[Tensor]:
        """Returns the tensors that are copied to the CPU."""
        return [each for each in (*self.tensors.values(), self.reach) if isinstance(each, Tensor)]

    def deliver(self, call: AttentionCall, copies: Sequence[Tensor]) -> None:
        """Stores the readings in the call, from copies of the tensors of `on_device`."""
        in_order = iter(copies)
        delivered: dict[str, Any] = {
            name: None if each is None else chosen_heads(next(in_order), self.chosen)
            for name, each in self.tensors.items()
        }
        delivered["reach"] = self.reach if isinstance(self.reach, int) else int(next(in_order))
        delivered["visible_mask"] = self.visible
        if self.visible is not None and not all(map(is_on_host, self.on_device())):
            delivered["visible_mask"] = mask_on_host(self.visible, self.grid)
        call.receive(delivered)


class CallReader:
    """Takes the readings of one context's calls.

    Args:
        read: the readings.
        alone: whether each call needs more than its readings, so that prepared launches do not suffice.
    """

    def __init__(self, read: Readings, alone: bool):
        self._read, self._alone = read, alone or reads_pairs(read)
        self._on_device: list[tuple[AttentionCall, DeviceReadings]] = []

    def take(
        self, call: AttentionCall, intercepted: InterceptedCall, visible: Mask | None, others: dict[str, Tensor | None]
    ) -> None:
        """Takes the readings of a call, or postpones them.

        The call's mask ``visible`` is stored if it is wanted, and ``others`` are further attributes by name, of all
        heads.
        """
        chosen = None if call.chosen_heads == tuple(range(call.heads)) else call.chosen_heads
        problem, known = intercepted.problem, self._launches(intercepted)
        if problem is not None and known is not None:
            launches, call.reach = known
            call.visible_mask = visible
            return call.postpone(LaunchedReadings(launches, chosen, *launches.take(problem.query, problem.key)))
        tensors = intercepted.read(self._read) | others
        readings = DeviceReadings(tensors, intercepted.reach(), visible, intercepted.grid, chosen)
        if is_on_host(intercepted.tensor):
            return readings.settle(call)
        self._on_device.append((call, readings))
        return call.postpone(readings, POSTPONED_ATTRIBUTES)

    def _launches(self, intercepted: InterceptedCall) -> tuple[PreparedReading, int] | None:
        """Returns the launches that read a call, and its reach; None if they do not suffice or are not compiled yet.

        They are kept by the route of the call's kind; where elements of the mask decide, with the mask's analysis,
        which is another one after a change of its elements.
        """
        problem, of_mask = intercepted.problem, intercepted.mask.launches
        if self._alone or problem is None or problem.route is None:
            return None
        launches = problem.route.reading(problem, self._read)
        if launches is not None:
            return launches, int(intercepted.reach())
        if of_mask is None:
            return None
        key = problem.route, statistics(self._read)
        if key not in of_mask and (launches := PreparedReading.of(problem, self._read)) is not None:
            of_mask[key] = launches, int(intercepted.reach())
        return of_mask.get(key)

    @property
    def waits(self) -> bool:
        """Whether readings are on a device."""
        return bool(self._on_device)

    def deliver(self, others: Sequence[Tensor] = ()) -> list[Tensor]:
        """Copies the readings since the last delivery to the CPU at once, and returns copies of ``others``."""
        waiting = [(call, readings) for call, readings in self._on_device if call.is_postponed]
        tensors = [tensor for _, readings in waiting for tensor in readings.on_device()]
        copies = iter(on_host([*tensors, *others]))
        for call, readings in waiting:
            readings.deliver(call, list(islice(copies, len(readings.on_device()))))
        self._on_device = []
        return list(copies)


PACKED_ELEMENTS = 1 << 18
"""The most elements of a tensor that is copied from a device together with others."""


def on_host(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Returns the tensors on the CPU; small ones of one dtype are copied from a device together."""
    copies = [tensor.detach() for tensor in tensors]
    packed: dict[torch.dtype, list[int]] = {}
    for number, tensor in enumerate(copies):
        if is_on_host(tensor) or tensor.numel() > PACKED_ELEMENTS:
            copies[number] = tensor.cpu()
        else:
            packed.setdefault(tensor.dtype, []).append(number)
    for numbers in packed.values():
        parts = torch.cat([copies[number].flatten() for number in numbers]).cpu()
        sizes = [copies[number].numel() for number in numbers]
        for number, part in zip(numbers, parts.split(sizes), strict=True):
            # Each has memory of its own, so that a stored one does not keep the others alive.
            copies[number] = part.clone().view(copies[number].shape)
    return copies


def chosen_heads(tensor: Tensor, chosen: tuple[int, ...] | None) -> Tensor:
    """Returns the chosen heads of ``[batch, heads, ...]``."""
    return tensor if chosen is None else tensor[:, list(chosen)]


class CallHistory:
    """The calls of one context so far, from which the layer, the kind and the forward pass of the next one follow."""

    def __init__(self) -> None:
        self._forwards = 0
        self._in_forward: dict[str, int] = {}
        self._causal: set[str] = set()

    def begin_forward(self) -> None:
        """Counts a call of the model itself."""
        self._forwards += 1
        self._in_forward.clear()

    @property
    def forward(self) -> int:
        """The number of the model's forward pass that runs, from 0."""
        return max(self._forwards - 1, 0)

    def layer(self, name: str, layer: int, is_square: bool) -> int:
        """Returns the layer of a module's next call, from the layer of its name.

        A call is square if it has as many keys as queries, and several.
        """
        if not is_square or not self._forwards:
            return layer
        # Layers may share one module: then its calls in one forward pass of the model are counted.
        before = self._in_forward[name] = self._in_forward.get(name, -1) + 1
        return before or layer

    def kind(self, owner: Owner, intercepted: InterceptedCall, name: str) -> Kind:
        """Returns the kind of a call of a module, or of the part of it with this name."""
        if owner.cross if intercepted.cross is None else intercepted.cross or owner.cross:
            return "cross"
        causal = intercepted.mask.causal
        if not causal and intercepted.grid.queries == 1:
            # A single query sees all tokens before it, so its mask does not show the kind.
            is_causal = getattr(owner.module, "is_causal", None) is True
            causal = name in self._causal or is_causal or (intercepted.grid.keys == 1 and "decoder" in name.lower())
        if causal:
            self._causal.add(name)
        return "causal" if causal else "self"


def check_readings(read: Readings) -> None:
    """Checks the types of readings; indices are checked when a call shows its size."""
    if read is _CHECKED_READINGS[-1]:
        return
    if isinstance(read, Readings) and isinstance(read.shares, (list, tuple)) and read.shares:
        read = replace(read, shares=())
    if isinstance(read, Readings) and isinstance(read.recall, Mask):
        read = replace(read, recall=True)
    checked_readings(read, _LARGE_GRID)
    if read.rows is read.tile is read.pooled is None:
        # It is immutable, and contexts in a loop often share it.
        _CHECKED_READINGS[-1] = read


_CHECKED_READINGS = [Readings()]
"""The last readings that passed the check."""

_LARGE_GRID = Grid.whole(1, 1, 2**40, 2**40)
"""A grid larger than that of any call."""
