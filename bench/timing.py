"""Interleaved timing: the implementations run in turn, so that changes of the machine's speed affect all of them."""

import gc
import math
import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bench.measurement import Spread

TURN_SECONDS = 0.004
"""Least duration of a turn, which repeats its call: cold caches and the clock then have little effect."""

MOST_CALLS = 2000
"""Largest number of calls of one turn."""

REST_SECONDS = 0.002
"""Pause between turns: threads of the last implementation that still spin would slow down the next one."""


@dataclass(frozen=True)
class TimingBudget:
    """The time and the number of rounds of an interleaved timing.

    Attributes:
        seconds: seconds after which no further round starts, once `fewest` rounds are done.
        fewest: least number of rounds.
        most: largest number of rounds.
        share: seconds of each implementation; one that needs more runs in fewer rounds.
        slow_runs: least number of rounds of an implementation that needs more than its share.
        turn: least duration of a turn, which repeats its call.
    """

    seconds: float = 6.0
    fewest: int = 7
    most: int = 60
    share: float = 1.5
    slow_runs: int = 3
    turn: float = TURN_SECONDS

    @classmethod
    def of(cls, *, quick: bool, repeats: int | None = None) -> "TimingBudget":
        """The usual budget, or a small one if ``quick``; with ``repeats``, exactly this number of rounds."""
        budget = cls(0.5, 3, 15, 0.3, 2) if quick else cls()
        if repeats is None:
            return budget
        return cls(budget.seconds, repeats, repeats, budget.share, min(budget.slow_runs, repeats))

    def runs(self, seconds: float) -> int:
        """Largest number of rounds of an implementation whose call takes ``seconds``."""
        return min(self.most, max(self.slow_runs, int(self.share / max(seconds, self.turn))))


@dataclass(frozen=True)
class Timing:
    """The times of one implementation.

    Attributes:
        seconds: times of a call.
        ratio: its time divided by the first implementation's, the median over the rounds in which both ran.
    """

    seconds: Spread
    ratio: float


def time_interleaved(
    calls: Mapping[str, Callable[[], Any]],
    budget: TimingBudget,
    progress: Callable[[str], None] | None = None,
    clocks: Mapping[str, Callable[[Any], float]] | None = None,
    wait: Callable[[], None] = lambda: None,
) -> dict[str, Timing]:
    """Time all implementations in rounds; each round has another order.

    Args:
        calls: name → call; the others are compared with the first one. Each must have been called once before.
        budget: the time and the number of rounds.
        progress: called with a description of each round before it starts.
        clocks: name → result of a call → its seconds; for all others, those from the call to its return.
        wait: called after each turn, as a part of it: waits until an accelerator has done what it was asked.

    Returns:
        name → times and ratio to the first implementation.
    """
    if not calls:
        return {}
    names, clocks = list(calls), clocks or {}
    rough = {name: _once(calls[name], wait) for name in names}
    batch = {name: min(MOST_CALLS, max(1, math.ceil(budget.turn / max(rough[name], 1e-9)))) for name in names}
    allowed = {name: budget.runs(rough[name]) for name in names}
    turns: dict[str, dict[int, float]] = {name: {} for name in names}
    gc.collect()
    collecting = gc.isenabled()
    gc.disable()
    try:
        began = time.perf_counter()
        for number in range(budget.most):
            if number >= budget.fewest and time.perf_counter() - began > budget.seconds:
                break
            if progress is not None:
                progress(f"round {number + 1}")
            # The order is shuffled, in the same way in each run: the caches depend on the implementation before.
            for name in random.Random(number).sample(names, len(names)):
                if number < allowed[name]:
                    turns[name][number] = _turn(calls[name], batch[name], wait, clocks.get(name))
    finally:
        if collecting:
            gc.enable()
    own = turns[names[0]]
    return {
        name: Timing(
            Spread.of(list(found.values())),
            statistics.median(found[number] / own[number] for number in found if number in own),
        )
        for name, found in turns.items()
    }


def _once(call: Callable[[], Any], wait: Callable[[], None]) -> float:
    # The shorter of two times, unless the call takes long: the first call may include a warm-up.
    first = _turn(call, 1, wait)
    return first if first > 0.5 else min(first, _turn(call, 1, wait))


def _turn(
    call: Callable[[], Any], times: int, wait: Callable[[], None], clock: Callable[[Any], float] | None = None
) -> float:
    time.sleep(REST_SECONDS)
    if clock is not None:
        return sum(clock(call()) for _ in range(times)) / times
    began = time.perf_counter()
    for _ in range(times):
        call()
    wait()
    return (time.perf_counter() - began) / times
