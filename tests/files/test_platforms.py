"""What differs between systems, by substitution: no Windows and no macOS is at hand."""

import ast
import os
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from regard.data import cache
from regard.errors import DataError, WriteError
from regard.files import platforms
from regard.files.atomic import write_atomically
from regard.training import run_folder, run_session
from regard.training.run_folder import RunFolder
from regard.training.run_lock import RunLock

ROOT = Path(__file__).parents[2]
NAMES = ["runs", "my runs", "a&b", "50%", "it's", "(x)", "a;b", "$HOME", "`x`", "ä", ""]


@pytest.fixture
def windows(monkeypatch):
    monkeypatch.setattr(platforms, "IS_WINDOWS", True)


@pytest.mark.parametrize("name", NAMES)
def test_a_quoted_argument_is_one_argument(name, monkeypatch):
    monkeypatch.setattr(platforms, "IS_WINDOWS", False)
    assert shlex.split(platforms.quoted(name)) == [name]
    monkeypatch.setattr(platforms, "IS_WINDOWS", True)
    for argument in (name, f"C:\\{name}", f"C:\\{name}\\"):
        quoted = platforms.quoted(argument)
        plain = quoted == argument
        assert plain == all(one.isalnum() or one in "_-.:/\\" for one in argument) or not argument
        # As the C library of Windows reads it, which `list2cmdline` writes for.
        assert plain or quoted in (f'"{argument}"', f'"{argument}\\"')
        if " " in argument:
            assert quoted == subprocess.list2cmdline([argument])


def test_a_command_to_continue_is_one_that_the_shell_takes(windows):
    advice = run_folder.continue_with(Path("my runs/a b"), "translate")
    assert advice == 'continue with: regard train translate --runs "my runs" --run "a b" --resume'


def test_a_broken_pipe_has_a_code_where_there_is_no_signal_for_it(monkeypatch):
    assert platforms.code_of_broken_pipe() == 141
    monkeypatch.delattr(signal, "SIGPIPE", raising=False)
    assert platforms.code_of_broken_pipe() == 141


def test_files_are_written_where_no_folder_can_be_opened(windows, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "open", lambda *_, **__: pytest.fail("a folder was opened"))
    write_atomically(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"


def test_synced_files_are_open_for_writing(tmp_path, monkeypatch):
    """Windows syncs no other."""
    import fcntl

    def fsync(descriptor):
        if not os.path.isdir(f"/proc/self/fd/{descriptor}"):
            assert fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR

    monkeypatch.setattr(os, "fsync", fsync)
    write_atomically(tmp_path / "file", b"new")


def test_no_process_is_asked_by_a_signal_on_windows(windows, monkeypatch):
    monkeypatch.setattr(os, "kill", lambda *_: pytest.fail("a process was sent a signal"))
    assert platforms.is_another_process(4711)
    assert not platforms.is_another_process(os.getpid())


def test_a_finished_run_takes_its_place_where_open_files_hold_a_folder(windows, tmp_path, monkeypatch):
    """On Windows the lock files are closed before the folders are renamed, and the run is locked again."""
    new, old = RunFolder(tmp_path / "x.new"), RunFolder(tmp_path / "x")
    session = run_session.RunSession(new, None, None, resume=False)  # pyright: ignore
    for folder in (new, old):
        folder.path.mkdir()
        session._lock(folder.path)
    new.model.write_bytes(b"")
    session._old = old.path
    monkeypatch.setattr(run_session, "require_replaceable", lambda *_: None)

    def replace_run(new, old):
        assert not any(lock._lock.is_locked for lock in session._locks)
        for path in old.iterdir():
            path.unlink()
        old.rmdir()
        os.rename(new, old)

    monkeypatch.setattr(run_session, "replace_run", replace_run)
    assert session.complete().path == old.path
    with pytest.raises(Exception, match="is in use"):
        RunLock(old.path).acquire()
    session._exits.close()
    RunLock(old.path).acquire().release()


def test_a_table_that_is_mapped_elsewhere_is_the_same_table(tmp_path):
    """Windows does not replace a mapped file: what another process wrote under the same key is taken."""
    table = tmp_path / "table"
    with pytest.raises(DataError), cache.written_by_any(table), cache.writing_cache(tmp_path):
        raise WriteError("Access is denied")
    table.write_bytes(b"written meanwhile")
    with cache.written_by_any(table), cache.writing_cache(tmp_path):
        raise WriteError("Access is denied")


@pytest.mark.parametrize(("system", "folder"), [("", "bin"), ("Windows_NT", "Scripts")])
def test_make_finds_the_commands_of_a_virtual_environment(system, folder, tmp_path):
    found = subprocess.run(
        ["make", "--dry-run", "demo", "VENV=none", f"OS={system}"], cwd=ROOT, text=True, capture_output=True, check=True
    )
    assert f"none/{folder}/regard demo" in found.stdout
    assert f"none/{folder}/pip install" in found.stdout


POSIX = {
    "getuid", "geteuid", "fork", "mkfifo", "O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "SIGPIPE", "SIGHUP",
    "SIGALRM", "SIGKILL", "register_at_fork", "sched_getaffinity", "killpg", "setsid", "getpgid", "fchmod", "statvfs",
}  # fmt: skip
"""Names of ``os`` and ``signal`` that not every system has."""


def test_a_name_that_some_systems_lack_is_looked_for_first():
    """``os.getuid()`` only where ``hasattr(os, "getuid")`` was asked in the same file."""
    for file in sorted((ROOT / "src" / "regard").rglob("*.py")):
        text = file.read_text()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("os", "signal") and node.attr in POSIX:
                assert f'hasattr({ast.unparse(node.value)}, "{node.attr}")' in text, f"{file.name}: {node.attr}"
