"""Opens untrusted files: only regular files, up to a stated size, and without following links out of a folder.

A pipe without a writer blocks for ever, ``/dev/zero`` never ends, a sparse file can hold terabytes of zeros, and a link
in a folder can point anywhere. The errors are ``OSError``, like the system's own, so callers handle both in one way.
"""

import errno
import io
import os
import stat
from pathlib import Path
from typing import TextIO

from regard.errors import RunError

LARGEST_RECORD = 1 << 24
"""Limit in bytes (16 MiB) for a small file, such as a configuration or the owner of a lock, and for one text of a
class."""

LARGEST_TEXT = 1 << 28
"""Limit in bytes (256 MiB) for a file that is read into memory: a tokenizer, labels, metrics, samples, inputs."""

LARGEST_IMAGE = 1 << 30
"""Limit in bytes (1 GiB) for an image: more than 64 million pixels of 4 · 16 bits."""

LARGEST_DATA = 1 << 36
"""Limit in bytes (64 GiB) for a file that is read in parts or mapped: a table, running text, a model, a checkpoint."""

# O_NONBLOCK: opening a pipe does not wait for its writer; regular files ignore the flag. O_NOCTTY: a terminal that is
# opened does not become the controlling one.
_FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY"))

_KINDS = (
    (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"), (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device"),
)  # fmt: skip


def open_regular(path: str | os.PathLike[str], largest: int) -> io.BufferedReader:
    """Opens a regular file for reading bytes. Links are followed; `path_inside` checks where they lead.

    Args:
        path: the file.
        largest: the largest accepted size in bytes.

    Raises:
        OSError: the file cannot be opened, is a folder, a pipe or a device, or is too large.
    """
    descriptor = os.open(path, _FLAGS)
    try:
        _check(os.fstat(descriptor), path, largest)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def open_text(
    path: str | os.PathLike[str], largest: int, encoding: str = "utf-8", newline: str | None = None
) -> TextIO:
    """Opens a regular file for reading text; arguments and errors are those of `open_regular` and ``open``."""
    return io.TextIOWrapper(open_regular(path, largest), encoding=encoding, newline=newline)


def read_bytes(path: str | os.PathLike[str], largest: int) -> bytes:
    """Returns the content of a regular file: never more than ``largest`` bytes, even if the file grows meanwhile.

    Raises:
        OSError: as in `open_regular`.
    """
    with open_regular(path, largest) as file:
        content = file.read(largest + 1)
    if len(content) > largest:
        raise _too_large(path, len(content), largest)
    return content


def read_text(path: str | os.PathLike[str], largest: int, encoding: str = "utf-8") -> str:
    """Returns the content of a regular text file, with the line ends of ``Path.read_text``.

    Raises:
        OSError: as in `open_regular`.
        UnicodeDecodeError: the text has another encoding.
    """
    return io.TextIOWrapper(io.BytesIO(read_bytes(path, largest)), encoding=encoding).read()


def require_regular(path: str | os.PathLike[str], largest: int) -> int:
    """Checks a file that a library will open by its path, and returns its size in bytes.

    Raises:
        OSError: as in `open_regular`.
    """
    with open_regular(path, largest) as file:
        return os.fstat(file.fileno()).st_size


def path_inside(folder: str | os.PathLike[str], name: str | os.PathLike[str]) -> Path:
    """Returns the path of a file or folder inside a folder, and refuses links that lead out of it.

    The folder itself may be a link, since the user typed it. Its content may come from somebody else.

    Args:
        name: the path inside it; it need not exist.

    Raises:
        RunError: the path, with its links resolved, is outside the folder, or is neither a file nor a folder.
    """
    path = Path(folder, name)
    try:
        root, target = os.path.realpath(folder), os.path.realpath(path)
        inside = os.path.commonpath((root, target)) == root
        mode = os.lstat(target).st_mode if inside and os.path.lexists(target) else stat.S_IFREG
    except (OSError, ValueError) as error:  # a NUL in a name; another drive on Windows
        raise RunError(f"{str(path)!r:.200} is not a path in {folder}") from error
    if not inside:
        raise RunError(
            f"{path} leads out of {folder}, to {target}; nothing is read or written through such a link: delete it, or "
            "replace it with a copy"
        )
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise RunError(f"{path} is {_kind(mode)}, not a regular file; delete it")
    return path


def tree_inside(folder: str | os.PathLike[str], name: str | os.PathLike[str]) -> Path:
    """Returns the path of a folder inside a folder, as `path_inside` does, and checks everything below it as well.

    Raises:
        RunError: the path, or one below it, is outside the folder, or is neither a file nor a folder.
    """
    path = path_inside(folder, name)
    for below in path.rglob("*"):  # does not enter links
        try:
            mode = os.lstat(below).st_mode
        except FileNotFoundError:  # another process has deleted it
            continue
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            path_inside(folder, below.relative_to(folder))
    return path


def _check(status: os.stat_result, path: str | os.PathLike[str], largest: int) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, f"it is {_kind(status.st_mode)}, not a regular file", os.fspath(path))
    if status.st_size > largest:
        raise _too_large(path, status.st_size, largest)


def _kind(mode: int) -> str:
    return next((name for is_kind, name in _KINDS if is_kind(mode)), "a link to itself")


def _too_large(path: str | os.PathLike[str], size: int, largest: int) -> OSError:
    return OSError(errno.EFBIG, f"it has {size:,} bytes or more, and at most {largest:,} are read", os.fspath(path))
