"""How the readings of a context's calls are taken, and where the calls stand in the model.

- A small call takes longer to start reading than to read. If the fused kernels for it are compiled, it is read by
  launches that are kept for all calls of its sizes (`regard.attention.backends.cpu.prepared_launches`); its readings
  become tensors when one is asked for. What is known of a module's call is not found out again for its next one.
- Any other call is read at once, as `regard.observe` reads one.
"""

from typing import NamedTuple

from torch import Tensor

from regard.attention.backends.cpu.prepared_launches import PreparedReading, keep, prepared_reading, reads_pairs
from regard.attention.readings import Readings
from regard.transforms import has_plain_memory
from regard.watching.attention_call import AttentionCall, Kind
from regard.watching.call_problems import SameCall
from regard.watching.intercepted import Intercepted
from regard.watching.owners import Owner


class KnownCall(NamedTuple):
    """A call that was read, as the pattern of those that differ from it in their module and their numbers alone.

    Attributes:
        call: without readings.
        found: what it computes, without numbers.
        reading: the launches that read it.
        chosen: the heads that it has readings of; None: all.
    """

    call: AttentionCall
    found: Intercepted
    reading: PreparedReading
    chosen: tuple[int, ...] | None


class TakenReadings(NamedTuple):
    """The readings of one call, where the launches wrote them, until one is asked for.

    Attributes:
        known: how they were taken.
        memory, row: what `PreparedReading.take` gave.
    """

    known: KnownCall
    memory: Tensor
    row: int

    def settle(self, call: AttentionCall) -> None:
        """Give them to the call."""
        named = self.known.reading.named(self.memory, self.row).items()
        call.receive({name: chosen_heads(reading, self.known.chosen) for name, reading in named})


class DeviceReadings(NamedTuple):
    """The readings of one call on an accelerator, which is not waited for until one is asked for.

    Attributes:
        readings: by their names; None for those that are not wanted.
        chosen: the heads that the call has readings of; None: all.
    """

    readings: dict[str, Tensor | None]
    chosen: tuple[int, ...] | None

    def settle(self, call: AttentionCall) -> None:
        """Give them to the call, on the CPU."""
        named = self.readings.items()
        call.receive({name: None if each is None else chosen_heads(each, self.chosen) for name, each in named})


class CallReader:
    """Takes the readings of one context's calls.

    Args:
        read: which.
        alone: whether more than readings is taken of each call, so that none stands for others.
    """

    def __init__(self, read: Readings, alone: bool):
        self._read, self._keeps_calls = read, not (alone or reads_pairs(read))
        self._known: dict[object, KnownCall] = {}
        self._on_device: list[AttentionCall] = []

    def known(self, alike: SameCall) -> KnownCall | None:
        """What is known of a call; None if nothing is."""
        return self._known.get(alike.key)

    def can_take_again(self, alike: SameCall) -> bool:
        """Whether a call can be read as one like it that is known: a kernel reads numbers as they lie in memory."""
        return has_plain_memory(alike.query) and has_plain_memory(alike.key_tensor)

    def take_again(self, call: AttentionCall, known: KnownCall, alike: SameCall) -> None:
        """Take the readings of a call like one that is known.

        Args:
            call: without readings.
            known: what `known` gave.
            alike: the call's own.
        """
        call.postpone(TakenReadings(known, *known.reading.take(alike.query, alike.key_tensor)))

    def take(self, call: AttentionCall, found: Intercepted, alike: SameCall | None) -> None:
        """Take the readings of a call.

        Args:
            call: without readings.
            found: what it computed.
            alike: what it has in common with others; None: nothing is known of others like it.
        """
        chosen = None if call.chosen_heads == tuple(range(call.heads)) else call.chosen_heads
        if alike is not None and self._keeps_calls and found.problem is not None:
            reading = prepared_reading(found.problem, self._read)
            if reading is not None:
                known = KnownCall(call.pattern(), found.without_numbers(), reading, chosen)
                keep(self._known, alike.key, known)
                return self.take_again(call, known, alike)
        readings = DeviceReadings(found.read(self._read), chosen)
        if found.grid.device.type == "cpu":
            return readings.settle(call)
        self._on_device.append(call)
        return call.postpone(readings)

    def settle(self) -> None:
        """Take all readings to the CPU, and forget what is known of calls."""
        for call in self._on_device:
            call.settle()
        self._on_device, self._known = [], {}


def chosen_heads(tensor: Tensor, chosen: tuple[int, ...] | None) -> Tensor:
    """The chosen heads of ``[batch, heads, ...]``, on the CPU."""
    return (tensor if chosen is None else tensor[:, list(chosen)]).detach().cpu()


class CallPlaces:
    """Where attention calls stand in a watched model, told from the calls before them in one context: their layer,
    their kind, and the forward pass that they belong to."""

    def __init__(self) -> None:
        self._forwards = 0
        self._in_forward: dict[str, int] = {}
        self._causal: set[str] = set()

    def begin_forward(self) -> None:
        """Note that the model itself was called."""
        self._forwards += 1
        self._in_forward.clear()

    @property
    def forward(self) -> int:
        """The forward pass of the model that runs, from 0."""
        return max(self._forwards - 1, 0)

    def layer(self, name: str, layer: int, is_square: bool) -> int:
        """The layer of a module's next call.

        Args:
            name: of the module.
            layer: the module's.
            is_square: whether the call has as many keys as queries, and several.
        """
        if not is_square or not self._forwards:
            return layer
        # How often this module attended in this forward pass of the model before: layers may share one module.
        before = self._in_forward[name] = self._in_forward.get(name, -1) + 1
        return before or layer

    def kind(self, owner: Owner, found: Intercepted, name: str) -> Kind:
        """The kind of a call.

        Args:
            owner: whose it is.
            found: what it computes.
            name: of the module, or of the part of it that attends.
        """
        if owner.cross if found.cross is None else found.cross or owner.cross:
            return "cross"
        causal = found.causal
        if not causal and found.grid.queries == 1:
            # A single query sees all tokens before it: its mask does not tell what its module is.
            is_causal = getattr(owner.module, "is_causal", None) is True
            causal = name in self._causal or is_causal or (found.grid.keys == 1 and _is_in_decoder(name))
        if causal:
            self._causal.add(name)
        return "causal" if causal else "self"


def _is_in_decoder(name: str) -> bool:
    return "decoder" in name.lower()
