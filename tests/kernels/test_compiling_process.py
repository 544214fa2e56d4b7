"""Kernels are compiled in another process while this one compiles; whatever goes wrong there, they are compiled."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("numba", reason="kernels are compiled by Numba")

from kernels.tiny import call, tiny
from regard.kernels.cpu import cache, compiling_process, kernel
from regard.kernels.cpu.compiling_process import CompilingProcess


@pytest.fixture(autouse=True)
def _two_processors(monkeypatch):
    monkeypatch.setattr(compiling_process, "_processors", lambda: 2)


def compiled_here(said):
    return [line.split("'")[1] for line in said if line.startswith("compiling the CPU kernel")]


def test_later_kernels_are_compiled_by_another_process(folder, said):
    kernels = [tiny(step) for step in (2, 3, 5)]
    kernel.compile_together(*kernels)
    assert [call(one) for one in kernels] == [2, 3, 5]
    assert ended(kernels[2]._elsewhere) == 0
    lines = said()
    assert compiled_here(lines) == ["tiny_kernel_2"]
    assert lines[0].startswith(
        "compiling for this machine in another process: 'tiny_kernel_3', 'tiny_kernel_5' (kept in"
    )


@pytest.mark.parametrize(("processors", "elsewhere"), [(2, [3, 5]), (3, [3, 5, 7, 11]), (9, [3, 5, 7, 11, 13])])
def test_each_spare_processor_gets_two(folder, said, monkeypatch, processors, elsewhere):
    monkeypatch.setattr(compiling_process, "_processors", lambda: processors)
    steps = [2, 3, 5, 7, 11, 13]
    kernels = [tiny(step) for step in steps]
    kernel.compile_together(*kernels)
    assert [call(one) for one in kernels] == steps
    assert compiled_here(said()) == [f"tiny_kernel_{step}" for step in steps if step not in elsewhere]


def ended(process):
    """How a process ended, after nothing of it is left; None if something is."""
    for _ in range(50):
        if process._process.returncode is not None and process._process.stdout.closed:
            return process._process.returncode
        time.sleep(0.1)
    return None


def test_a_process_whose_last_kernel_is_not_wanted_leaves_nothing(folder):
    kernels = [tiny(step) for step in (2, 3, 5)]
    kernel.compile_together(*kernels)
    assert call(kernels[1]) == 3
    assert ended(kernels[2]._elsewhere) == 0


def test_they_are_found_in_any_order(folder, said):
    kernels = [tiny(step) for step in (2, 3, 5)]
    kernel.compile_together(*kernels)
    assert [call(one) for one in reversed(kernels)] == [5, 3, 2]
    assert compiled_here(said()) == ["tiny_kernel_2"]


def test_what_is_there_is_not_compiled_again(folder, said):
    assert [call(tiny(step)) for step in (2, 3)] == [2, 3]
    said()
    kernels = [tiny(step) for step in (2, 3, 5)]
    kernel.compile_together(*kernels)
    assert said() == []
    kernel.compile_together(tiny(7), *kernels[:2])
    assert said() == []
    kernel.compile_together(tiny(7), *kernels)
    assert "in another process: 'tiny_kernel_5' (" in said()[0]


@pytest.mark.parametrize(
    "reason", ["one processor", "no interpreter", "another program", "no folder", "no process", "nothing is later"]
)
def test_where_there_is_no_other_process_kernels_are_compiled_here(folder, said, monkeypatch, reason):
    def refused(*_, **__):
        raise OSError("Resource temporarily unavailable")

    if reason == "one processor":
        monkeypatch.setattr(compiling_process, "_processors", lambda: 1)
    elif reason == "no interpreter":
        monkeypatch.setattr(sys, "executable", None)
    elif reason == "another program":
        monkeypatch.setattr(sys, "executable", "/usr/bin/blender")
    elif reason == "no folder":
        monkeypatch.setattr(cache, "open_folder", lambda fingerprint: None)
        kernel.cache_folder.cache_clear()
    elif reason == "no process":
        monkeypatch.setattr(subprocess, "Popen", refused)
    kernels = [tiny(step) for step in (2, 3)][: 1 if reason == "nothing is later" else 2]
    kernel.compile_together(*kernels)
    assert [call(one) for one in kernels] == [2, 3][: len(kernels)]
    assert compiled_here(said()) == ["tiny_kernel_2", "tiny_kernel_3"][: len(kernels)]


@pytest.mark.parametrize("how", ["killed", "fails", "elsewhere", "silent"])
def test_what_the_other_process_does_not_compile_is_compiled_here(folder, said, monkeypatch, how):
    if how == "fails":
        monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    elif how == "elsewhere":
        # As if sources had been edited in between.
        monkeypatch.setenv("NUMBA_OPT", "2")
    elif how == "silent":
        monkeypatch.setattr(compiling_process, "LONGEST", 0.1)
        monkeypatch.setattr(CompilingProcess, "_listen", lambda self: None)
        monkeypatch.setattr(cache, "load", lambda *_: None)
    one, other = tiny(2), tiny(3)
    kernel.compile_together(one, other)
    if how == "killed":
        other._elsewhere._process.send_signal(signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)
    monkeypatch.delenv("NUMBA_DISABLE_JIT", raising=False)
    monkeypatch.delenv("NUMBA_OPT", raising=False)
    assert call(other) == 3
    if how != "killed":
        assert compiled_here(said()) == ["tiny_kernel_2", "tiny_kernel_3"]


def test_a_forked_process_does_not_wait_for_what_another_one_started(folder, monkeypatch):
    other = tiny(3)
    process = CompilingProcess([other.place])
    monkeypatch.setattr(os, "getpid", lambda: -1)
    process.wait_for("what nobody compiles")
    process._end()
    assert process._process.poll() is None
    monkeypatch.undo()
    process.wait_for("what nobody compiles")
    assert ended(process) == 0


def test_the_other_process_ends_with_this_one(tmp_path):
    code = f"""
import sys
sys.path.insert(0, {os.path.dirname(os.path.dirname(__file__))!r})
from kernels.tiny import tiny
from regard.kernels.cpu.compiling_process import CompilingProcess
many = [tiny(step) for step in range(1, 500)]
process = CompilingProcess([one.place for one in many])
process.wait_for(many[0].name)
print(process._process.pid)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"REGARD_CACHE": str(tmp_path)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert not is_running(int(done.stdout))


def is_running(pid):
    for _ in range(50):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        time.sleep(0.1)
    return True


def test_paths_that_are_no_texts_are_passed_over(folder, said, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [*sys.path, tmp_path, ""])
    one, other = tiny(2), tiny(3)
    kernel.compile_together(one, other)
    assert call(other) == 3
    assert compiled_here(said()) == ["tiny_kernel_2"]


def test_a_folder_that_cannot_be_looked_into_is_no_error(folder, said, monkeypatch):
    def refused(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "stat", refused)
    assert tiny(2)._is_missing(folder)


def test_a_process_that_is_told_its_kernels_does_not_wait_for_the_end_of_its_input(tmp_path):
    """Another process may hold the other end, if it was forked just now."""
    told = json.dumps([tiny(2).place])
    process = subprocess.Popen(
        [sys.executable, "-m", compiling_process.__name__], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env=os.environ | {"REGARD_CACHE": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    print(told, file=process.stdin, flush=True)
    assert process.stdout.readline().strip() == "tiny_kernel_2"
    assert process.wait(60) == 0
    process.stdin.close()
    process.stdout.close()


def test_it_imports_nothing_from_the_current_folder(folder, said, tmp_path, monkeypatch):
    (tmp_path / "current").mkdir()
    (tmp_path / "current" / "numba.py").write_text("raise SystemExit('the wrong module')")
    monkeypatch.chdir(tmp_path / "current")
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    one, other = tiny(2), tiny(3)
    kernel.compile_together(one, other)
    assert call(other) == 3
    assert compiled_here(said()) == ["tiny_kernel_2"]
