"""The folder of a training run: all files that are needed to use, resume and audit it."""

import csv
import json
import os
import shutil
from pathlib import Path
from typing import Any

from regard.errors import DataError, MissingPartError, RunError
from regard.training.config import RunConfig, run_sections
from regard.training.task import Task


class RunFolder:
    """``runs/<name>/`` and its files.

    ::

        config.yaml             the configuration                     (YAML)
        model.safetensors       the best model                        (safetensors)
        metrics.csv             one row for each validation
        samples.jsonl           what the model makes of a few inputs, at each validation
        checkpoints/            the last two checkpoints, to resume from (tensors and plain values)
        pictures/               curves, and what else the task draws

    A task has more files: a translator its tokenizers, ``tokenizer-*.json``.
    Reading these files cannot execute code: YAML is read with the safe loader, checkpoints with ``weights_only``.

    Args:
        path: the folder. The constructor does not create it.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.config = self.path / "config.yaml"
        self.model = self.path / "model.safetensors"
        self.metrics = self.path / "metrics.csv"
        self.samples = self.path / "samples.jsonl"
        self.checkpoints = self.path / "checkpoints"
        self.pictures = self.path / "pictures"

    @classmethod
    def create(cls, path: str | Path, overwrite: bool = False) -> "RunFolder":
        """Create the folder of a new run.

        Args:
            path: the folder.
            overwrite: whether to delete a run in this folder. A folder without a ``config.yaml`` is never deleted.

        Raises:
            RunError: the folder is not empty and ``overwrite`` is False, or its content is not a run.
        """
        folder = cls(path)
        if folder.path.exists() and not folder.path.is_dir():
            raise RunError(f"{folder.path} is a file; name another run folder with --run")
        if folder.path.is_dir() and any(folder.path.iterdir()):
            if not overwrite:
                raise RunError(
                    f"{folder.path} is not empty; continue it with --resume, replace it with --overwrite, "
                    "or name another with --run"
                )
            if not folder.config.is_file():
                raise RunError(f"{folder.path} holds no config.yaml, so it isn't a run and is not overwritten")
            shutil.rmtree(folder.path)
        try:
            folder.checkpoints.mkdir(parents=True, exist_ok=True)
            folder.pictures.mkdir(exist_ok=True)
        except OSError as error:
            raise RunError(f"cannot create the run folder {folder.path}: {error.strerror}") from error
        return folder

    @classmethod
    def open(cls, path: str | Path) -> "RunFolder":
        """Open the folder of an existing run.

        Raises:
            RunError: there is no such folder, or it is not a run folder.
        """
        folder = cls(path)
        if not folder.path.is_dir():
            raise RunError(f"there is no run folder {folder.path}")
        if not folder.config.is_file():
            raise RunError(f"{folder.path} is not a run folder: it has no config.yaml")
        return folder

    def require(self, *paths: Path) -> None:
        """Raise RunError if the model, or one of these files of the run, is missing."""
        for path in (self.model, *paths):
            if not path.is_file():
                raise RunError(
                    f"{self.path} has no {path.name}; the run ended before its first validation (continue it with: "
                    f"regard train {self.read_sections()['task']} --resume)"
                )

    def write_config(self, config: RunConfig[Any, Any, Any]) -> None:
        """Write ``config.yaml``."""
        text = _yaml().safe_dump(config.to_dict(), sort_keys=False, allow_unicode=True)
        write_atomically(self.config, text.encode())

    def read_config(self, task: Task) -> RunConfig[Any, Any, Any]:
        """Read ``config.yaml``.

        Args:
            task: the task of the run; `regard.tasks.registry.of_run` finds it.

        Raises:
            RunError: the file is missing, is not YAML, or is not the configuration of a run of this task.
        """
        return RunConfig.from_dict(self._read_yaml(), str(self.config), task)

    def read_sections(self) -> dict[str, Any]:
        """The task and the sections of ``config.yaml`` as plain values.

        Raises:
            RunError: the file is missing, is not YAML, or is not the configuration of a run.
        """
        return run_sections(self._read_yaml(), str(self.config))

    def _read_yaml(self) -> Any:
        try:
            return _yaml().safe_load(self.config.read_text("utf-8"))
        except OSError as error:
            raise RunError(f"cannot read {self.config}: {error.strerror}") from error
        except (_yaml().YAMLError, UnicodeDecodeError) as error:
            raise RunError(f"{self.config} is not valid YAML: {str(error).splitlines()[0]}") from error

    def read_metrics(self) -> list[dict[str, float]]:
        """The rows of ``metrics.csv``, oldest first."""
        if not self.metrics.is_file():
            return []
        try:
            with self.metrics.open(newline="", encoding="utf-8") as file:
                return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
        except (ValueError, TypeError) as error:
            raise RunError(f"{self.metrics} is damaged: {error}") from error

    def write_metrics(self, rows: list[dict[str, float]]) -> None:
        """Replace ``metrics.csv``: a resumed run deletes the rows after its checkpoint."""
        lines = []
        if rows:
            lines.append(",".join(rows[0]))
            lines += [",".join(_number(value) for value in row.values()) for row in rows]
        write_atomically(self.metrics, "".join(line + "\n" for line in lines).encode())

    def read_samples(self) -> list[dict[str, Any]]:
        """The records of ``samples.jsonl``, oldest first."""
        if not self.samples.is_file():
            return []
        return [json.loads(line) for line in self.samples.read_text("utf-8").splitlines()]

    def write_samples(self, records: list[dict[str, Any]]) -> None:
        """Replace ``samples.jsonl``."""
        text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        write_atomically(self.samples, text.encode())


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file atomically: a reader sees the whole old file or the whole new file, also after a crash.

    Raises:
        DataError: the disk is full or the folder cannot be written; the old file is unchanged.
    """
    with AtomicFile(path) as temporary:
        temporary.write_bytes(content)


class AtomicFile:
    """A context that gives a temporary file; when the block ends without an error, the file replaces ``path``."""

    def __init__(self, path: Path):
        self.path = path
        self.temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")

    def __enter__(self) -> Path:
        return self.temporary

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                with self.temporary.open("rb") as file:
                    os.fsync(file.fileno())
                os.replace(self.temporary, self.path)
                _sync_folder(self.path.parent)
        except OSError as failed:
            error = failed
        finally:
            self.temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise DataError(
                f"cannot write {self.path}: {error.strerror or error}; the old file is unchanged; "
                "free some disk space and continue with --resume"
            ) from error


def _sync_folder(path: Path) -> None:
    if os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _number(value: float) -> str:
    return repr(value) if isinstance(value, int) else f"{value:.6g}"


def _yaml() -> Any:
    try:
        import yaml
    except ImportError as error:
        raise MissingPartError("pyyaml", "train") from error
    return yaml
