"""Races: everybody runs in turn, and the slow ones less often."""

import gc
from collections import Counter
from itertools import pairwise

import pytest

from bench import timing
from bench.measurement import Spread
from bench.timing import TimingBudget, time_interleaved


@pytest.fixture
def clock(monkeypatch):
    """A clock that calls move forward by hand; nothing here waits."""

    class Clock:
        now = 100.0

        def run(self, seconds):
            self.now += seconds

    found = Clock()
    monkeypatch.setattr(timing.time, "perf_counter", lambda: found.now)
    monkeypatch.setattr(timing.time, "sleep", lambda seconds: None)
    return found


def test_times_and_ratios(clock):
    calls = {"own": lambda: clock.run(0.02), "other": lambda: clock.run(0.06)}
    found = time_interleaved(calls, TimingBudget(seconds=1e9, fewest=5, most=11))
    assert found["own"].seconds.runs == found["other"].seconds.runs == 11
    assert found["own"].seconds.median == pytest.approx(0.02)
    assert found["own"].ratio == 1
    assert found["other"].ratio == pytest.approx(3)


def test_a_call_may_tell_its_own_time(clock):
    """As one that measures in another process, which takes time to start."""
    calls = {"own": lambda: clock.run(5.0) or 0.25, "other": lambda: clock.run(0.5)}
    found = time_interleaved(calls, TimingBudget(seconds=1e9, fewest=3, most=3), clocks={"own": lambda raw: raw})
    assert found["own"].seconds.median == pytest.approx(0.25)
    assert found["other"].ratio == pytest.approx(2)


def test_each_turn_ends_when_the_device_is_done(clock):
    """An accelerator takes a call at once and computes it later."""
    queued = []
    calls = {"own": lambda: queued.append(0.02), "other": lambda: queued.append(0.06)}

    def wait():
        clock.run(sum(queued))
        queued.clear()

    found = time_interleaved(calls, TimingBudget(seconds=1e9, fewest=3, most=3), wait=wait)
    assert found["own"].seconds.median == pytest.approx(0.02)
    assert found["other"].ratio == pytest.approx(3)


def test_ratios_are_those_of_the_same_round(clock):
    """A machine that becomes slower and slower is as slow for everyone."""
    drift = iter(1.5**n for n in range(1000))
    calls = {"own": lambda: clock.run(0.02 * next(drift)), "other": lambda: clock.run(0.04 * next(drift))}
    found = time_interleaved(calls, TimingBudget(1e9, 7, 7))
    assert 2 / 1.5 <= found["other"].ratio <= 2 * 1.5
    assert found["own"].seconds.upper > 2 * found["own"].seconds.lower


def test_no_contender_always_runs_after_the_same_one(clock):
    order = []
    calls = {name: lambda name=name: (order.append(name), clock.run(0.01)) for name in "abc"}
    time_interleaved(calls, TimingBudget(1e9, 12, 12))
    rounds = [order[first : first + 3] for first in range(6, len(order), 3)]
    followers = {pair for one in rounds for pair in pairwise(one)}
    assert len(followers) == 6


def test_slow_contenders_run_less_often(clock):
    calls = {"own": lambda: clock.run(0.01), "slow": lambda: clock.run(3.0)}
    found = time_interleaved(calls, TimingBudget(1e9, 5, 13, share=0.5, slow_runs=2))
    assert found["own"].seconds.runs == 13
    assert found["slow"].seconds.runs == 2
    assert found["slow"].ratio == pytest.approx(300)


def test_a_contender_runs_as_often_as_its_share_allows():
    budget = TimingBudget(1e9, 5, 40, share=1.5, slow_runs=3)
    assert [budget.runs(seconds) for seconds in (1e-6, 0.03, 0.1, 0.3, 0.7, 5.0)] == [40, 40, 15, 5, 3, 3]
    # Whoever is asked for exactly so many rounds runs no slow implementation more often than that.
    assert TimingBudget.of(quick=False, repeats=2).runs(5.0) == 2


def test_a_turn_of_a_fast_call_repeats_it(clock):
    counted = Counter()
    time_interleaved({"own": lambda: (counted.update("x"), clock.run(1e-5))}, TimingBudget(1e9, 3, 3))
    assert counted["x"] == 2 + 3 * 400


def test_the_time_is_kept_but_for_the_fewest_rounds(clock):
    calls = {"own": lambda: clock.run(1.0)}
    assert time_interleaved(calls, TimingBudget(seconds=0.0, fewest=4, most=50, share=99))["own"].seconds.runs == 4
    assert time_interleaved(calls, TimingBudget(seconds=6.5, fewest=4, most=50, share=99))["own"].seconds.runs == 7


def test_collection_is_switched_on_again(clock):
    def fails():
        raise RuntimeError("broken")

    calls = iter([lambda: None] * 2 + [fails] * 9)
    assert gc.isenabled()
    with pytest.raises(RuntimeError, match="broken"):
        time_interleaved({"own": lambda: (clock.run(0.1), next(calls)())}, TimingBudget(1e9, 3, 3))
    assert gc.isenabled()
    assert time_interleaved({}, TimingBudget()) == {}


def test_repeats_are_exact():
    assert TimingBudget.of(quick=True, repeats=1) == TimingBudget(0.5, 1, 1, 0.3, 1)
    assert TimingBudget.of(quick=False) == TimingBudget()


def test_a_spread_has_median_and_quartiles():
    assert Spread.of([3.0]) == (3.0, 3.0, 3.0, 1)
    assert Spread.of([5.0, 1.0, 3.0, 2.0, 4.0]) == (3.0, 2.0, 4.0, 5)
