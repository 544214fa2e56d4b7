"""Access control: requests come from this machine alone, with the token, from the page itself."""

import hmac
import json
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

MOST_BYTES = 256 * 1024
"""The largest body of a request, in bytes."""

MOST_UPLOADED = 32 * 1024 * 1024
"""The largest uploaded file, in bytes."""

UPLOAD = "/upload"
"""The path, after the token, whose body is a file."""

POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The Content-Security-Policy: scripts and styles are files of the page; nothing inline, nothing from elsewhere."""

HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""Headers of every response. The address holds the token, so no other page learns it as a referrer."""


class Access:
    """An ASGI application in front of another, ``app``, that refuses requests which the page itself never sends.

    A request passes if its ``Host`` is this server by address or as ``localhost`` (so a name that another site lets
    point to this machine does not), its ``Origin``, where there is one, is the same place, its path begins with the
    token, which ``app`` does not get, its method is GET, HEAD or POST, and its body is JSON of at most `MOST_BYTES`, or
    for `UPLOAD` bytes of at most `MOST_UPLOADED`. A form of another page can send neither kind of body.
    """

    def __init__(self, app: App, token: str, port: int):
        self.app = app
        self.token = token.encode()
        self.hosts = frozenset(f"{name}:{port}" for name in ("127.0.0.1", "localhost"))
        if port == 80:  # browsers leave the port of http out
            self.hosts |= {"127.0.0.1", "localhost"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*_without_repeats(message["headers"]), *_encoded(HEADERS)]}
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            await _refuse(send_with_headers, *refusal)
            return
        most = self._most_bytes(scope)
        body = await _body(receive, most)
        if body is None:
            await _refuse(send_with_headers, 413, f"the body has more than {most:,} bytes")
            return
        prefix = b"/" + self.token
        path = scope["path"].encode("utf-8", "surrogateescape")[len(prefix) :].decode("utf-8", "surrogateescape")
        inner = {**scope, "path": path, "raw_path": path.encode("utf-8", "surrogateescape"), "root_path": ""}
        await self.app(inner, _Body(body, receive), send_with_headers)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Returns the status and the reason of the refusal of a request."""
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        hosts = headers.get("host", [])
        if len(hosts) != 1 or hosts[0].lower() not in self.hosts:
            return 403, "the Host of the request is not this server"
        origins = headers.get("origin", [])
        if any(origin.lower() != f"http://{hosts[0].lower()}" for origin in origins):
            return 403, "the Origin of the request is another page"
        if any(site not in ("same-origin", "none") for site in headers.get("sec-fetch-site", [])):
            return 403, "the request comes from another page"
        parts = scope["path"].encode("utf-8", "surrogateescape").split(b"/", 2)
        if len(parts) != 3 or not hmac.compare_digest(parts[1], self.token):
            return 403, "the address has no valid token; open the address that the command printed"
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return 405, f"there is no method {scope['method']} here"
        if scope["method"] == "POST":
            kind = headers.get("content-type", [""])[0].split(";")[0].strip().lower()
            expected = "application/octet-stream" if self._uploads(scope) else "application/json"
            if kind != expected:
                return 415, f"the body must be {expected}"
        length, most = headers.get("content-length", ["0"])[0], self._most_bytes(scope)
        if not length.isdecimal() or len(length) > 20 or int(length) > most:
            return 413, f"the body has more than {most:,} bytes"
        return None

    def _uploads(self, scope: Scope) -> bool:
        return scope["method"] == "POST" and scope["path"].encode("utf-8", "surrogateescape") == (
            b"/" + self.token + UPLOAD.encode()
        )

    def _most_bytes(self, scope: Scope) -> int:
        return MOST_UPLOADED if self._uploads(scope) else MOST_BYTES


class _Body:
    """Delivers a body that was read already, and then waits for the end of the connection."""

    def __init__(self, body: bytes, receive: Receive):
        self.body: bytes | None = body
        self.receive = receive

    async def __call__(self) -> MutableMapping[str, Any]:
        if self.body is None:
            return await self.receive()
        body, self.body = self.body, None
        return {"type": "http.request", "body": body, "more_body": False}


async def _body(receive: Receive, most: int) -> bytes | None:
    """Returns the body of a request; None if it has more than ``most`` bytes or the connection ended."""
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        part = message.get("body", b"")
        size += len(part)
        if size > most:
            return None
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


async def _refuse(send: Send, status: int, reason: str) -> None:
    content = json.dumps({"error": reason}).encode()
    headers = {"content-type": "application/json", "content-length": str(len(content)), "connection": "close"}
    await send({"type": "http.response.start", "status": status, "headers": _encoded(headers)})
    await send({"type": "http.response.body", "body": content})


def _encoded(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in headers.items()]


def _without_repeats(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Returns the headers of a response that `HEADERS` does not replace."""
    return [(name, value) for name, value in headers if name.decode("latin-1").lower() not in HEADERS]
