"""The reaction of commands and of the training loop to SIGINT, SIGTERM and SIGHUP.

A run folder can be resumed at every moment, even after ``kill -9``. So a command that is told to stop prints how to
continue, and ends at once; only the training loop first ends its step and saves a checkpoint. This module imports
nothing that takes time: a command installs its handlers before it imports PyTorch.
"""

import atexit
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from regard.files.atomic import discard_temporaries
from regard.training.processes import is_first_process

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))

_advice: list[Callable[[], str]] = []


@contextmanager
def exit_on_signals() -> Iterator[None]:
    """Makes a signal in this context print one line and end the process with exit code 128 + its number.

    A signal that is ignored (``nohup``, a background job of a script) stays ignored. Python delivers signals to the
    main thread only; in another thread this does nothing.
    """
    previous = _install(_exit)
    try:
        yield
    finally:
        _restore(previous)
        if previous:
            atexit.unregister(_end_by_default)  # registered once, however often a command is called
            atexit.register(_end_by_default)


@contextmanager
def advising(advice: Callable[[], str]) -> Iterator[None]:
    """Ends the line of `exit_on_signals` in this context with the text that ``advice`` returns: how to continue."""
    _advice.append(advice)
    try:
        yield
    finally:
        _advice.remove(advice)


class SignalHandler:
    """Records the first signal in ``received``, for the training loop; a second one ends the process, or outside of a
    command raises KeyboardInterrupt."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def install(self) -> None:
        """Replaces the handlers of the signals."""
        self._previous = _install(self._record)

    def remove(self) -> None:
        """Restores the previous handlers."""
        _restore(self._previous)
        self._previous = {}

    def _record(self, number: int, frame: FrameType | None) -> None:
        if self.received is None:
            self.received = signal.Signals(number)
        elif self._previous.get(signal.Signals(number)) is _exit:
            _exit(number, frame)
        else:
            raise KeyboardInterrupt


def stopped_line(number: int, step: int | None = None, advice: str = "") -> str:
    """Returns the line that a stopped command prints."""
    at = "" if step is None else f" at step {step}"
    return f"regard: stopped by {signal.Signals(number).name}{at}" + (f"; {advice}" if advice else "")


def _exit(number: int, frame: FrameType | None) -> None:
    # An exception would be swallowed in the middle of some imports and destructors.
    discard_temporaries()
    if is_first_process():
        advice = ""
        with contextlib.suppress(Exception):
            advice = _advice[-1]() if _advice else ""
        show_cursor = "\033[?25h\n" if sys.stderr is not None and _is_terminal() else ""
        with contextlib.suppress(OSError):
            os.write(2, f"{show_cursor}{stopped_line(number, advice=advice)}\n".encode())
    os._exit(128 + number)


def _is_terminal() -> bool:
    try:
        return os.isatty(2)
    except OSError:
        return False


def _install(handler: Callable[[int, FrameType | None], None]) -> dict[signal.Signals, Any]:
    """Replaces the handlers of all signals, and returns the previous ones."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    previous = {number: signal.getsignal(number) for number in SIGNALS}
    replaced = {number: old for number, old in previous.items() if old not in (signal.SIG_IGN, None)}
    for number in replaced:
        signal.signal(number, handler)
    return replaced


def _restore(previous: dict[signal.Signals, Any]) -> None:
    for number, handler in previous.items():
        signal.signal(number, handler)


def _end_by_default() -> None:
    """Makes signals end the process without a traceback while Python shuts down, when nothing can be lost."""
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
