"""A lock that a child of the process finds free, also where the process forked while another thread held it."""

import os
import threading

LONGEST_WAIT = 20.0
"""Seconds that a fork waits for the thread that holds a lock; to compile a kernel takes a few."""


class ForkLock:
    """A reentrant lock. A fork waits until no other thread holds it, so that a child finds what it guards whole.

    A child has the thread that forked and no other: a lock that another thread held would stay locked in it for ever,
    and what that thread was about to change (the state of a compiler, a module that is imported) would stay half
    changed. After `LONGEST_WAIT` seconds the fork goes on, and the child gets a new lock.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._forking = threading.local()
        if hasattr(os, "register_at_fork"):  # Windows has no fork
            os.register_at_fork(
                before=self._before_fork, after_in_parent=self._in_parent, after_in_child=self._in_child
            )

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def _before_fork(self) -> None:
        self._forking.holds = self._lock.acquire(timeout=LONGEST_WAIT)

    def _in_parent(self) -> None:
        if self._forking.holds:
            self._lock.release()

    def _in_child(self) -> None:
        if self._forking.holds:
            self._lock.release()
        else:
            self._lock = threading.RLock()
