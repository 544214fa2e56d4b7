"""Interleaved runs: every contender in turn, so that a machine whose speed drifts is fair to all of them."""

import gc
import math
import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from regard.bench.measurement import Spread

TURN_SECONDS = 0.004
"""A turn repeats its call until it has lasted about so long: clocks and cold caches then weigh little."""

MOST_CALLS = 2000
"""The most calls of one turn."""

REST_SECONDS = 0.002
"""Between turns: worker threads of the last contender that still spin would slow the next one."""


@dataclass(frozen=True)
class Pace:
    """How long a race lasts.

    Attributes:
        seconds: of measuring; at least `fewest` rounds are run however long they take.
        fewest: rounds at least.
        most: rounds at most.
        share: seconds that each contender may take; one that would take longer runs less often than the others.
        slow_runs: runs at least of a contender that takes more than its share.
    """

    seconds: float = 6.0
    fewest: int = 7
    most: int = 60
    share: float = 1.5
    slow_runs: int = 3

    @classmethod
    def of(cls, *, quick: bool, repeats: int | None = None) -> "Pace":
        """The usual pace, or a quick one; with `repeats`, exactly so many rounds."""
        pace = cls(0.5, 3, 15, 0.3, 2) if quick else cls()
        if repeats is None:
            return pace
        return cls(pace.seconds, repeats, repeats, pace.share, min(pace.slow_runs, repeats))

    def runs(self, seconds: float) -> int:
        """Rounds at most for a contender that takes so long a call."""
        return min(self.most, max(self.slow_runs, int(self.share / max(seconds, TURN_SECONDS))))


@dataclass(frozen=True)
class Timing:
    """What a race found about one contender.

    Attributes:
        seconds: a call.
        ratio: its time over the first contender's, the median over the rounds that both ran.
    """

    seconds: Spread
    ratio: float


def race(
    calls: Mapping[str, Callable[[], Any]], pace: Pace, progress: Callable[[str], None] | None = None
) -> dict[str, Timing]:
    """Run all contenders round by round, each round in another order.

    Args:
        calls: name → one run; the first is the one that all are compared with. Each must have run once already.
        pace: how long.
        progress: told now and then what is going on.

    Returns:
        For every contender its times and its ratio to the first one.
    """
    if not calls:
        return {}
    names = list(calls)
    rough = {name: _once(calls[name]) for name in names}
    batch = {name: min(MOST_CALLS, max(1, math.ceil(TURN_SECONDS / max(rough[name], 1e-9)))) for name in names}
    allowed = {name: pace.runs(rough[name]) for name in names}
    turns: dict[str, dict[int, float]] = {name: {} for name in names}
    gc.collect()
    collecting = gc.isenabled()
    gc.disable()
    try:
        began = time.perf_counter()
        for number in range(pace.most):
            if number >= pace.fewest and time.perf_counter() - began > pace.seconds:
                break
            if progress is not None:
                progress(f"round {number + 1}")
            # Shuffled, the same way in each run: nobody always runs after one that leaves cold caches behind.
            for name in random.Random(number).sample(names, len(names)):
                if number < allowed[name]:
                    turns[name][number] = _turn(calls[name], batch[name])
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


def _once(call: Callable[[], Any]) -> float:
    # The better of two where that costs nothing: the first may still warm something up.
    first = _turn(call, 1)
    return first if first > 0.5 else min(first, _turn(call, 1))


def _turn(call: Callable[[], Any], times: int) -> float:
    time.sleep(REST_SECONDS)
    began = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - began) / times
