"""Servers of the page for tests: they listen on a free port, in a thread, and end with the test."""

import http.client
import json
import threading
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

from regard.page.reading import Answer, Reading, ServedModel
from regard.page.server import PageServer, listen
from regard.records import Document


class Reply:
    """An answer of the server."""

    def __init__(self, response):
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.body = response.read()

    @property
    def json(self):
        return json.loads(self.body)


class Client:
    """Asks a server of the page as its script does, or with other headers."""

    def __init__(self, address):
        self.address = address
        parts = urlsplit(address)
        self.host, self.port, self.path = parts.hostname, parts.port, parts.path
        self.token = self.path.strip("/")

    def ask(self, path="", body=None, *, method=None, headers=None, whole_path=None, host=None):
        """A request; ``body`` is turned into JSON unless it is bytes."""
        connection = http.client.HTTPConnection(host or self.host, self.port, timeout=60)
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json"} if data is not None else {}
        sent |= headers or {}
        method = method or ("GET" if data is None else "POST")
        connection.putrequest(method, whole_path or self.path + path, skip_host="Host" in sent)
        for name, value in sent.items():
            connection.putheader(name, value)
        if data is not None and not {"Content-Length", "Transfer-Encoding"} & sent.keys():
            connection.putheader("Content-Length", str(len(data)))
        connection.endheaders()
        with suppress(BrokenPipeError, ConnectionResetError):  # a server may answer before it has read the body
            connection.send(data or b"")
        try:
            return Reply(connection.getresponse())
        finally:
            connection.close()

    def read(self, text, *, model=0, pane="a", number=1):
        return self.ask("read", {"model": model, "text": text, "pane": pane, "number": number})


@contextmanager
def serving(*models, language=None):
    """A server of these models; gives its `Client`."""
    server = PageServer(models, listen(0), language)
    ready = threading.Event()
    thread = threading.Thread(target=server.run, args=(ready.set,), daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        yield Client(server.address)
    finally:
        server.stop()
        thread.join(30)
        assert not thread.is_alive()


class Echo(ServedModel):
    """A model without attention that answers with its text; what it reads is recorded.

    A text that begins with ``wait`` waits until `release` is set; one that begins with ``fail`` raises.
    """

    task, facts, placeholder = "echo", "answers with the text", "A text"

    def __init__(self, name="echo"):
        self.name = self.path = name
        self.texts = []
        self.started, self.release = threading.Event(), threading.Event()

    def _read(self, text):
        self.texts.append(text)
        if text.startswith("fail"):
            raise RuntimeError(f"no weights\nfor {text}")
        if text.startswith("wait"):
            self.started.set()
            assert self.release.wait(30)
        return Reading(Answer("Echo", text), Document(self.name, (), texts=(("text", text),)))
