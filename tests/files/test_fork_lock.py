"""A child that is forked while another thread holds a lock finds it free."""

import ast
import os
import threading
from pathlib import Path

import pytest

from forked import in_child
from regard.files import fork_lock
from regard.files.fork_lock import ForkLock

SOURCE = Path(__file__).parents[2] / "src" / "regard"

if not hasattr(os, "fork"):
    pytest.skip("this system has no fork", allow_module_level=True)


def take(lock):
    with lock, lock:
        pass


@pytest.mark.parametrize("longest", [20.0, 0.05])
def test_a_lock_that_another_thread_holds_is_free_in_a_child(longest, monkeypatch):
    """Whether the other thread lets it go in time or not; the parent's lock is its thread's until then."""
    monkeypatch.setattr(fork_lock, "LONGEST_WAIT", longest)
    lock, held, forked = ForkLock(), threading.Event(), threading.Event()

    def hold():
        with lock:
            held.set()
            forked.wait(0.3 if longest > 1 else 30)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    assert in_child(lambda: take(lock), 20) == 0
    forked.set()
    thread.join()
    take(lock)


def test_a_thread_that_forks_while_it_holds_a_lock_goes_on_in_both_processes():
    lock = ForkLock()
    lock.__enter__()

    def leave():
        take(lock)
        lock.__exit__()
        take(lock)

    assert in_child(leave, 20) == 0
    leave()


@pytest.mark.slow
def test_a_child_that_is_forked_while_a_kernel_is_compiled_computes(tmp_path, monkeypatch):
    pytest.importorskip("numba", reason="kernels are compiled by Numba")
    from kernels.tiny import call, tiny
    from regard.kernels.cpu import cache, kernel

    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    cache.cache_folder.cache_clear()
    begun, compile_ = threading.Event(), kernel.Kernel._compile

    def compiled(self):
        begun.set()
        return compile_(self)

    monkeypatch.setattr(kernel.Kernel, "_compile", compiled)
    one, other = tiny(3), tiny(5)
    thread = threading.Thread(target=one.load)
    thread.start()
    begun.wait()

    def use():
        assert call(one) == 3
        assert call(other) == 5

    assert in_child(use) == 0
    thread.join()
    cache.cache_folder.cache_clear()


def test_every_lock_survives_a_fork():
    """A plain lock stays locked in a child for ever; one that another process never touches says so here."""
    allowed = {"files/fork_lock.py", "kernels/cpu/compiling_process.py"}  # its lock is used in the process that made it
    for file in sorted(SOURCE.rglob("*.py")):
        name = file.relative_to(SOURCE).as_posix()
        made = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Attribute)]
        locks = {node.attr for node in made} & {"Lock", "RLock", "Condition", "Semaphore"}
        assert not locks or name in allowed, f"{name}: {locks}"
