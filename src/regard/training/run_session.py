"""One training in a run folder: its lock, the new folder, the cleanup after an error, the replacement of an old run."""

import contextlib
import dataclasses
import os
from pathlib import Path
from types import TracebackType

from regard.errors import RunError
from regard.files.platforms import is_another_process, renames_open_files
from regard.training.checkpoints import list_checkpoints
from regard.training.config import RunConfig
from regard.training.manifest import Manifest
from regard.training.run_folder import RunFolder, continue_with
from regard.training.run_lock import RunLock
from regard.training.run_replacement import remove_own_files, replace_run, replacement_path, require_replaceable
from regard.training.signal_handler import advising
from regard.training.task import Task


class RunSession:
    """A context in which this process, and no other, trains in a run folder, of `RunFolder.create`, or of
    `RunFolder.open` to ``resume``.

    A new run is prepared under another name and renamed, so that the folder has its configuration from its first moment
    on: whenever the process is killed, the folder does not exist, or the run can be resumed. A new run that an error
    ends before it has saved a checkpoint or a model is deleted again. A run that replaces another one is trained in
    another folder; `complete` puts it in the place of the old one. Raises RunError if the run is in use by another
    process, or the folder cannot be made.
    """

    def __init__(self, folder: RunFolder, task: Task, config: RunConfig, resume: bool):
        self.folder = folder
        self._config = config
        self._task = task
        self._resume = resume
        self._old: Path | None = None
        self._is_removed = False
        self._locks: list[RunLock] = []
        self._exits = contextlib.ExitStack()

    def __enter__(self) -> "RunSession":
        with contextlib.ExitStack() as exits:
            self._exits = exits
            if not self.folder.path.parent.exists():
                exits.callback(_remove_if_empty, self.folder.path.parent)
            self._old = self._replaced() if self._resume else self.folder.replaces
            if self._old and self._old.is_dir():
                self._lock(self._old)
            if self._resume:
                self._lock(self.folder.path)
            else:
                self._begin()
            exits.enter_context(advising(self._advice))
            self.folder.write_config(self._config)
            self._exits = exits.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if isinstance(error, Exception) and not self._resume and self._is_untrained():
                self._is_removed = True
                with contextlib.suppress(RunError):
                    remove_own_files(self.folder.path)
        finally:
            self._exits.close()

    def complete(self) -> RunFolder:
        """Returns the folder of the finished run, after it was put in the place of the run that it replaces; raises
        RunError if that cannot be replaced, and both are kept."""
        old = self._old
        if old is None or not self.folder.model.is_file():
            return self.folder
        if old.exists():
            try:
                require_replaceable(old)
            except RunError as error:
                raise RunError(f"{error}. The new run is complete, in {self.folder.path}") from error
        if not renames_open_files():
            for lock in self._locks:
                lock.release()
        replace_run(self.folder.path, old)
        self.folder = RunFolder(old)
        if not renames_open_files():
            self._lock(old)
        self._old = None
        self.folder.manifest.write(dataclasses.replace(self.folder.manifest.read(), replaces=None))
        return self.folder

    def _begin(self) -> None:
        path = self.folder.path
        if self._old:
            require_replaceable(self._old)
            if path.exists():  # an earlier training that was to replace the same run
                require_replaceable(path)
                self._lock(path)
                remove_own_files(path)
        prepared = RunFolder(path.with_name(f".{path.name}.{os.getpid()}.tmp"))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _remove_stale(path)
            prepared.checkpoints.mkdir(parents=True)
            prepared.pictures.mkdir()
            prepared.write_config(self._config)
            patterns = (*self._task.files, *self._task.results)
            replaces = self._old.name if self._old else None
            prepared.manifest.write(Manifest(began_in=os.getcwd(), replaces=replaces, patterns=patterns))
            os.rename(prepared.path, path)
        except OSError as error:
            raise RunError(f"cannot create the run folder {path}: {error.strerror}") from error
        finally:
            if prepared.path.exists():
                with contextlib.suppress(RunError):
                    remove_own_files(prepared.path)
        self._lock(path)

    def _lock(self, path: Path) -> None:
        self._locks.append(RunLock(path).acquire())
        self._exits.callback(self._locks[-1].release)

    def _replaced(self) -> Path | None:
        """Returns the run that a resumed run will replace."""
        name = self.folder.manifest.read().replaces
        old = None if name is None else self.folder.path.with_name(name)
        return old if old and replacement_path(old).name == self.folder.path.name else None

    def _current_path(self) -> Path:
        """Returns the folder of the run, which may have been renamed just before a signal."""
        return self.folder.path if self.folder.path.exists() or self._old is None else self._old

    def _advice(self) -> str:
        """Returns how to continue after a signal; "" if the folder is being removed."""
        return "" if self._is_removed else continue_with(self._current_path(), self._task.name)

    def _is_untrained(self) -> bool:
        return not self.folder.model.is_file() and not list_checkpoints(self.folder.checkpoints)


def _remove_if_empty(path: Path) -> None:
    with contextlib.suppress(OSError):  # it has contents, or was never made
        path.rmdir()


def _remove_stale(path: Path) -> None:
    """Deletes the prepared folders of processes that were killed before they could rename them."""
    start = f".{path.name}."
    for name in os.listdir(path.parent):
        number = name.removeprefix(start).removesuffix(".tmp")
        if name == f"{start}{number}.tmp" and number.isdecimal() and not is_another_process(int(number)):
            remove_own_files(path.with_name(name))
