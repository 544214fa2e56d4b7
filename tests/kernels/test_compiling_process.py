"""A worker process compiles kernels: `auto` waits for none, a named backend does, and whatever fails is said once."""

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("numba", reason="kernels are compiled by Numba")

import torch

import regard
from kernels.tiny import broken, call, tiny
from regard.errors import BackendError
from regard.kernels.availability import kernels_awaited
from regard.kernels.cpu import cache, compiling_process, kernel
from regard.kernels.cpu.compiling import compile_and_store
from regard.kernels.cpu.compiling_process import BACKGROUND

pytestmark = pytest.mark.usefixtures("no_kernel_awaited")


def compiled_after_waiting(said):
    return [line.split("'")[1] for line in said if line.startswith("compiling the CPU kernel") and "stored in" in line]


def test_a_kernel_is_compiled_elsewhere_and_loaded_here(folder, said):
    one = tiny(2)
    assert not one.is_compiled
    assert "has to be compiled" in kernel.delay([one])
    assert not kernel.are_usable([one])
    assert kernel.delay([one]) == "'cpu' is being compiled"
    BACKGROUND.wait()
    assert one.is_compiled
    assert kernel.are_usable([one])
    assert kernel.delay([one]) is None
    assert call(one) == 2
    assert not compiled_after_waiting(said())


def test_whoever_asks_for_the_address_waits(folder, said):
    kernels = [tiny(step) for step in (2, 3, 5)]
    kernel.request(kernels)
    assert [call(one) for one in reversed(kernels)] == [5, 3, 2]
    assert [call(tiny(step)) for step in (2, 3, 5)] == [2, 3, 5]
    assert len(cache.files_of(folder)) == 3


def test_in_a_context_and_under_deterministic_algorithms_it_is_waited_for(folder):
    with kernels_awaited():
        assert kernel.are_usable([tiny(2)])
    torch.use_deterministic_algorithms(True)
    try:
        assert kernel.are_usable([tiny(2)])
    finally:
        torch.use_deterministic_algorithms(False)
    assert not kernel.are_usable([tiny(2)])


def test_both_passes_of_a_checkpoint_run_the_same(folder):
    answers = []

    def ask(x):
        answers.append(kernel.are_usable([tiny(2)]))
        return x * x

    torch.utils.checkpoint.checkpoint(ask, torch.ones(1, requires_grad=True), use_reentrant=False).backward()
    assert answers == [True, True]


@pytest.mark.parametrize("reason", ["no interpreter", "another program", "no folder", "no process"])
def test_without_a_worker_auto_serves_otherwise_and_a_named_backend_compiles_in_the_call(
    folder, said, monkeypatch, reason
):
    def refused(*_, **__):
        raise OSError("Resource temporarily unavailable")

    if reason == "no interpreter":
        monkeypatch.setattr(sys, "executable", None)
    elif reason == "another program":
        monkeypatch.setattr(sys, "executable", "/usr/bin/blender")
    elif reason == "no folder":
        monkeypatch.setattr(cache, "open_folder", lambda fingerprint: None)
        cache.cache_folder.cache_clear()
    elif reason == "no process":
        monkeypatch.setattr(subprocess, "Popen", refused)
    one = tiny(2)
    for _ in range(2):
        assert not kernel.are_usable([one])
    assert "cannot be compiled in the background: no" in kernel.delay([one]).replace("there is no", "no")
    assert call(one) == 2
    assert len([line for line in said() if "Resource temporarily" in line]) == (reason == "no process")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows locks no folders")
def test_processes_at_low_priority_compile_a_kernel_once(folder):
    one = tiny(2)
    path = one.source.path(folder)
    with cache.one_process(folder):
        kernel.request([one])
        time.sleep(0.1)
        compile_and_store(one.source)  # as a third process does
        stored = path.stat().st_ino
    BACKGROUND.wait()
    assert path.stat().st_ino == stored
    assert call(one) == 2


def worker():
    return BACKGROUND._process


def test_a_worker_that_is_killed_is_said_once_and_the_rest_is_compiled_by_another(folder, said):
    many = [tiny(step) for step in range(2, 9)]
    kernel.request(many)
    worker().send_signal(signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)
    BACKGROUND.wait()
    failed = [one for one in many if not one.is_compiled]
    assert len(failed) == 1
    assert len([line for line in said() if "ended (exit code" in line]) == 1
    assert not kernel.are_usable(failed)
    assert "cannot be compiled" in kernel.delay(failed)
    assert not BACKGROUND.is_compiling(failed[0].name)
    assert [call(one) for one in many] == list(range(2, 9))


def test_a_forgotten_worker_answers_for_nothing_that_another_was_asked(folder):
    one = tiny(2)
    kernel.request([one])
    answer = json.dumps([one.name, None, 0.1])
    BACKGROUND._listen(SimpleNamespace(stdout=io.StringIO(answer), stdin=io.StringIO(), wait=lambda: 0))
    assert BACKGROUND.is_compiling(one.name) or one.is_compiled
    BACKGROUND.wait()
    assert one.is_compiled


def test_a_kernel_that_does_not_compile_is_said_once_and_refused_where_it_is_named(folder, said):
    one = broken()
    for _ in range(3):
        assert not kernel.are_usable([one])
        BACKGROUND.wait()
    assert len([line for line in said() if "was not compiled" in line]) == 1
    assert "cannot be compiled in the background" in kernel.delay([one])
    with pytest.raises(BackendError, match="choose another backend"):
        one.load()
    assert call(tiny(2)) == 2


def test_a_worker_that_knows_other_sources_is_no_error(folder, said, monkeypatch):
    monkeypatch.setenv("NUMBA_OPT", "2")  # of the worker: it stores where this process does not look
    one = tiny(2)
    kernel.request([one])
    monkeypatch.delenv("NUMBA_OPT")
    BACKGROUND.wait()
    assert not one.is_compiled
    assert call(one) == 2


def test_a_worker_that_nobody_asks_ends_and_another_one_is_started(folder, monkeypatch):
    kernel.request([tiny(2)])
    BACKGROUND.wait()
    first = worker()
    first.send_signal(signal.SIGTERM)
    assert eventually(lambda: worker() is None)
    assert first.returncode is not None
    assert first.stdout.closed
    kernel.request([tiny(3)])
    assert worker() is not first
    BACKGROUND.wait()
    assert tiny(3).is_compiled


def eventually(is_so):
    for _ in range(600):
        if is_so():
            return True
        time.sleep(0.1)
    return False


ENDS = f"""
import sys
import threading
sys.path.insert(0, {os.path.dirname(os.path.dirname(__file__))!r})
from kernels.tiny import tiny
from regard.kernels.cpu import kernel
from regard.kernels.cpu.compiling_process import BACKGROUND
kernel.request([tiny(step) for step in (2, 3, 5)])
print(BACKGROUND._process.pid)
"""


def test_a_process_ends_at_once_and_what_it_asked_for_is_there_later(folder):
    """The worker has a lifetime of its own, and no file is ever half written."""
    done = subprocess.run([sys.executable, "-X", "dev", "-c", ENDS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert eventually(lambda: all(tiny(step).is_compiled for step in (2, 3, 5)))
    assert [call(tiny(step)) for step in (2, 3, 5)] == [2, 3, 5]
    assert eventually(lambda: not is_running(int(done.stdout)))


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # The container's first process may never ask how it ended.
    status = Path(f"/proc/{pid}/stat")
    return not (status.exists() and status.read_text().rsplit(")", 1)[1].split()[0] == "Z")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_asks_a_worker_of_its_own(folder):
    from forked import in_child

    kernel.request([tiny(step) for step in range(2, 9)])
    assert in_child(lambda: call(tiny(11)) == 11 or os._exit(3)) == 0
    BACKGROUND.wait()


def test_the_worker_has_a_low_priority(folder):
    kernel.request([tiny(2)])
    BACKGROUND.wait()
    if hasattr(os, "getpriority"):
        assert os.getpriority(os.PRIO_PROCESS, worker().pid) >= min(os.getpriority(os.PRIO_PROCESS, 0) + 10, 19)


def test_paths_that_are_no_texts_are_passed_over(folder, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [*sys.path, tmp_path, ""])
    kernel.request([tiny(2)])
    BACKGROUND.wait()
    assert tiny(2).is_compiled


def test_a_folder_that_cannot_be_looked_into_is_no_error(folder, monkeypatch):
    def refused(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "stat", refused)
    assert not tiny(2).is_compiled


def test_the_compiling_process_imports_nothing_from_the_current_folder(folder, tmp_path, monkeypatch):
    (tmp_path / "current").mkdir()
    (tmp_path / "current" / "numba.py").write_text("raise SystemExit('the wrong module')")
    monkeypatch.chdir(tmp_path / "current")
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    kernel.request([tiny(2)])
    BACKGROUND.wait()
    assert tiny(2).is_compiled


class TestCalls:
    """What `attend`, `observe` and `plan` make of it."""

    @pytest.fixture(autouse=True)
    def _no_worker_answers(self, folder, monkeypatch):
        """Requests are noted, and nothing is compiled."""
        self.requested = []
        monkeypatch.setattr(
            compiling_process.CompilingProcess, "_send", lambda _, sources: self.requested.extend(sources)
        )
        # Kernels of other tests are loaded.
        monkeypatch.setattr(kernel.Kernel, "is_compiled", property(lambda one: one.name in self.compiled))
        self.compiled = set()

    def inputs(self):
        torch.manual_seed(0)
        return torch.randn(3, 1, 2, 300, 16).unbind()

    def names(self):
        return {source.name for source in self.requested}

    def test_the_next_backend_serves_and_the_plan_says_so(self):
        inputs, score = self.inputs(), regard.scores.Additive(torch.randn(16))
        plan = regard.plan(*inputs, score=score)
        assert plan.backend == "tiled"
        assert "has to be compiled" in plan.reasons["cpu"]
        assert not self.requested  # to plan asks for nothing
        output = regard.attend(*inputs, score=score)
        assert torch.equal(output, regard.attend(*inputs, score=score, backend="tiled"))
        assert torch.equal(output, regard.observe(*inputs, score=score).output)
        assert "attention_forward_float32_tanh_softmax" in self.names()
        assert "attention_backward_float32_tanh_softmax" not in self.names()
        plan = regard.plan(*inputs, score=score)
        assert plan.reasons["cpu"] == "not yet: 'cpu' is being compiled"

    def test_calls_of_other_backends_request_no_kernel(self):
        small = torch.randn(3, 1, 2, 5, 16).unbind()
        for arguments in ({}, {"mask": regard.masks.causal()}, {"normalizer": "sparsemax"}):
            regard.attend(*small, **arguments)
            assert not self.requested

    def test_a_gradient_needs_its_kernel_too(self):
        inputs, score = self.inputs(), regard.scores.Additive(torch.randn(16))
        self.compiled = {"multiply_float32", "prepare_additive_keys_float32", "transpose_keys_float32"}
        self.compiled |= {"run_stages", "attention_forward_float32_tanh_softmax"}
        assert regard.plan(*inputs, score=score).backend == "cpu"
        inputs[0].requires_grad_()
        assert regard.plan(*inputs, score=score).backend == "tiled"
        regard.attend(*inputs, score=score)
        assert self.names() == {"attention_backward_float32_tanh_softmax"}

    def test_where_something_waits_the_plan_names_the_kernels(self):
        inputs, score = self.inputs(), regard.scores.Additive(torch.randn(16))
        with kernels_awaited():
            assert regard.plan(*inputs, score=score).backend == "cpu"
        assert regard.plan(*inputs, score=score, backend="cpu").backend == "cpu"


def test_readings_are_taken_otherwise_while_their_kernel_is_compiled(monkeypatch):
    torch.manual_seed(0)
    inputs, score = torch.randn(3, 1, 2, 300, 16).unbind(), regard.scores.Additive(torch.randn(16))
    read = regard.Readings(entropy=True, top_k=3, received=True)
    expected = regard.observe(*inputs, score=score, read=read, backend="cpu")
    is_compiled = kernel.Kernel.is_compiled
    monkeypatch.setattr(
        kernel.Kernel, "is_compiled", property(lambda one: "readings" not in one.name and is_compiled.fget(one))
    )
    monkeypatch.setattr(kernel.Kernel, "load", lambda one: pytest.fail(f"waits for {one.name}"))
    seen = regard.observe(*inputs, score=score, read=read)
    assert torch.equal(seen.output, expected.output)
    for name in ("lse", "entropy", "top_weights", "received"):
        torch.testing.assert_close(getattr(seen, name), getattr(expected, name), rtol=1e-4, atol=1e-5)


def test_prints_of_a_library_are_no_answer_of_the_compiling_process(folder, monkeypatch, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("print('a line')\nprint('[1, 2]', flush=True)\n")
    monkeypatch.syspath_prepend(tmp_path)
    one = tiny(2)
    kernel.request([one])
    BACKGROUND.wait()
    assert one.is_compiled
    assert call(one) == 2


def test_without_a_thread_for_the_answers_auto_serves_otherwise(folder, said, monkeypatch):
    def refused(_):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        for _ in range(2):
            assert not kernel.are_usable([tiny(2)])
    assert len([line for line in said() if "can't start new thread" in line]) == 1
    assert call(tiny(2)) == 2


def test_a_damaged_file_is_no_compiled_kernel(folder):
    assert call(tiny(2)) == 2
    (path,) = cache.files_of(folder)
    path.write_bytes(path.read_bytes()[:-1])
    one = tiny(2)
    assert not kernel.are_usable([one])
    BACKGROUND.wait()
    assert kernel.are_usable([one])
    assert call(one) == 2


def test_a_worker_that_crashes_while_a_call_waits_is_an_error_and_no_crash_of_this_process(folder, monkeypatch):
    monkeypatch.setattr(compiling_process, "_PROGRAM", "regard.no_such_module")
    with pytest.raises(BackendError, match=r"was not compiled: the process that compiles kernels ended"):
        tiny(2).load()
