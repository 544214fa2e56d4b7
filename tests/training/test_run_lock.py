"""One process at a time writes into a run folder, and a process that is gone leaves no lock."""

import json
import os
import re
import signal
import socket
import subprocess
import sys

import pytest

from regard.errors import RunError
from regard.training.run_lock import OWNER_FILE, RunLock

HOLD = "import pathlib, sys, time; from regard.training.run_lock import RunLock; "
HOLD += "lock = RunLock(pathlib.Path(sys.argv[1])).acquire(); print('held', flush=True); time.sleep(60)"


@pytest.fixture
def held(tmp_path):
    """A process that holds the lock of ``tmp_path``."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_folder_in_use_says_by_whom_and_a_killed_process_leaves_no_lock(held, tmp_path):
    with pytest.raises(RunError) as caught:
        RunLock(tmp_path).acquire()
    assert re.search(rf"is in use by process {held.pid} since \d\d:\d\d \({socket.gethostname()}\)", str(caught.value))
    held.send_signal(signal.SIGKILL)
    held.wait()
    assert (tmp_path / OWNER_FILE).exists()
    RunLock(tmp_path).acquire().release()


def test_a_lock_belongs_to_the_folder_and_not_to_its_name(tmp_path):
    (tmp_path / "one").mkdir()
    lock = RunLock(tmp_path / "one").acquire()
    os.rename(tmp_path / "one", tmp_path / "other")
    with pytest.raises(RunError, match=f"in use by process {os.getpid()}"):
        RunLock(tmp_path / "other").acquire()
    lock.release()
    RunLock(tmp_path / "other").acquire().release()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"start": 1}, "a process that process"),  # the number is used again, or no longer
        ({"host": "elsewhere"}, "(elsewhere)"),
        ({"since": 0}, "since 19"),
        (None, "is in use; wait"),
    ],
    ids=["another start", "another host", "another day", "damaged"],
)
def test_who_holds_a_lock(tmp_path, change, words):
    lock = RunLock(tmp_path).acquire()
    owner = json.loads((tmp_path / OWNER_FILE).read_text())
    (tmp_path / OWNER_FILE).write_text("{" if change is None else json.dumps(owner | change))
    with pytest.raises(RunError) as caught:
        RunLock(tmp_path).acquire()
    assert words in str(caught.value)
    lock.release()


def test_a_folder_that_cannot_be_locked_is_one_line(tmp_path):
    (tmp_path / ".lock").mkdir()
    with pytest.raises(RunError, match="cannot lock") as caught:
        RunLock(tmp_path).acquire()
    assert "\n" not in str(caught.value)
