"""Estimates while a run goes on: what is left, and tokens a second, without the steps that compile."""

from types import SimpleNamespace

import pytest

from regard.training import reporter
from regard.training.reporter import (
    FIRST_STEPS,
    Estimate,
    NotebookReporter,
    PlainReporter,
    Throughput,
    default_reporter,
    duration,
)


@pytest.fixture
def clock(monkeypatch):
    """A clock that is set by hand: a list of one number."""
    now = [1000.0]
    monkeypatch.setattr(reporter.time, "monotonic", lambda: now[0])
    return now


def test_the_first_steps_are_no_part_of_the_estimate(clock):
    estimate = Estimate()
    assert estimate.remaining() == ""
    for step in range(1, FIRST_STEPS + 1):
        clock[0] += 60  # a compiler is at work
        estimate.step(step / 128)
        assert estimate.remaining() == ""
    for step in range(FIRST_STEPS + 1, 101):
        clock[0] += 1
        estimate.step(step / 128)
        assert estimate.remaining() == f"{duration(128 - step)} left"


def test_a_resumed_run_is_estimated_from_where_it_resumes(clock):
    estimate = Estimate(0.5)
    for step in range(1, FIRST_STEPS + 11):
        clock[0] += 2
        estimate.step(0.5 + step / 1024)
    assert estimate.remaining() == f"{duration(2 * (512 - FIRST_STEPS - 10))} left"


def test_plain_lines_have_the_estimate(clock, capsys):
    plain = PlainReporter(interval=15)
    plain.start(0.0)
    clock[0] += 100
    plain.step(0.01, "step 1")
    assert capsys.readouterr().err == "step 1\n"
    for step in range(2, 21):
        clock[0] += 1
        plain.step(step / 100, f"step {step}")
    # The last line was printed 15 seconds after the one before.
    assert capsys.readouterr().err == "step 16 · 84 s left at most\n"


def test_tokens_a_second_leave_out_the_first_steps_and_begin_anew_after_a_validation():
    throughput = Throughput()
    tokens, seconds = 0, 0.0
    for _ in range(FIRST_STEPS):
        tokens, seconds = tokens + 220, seconds + 10
        assert throughput.step(tokens, seconds) is None
    for _ in range(20):
        tokens, seconds = tokens + 500, seconds + 0.25
        assert throughput.step(tokens, seconds) == pytest.approx(2000)
    # A validation has set both to 0; no kernel is compiled again.
    for step in range(1, 4):
        assert throughput.step(300 * step, 0.1 * step) == pytest.approx(3000)
    assert throughput.step(0, 0.0) is None
    assert throughput.step(50, 0.1) == pytest.approx(500)


def test_a_notebook_has_a_bar(clock, capsys, monkeypatch):
    ipython = pytest.importorskip("IPython")
    assert not isinstance(default_reporter(), NotebookReporter)
    monkeypatch.setattr(ipython, "get_ipython", lambda: SimpleNamespace(kernel=object()))
    bar = default_reporter()
    assert isinstance(bar, NotebookReporter)
    shown = []
    handle = SimpleNamespace(update=lambda content: shown.append(content.data))
    monkeypatch.setattr("IPython.display.display", lambda content, display_id: shown.append(content.data) or handle)
    bar.start(0.25)
    for step in range(10):
        clock[0] += 0.25
        bar.step(0.25 + step / 100, f"step {step} <b>")
    bar.print_line("a line")
    bar.stop()
    assert len(shown) == 1 + 5 + 1
    assert 'value="0.2500"' in shown[0]
    assert "step 8 &lt;b&gt; · 17 s left" in shown[-2]
    assert shown[-1] == ""
    assert capsys.readouterr().out == "a line\n"
