"""The lock of a run folder: one process at a time trains in it. Reading needs no lock."""

import json
import os
import socket
import stat
import time
from contextlib import suppress
from pathlib import Path

from regard.errors import MissingPartError, RunError
from regard.files.atomic import write_atomically
from regard.files.regular import LARGEST_RECORD, path_inside, read_text

LOCK_FILE, OWNER_FILE = ".lock", ".in-use.json"


class RunLock:
    """The lock of the process that writes into a run folder.

    The operating system locks the file ``.lock`` and releases it when the process ends, however it ends: a killed
    process leaves no lock. ``.in-use.json`` only says who holds the lock, for messages. The lock belongs to the folder
    and not to its path, so it stays when the folder is renamed.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        with MissingPartError.instead("filelock", "train"):
            import filelock
        self._lock = filelock.FileLock(_lock_path(folder), is_singleton=False)

    def acquire(self) -> "RunLock":
        """Locks the folder; raises RunError if another process holds the lock, or the folder cannot be written."""
        import filelock

        try:
            self._lock.acquire(timeout=0)
        except filelock.Timeout as error:
            raise RunError(
                f"{self.folder} is in use{self._owner()}; wait until it ends, or name another run"
            ) from error
        except OSError as error:
            raise RunError(f"cannot lock {self.folder}: {error.strerror or error}") from error
        owner = {
            "process": os.getpid(), "start": _start_of(os.getpid()), "since": time.time(), "host": socket.gethostname()
        }  # fmt: skip
        try:
            write_atomically(path_inside(self.folder, OWNER_FILE), json.dumps(owner).encode())
        except BaseException:
            self._lock.release()
            raise
        return self

    def release(self) -> None:
        """Releases the lock, even if the folder was renamed."""
        self._lock.release()

    def _owner(self) -> str:
        """Returns who holds the lock, as text; "" if the process has not written it yet."""
        with suppress(OSError, ValueError, TypeError, KeyError, OverflowError):
            owner = json.loads(read_text(path_inside(self.folder, OWNER_FILE), LARGEST_RECORD))
            since = time.localtime(float(owner["since"]))
            today = time.localtime()[:3] == since[:3]
            number, host = int(owner["process"]), str(owner["host"])
            text = f" by process {number} since {time.strftime('%H:%M' if today else '%Y-%m-%d %H:%M', since)} ({host})"
            if host == socket.gethostname() and _start_of(number) != owner["start"]:
                text = f" by a process that process {number} started; process {number} itself has ended"
            return text
        return ""


def _lock_path(folder: Path) -> Path:
    """Returns the file to lock, which locking empties: it must be one of regard's, and no link to a foreign file."""
    path = path_inside(folder, LOCK_FILE)
    with suppress(FileNotFoundError, NotADirectoryError):
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            raise RunError(f"cannot lock {folder}: {path} is a link, or is not a file that regard made; delete it")
    return path


def _start_of(process: int) -> int | None:
    """Returns when a process started, in ticks since the machine did; None: there is no such process. Numbers of
    processes are used again, so a number alone does not name one."""
    try:
        # The name of the program, in parentheses, may hold spaces; the start is field 22.
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return int(fields[19])
    except (OSError, ValueError, IndexError):
        return None
