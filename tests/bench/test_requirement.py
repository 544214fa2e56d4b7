"""Requirements: what is met, and by how much something is short."""

from dataclasses import replace

import pytest

from bench.measurement import Measurement, Spread
from bench.requirement import Requirement

MIB = 1 << 20


def timed(median, ratio, **more):
    return Measurement("measured", seconds=Spread(median, median, median, 7), ratio=ratio, **more)


RESULTS = {
    "regard": timed(2.0, 1.0, extra_bytes=3 * MIB, resident_bytes=700 * MIB),
    "eager": timed(26.0, 13.0, extra_bytes=60 * MIB),
    "sdpa": timed(1.6, 0.8),
}


@pytest.mark.parametrize(
    ("requirement", "met", "aim_met", "shown"),
    [
        (Requirement("faster", 11, "eager", 13), True, True, "13.0×"),
        (Requirement("faster", 13.1, "eager", 17), False, False, "13.0×"),
        (Requirement("slower", 1.3, "sdpa", 1.1), True, False, "1.25×"),
        (Requirement("slower", 1.03, "sdpa"), False, None, "1.25×"),
        (Requirement("overhead", 0.5, "sdpa"), True, None, "400 ms"),
        (Requirement("time", 2.5, aim=1.0), True, False, "2.00 s"),
        (Requirement("time", 1.5), False, None, "2.00 s"),
        (Requirement("memory", 5 * MIB), True, None, "3.00 MiB"),
        (Requirement("memory", 2 * MIB), False, None, "3.00 MiB"),
        (Requirement("memory share", 0.05, "eager"), True, None, "5.0 %"),
        (Requirement("resident", 1024 * MIB), True, None, "700 MiB"),
    ],
)
def test_a_bar_is_met_or_not(requirement, met, aim_met, shown):
    outcome = requirement.check(RESULTS)
    assert (outcome.met, outcome.aim_met, outcome.shown) == (met, aim_met, shown)
    assert bool(outcome.shortfall) == (not met)


def test_a_missed_requirement_says_by_how_much():
    assert Requirement("faster", 26, "eager").check(RESULTS).shortfall == "50 % below"
    assert Requirement("faster", 13.02, "eager").check(RESULTS).shortfall == "0.2 % below"
    assert Requirement("slower", 1.0, "sdpa").check(RESULTS).shortfall == "25.0 % above"
    assert Requirement("overhead", 0.1, "sdpa").check(RESULTS).shortfall == "300 ms above"


def test_a_share_of_the_physical_limit():
    requirement = Requirement("limit", 0.6, aim=0.8)
    outcome = requirement.check(RESULTS, limit=1.5)
    assert (outcome.met, outcome.aim_met, outcome.shown) == (True, False, "75 %")
    assert requirement.check(RESULTS, limit=0.9).shortfall == "25 % below"
    assert requirement.limit(0.6) == "≥ 60 %"
    # A task without a limit, or one that was not timed, is not judged.
    assert requirement.check(RESULTS).met is None
    assert requirement.check({"regard": replace(RESULTS["regard"], seconds=None)}, limit=1.0).met is None


@pytest.mark.parametrize(
    ("missing", "word"),
    [(None, "not run"), (Measurement("absent", "keras is not installed"), "keras is not installed"),
     (Measurement("measured"), "not timed")],
)  # fmt: skip
def test_unmeasured_requirements_are_not_judged(missing, word):
    results = dict(RESULTS) if missing is None else {**RESULTS, "keras": missing}
    outcome = Requirement("faster", 3, "keras").check(results)
    assert outcome.value is None
    assert outcome.met is None
    assert word in outcome.shortfall


def test_memory_that_was_not_measured_is_not_judged():
    results = {**RESULTS, "regard": replace(RESULTS["regard"], extra_bytes=None)}
    for requirement in (Requirement("memory", 1), Requirement("memory share", 0.5, "eager")):
        assert requirement.check(results).met is None


def test_small_sizes_are_not_judged():
    outcome = Requirement("faster", 11, "eager").check(RESULTS, quick=True)
    assert outcome.met is None
    assert outcome.value == 13.0
