"""The learning rate: known values, and what holds for every schedule."""

import math
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.training.config import ScheduleName
from regard.training.schedule import Schedule


@given(st.sampled_from(get_args(ScheduleName)), st.integers(0, 50), st.integers(51, 300), st.integers(0, 400))
def test_between_nothing_and_the_peak(name, warmup, total, step):
    factor = Schedule(name, warmup, total)(step)
    assert 0 <= factor <= 1
    if step < warmup:
        assert factor == pytest.approx((step + 1) / warmup, rel=1e-12)


@pytest.mark.parametrize("name", get_args(ScheduleName))
def test_the_peak_is_reached_where_the_warmup_ends(name):
    assert Schedule(name, warmup=7, total=29)(6) == pytest.approx(1)


def test_schedules_have_their_known_values():
    assert Schedule("constant")(10**6) == 1
    assert Schedule("inverse_sqrt", 100)(399) == pytest.approx(1 / 2)
    assert Schedule("linear", 10, 110)(60) == pytest.approx(1 / 2)
    assert Schedule("linear", 10, 110)(110) == 0
    assert Schedule("cosine", 0, 120)(30) == pytest.approx((1 + math.cos(math.pi / 4)) / 2)
    assert Schedule("cosine", 0, 120)(500) == pytest.approx(0)


def test_a_plateau_halves_the_rate():
    schedule = Schedule("plateau", patience=2)
    for loss, factor in [(5, 1), (4, 1), (4, 1), (4.5, 0.5), (3, 0.5), (3.5, 0.5), (3.1, 0.25)]:
        schedule.observe(loss)
        assert schedule(17) == factor


def test_only_plateaus_look_at_the_loss():
    schedule = Schedule("constant", patience=1)
    for loss in (1.0, 2.0, 3.0):
        schedule.observe(loss)
    assert schedule(3) == 1
