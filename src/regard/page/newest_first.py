"""A queue that runs one computation at a time, the newest request first; replaced requests are not computed."""

import asyncio
import itertools
import queue
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

Value = TypeVar("Value")

MOST_KEYS = 1000
"""The most keys whose newest number is remembered."""


class ReplacedError(Exception):
    """A newer request with the same key replaced this one."""


@dataclass
class _Pending:
    order: int
    number: int
    compute: Callable[[], Any]
    future: asyncio.Future[Any]


class NewestFirst:
    """Runs computations on one thread of its own, the newest of all requests first. Requests with one key replace each
    other: the one with the largest number counts, and all others raise `ReplacedError`, even if they are computed
    already when a newer one comes."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[asyncio.AbstractEventLoop, _Pending]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._numbers: OrderedDict[str, int] = OrderedDict()
        self._pending: dict[str, _Pending] = {}
        self._order = itertools.count()
        self._running = False

    @property
    def busy(self) -> bool:
        """Whether a computation runs."""
        return self._running

    async def run(self, key: str, number: int, compute: Callable[[], Value]) -> Value:
        """Returns the result of ``compute``, which runs on the other thread.

        Args:
            key: the part of a page that sends the request.
            number: counts the requests of the key.
            compute: the computation.

        Raises:
            ReplacedError: a request with the same key and the same or a larger number came before or meanwhile.
            Exception: ``compute`` raised it.
        """
        if number <= self._numbers.get(key, number - 1):
            raise ReplacedError
        self._numbers[key] = number
        self._numbers.move_to_end(key)
        while len(self._numbers) > MOST_KEYS:
            self._numbers.popitem(last=False)
        older = self._pending.pop(key, None)
        if older is not None and not older.future.done():
            older.future.set_exception(ReplacedError())
        loop = asyncio.get_running_loop()
        request = _Pending(next(self._order), number, compute, loop.create_future())
        self._pending[key] = request
        self._start(loop)
        try:
            value = await request.future
        finally:
            if self._pending.get(key) is request:  # the request was cancelled
                del self._pending[key]
        if self._numbers.get(key) != number:
            raise ReplacedError
        return value

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Starts the newest request, unless one runs."""
        if self._running or not self._pending:
            return
        key = max(self._pending, key=lambda key: self._pending[key].order)
        request = self._pending.pop(key)
        self._running = True
        if self._thread is None:
            # One thread for all, since PyTorch makes a pool of threads for each thread that calls it. It is a daemon:
            # a long computation does not delay the end of the command.
            self._thread = threading.Thread(target=self._work, daemon=True, name="regard-page")
            self._thread.start()
        self._queue.put((loop, request))

    def _work(self) -> None:
        while True:
            loop, request = self._queue.get()
            value, error = None, None
            try:
                value = request.compute()
            except Exception as raised:
                error = raised
            except BaseException as raised:  # SystemExit must not end the page's thread
                error = RuntimeError(f"{type(raised).__name__}: {raised}")
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._finish, loop, request, value, error)

    def _finish(self, loop: asyncio.AbstractEventLoop, request: _Pending, value: Any, error: Exception | None) -> None:
        self._running = False
        if not request.future.done():
            if error is None:
                request.future.set_result(value)
            else:
                request.future.set_exception(error)
        self._start(loop)
