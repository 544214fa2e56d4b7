"""SIGINT and SIGTERM: the training loop stops after the current step instead of in the middle of it."""

import signal
import threading
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class SignalHandler:
    """Records the first signal in ``received``; a second signal raises KeyboardInterrupt.

    Python delivers signals to the main thread only. In another thread `install` does nothing, and ``received`` stays
    None.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def install(self) -> None:
        """Replace the handlers of both signals."""
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._record) for number in _SIGNALS}

    def remove(self) -> None:
        """Restore the previous handlers."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}

    def _record(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            raise KeyboardInterrupt
        self.received = signal.Signals(number)
