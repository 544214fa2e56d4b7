"""SIGINT and SIGTERM, turned from an exception into a wish that the training loop grants between two steps."""

import signal
import threading
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """While installed, the first signal is only remembered; a second one interrupts at once.

    Signals can only be caught in the main thread; elsewhere nothing is installed and nothing is ever wished.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def install(self) -> None:
        """Start to catch both signals."""
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._remember) for number in _SIGNALS}

    def remove(self) -> None:
        """Give both signals back to whoever caught them before."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            raise KeyboardInterrupt
        self.received = signal.Signals(number)
