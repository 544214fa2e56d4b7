"""The server of the page: for this machine alone, until a signal or `PageServer.stop` ends it."""

import contextlib
import os
import secrets
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING

from regard.errors import ArgumentError, MissingPartError
from regard.page.reading import ServedModel

if TYPE_CHECKING:
    import uvicorn

ADDRESS = "127.0.0.1"
"""The only address that the server listens on."""


def require_server() -> None:
    """Raises MissingPartError if a package of the server is not installed."""
    from importlib.util import find_spec

    for part in ("starlette", "uvicorn"):
        if find_spec(part) is None:
            raise MissingPartError(part, "page")


def listen(port: int) -> socket.socket:
    """Returns a socket that listens on a port of this machine; 0: any that is free. Raises ArgumentError if the port is
    in use, or not permitted."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if os.name == "posix":  # a port whose last connections are still closing can be used again
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((ADDRESS, port))
        listening.listen(128)
    except OSError as error:
        listening.close()
        raise ArgumentError(
            f"--port {port} cannot be used ({error.strerror}); give another one, or --port 0 for any that is free"
        ) from error
    listening.set_inheritable(False)
    return listening


class PageServer:
    """The server of one page, whose ``address`` has the token that every request needs. It closes ``listening``, the
    result of `listen`, at the end. Raises MissingPartError if a package of it is not installed."""

    def __init__(self, models: Sequence[ServedModel], listening: socket.socket, language: str | None = None):
        require_server()
        import uvicorn

        from regard.page.access import Access
        from regard.page.application import Page

        port = listening.getsockname()[1]
        token = secrets.token_urlsafe(24)
        self.address = f"http://{ADDRESS}:{port}/{token}/"
        self._listening = listening
        self._page = Page(models, language)
        self._ready: Callable[[], None] | None = None
        server = self

        class Server(uvicorn.Server):
            async def startup(self, sockets: list[socket.socket] | None = None) -> None:
                await super().startup(sockets)
                if server._ready is not None:
                    server._ready()

            @contextlib.contextmanager
            def capture_signals(self) -> Iterator[None]:
                with _stopping(self):
                    yield

        config = uvicorn.Config(
            Access(self._page.application(), token, port),
            log_level="error", access_log=False, lifespan="off", ws="none", server_header=False, proxy_headers=False,
            timeout_graceful_shutdown=1,
        )  # fmt: skip
        self._server = Server(config)

    @property
    def busy(self) -> bool:
        """Whether a model computes."""
        return self._page.queue.busy

    def run(self, ready: Callable[[], None] | None = None) -> None:
        """Serves until a signal comes or `stop` is called; calls ``ready`` once requests are answered."""
        self._ready = ready
        with contextlib.closing(self._listening):
            self._server.run(sockets=[self._listening])

    def stop(self) -> None:
        """Ends `run`, from another thread."""
        self._server.should_exit = True


@contextlib.contextmanager
def _stopping(server: "uvicorn.Server") -> Iterator[None]:
    """Lets a signal end the server while the context lasts; a second one ends the process."""

    def stop(number: int, frame: FrameType | None) -> None:
        if server.should_exit:
            os._exit(128 + number)
        server.should_exit = True

    names = ("SIGINT", "SIGTERM", "SIGHUP")
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    previous = {}
    with contextlib.suppress(ValueError):  # not the main thread
        for number in numbers:
            if signal.getsignal(number) is not signal.SIG_IGN:
                previous[number] = signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
