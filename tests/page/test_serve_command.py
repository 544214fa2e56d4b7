"""``regard serve`` as a shell runs it: the printed address, its end, and what it refuses."""

import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager

import pytest

from page_servers import Client

CODE = "from regard.cli import main; main()"


@contextmanager
def served(*arguments):
    """The process of the command, and a client of its page."""
    process = subprocess.Popen(
        [sys.executable, "-c", CODE, "serve", *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    try:
        line = process.stdout.readline()
        found = re.fullmatch(r"regard: (http://127\.0\.0\.1:\d+/[\w-]+/)\n", line)
        assert found, line + process.stderr.read()
        yield process, Client(found[1])
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_runs_until_a_signal_and_ends_with_one_line(run_of, number):
    with served(run_of("bahdanau"), "--port", 0, "--no-browser") as (process, client):
        assert process.stdout.readline() == "regard: Ctrl-C ends the page\n"
        assert client.read("My sister.").status == 200
        assert client.ask(whole_path="/").status == 403
        process.send_signal(number)
        output, error = process.communicate(timeout=60)
        assert (process.returncode, output, error) == (0, "", "regard: the page is closed\n")


def test_the_address_is_printed_once(run_of, run_command, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr("regard.page.server.PageServer.run", lambda self, ready: ready())
    for option, opens in (("--open", True), ("--no-browser", False), (None, False)):
        opened.clear()
        arguments = ["serve", run_of("bahdanau"), "--port", 0, *([option] if option else [])]
        code, output, error = run_command(*arguments)
        assert (code, error) == (0, "regard: the page is closed\n")
        (address,) = re.findall(r"http://\S+", output)
        assert opened == ([address] if opens else [])


def test_a_port_in_use_is_one_line(run_of, run_command):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, output, error = run_command("serve", run_of("bahdanau"), "--port", port)
    assert (code, output) == (2, "")
    (line,) = error.splitlines()
    assert f"--port {port}" in line
    assert "in use" in line


@pytest.mark.parametrize("part", ["starlette", "uvicorn"])
def test_without_the_extra_it_says_what_to_install(run_of, run_command, monkeypatch, part):
    from importlib import util

    find = util.find_spec
    monkeypatch.setattr(util, "find_spec", lambda name, *more: None if name == part else find(name, *more))
    code, _, error = run_command("serve", run_of("bahdanau"), "--port", 0)
    assert code == 2
    assert error == f"regard: error: {part} is not installed; it comes with: pip install 'regard[page]'\n"


def test_importing_the_command_imports_no_server():
    code = (
        "import sys; import regard.cli.serve, regard.cli.view; print('uvicorn' in sys.modules, 'torch' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == ["False", "False"]
