"""The files of compiled kernels: where they are, who must own them, and whether they are undamaged.

A file contains the machine code of one kernel, and a SHA-256 sum over that code, the file's name and its target. The
sum is verified before any of the file is used, and nothing is unpickled. Files are loaded only if they and their
folders belong to the user and no other user can write them.
"""

import hashlib
import logging
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path

from regard.errors import ArgumentError
from regard.kernels.cpu.target import target

LOG = logging.getLogger("regard")

_MAGIC = b"regard kernel 1\n"
_SUM = hashlib.sha256().digest_size
_MAX_BYTES = 1 << 28
"""Maximum bytes of a file; the largest kernel has less than a hundredth of them."""

_FOLDER = re.compile(r"kernels-[0-9a-f]{16}")
_FILE = re.compile(r"\w+-[0-9a-f]{16}\.(kernel|choice)(\.\w+\.part)?")
"""Names of the cache's files; earlier versions wrote those that end with ``.choice``."""

# A named pipe must not block, and a symbolic link must not be followed.
_READ = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOFOLLOW", "O_BINARY"))


class DamagedFileError(Exception):
    """A file does not contain what was stored in it; the message is the reason."""


class _UntrustedFolderError(Exception):
    """Another user could put machine code into a folder; the message says why."""


def load(path: Path, target: bytes) -> bytes | None:
    """Returns what `store` wrote; None if there is no file.

    Raises:
        DamagedFileError: the file is not as it was stored, or does not belong to the user.
    """
    try:
        content = _read(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DamagedFileError(error.strerror or str(error)) from error
    header_size = len(_MAGIC) + _SUM
    payload = content[header_size:]
    if content[:header_size] != _MAGIC + _checksum(path, target, payload):
        raise DamagedFileError("its checksum does not match")
    return payload


def store(path: Path, target: bytes, payload: bytes) -> None:
    """Writes a file completely or not at all, even while other processes write it."""
    descriptor, part = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.", suffix=".part")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(_MAGIC + _checksum(path, target, payload) + payload)
        if path.is_dir() and not path.is_symlink():
            # A file cannot replace a folder, and the folder's content is not ours to remove.
            path.rename(tempfile.mktemp(dir=path.parent, prefix=f"{path.name}.", suffix=".damaged"))
        os.replace(part, path)
    finally:
        Path(part).unlink(missing_ok=True)


def _checksum(path: Path, target: bytes, payload: bytes) -> bytes:
    # Each part has a fixed length, or ends with a byte that cannot occur in it.
    return hashlib.sha256(hashlib.sha256(target).digest() + path.name.encode() + b"\0" + payload).digest()


def _read(path: Path) -> bytes:
    descriptor = os.open(path, _READ)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise DamagedFileError("it is not a regular file")
        if hasattr(os, "getuid") and status.st_uid != os.getuid():
            raise DamagedFileError("it belongs to another user")
        if hasattr(os, "getuid") and status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise DamagedFileError("other users can write it")
        if status.st_size > _MAX_BYTES:
            raise DamagedFileError("it is too large")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(_MAX_BYTES)
    finally:
        os.close(descriptor)


@cache
def cache_folder() -> Path | None:
    """Returns the folder of this machine's kernels; None if there is none."""
    return open_folder(hashlib.sha256(target()).hexdigest()[:16])


def open_folder(fingerprint: str, content: str = "kernels") -> Path | None:
    """Returns the folder for files of this fingerprint, created if necessary; None if no location can have one.

    It is in ``$REGARD_CACHE`` if that is set and not empty, else in the user's cache folder, else in the folder for
    temporary files. A location that other users could change is not used, and a warning names it.

    Args:
        content: what the files are; the folder's name begins with it.

    Raises:
        ArgumentError: ``$REGARD_CACHE`` is a relative path.
    """
    for root, names in _locations():
        try:
            folder = _trusted(root, names, f"{content}-{fingerprint}", make=True)
            # A read-only folder is useful if it contains kernels.
            if is_writable(folder) or files_of(folder):
                return folder
        except OSError:
            continue
        except _UntrustedFolderError as error:
            LOG.warning("no %s are stored in %s: %s", content, root.joinpath(*names), error)
    return None


@contextmanager
def one_process(folder: Path | None) -> Iterator[None]:
    """Waits until no other process is in this context for the folder, where the system can lock one."""
    with ExitStack() as stack:
        # Windows has no such module, and some file systems no locks.
        with suppress(ImportError, OSError):
            import fcntl

            if folder is not None:
                descriptor = os.open(folder, os.O_RDONLY)
                stack.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


def is_writable(folder: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def all_folders() -> Iterator[Path]:
    """Yields every existing folder of this user's kernels, of any version and processor."""
    for root, names in _locations():
        try:
            folder = _trusted(root, names, make=False)
            for entry in sorted(folder.iterdir()):
                if _FOLDER.fullmatch(entry.name) and not entry.is_symlink() and entry.is_dir():
                    yield _trusted(root, names, entry.name, make=False)
        except (OSError, _UntrustedFolderError):
            continue


def files_of(folder: Path) -> dict[Path, int]:
    """Returns the files in a folder that `store` wrote, even unfinished or damaged ones, with their sizes in bytes."""
    sizes = {}
    for path in sorted(folder.iterdir()):
        status = path.lstat()
        if _FILE.fullmatch(path.name) and stat.S_ISREG(status.st_mode):
            sizes[path] = status.st_size
    return sizes


def clear() -> tuple[int, int]:
    """Removes every file that `store` wrote, and the folders that are empty then.

    Returns:
        The number of removed files, and of their bytes.
    """
    files = size = 0
    for folder in list(all_folders()):
        for path, length in files_of(folder).items():
            path.unlink(missing_ok=True)
            files, size = files + 1, size + length
        with suppress(OSError):
            folder.rmdir()
    return files, size


def _locations() -> Iterator[tuple[Path, tuple[str, ...]]]:
    """Yields the locations, best first: a folder that the user manages, and the names of regard's folders in it."""
    chosen = os.environ.get("REGARD_CACHE")
    if chosen:
        if not os.path.isabs(chosen):
            raise ArgumentError(f"REGARD_CACHE must be an absolute path; it is {chosen!r:.200}")
        yield Path(chosen), ("regard",)
        return
    user = os.environ.get("XDG_CACHE_HOME", "")
    with suppress(RuntimeError):
        # The XDG specification says to ignore a relative path.
        root = Path(user) if os.path.isabs(user) else Path.home() / ".cache"
        if root.is_absolute():
            yield root, ("regard",)
    # In a folder that all users share, each user needs a separate name.
    name = str(os.getuid()) if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
    yield Path(tempfile.gettempdir()), (f"regard-{name}", "regard")


def _trusted(root: Path, names: tuple[str, ...], *subfolders: str, make: bool) -> Path:
    """Returns the folder with these names below the root, unless another user can change its content."""
    folder = root
    for name in (None, *names, *subfolders):
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
    """Raises _UntrustedFolderError unless the folder belongs to the user.

    Args:
        folder: an existing folder; a symbolic link must belong to the user, and so must the folder it leads to.
        shared: whether the folder may also belong to the system, writable by all if the sticky bit protects each
            user's entries; or be writable by the user's group, as is usual where each user has a group.
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
