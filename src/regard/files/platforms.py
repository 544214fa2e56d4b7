"""Differences between operating systems, in one place. Only Linux is tested; the others follow their documentation."""

import os
import shlex
import signal
from pathlib import Path

IS_WINDOWS = os.name == "nt"


def quoted(argument: str) -> str:
    """Returns an argument as it is typed in a POSIX shell or, on Windows, in ``cmd`` and PowerShell."""
    if not IS_WINDOWS:
        return shlex.quote(argument)
    plain = all(character.isalnum() or character in "_-.:/\\" for character in argument)
    # File names on Windows contain no quotation mark. A final backslash would escape the closing one.
    escape = "\\" if argument.endswith("\\") else ""
    return argument if argument and plain else f'"{argument}{escape}"'


def code_of_broken_pipe() -> int:
    """Returns the exit code of a command whose output was closed: 128 + SIGPIPE, also on Windows, which has none."""
    return 128 + getattr(signal, "SIGPIPE", 13)


def renames_open_files() -> bool:
    """Whether the system can rename a folder while a file in it is open. Windows cannot."""
    return not IS_WINDOWS


def sync_folder(path: Path) -> None:
    """Syncs a folder to disk, so that a rename in it survives a power failure.

    Windows cannot open a folder; it writes renames to its journal.
    """
    if IS_WINDOWS:
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_another_process(process: int) -> bool:
    """Whether another process with this id is running; always True on Windows, where ``kill`` would end the process."""
    if IS_WINDOWS:
        return process != os.getpid()
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return process != os.getpid()
