"""Measurements in processes of their own: what they tell, how they end, and who ends them."""

import os
import signal
import sys
import threading

import pytest

from bench import task_process
from bench.limits import Peaks
from bench.own_process import Ended, run_process
from bench.runner import Options
from bench.task_process import run_alone
from bench.tasks import find

PEAKS = Peaks(2e11, 1e10, 4e9, 3e10)


@pytest.fixture
def run(tmp_path):
    """Runs a text as a module; other options are those of `run_process`."""

    def run(text, *arguments, **options):
        (tmp_path / "measured.py").write_text(f"import os, sys, time\n{text}", encoding="utf-8")
        return run_process("measured", *arguments, environment={"PYTHONPATH": str(tmp_path)}, **options)

    return run


def test_the_output_of_an_own_process_is_its_result(run):
    assert run("print(sys.argv[1:])", "a b", "--c") == Ended("['a b', '--c']\n")
    # More than a pipe holds, before its end and beside what the standard error gets.
    long = "for n in range(3000):\n    print('x' * 99)\n    print('y' * 99, file=sys.stderr)"
    assert run(long) == Ended(3000 * ("x" * 99 + "\n"))


def test_progress_is_handed_on(run):
    told = []
    found = run("for n in (1, 2):\n    print(f'progress {n} of 2', file=sys.stderr, flush=True)", progress=told.append)
    assert told == ["1 of 2", "2 of 2"]
    assert found == Ended()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("raise ValueError('so it is')", "ValueError: so it is"),
        ("os._exit(3)", "ended with exit code 3"),
        (f"os.kill(os.getpid(), {int(signal.SIGTERM)})", "was ended by signal 15"),
    ],
)
def test_why_there_is_no_result(run, text, reason):
    found = run(text)
    assert found.output == ""
    assert reason in found.reason


def test_a_process_that_takes_too_long_is_killed(run):
    assert run("time.sleep(60)", limit=0.05).reason == "took longer than 0 s"


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such signal")
@pytest.mark.parametrize("ignores", [False, True])
def test_an_interrupt_ends_the_process_too(run, ignores, monkeypatch, tmp_path):
    monkeypatch.setattr("bench.own_process.PATIENCE", 0.2 if ignores else 60.0)
    first = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n" if ignores else ""
    numbers = []

    def started(text):
        numbers.append(int(text))
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()

    woken = tmp_path / "woken"
    text = (
        f"{first}print('progress', os.getpid(), file=sys.stderr, flush=True)\ntime.sleep(60)\nopen({str(woken)!r}, 'w')"
    )
    with pytest.raises(KeyboardInterrupt):
        run(text, progress=started)
    assert not woken.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(numbers[0], 0)


@pytest.mark.slow
def test_a_task_is_measured_in_a_process_of_its_own():
    said = []
    (task,) = find(["decoder-sentence"])  # it has no peer, whose import would take seconds
    found = run_alone(task, Options(quick=True, repeats=2, memory=False), PEAKS, said.append)
    assert (found.name, found.title, dict(found.sizes)) == (
        "decoder-sentence",
        task.title.format(**task.quick),
        dict(task.quick),
    )
    assert list(found.results) == [implementation.column for implementation in task.implementations]
    own = found.results["regard"]
    assert (own.state, own.ratio, own.seconds.runs) == ("measured", 1, 2)
    assert found.limit == PEAKS.limit(found.work)
    assert any("first run of regard" in text for text in said)


def test_a_task_whose_process_is_killed_has_failed(monkeypatch):
    monkeypatch.setattr(task_process, "run_process", lambda *rest, **more: Ended(reason="was ended by signal 9"))
    (task,) = find(["tiny"])
    found = run_alone(task, Options(), PEAKS, print)
    assert found.title == task.title.format(**task.sizes)
    assert {(result.state, result.reason) for result in found.results.values()} == {
        ("failed", "its process: was ended by signal 9")
    }
