"""``--overwrite``: the new run is trained beside the old one, and takes its place when it is complete."""

import ctypes
import errno
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from regard.errors import RegardError, RunError
from regard.training.own_files import remove_own_files, strangers

NEW, OLD = ".new", ".old"


def new_place(path: Path) -> Path:
    """Where the run that will replace ``path`` is trained."""
    return path.with_name(path.name + NEW)


def require_replaceable(path: Path, require_run: Callable[[Path], None]) -> None:
    """Raise RunError unless a folder is a run and holds nothing but what regard wrote.

    Args:
        path: the folder.
        require_run: raises RunError unless a folder has the configuration of a run.
    """
    if path.is_symlink():
        raise RunError(
            f"{path} is a link to {os.path.realpath(path)}; --overwrite replaces nothing through a link, so name that "
            "folder"
        )
    try:
        require_run(path)
    except RegardError as error:
        raise RunError(f"{path} isn't a run and is not overwritten: {error}") from error
    if found := strangers(path):
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        raise RunError(
            f"{path} holds {found[0].relative_to(path)}{more}, which regard did not write; move it elsewhere, "
            "or name another run with --run"
        )


def take_place(new: Path, old: Path) -> None:
    """Put a run folder in the place of another one, and delete the files that regard wrote into the other one.

    Where the system can exchange two folders at once (Linux), ``old`` names a whole run at every moment. Elsewhere it
    names none for an instant, in which the old run is called ``<old>.old``; `restore` gives it its name back.

    Raises:
        RunError: the folders cannot be renamed; both are whole.
    """
    beside = old.with_name(old.name + OLD)
    try:
        if beside.exists():
            remove_own_files(beside)
        if not old.exists():
            os.rename(new, old)
            return
        if _exchange(new, old):
            os.rename(new, beside)
        else:
            os.rename(old, beside)
            os.rename(new, old)
    except OSError as error:
        raise RunError(f"cannot replace {old} by {new}: {error.strerror}; both are kept") from error
    with suppress(RunError):  # what is left is a whole run no more, and the next replacement deletes it
        remove_own_files(beside)


def restore(path: Path) -> None:
    """Give an old run its name back if a process was killed while it replaced it."""
    beside = path.with_name(path.name + OLD)
    if not path.exists() and new_place(path).exists() and beside.exists():
        with suppress(OSError):
            os.rename(beside, path)


def _exchange(one: Path, other: Path) -> bool:
    # Whether the system could exchange the two names: Linux's renameat2 with RENAME_EXCHANGE.
    if not sys.platform.startswith("linux"):
        return False
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    if renameat2(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM):
        return False
    raise OSError(code, os.strerror(code), str(other))
