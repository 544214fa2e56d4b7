"""Opens files that somebody else may have made: regular files of a stated largest size, in the folder that names them.

A pipe without a writer waits for ever, ``/dev/zero`` has no end, a sparse file can have terabytes of zeros, and a link
in a folder can lead anywhere. The errors are ``OSError``, as those of the system, so a caller treats both
alike.
"""

import errno
import io
import os
import stat
from pathlib import Path
from typing import TextIO

from regard.errors import RunError

LARGEST_RECORD = 1 << 24
"""Bytes (16 MiB) of a file with a few fields, or of one text of a class: a configuration, the owner of a lock."""

LARGEST_TEXT = 1 << 28
"""Bytes (256 MiB) of a file that is read into memory: a tokenizer, labels, metrics, samples, a matrix, inputs."""

LARGEST_IMAGE = 1 << 30
"""Bytes (1 GiB) of an image: more than 64 million pixels of 4 · 16 bits."""

LARGEST_DATA = 1 << 36
"""Bytes (64 GiB) of a file that is read in parts or mapped: a table, running text, a model, a checkpoint."""

# O_NONBLOCK: opening a pipe does not wait for its writer; the flag means nothing for regular files. O_NOCTTY: opening a
# terminal does not make it the process's own.
_FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY"))

_KINDS = (
    (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"), (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device"),
)  # fmt: skip


def open_regular(path: str | os.PathLike[str], largest: int) -> io.BufferedReader:
    """Open a regular file for reading bytes. Links are followed; `path_inside` says where they may lead.

    Args:
        path: the file.
        largest: bytes that the file may have.

    Raises:
        OSError: the file cannot be opened, is a folder, a pipe or a device, or is larger.
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
    """Open a regular file for reading text; arguments and errors as for `open_regular` and ``open``."""
    return io.TextIOWrapper(open_regular(path, largest), encoding=encoding, newline=newline)


def read_bytes(path: str | os.PathLike[str], largest: int) -> bytes:
    """The content of a regular file; also of one that grows meanwhile, never more than ``largest`` bytes.

    Raises:
        OSError: as for `open_regular`.
    """
    with open_regular(path, largest) as file:
        content = file.read(largest + 1)
    if len(content) > largest:
        raise _too_large(path, len(content), largest)
    return content


def read_text(path: str | os.PathLike[str], largest: int, encoding: str = "utf-8") -> str:
    """The content of a regular file of text, with line ends as ``Path.read_text`` has them.

    Raises:
        OSError: as for `open_regular`.
        UnicodeDecodeError: the text has another encoding.
    """
    return io.TextIOWrapper(io.BytesIO(read_bytes(path, largest)), encoding=encoding).read()


def require_regular(path: str | os.PathLike[str], largest: int) -> int:
    """Check a file that a library will open by its name; returns its size in bytes.

    Raises:
        OSError: as for `open_regular`.
    """
    with open_regular(path, largest) as file:
        return os.fstat(file.fileno()).st_size


def path_inside(folder: str | os.PathLike[str], name: str | os.PathLike[str]) -> Path:
    """The path of a file or folder in a folder, out of which no link leads.

    The folder itself may be a link: somebody typed it. What is in it may have been made by somebody else.

    Args:
        folder: the folder.
        name: the path in it; it need not exist.

    Raises:
        RunError: the path, with its links, is not in the folder, or is neither a file nor a folder.
    """
    path = Path(folder, name)
    try:
        root, target = os.path.realpath(folder), os.path.realpath(path)
        inside = os.path.commonpath((root, target)) == root
        mode = os.lstat(target).st_mode if inside and os.path.lexists(target) else stat.S_IFREG
    except (OSError, ValueError) as error:  # a NUL in a name; another drive of Windows
        raise RunError(f"{str(path)!r:.200} is not a path in {folder}") from error
    if not inside:
        raise RunError(
            f"{path} leads out of {folder}, to {target}; nothing is read or written through such a link: delete it, or "
            "put a copy in its place"
        )
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise RunError(f"{path} is {_kind(mode)}, not a regular file; delete it")
    return path


def tree_inside(folder: str | os.PathLike[str], name: str | os.PathLike[str]) -> Path:
    """The path of a folder in a folder, as `path_inside`; the same is true of all that is below it.

    Raises:
        RunError: the path, or one below it, is not in the folder, or is neither a file nor a folder.
    """
    path = path_inside(folder, name)
    for below in path.rglob("*"):  # which enters no link
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
