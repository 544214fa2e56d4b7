"""How the readings of a context's calls are taken: at once, with other calls, or by launches that were kept.

- A large call is read at once, as `regard.observe` reads one.
- A small one takes longer to start reading than to read. If the fused kernels for it are compiled already, it is read
  at once by launches that are kept for all calls of the same sizes, in this context and in later ones.
- Else its numbers are copied, and read with those of other calls: see `regard.watching.joined_calls`.
"""

import threading
from operator import attrgetter
from typing import NamedTuple, TypeVar

from torch import Tensor

from regard.attention.backends.cpu.backend import Fused
from regard.attention.backends.cpu.repeated_reading import STATISTICS, RepeatedReading
from regard.attention.planner import BACKENDS, choose_reader
from regard.attention.readings import Readings
from regard.transforms import has_plain_memory, lie_in_memory
from regard.watching.attention_call import AttentionCall
from regard.watching.call_problems import SameCall
from regard.watching.intercepted import Intercepted
from regard.watching.joined_calls import KEPT_NUMBERS, JoinedCalls, chosen_heads, joint, numbers_of

Call = TypeVar("Call")

KNOWN_LIMIT = 256
"""Sizes of calls that are kept in mind."""

ROOMY_GROUPS = 4
"""Groups of calls, read together, up to which each keeps its memory of copies for the next calls."""


class KnownCall(NamedTuple):
    """A call that was read, as the pattern of those that differ from it in their module and their numbers alone.

    Attributes:
        call: without readings.
        found: without numbers.
        reading: the launches that read it; None: it is read with others.
        joined: the calls that it is read together with.
        chosen: the heads that it has readings of; None: all.
    """

    call: AttentionCall
    found: Intercepted
    chosen: tuple[int, ...] | None
    reading: RepeatedReading | None
    joined: JoinedCalls | None


class _KeptCalls(threading.local):
    """Calls of one thread that launches read, in this context or an earlier one.

    Attributes:
        known: by what is read of them and what calls like them agree in.
    """

    def __init__(self) -> None:
        self.known: dict[object, KnownCall] = {}


KEPT = _KeptCalls()
"""What this thread keeps of calls from one context to the next."""


class TakenReadings(NamedTuple):
    """The readings of one call, where they were written, until one is asked for.

    Attributes:
        reading: took them.
        memory, place: what it gave.
        chosen: the heads that the call has readings of; None: all.
    """

    reading: RepeatedReading
    memory: Tensor
    place: int
    chosen: tuple[int, ...] | None

    def settle(self, call: AttentionCall) -> None:
        """Give them to the call."""
        named = self.reading.named(self.memory, self.place).items()
        call.receive({name: chosen_heads(reading, self.chosen) for name, reading in named})


class CallReader:
    """Takes the readings of one context's calls.

    Args:
        read: which.
        heads: of which query heads; None: all.
        alone: whether more than readings is taken of each call, so that none stands for others.
    """

    def __init__(self, read: Readings, heads: tuple[int, ...] | None, alone: bool):
        self._read, self._alone = read, alone
        self._groups: dict[object, JoinedCalls] = {}
        self._known: dict[object, KnownCall] = {}
        self._copied = 0
        self._asked = None if alone or _reads_pairs(read) else (_statistics_of(read), heads)

    def known(self, alike: SameCall) -> KnownCall | None:
        """What is known of a call; None if nothing is."""
        known = None
        if self._asked is not None and alike.lasts:
            known = KEPT.known.get((self._asked, alike.key))
        return self._known.get(alike.key) if known is None else known

    def can_take_again(self, known: KnownCall, alike: SameCall) -> bool:
        """Whether a call can be read as one like it that is known: a kernel reads numbers as they lie in memory."""
        return known.reading is None or (has_plain_memory(alike.query) and has_plain_memory(alike.key_tensor))

    def take_again(self, call: AttentionCall, known: KnownCall, alike: SameCall) -> None:
        """Take the readings of a call like one that is known.

        Args:
            call: without readings.
            known: what `known` gave.
            alike: the call's own.
        """
        query, key = alike.query, alike.key_tensor
        if known.reading is not None:
            call.postpone(TakenReadings(known.reading, *known.reading.take(query, key), known.chosen))
        elif known.joined is not None:
            self._postpone(call, known.joined, (query, key))

    def take(self, call: AttentionCall, found: Intercepted, alike: SameCall | None) -> None:
        """Take the readings of a call.

        Args:
            call: without readings.
            found: what it computed.
            alike: what it has in common with others; None: nothing is known of others like it.
        """
        key, chosen = joint(found, self._read), call.chosen_heads
        chosen = None if chosen == tuple(range(call.heads)) else chosen
        if key is None:
            taken = found.read(self._read).items()
            return call.receive({name: None if each is None else chosen_heads(each, chosen) for name, each in taken})
        reading = None if alike is None else self._repeated(found)
        if reading is not None and alike is not None:
            known = KnownCall(call.pattern(), found.without_numbers(), chosen, reading, None)
            self._remember(alike, known)
            return self.take_again(call, known, alike)
        joined = self._groups.get((key, chosen))
        if joined is None:
            joined = self._groups[key, chosen] = JoinedCalls(found, self._read, chosen)
        self._postpone(call, joined, numbers_of(found))
        if alike is not None and not self._alone:
            self._known[alike.key] = KnownCall(call.pattern(), joined.found, chosen, None, joined)
        return None

    def settle(self) -> None:
        """Take all readings that were postponed."""
        self._copied = 0
        for joined in self._groups.values():
            joined.take()
            if len(self._groups) > ROOMY_GROUPS:
                joined.release()
        if max(len(self._known), len(self._groups)) > KNOWN_LIMIT:
            self.forget()

    def forget(self) -> None:
        """Forget what is known of calls."""
        self._groups, self._known = {}, {}

    def _repeated(self, found: Intercepted) -> RepeatedReading | None:
        """The launches that read a call, if there are any."""
        problem = found.problem
        if self._asked is None or problem is None or not lie_in_memory(problem.query, problem.key):
            return None
        if type(choose_reader(problem, BACKENDS["reference"])) is not Fused:
            return None
        return RepeatedReading.of(problem, self._read)

    def _remember(self, alike: SameCall, known: KnownCall) -> None:
        if alike.lasts:
            keep_few(KEPT.known, (self._asked, alike.key), known)
        else:
            keep_few(self._known, alike.key, known)

    def _postpone(self, call: AttentionCall, joined: JoinedCalls, numbers: tuple[Tensor, ...]) -> None:
        """Leave a call's readings to the calls that are read together with it."""
        self._copied += joined.add(call, numbers)
        if self._copied > KEPT_NUMBERS or len(self._groups) > KNOWN_LIMIT:
            self.settle()


_statistics_of = attrgetter(*STATISTICS)


def _reads_pairs(read: Readings) -> bool:
    """Whether more is read than statistics of rows and columns."""
    return bool(read.weights or read.pooled or read.tile or read.shares) or read.rows is not None


def keep_few(calls: dict[object, Call], key: object, call: Call) -> None:
    """Keep a call in mind, and no more than `KNOWN_LIMIT`: generation has other sizes in each step."""
    if len(calls) >= KNOWN_LIMIT:
        calls.clear()
    calls[key] = call
