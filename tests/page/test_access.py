"""What the server refuses: other hosts, other pages, other tokens, other methods, large bodies."""

import json
import socket

import pytest

from page_servers import Echo, serving
from regard.page.access import MOST_BYTES, POLICY


@pytest.fixture(scope="module")
def client():
    with serving(Echo()) as client:
        yield client


def test_the_page_and_its_files_are_given(client):
    index = client.ask()
    assert index.status == 200
    assert index.headers["content-type"].startswith("text/html")
    for name in ("page.js", "pane.js", "answer.js", "page.css"):
        reply = client.ask(f"static/{name}")
        assert reply.status == 200, name
        assert reply.headers["content-type"].startswith("text/css" if name.endswith("css") else "text/javascript")
    assert client.ask("models").json["models"][0]["name"] == "echo"
    assert client.read("Hello", pane="given").json["answer"]["text"] == "Hello"


def test_every_response_has_the_headers(client):
    for reply in (client.ask(), client.ask("static/page.js"), client.ask("nothing"), client.ask(whole_path="/")):
        assert reply.headers["content-security-policy"] == POLICY
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["referrer-policy"] == "no-referrer"
        assert reply.headers["cache-control"] == "no-store"
        assert "server" not in reply.headers
    assert "'unsafe" not in POLICY


def test_no_page_has_inline_script_or_style(client):
    text = client.ask().body.decode()
    assert "<style" not in text
    assert " style=" not in text
    assert text.count("<script") == 1
    assert '<script type="module" src="static/page.js"></script>' in text
    assert "http" not in text.replace('http-equiv="', "")


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "LOCALHOST:{port}"])
def test_the_names_of_this_machine_are_hosts(client, host):
    assert client.ask("models", headers={"Host": host.format(port=client.port)}).status == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "localhost", "127.0.0.1.evil.example:{port}",
     "localhost:{port}.evil.example", "0.0.0.0:{port}", "[::1]:{port}", ""],
)  # fmt: skip
def test_other_hosts_are_refused(client, host):
    for path in ("", "models", "static/page.js"):
        reply = client.ask(path, headers={"Host": host.format(port=client.port)})
        assert reply.status in (400, 403)
        assert b"echo" not in reply.body


def test_two_hosts_are_refused(client):
    with socket.create_connection((client.host, client.port), timeout=10) as connection:
        good = f"Host: {client.host}:{client.port}\r\n"
        connection.sendall(f"GET {client.path} HTTP/1.1\r\n{good}Host: evil.example\r\n\r\n".encode())
        assert connection.recv(100).split()[1] in (b"400", b"403")


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1:{port}", "http://127.0.0.1", "http://localhost:{port}"]
)
def test_other_origins_are_refused(client, origin):
    headers = {"Origin": origin.format(port=client.port)}
    body = {"model": 0, "text": "a", "pane": origin, "number": 1}
    assert client.ask("read", body, headers=headers).status == 403
    assert client.ask("models", headers=headers).status == 403
    own = {"Origin": f"http://127.0.0.1:{client.port}"}
    assert client.ask("read", body, headers=own).status == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_requests_that_another_page_caused_are_refused(client, site):
    assert client.ask("models", headers={"Sec-Fetch-Site": site}).status == 403
    assert client.ask("models", headers={"Sec-Fetch-Site": "same-origin"}).status == 200


def test_other_tokens_are_refused(client):
    token = client.token
    for path in ("/", "//", f"/{token}", f"/{token[:-1]}/", f"/{token}x/", f"/x/{token}/", "/static/page.js", "/models",
                 f"/{token[::-1]}/models", f"/?token={token}", "/%00/", "/../" + token):  # fmt: skip
        reply = client.ask(whole_path=path)
        assert reply.status == 403, path
        assert token.encode() not in reply.body
    body = {"model": 0, "text": "a", "pane": "t", "number": 1}
    assert client.ask(body=body, whole_path="/read").status == 403


def test_two_servers_have_two_tokens(client):
    with serving(Echo()) as other:
        assert other.token != client.token
        assert len(other.token) >= 32
        assert other.ask(whole_path=client.path).status == 403


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"])
def test_other_methods_are_refused(client, method):
    assert client.ask("models", method=method).status == 405
    assert client.ask("read", method=method).status == 405


def test_paths_take_their_own_method(client):
    assert client.ask("read").status == 405
    assert client.ask("models", {}).status == 405
    assert client.ask("nothing").status == 404
    for path in ("static/nothing.js", "static/index.html", "static/..%2freading.py", "static/../../reading.py"):
        assert client.ask(path).status == 404, path


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_bodies_that_a_form_of_another_page_could_send_are_refused(client, kind):
    body = {"model": 0, "text": "a", "pane": kind, "number": 1}
    assert client.ask("read", body, headers={"Content-Type": kind}).status == 415


def test_large_bodies_are_refused(client):
    body = {"model": 0, "text": "a" * MOST_BYTES, "pane": "large", "number": 1}
    assert client.ask("read", body).status == 413
    assert client.ask("read", b"{}", headers={"Content-Length": "9" * 30}).status in (400, 413)
    # A body whose length is not said.
    data = json.dumps(body).encode()
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (data[:100_000], data[100_000:])) + b"0\r\n\r\n"
    reply = client.ask("read", chunks, headers={"Transfer-Encoding": "chunked"})
    assert reply.status == 413
    assert client.read("still here", pane="after").status == 200


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"1", b"\xff", b"[" * 100_000, {}, {"model": 0}, {"model": "0"}, {"model": -1}, {"model": 1},
     {"model": True}, {"model": 0, "text": 1}, {"model": 0, "text": "a", "pane": None}, {"model": 0.5}],
    ids=lambda body: repr(body)[:30],
)  # fmt: skip
def test_bodies_of_another_form_are_refused(client, body):
    if isinstance(body, dict):
        body = {"text": "a", "pane": "form", "number": 1, **body}
        if body.get("model") == 0 and isinstance(body["text"], str) and isinstance(body["pane"], str):
            body["number"] = "1"
    reply = client.ask("read", body)
    assert reply.status == 400
    assert reply.json["error"]


def test_only_this_machine_reaches_it(client):
    """The server listens on the loopback address alone: on another address of this machine nobody answers."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        try:
            found.connect(("192.0.2.1", 9))  # sends nothing: it says which address this machine would use
            own = found.getsockname()[0]
        except OSError:
            own = "127.0.0.2"
    for address in {own, "127.0.0.2"} - {"127.0.0.1"}:
        with pytest.raises(OSError, match=r"refused|unreachable|timed out"):
            socket.create_connection((address, client.port), timeout=5).close()
