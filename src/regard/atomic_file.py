"""Files that are written whole or not at all."""

import contextlib
import errno
import itertools
import os
import stat
from collections.abc import Callable
from pathlib import Path

from regard.errors import WriteError
from regard.platforms import sync_folder

_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG} if hasattr(errno, "EDQUOT") else {errno.ENOSPC, errno.EFBIG}
_numbers = itertools.count(1)
_open: set[Path] = set()


class AtomicFile:
    """A context that gives the path of a temporary file; if the block ends without an error, it replaces ``path``.

    The temporary file is in the same folder and is synced to disk before it is renamed: a reader sees the whole old
    file or the whole new file, also after a crash. The mode of the file follows the umask. Through a link, the file
    that it points to is replaced, and not the link.

    Args:
        path: the file.
        before_replace: called with the whole temporary file, before it replaces ``path``.

    Raises:
        WriteError: the file cannot be written; the old file is unchanged.
    """

    def __init__(self, path: str | os.PathLike[str], before_replace: Callable[[Path], None] | None = None):
        self.path = Path(path)
        try:
            self._target = Path(os.path.realpath(self.path))
            # A device or a pipe (/dev/stdout, /dev/null) is written to, and never replaced.
            self._is_device = self._target.exists() and not (self._target.is_file() or self._target.is_dir())
        except (OSError, ValueError) as error:  # too long a name; a NUL in it
            reason = getattr(error, "strerror", None) or error
            raise WriteError(f"cannot write {_shown(self.path)}: {reason}") from error
        # Names have a largest length in bytes.
        stem, suffix = (
            os.fsencode(part)[:100].decode(errors="ignore") for part in (self._target.stem, self._target.suffix)
        )
        name = f".{stem}.{os.getpid()}-{next(_numbers)}.tmp{suffix}"
        self.temporary = self._target if self._is_device else self._target.with_name(name)
        self._before_replace = before_replace
        self._mode = 0o600

    def __enter__(self) -> Path:
        if self._is_device:
            return self.temporary
        _open.add(self.temporary)
        try:
            with self.temporary.open("xb") as file:
                # Libraries that replace the temporary file by one of their own give it their own mode.
                self._mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        except OSError as error:
            self.__exit__(type(error), error, None)
        return self.temporary

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if not self._is_device:
            try:
                if error is None:
                    self._replace()
            except OSError as failed:
                error = failed
            finally:
                with contextlib.suppress(OSError):
                    self.temporary.unlink(missing_ok=True)
                _open.discard(self.temporary)
        if isinstance(error, OSError):
            raise WriteError(f"cannot write {_shown(self.path)}: {self._reason(error)}") from error

    def _replace(self) -> None:
        with self.temporary.open("r+b") as file:  # Windows syncs only what is open for writing
            os.fsync(file.fileno())
        os.chmod(self.temporary, self._mode)
        if self._before_replace:
            self._before_replace(self.temporary)
        os.replace(self.temporary, self._target)
        sync_folder(self._target.parent)

    def _reason(self, error: OSError) -> str:
        reason = error.strerror or str(error).splitlines()[0]
        if not self._target.parent.is_dir():
            return f"the folder {_shown(self.path.parent)} does not exist"
        kept = "the old file is unchanged" if self._target.is_file() else "nothing was written"
        return f"{reason}; {kept}" + ("; free some disk space" if error.errno in _NO_SPACE else "")


def _shown(path: Path) -> str:
    """A path for a message: the middle of a long one left out, and quoted if it holds control characters."""
    text = str(path)
    text = text if len(text) <= 200 else f"{text[:100]}…{text[-60:]}"
    return text if text.isprintable() else repr(text)


def write_atomically(
    path: str | os.PathLike[str], content: bytes, before_replace: Callable[[Path], None] | None = None
) -> None:
    """Write a file as `AtomicFile` does.

    Raises:
        WriteError: the disk is full or the folder cannot be written; the old file is unchanged.
    """
    with AtomicFile(path, before_replace) as temporary:
        temporary.write_bytes(content)


def discard_temporaries() -> None:
    """Delete the temporary files of this process, for a process that ends in the middle of writing."""
    for path in list(_open):
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
