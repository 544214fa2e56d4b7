"""An interrupted training leaves no run, a whole one, or one that resumes; ``interruptions.py`` tries more."""

import os
import signal
import subprocess
import sys

import pytest

from interruptions import interrupt

MOMENTS = {signal.SIGINT: 0.3, signal.SIGTERM: 3.0}
"""Signal → seconds after the start; which part of a training these meet depends on the machine, and any must do.

``tests/tasks/test_every_run.py`` interrupts and kills the trainings of all tasks at known steps.
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", MOMENTS, ids=lambda number: number.name)
def test_a_signal_costs_nothing(tmp_path, number):
    assert interrupt(tmp_path, number, MOMENTS[number]) in ("absent", "resumed", "complete", "outside")


def test_a_signal_that_is_ignored_stays_ignored(tmp_path):
    script = (
        "import signal, os; signal.signal(signal.SIGHUP, signal.SIG_IGN); "
        "from regard.training.signal_handler import exit_on_signals\n"
        "with exit_on_signals(): os.kill(os.getpid(), signal.SIGHUP); print('still here')"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ended.stdout == "still here\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_command_with_one_line_and_its_exit_code(tmp_path, number):
    script = (
        "import pathlib, os, sys, time\n"
        "from regard.files.atomic import AtomicFile\n"
        "from regard.training.signal_handler import advising, exit_on_signals\n"
        "with exit_on_signals(), advising(lambda: 'continue with: this'), AtomicFile(sys.argv[1]):\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(60)\n"
    )
    arguments = [sys.executable, "-c", script, str(tmp_path / "file")]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(number)
    error = process.communicate(timeout=50)[1].decode()
    assert process.returncode == 128 + number
    assert error == f"regard: stopped by {number.name}; continue with: this\n"
    assert os.listdir(tmp_path) == []
