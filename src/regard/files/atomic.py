"""Files that are written whole or not at all, and temporary folders that a signal deletes too."""

import contextlib
import errno
import itertools
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from regard.errors import ArgumentError, WriteError
from regard.files.platforms import sync_folder

_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG} if hasattr(errno, "EDQUOT") else {errno.ENOSPC, errno.EFBIG}
_serial_numbers = itertools.count(1)
_open_temporaries: set[Path] = set()
if hasattr(os, "register_at_fork"):  # a worker that ends must not delete what its parent still needs
    os.register_at_fork(after_in_child=_open_temporaries.clear)


class AtomicFile:
    """A context manager that returns the path of a temporary file, which replaces ``path`` if the block succeeds.

    The temporary file is in the same folder and is synced to disk before it is renamed, so a reader sees either the
    complete old file or the complete new file, even after a crash. The file's mode follows the umask. If ``path`` is a
    symbolic link, its target is replaced and the link stays.

    Args:
        before_replace: called with the complete temporary file before it replaces ``path``.

    Raises:
        WriteError: the file cannot be written; the old file is unchanged.
    """

    def __init__(self, path: str | os.PathLike[str], before_replace: Callable[[Path], None] | None = None):
        self.path = Path(path)
        try:
            self._target = Path(os.path.realpath(self.path))
            # A device or a pipe (/dev/stdout, /dev/null) is written to and never replaced.
            self._is_device = self._target.exists() and not (self._target.is_file() or self._target.is_dir())
        except (OSError, ValueError) as error:  # the name is too long or contains a NUL
            reason = getattr(error, "strerror", None) or error
            raise WriteError(f"cannot write {_printable(self.path)}: {reason}") from error
        # File systems limit the length of a name in bytes.
        stem, suffix = (
            os.fsencode(part)[:100].decode(errors="ignore") for part in (self._target.stem, self._target.suffix)
        )
        name = f".{stem}.{os.getpid()}-{next(_serial_numbers)}.tmp{suffix}"
        self.temporary = self._target if self._is_device else self._target.with_name(name)
        self._before_replace = before_replace
        self._mode = 0o600

    def __enter__(self) -> Path:
        if self._is_device:
            return self.temporary
        _open_temporaries.add(self.temporary)
        try:
            with self.temporary.open("xb") as file:
                # A library that replaces the temporary file with its own may change the mode.
                self._mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        except OSError as error:
            self.__exit__(type(error), error, None)
        return self.temporary

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if not self._is_device:
            try:
                if error is None:
                    self._replace()
            except OSError as replace_error:
                error = replace_error
            finally:
                with contextlib.suppress(OSError):
                    self.temporary.unlink(missing_ok=True)
                _open_temporaries.discard(self.temporary)
        if isinstance(error, OSError):
            raise WriteError(f"cannot write {_printable(self.path)}: {self._reason(error)}") from error

    def _replace(self) -> None:
        with self.temporary.open("r+b") as file:  # Windows syncs only files that are open for writing
            os.fsync(file.fileno())
        os.chmod(self.temporary, self._mode)
        if self._before_replace:
            self._before_replace(self.temporary)
        os.replace(self.temporary, self._target)
        sync_folder(self._target.parent)

    def _reason(self, error: OSError) -> str:
        reason = error.strerror or str(error).splitlines()[0]
        if not self._target.parent.is_dir():
            return f"the folder {_printable(self.path.parent)} does not exist"
        outcome = "the old file is unchanged" if self._target.is_file() else "nothing was written"
        return f"{reason}; {outcome}" + ("; free some disk space" if error.errno in _NO_SPACE else "")


def _printable(path: Path) -> str:
    """Returns the path for a message: shortened in the middle if it is long, quoted if it has control characters."""
    text = str(path)
    text = text if len(text) <= 200 else f"{text[:100]}…{text[-60:]}"
    return text if text.isprintable() else repr(text)


def named_output(path: str | os.PathLike[str], option: str) -> Path:
    """Returns the path of a new file or folder, which must have a name of its own.

    Args:
        path: the path. The empty text stands for the working folder in Python, which must not be replaced.
        option: names the argument, for messages.

    Raises:
        ArgumentError: it is empty, ``.``, ``..`` or ``/``, or the working folder or one that holds it.
    """
    text = os.fspath(path)
    if not text.strip():
        raise ArgumentError(f"{option} is empty; give a name")
    try:
        target, working = Path(text).resolve(), Path.cwd().resolve()
    except (OSError, ValueError, RuntimeError):  # a NUL, a circle of links; who writes there says it
        return Path(text)
    if target == working or target in working.parents:
        raise ArgumentError(f"{option} must name something new, not the working folder or one that holds it: {text!r}")
    return Path(text)


def write_atomically(
    path: str | os.PathLike[str], content: bytes, before_replace: Callable[[Path], None] | None = None
) -> None:
    """Writes a file through `AtomicFile`.

    Raises:
        WriteError: the disk is full or the folder is not writable; the old file is unchanged.
    """
    with AtomicFile(path, before_replace) as temporary:
        temporary.write_bytes(content)


@contextmanager
def temporary_folder(parent: Path | None = None) -> Iterator[Path]:
    """Returns an empty folder that is deleted after the block, and by `discard_temporaries`.

    Args:
        parent: the folder that it is made in, as a hidden one; None: the system's folder for temporary files.
    """
    folder = make_temporary_folder(parent)
    try:
        yield folder
    finally:
        delete_temporary_folder(folder)


def make_temporary_folder(parent: Path | None = None) -> Path:
    """Makes a folder as `temporary_folder` does, which the caller deletes with `delete_temporary_folder`."""
    folder = Path(tempfile.mkdtemp(prefix="regard-" if parent is None else ".regard-", dir=parent))
    _open_temporaries.add(folder)
    return folder


def delete_temporary_folder(folder: Path) -> None:
    """Deletes a folder that `make_temporary_folder` made, with everything in it."""
    shutil.rmtree(folder, ignore_errors=True)
    _open_temporaries.discard(folder)


def discard_temporaries() -> None:
    """Deletes this process's temporary files and folders; called when a signal ends the process."""
    for path in list(_open_temporaries):
        shutil.rmtree(path, ignore_errors=True)
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
