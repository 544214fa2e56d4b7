"""The files that compiled kernels are kept in: where, whose they must be, and whether they are undamaged.

A file holds the machine code of one kernel, and a SHA-256 sum over that, the file's name and all that it holds for. The
sum is verified before anything of the file is used, and nothing is unpickled. Files are loaded only if they and their
folders belong to the user and no other user can write them.
"""

import hashlib
import logging
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from regard.errors import ArgumentError
from regard.kernels.cpu.target import target

LOG = logging.getLogger("regard")

_MAGIC = b"regard kernel 1\n"
_SUM = hashlib.sha256().digest_size
_LARGEST = 1 << 28
"""Bytes; the largest kernel has less than a hundredth of it."""

_FOLDER = re.compile(r"kernels-[0-9a-f]{16}")
_FILE = re.compile(r"\w+-[0-9a-f]{16}\.(kernel|choice)(\.\w+\.part)?")
"""Names of our files; earlier versions wrote those that end with ``.choice``."""

# A named pipe must not block, a symbolic link must not lead elsewhere.
_READ = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOFOLLOW", "O_BINARY"))


class DamagedFileError(Exception):
    """A file does not hold what was stored in it; the message is the reason."""


class _UntrustedFolderError(Exception):
    """Somebody else could put machine code into a folder; the message says why."""


def load(path: Path, target: bytes) -> bytes | None:
    """What `store` wrote; None if there is no file.

    Args:
        path: the file.
        target: what it must have been stored for.

    Raises:
        DamagedFileError: the file is not as it was stored, or not the user's own.
    """
    try:
        content = _read(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DamagedFileError(error.strerror or str(error)) from error
    head = len(_MAGIC) + _SUM
    payload = content[head:]
    if content[:head] != _MAGIC + _checksum(path, target, payload):
        raise DamagedFileError("its checksum does not match")
    return payload


def store(path: Path, target: bytes, payload: bytes) -> None:
    """Write a file at once or not at all, also while other processes write it.

    Raises:
        OSError: the file cannot be written.
    """
    handle, part = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(_MAGIC + _checksum(path, target, payload) + payload)
        if path.is_dir() and not path.is_symlink():
            # A folder cannot be replaced by a file, and what is in it is not ours to remove.
            path.rename(tempfile.mktemp(dir=path.parent, prefix=f"{path.name}.", suffix=".damaged"))
        os.replace(part, path)
    finally:
        Path(part).unlink(missing_ok=True)


def _checksum(path: Path, target: bytes, payload: bytes) -> bytes:
    # Each part's length is fixed or ends with a byte that the part cannot have.
    return hashlib.sha256(hashlib.sha256(target).digest() + path.name.encode() + b"\0" + payload).digest()


def _read(path: Path) -> bytes:
    handle = os.open(path, _READ)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise DamagedFileError("it is not a file")
        if hasattr(os, "getuid") and status.st_uid != os.getuid():
            raise DamagedFileError("it belongs to another user")
        if hasattr(os, "getuid") and status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise DamagedFileError("other users can write it")
        if status.st_size > _LARGEST:
            raise DamagedFileError("it is too large")
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read(_LARGEST)
    finally:
        os.close(handle)


@cache
def cache_folder() -> Path | None:
    """The folder of this machine's kernels; None if nothing can be kept."""
    return open_folder(hashlib.sha256(target()).hexdigest()[:16])


def open_folder(fingerprint: str) -> Path | None:
    """The folder for kernels of this fingerprint, made if need be; None if there is no place for one.

    ``$REGARD_CACHE`` if it is set and not empty, else the user's cache folder, else the folder for temporary files. A
    place that other users could change is named in one line, and not used.

    Raises:
        ArgumentError: ``$REGARD_CACHE`` is a relative path.
    """
    for root, names in _places():
        try:
            folder = _trusted(root, names, f"kernels-{fingerprint}", make=True)
            # A folder that can only be read is worth it for the kernels in it.
            if is_writable(folder) or files_of(folder):
                return folder
        except OSError:
            continue
        except _UntrustedFolderError as error:
            LOG.warning("no compiled kernels are kept in %s: %s", root.joinpath(*names), error)
    return None


def is_writable(folder: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def all_folders() -> Iterator[Path]:
    """Every folder of kernels of this user that exists, of whatever version and processor."""
    for root, names in _places():
        try:
            folder = _trusted(root, names, make=False)
            for entry in sorted(folder.iterdir()):
                if _FOLDER.fullmatch(entry.name) and not entry.is_symlink() and entry.is_dir():
                    yield _trusted(root, names, entry.name, make=False)
        except (OSError, _UntrustedFolderError):
            continue


def files_of(folder: Path) -> dict[Path, int]:
    """The files in a folder that `store` wrote, finished or not, damaged or not, and how many bytes each has."""
    found = {}
    for path in sorted(folder.iterdir()):
        status = path.lstat()
        if _FILE.fullmatch(path.name) and stat.S_ISREG(status.st_mode):
            found[path] = status.st_size
    return found


def clear() -> tuple[int, int]:
    """Remove every file that `store` wrote, and folders that are empty then; how many files and bytes it were.

    Raises:
        OSError: a file cannot be removed.
    """
    files = size = 0
    for folder in list(all_folders()):
        for path, length in files_of(folder).items():
            path.unlink(missing_ok=True)
            files, size = files + 1, size + length
        with suppress(OSError):
            folder.rmdir()
    return files, size


def _places() -> Iterator[tuple[Path, tuple[str, ...]]]:
    """Where to look, best first: a folder that is the user's own affair, and the folders in it that are regard's."""
    own = os.environ.get("REGARD_CACHE")
    if own:
        if not os.path.isabs(own):
            raise ArgumentError(f"REGARD_CACHE must be an absolute path; it is {own!r:.200}")
        yield Path(own), ("regard",)
        return
    user = os.environ.get("XDG_CACHE_HOME", "")
    with suppress(RuntimeError):
        # The standard of these folders says to ignore a relative path.
        root = Path(user) if os.path.isabs(user) else Path.home() / ".cache"
        if root.is_absolute():
            yield root, ("regard",)
    # In a folder that all users share, each needs a name of their own.
    name = str(os.getuid()) if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
    yield Path(tempfile.gettempdir()), (f"regard-{name}", "regard")


def _trusted(root: Path, names: tuple[str, ...], *more: str, make: bool) -> Path:
    """The folder of these names in the root, if no other user can change what is in it."""
    folder = root
    for name in (None, *names, *more):
        folder = folder / name if name else root
        if make:
            _make(folder)
        _check_owner(folder, shared=folder == root)
    return folder


def _make(folder: Path) -> None:
    if not folder.is_dir():
        _make(folder.parent)
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)


def _check_owner(folder: Path, shared: bool) -> None:
    """Raise _UntrustedFolderError unless the folder is the user's own.

    Args:
        folder: exists; a symbolic link must itself be the user's own, and lead to such a folder.
        shared: whether it may also be the system's, and then open to all if the sticky bit keeps each user's
            entries apart; or open to the user's group, as all folders are where each user has a group.
    """
    if not hasattr(os, "getuid"):
        return
    owners = {os.getuid(), 0} if shared else {os.getuid()}
    status = os.stat(folder)
    for owner in (os.lstat(folder).st_uid, status.st_uid):
        if owner not in owners:
            raise _UntrustedFolderError(f"{folder} belongs to another user (uid {owner})")
    if not stat.S_ISDIR(status.st_mode):
        raise _UntrustedFolderError(f"{folder} is not a folder")
    others = stat.S_IWOTH if shared else stat.S_IWGRP | stat.S_IWOTH
    if status.st_mode & others and not (shared and status.st_mode & stat.S_ISVTX):
        mode = stat.S_IMODE(status.st_mode)
        raise _UntrustedFolderError(f"other users can write {folder} (mode {mode:04o}); chmod go-w would close it")
