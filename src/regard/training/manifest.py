"""The manifest of a run: SHA-256 sums of its files and data, so that changed files can be named."""

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from regard.errors import DataError, RunError
from regard.files.atomic import write_atomically
from regard.files.regular import LARGEST_DATA, LARGEST_TEXT, open_regular, path_inside, read_text
from regard.training.sections import record_of

FORMAT = 1
ABSENT_SUM = ""
"""The sum of a file that does not exist, in a list of accepted sums."""

Content = TypeVar("Content")


@dataclass(frozen=True)
class DataFile:
    """One file of the data that a run was trained on."""

    path: str
    """Absolute, or relative to the run folder for data inside it."""
    bytes: int
    sha256: str

    @classmethod
    def of(cls, path: Path, folder: Path) -> "DataFile":
        """Returns the record of a file, for a run in ``folder``; raises DataError if the file cannot be read."""
        file, root = (Path(os.path.realpath(one)) for one in (path, folder))
        try:
            size, digest = file.stat().st_size, sha256(file)
        except OSError as error:
            raise DataError(f"{path}: {str(error.strerror).lower()}; check the path") from error
        name = file.relative_to(root).as_posix() if file.is_relative_to(root) else str(file)
        return cls(name, size, digest)


@dataclass(frozen=True)
class Manifest:
    """The content of ``manifest.json``. The default is that of a run that version 0.1 began, which wrote none."""

    began_in: str = ""
    """Absolute path of the working directory in which the run began; relative paths of data are relative to it."""
    replaces: str | None = None
    """Name of the run in the same folder that this run replaces when it is complete, or None."""
    patterns: tuple[str, ...] = ()
    """Patterns of the files that the run's task adds to those of every run."""
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """File, relative to the run folder → SHA-256 sums that it may have: one, or two while it is replaced."""
    data: Mapping[str, tuple[DataFile, ...]] = field(default_factory=dict)
    """Part of the data (``train``, ...) → its files."""

    @classmethod
    def from_json(cls, text: str) -> "Manifest":
        """Returns the manifest that ``to_json`` wrote; raises ValueError if the text is not JSON, or not a manifest."""
        content = json.loads(text)
        if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
            raise ValueError(f"it is not a manifest of format {FORMAT}")
        manifest = record_of(cls, content)
        if manifest.replaces is not None and (not _is_relative(manifest.replaces) or "/" in manifest.replaces):
            raise ValueError("replaces must be null or the name of a folder")
        for name, sums in manifest.files.items():
            if not _is_relative(name):
                raise ValueError(f"{name!r:.200} in files is not a path in the run folder")
            if not sums:
                raise ValueError(f"the sums of {name!r:.200} must be a list of one text or more")
        return manifest

    def to_json(self) -> str:
        """Returns the manifest as text."""
        return json.dumps({"format": FORMAT, **dataclasses.asdict(self)}, indent=1, ensure_ascii=False) + "\n"


def _is_relative(name: str) -> bool:
    # Whether a name is that of a file in a folder on every system. `path_inside` checks where links lead.
    parts = name.replace("\\", "/").split("/")
    return "\0" not in name and not re.match("[A-Za-z]:[/\\\\]", name) and not {"", ".", ".."} & set(parts)


class ManifestFile:
    """``manifest.json`` in a run folder. Only the process that holds the run's lock changes it.

    The sum of a file is added before the file is replaced, and the old sum is dropped afterwards. So no file that the
    run wrote is taken for a damaged one, at whatever moment the process is killed.
    """

    NAME = "manifest.json"

    def __init__(self, folder: Path):
        self.folder = folder

    @property
    def path(self) -> Path:
        """The file; raises RunError if it is a link that leads out of the run folder."""
        return path_inside(self.folder, self.NAME)

    def read(self) -> Manifest:
        """Returns the manifest; an empty one if there is no file, as in runs of version 0.1. Raises RunError for a
        damaged one."""
        path = self.path
        try:
            return Manifest.from_json(read_text(path, LARGEST_TEXT))
        except (FileNotFoundError, NotADirectoryError):
            return Manifest()
        except OSError as error:
            raise RunError(f"cannot read {path}: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            reason = str(error).splitlines()[0]
            raise RunError(
                f"{path} is damaged ({reason}); restore it, or delete it to use the run without checksums"
            ) from error

    def write(self, manifest: Manifest) -> None:
        """Replaces the file; raises WriteError if it cannot be written."""
        write_atomically(self.path, manifest.to_json().encode())

    @contextmanager
    def recording(self, path: Path) -> Iterator[Callable[[Path], None]]:
        """Records the replacement of a file in this context; yields the function for `AtomicFile` to call before it."""
        name = self._name(path)

        def before_replace(temporary: Path) -> None:
            before = self.read().files.get(name, (ABSENT_SUM,))
            self._set(name, (*before[-1:], sha256(temporary)))

        yield before_replace
        self._set(name, self.read().files.get(name, ())[-1:])

    def record(self, paths: Iterable[Path]) -> None:
        """Records the sums of those files that exist and are not recorded yet."""
        manifest = self.read()
        existing = {self._name(path): path for path in paths if path.is_file()}
        new = {name: (sha256(path),) for name, path in existing.items() if name not in manifest.files}
        if new:
            self.write(dataclasses.replace(manifest, files={**manifest.files, **new}))

    def forget(self, paths: Sequence[Path]) -> None:
        """Drops the records of files that will be deleted."""
        names = {self._name(path) for path in paths}
        manifest = self.read()
        if names & manifest.files.keys():
            files = {name: sums for name, sums in manifest.files.items() if name not in names}
            self.write(dataclasses.replace(manifest, files=files))

    def verify(self, path: Path, advice: str = "restore it from a copy, or train the run again") -> None:
        """Raises RunError if a file of the run has another sum than the recorded one, or is missing; a file that was
        never recorded passes."""
        accepted = self.read().files.get(self._name(path))
        if accepted is None:
            return
        if not path.is_file():
            if ABSENT_SUM not in accepted:
                raise RunError(f"{path} is missing; {advice}")
        elif (digest := sha256(path)) not in accepted:
            raise RunError(
                f"{path} is damaged or is not the file of this run: its SHA-256 sum is {digest[:12]}…, "
                f"{self.NAME} has {accepted[-1][:12]}…; {advice}"
            )

    def verify_all(self) -> None:
        """Verifies every recorded file but the checkpoints, which are verified when they are read."""
        for name in self.read().files:
            if not name.endswith(".ckpt"):
                self.verify(path_inside(self.folder, name))

    def consistently(self, paths: Sequence[Path], load: Callable[[], Content]) -> Content:
        """Loads and verifies files of the run, which another process may be replacing; raises RunError if one was
        changed or is missing. ``load`` is called again if the manifest has changed in the meantime."""
        for attempts_left in (2, 1, 0):
            before = self.read().files
            try:
                for path in paths:
                    self.verify(path)
                content = load()
            except RunError:
                if not attempts_left or self.read().files == before:
                    raise
            else:
                if not attempts_left or self.read().files == before:
                    return content
        raise AssertionError("the last attempt returns or raises")

    def record_data(self, data: Mapping[str, Sequence[Path]], *, allow_changed: bool = False) -> None:
        """Records the files of each part of the data, or raises RunError if one has changed since it was recorded,
        unless ``allow_changed``."""
        manifest = self.read()
        current = {part: tuple(DataFile.of(path, self.folder) for path in files) for part, files in data.items()}
        if not allow_changed:
            for part, files in current.items():
                _require_same(part, manifest.data.get(part), files)
        if any(manifest.data.get(part) != files for part, files in current.items()):
            self.write(dataclasses.replace(manifest, data={**manifest.data, **current}))

    def resolve(self, name: str) -> str:
        """Returns the path of data that the run's configuration names relative to the directory where the run began."""
        if Path(name).is_absolute() or not (began_in := self.read().began_in):
            return name
        path = Path(began_in) / name
        return str(path) if path.exists() else name

    def _name(self, path: Path) -> str:
        # The name of a file in the manifest. A link that leads out of the run folder is a RunError.
        return path_inside(self.folder, path.relative_to(self.folder)).relative_to(self.folder).as_posix()

    def _set(self, name: str, sums: tuple[str, ...]) -> None:
        manifest = self.read()
        self.write(dataclasses.replace(manifest, files={**manifest.files, name: sums}))


def _require_same(part: str, before: Sequence[DataFile] | None, now: Sequence[DataFile]) -> None:
    if before is None:
        return
    for old, new in zip(before, now, strict=False):
        if old.sha256 != new.sha256:
            size = f"{old.bytes:,} bytes then, {new.bytes:,} now" if old.bytes != new.bytes else "the same size"
            raise RunError(
                f"the {part} data {new.path} has changed since the run began ({size}); restore it, or continue on "
                "the changed data with --allow-changed-data"
            )
    if len(before) != len(now):
        raise RunError(
            f"the {part} data had {len(before)} files when the run began and has {len(now)} now; "
            "continue on the changed data with --allow-changed-data"
        )


def sha256(path: Path) -> str:
    """Returns the SHA-256 sum of a regular file, in hexadecimal digits."""
    with open_regular(path, LARGEST_DATA) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
