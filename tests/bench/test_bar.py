"""Bars: what is met, and by how much something is short."""

from dataclasses import replace

import pytest

from regard.bench.bar import Bar
from regard.bench.measurement import Measurement, Spread

MIB = 1 << 20


def timed(median, ratio, **more):
    return Measurement("measured", seconds=Spread(median, median, median, 7), ratio=ratio, **more)


RESULTS = {
    "regard": timed(2.0, 1.0, extra_bytes=3 * MIB, resident_bytes=700 * MIB),
    "eager": timed(26.0, 13.0, extra_bytes=60 * MIB),
    "sdpa": timed(1.6, 0.8),
}


@pytest.mark.parametrize(
    ("bar", "met", "aim_met", "shown"),
    [
        (Bar("faster", 11, "eager", 13), True, True, "13.0×"),
        (Bar("faster", 13.1, "eager", 17), False, False, "13.0×"),
        (Bar("slower", 1.3, "sdpa", 1.1), True, False, "1.25×"),
        (Bar("slower", 1.03, "sdpa"), False, None, "1.25×"),
        (Bar("overhead", 0.5, "sdpa"), True, None, "400 ms"),
        (Bar("memory", 5 * MIB), True, None, "3.00 MiB"),
        (Bar("memory", 2 * MIB), False, None, "3.00 MiB"),
        (Bar("memory share", 0.05, "eager"), True, None, "5.0 %"),
        (Bar("resident", 1024 * MIB), True, None, "700 MiB"),
    ],
)
def test_a_bar_is_met_or_not(bar, met, aim_met, shown):
    verdict = bar.judge(RESULTS)
    assert (verdict.met, verdict.aim_met, verdict.shown) == (met, aim_met, shown)
    assert bool(verdict.shortfall) == (not met)


def test_what_is_short_says_how_far():
    assert Bar("faster", 26, "eager").judge(RESULTS).shortfall == "50 % below"
    assert Bar("slower", 1.0, "sdpa").judge(RESULTS).shortfall == "25.0 % above"
    assert Bar("overhead", 0.1, "sdpa").judge(RESULTS).shortfall == "300 ms above"


@pytest.mark.parametrize(
    ("missing", "word"),
    [(None, "not run"), (Measurement("absent", "keras is not installed"), "keras is not installed"),
     (Measurement("measured"), "not timed")],
)  # fmt: skip
def test_what_was_not_measured_is_not_judged(missing, word):
    results = dict(RESULTS) if missing is None else {**RESULTS, "keras": missing}
    verdict = Bar("faster", 3, "keras").judge(results)
    assert verdict.value is None
    assert verdict.met is None
    assert word in verdict.shortfall


def test_memory_that_was_not_measured_is_not_judged():
    results = {**RESULTS, "regard": replace(RESULTS["regard"], extra_bytes=None)}
    for bar in (Bar("memory", 1), Bar("memory share", 0.5, "eager")):
        assert bar.judge(results).met is None


def test_small_sizes_are_not_judged():
    verdict = Bar("faster", 11, "eager").judge(RESULTS, quick=True)
    assert verdict.met is None
    assert verdict.value == 13.0
