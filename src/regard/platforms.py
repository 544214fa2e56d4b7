"""What differs between systems, in one place. Linux is tested; the others are written by their manuals."""

import os
import shlex
import signal
from pathlib import Path

IS_WINDOWS = os.name == "nt"


def quoted(argument: str) -> str:
    """An argument as a person types it in the system's shell: that of POSIX, or ``cmd`` and PowerShell."""
    if not IS_WINDOWS:
        return shlex.quote(argument)
    plain = all(character.isalnum() or character in "_-.:/\\" for character in argument)
    # A name of Windows has no quotation mark. A backslash before the closing one would escape it.
    escape = "\\" if argument.endswith("\\") else ""
    return argument if argument and plain else f'"{argument}{escape}"'


def code_of_broken_pipe() -> int:
    """The exit code of a command whose output is closed: 128 + SIGPIPE, which Windows does not have."""
    return 128 + getattr(signal, "SIGPIPE", 13)


def renames_open_files() -> bool:
    """Whether a folder can be renamed while a file in it is open: everywhere but on Windows."""
    return not IS_WINDOWS


def sync_folder(path: Path) -> None:
    """Sync a folder to disk, so that a rename in it survives a power failure. Windows opens no folder, and writes
    renames to its journal."""
    if IS_WINDOWS:
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_another_process(process: int) -> bool:
    """Whether another process with this number runs. On Windows, where to ask with ``kill`` ends it: taken to run."""
    if IS_WINDOWS:
        return process != os.getpid()
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return process != os.getpid()
