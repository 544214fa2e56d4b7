"""The folder of a training run, with all files that are needed to use, resume and audit it."""

import csv
import json
import os
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import RunError
from regard.files.atomic import named_output, write_atomically
from regard.files.platforms import quoted
from regard.files.regular import LARGEST_TEXT, open_text, path_inside, read_text, tree_inside
from regard.training.config import RunConfig, SectionTypes, read_yaml, run_sections, yaml_text
from regard.training.hub import is_hub_address, local_run
from regard.training.manifest import ManifestFile
from regard.training.run_replacement import named_path, replacement_path, require_replaceable, restore
from regard.training.training_facts import FACTS

if TYPE_CHECKING:
    from regard.pictures import Quality

PACKAGES = ("regard", "torch", "lightning", "numpy", "tokenizers", "datasets", "safetensors")
"""Packages whose versions are written into ``config.yaml``."""


class RunFolder:
    """``runs/<name>/`` and its files.

    ::

        README.md               the model card                        (Markdown, YAML)
        config.yaml             the configuration                     (YAML)
        model.safetensors       the best model                        (safetensors)
        metrics.csv             one row for each validation
        training.json           sizes and length of the training      (JSON)
        samples.jsonl           what the model makes of a few inputs, at each validation
        checkpoints/            the last two checkpoints, to resume from (tensors and plain values)
        pictures/               curves, and what else the task draws
        manifest.json           SHA-256 sums of files and data        (JSON)

    A task has more files: a translator its tokenizers, ``tokenizer-*.json``.
    Reading these files cannot execute code: YAML is read with the safe loader, checkpoints with ``weights_only``.
    The folder itself may be a link, which the user typed. Its files may come from somebody else, so `file` or `tree`
    checks every path in it each time that it is used: none leads out of the folder.

    Args:
        path: the folder. The constructor does not create it. One that is typed as ``.`` or ``..`` becomes absolute, as
            the run has the name of its folder.
    """

    def __init__(self, path: str | Path):
        self.path = named_path(Path(path))
        self.manifest = ManifestFile(self.path)
        self.replaces: Path | None = None
        """The run that this new run replaces when it is complete."""

    def __fspath__(self) -> str:
        return str(self.path)

    __str__ = __fspath__

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"

    def file(self, name: str) -> Path:
        """Returns the path of a file or folder of the run, which need not exist.

        Raises:
            RunError: a link at the path, or at a folder above it, leads out of the run folder; or it is a pipe.
        """
        return path_inside(self.path, name)

    def tree(self, name: str) -> Path:
        """Returns the path of a folder of the run, as `file`; nothing in it leads out of the run folder either."""
        return tree_inside(self.path, name)

    @property
    def config(self) -> Path:
        """``config.yaml``."""
        return self.file("config.yaml")

    @property
    def model(self) -> Path:
        """``model.safetensors``."""
        return self.file("model.safetensors")

    @property
    def metrics(self) -> Path:
        """``metrics.csv``."""
        return self.file("metrics.csv")

    @property
    def facts(self) -> Path:
        """``training.json``."""
        return self.file(FACTS)

    @property
    def samples(self) -> Path:
        """``samples.jsonl``."""
        return self.file("samples.jsonl")

    @property
    def checkpoints(self) -> Path:
        """``checkpoints/``."""
        return self.tree("checkpoints")

    @property
    def pictures(self) -> Path:
        """``pictures/``."""
        return self.tree("pictures")

    @classmethod
    def create(cls, path: str | Path, overwrite: bool = False) -> "RunFolder":
        """Returns the folder of a new run. Nothing is written: `RunSession` makes the folder when the training begins.

        Args:
            path: the folder.
            overwrite: whether the new run may replace a run in this folder. The new run is trained in ``<path>.new``,
                and moved to ``path`` when it is complete.

        Raises:
            RunError: the folder is not empty and ``overwrite`` is False, or it is not a run, or holds foreign files.
        """
        folder = cls(named_output(path, "--run"))
        restore(folder.path)
        if folder.path.exists() and not folder.path.is_dir():
            raise RunError(f"{folder.path} is a file; name another run folder with --run")
        if not folder.path.is_dir() or is_empty_folder(folder.path):
            return folder
        if not overwrite:
            raise RunError(
                f"{folder.path} is not empty; continue it with --resume, replace it with --overwrite, "
                "or name another with --run"
            )
        for existing in (folder.path, replacement_path(folder.path)):
            if os.path.lexists(existing):
                require_replaceable(existing)
        new = cls(replacement_path(folder.path))
        new.replaces = folder.path
        return new

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "RunFolder":
        """Returns the folder of an existing run.

        Args:
            path: the folder, or the address of a run on the Hugging Face hub, ``hf://OWNER/NAME`` or
                ``hf://OWNER/NAME@REVISION``, which is downloaded.

        Raises:
            RunError: there is no such folder, or it is not a run folder.
        """
        path = os.fspath(path)
        if not path:
            raise RunError("the name of the run folder is empty; give a folder, or . for this one")
        folder = cls(local_run(path) if is_hub_address(path) else path)
        restore(folder.path)
        if not folder.path.is_dir():
            usual = Path("runs", path)
            hint = f"; there is {usual}" if cls(usual).config.is_file() else ""
            raise RunError(f"there is no run folder {path}{hint}")
        if not folder.config.is_file():
            raise RunError(f"{path} is not a run folder: it has no config.yaml")
        return folder

    def require(self, *paths: Path) -> None:
        """Raises RunError if the model or one of these files of the run is missing."""
        for path in (self.model, *paths):
            if not path.is_file():
                raise RunError(
                    f"{self.path} has no {path.name}: the run has not come to its first validation; "
                    f"{continue_with(self.path, self.read_sections()['task'])}"
                )

    def make_pictures(self) -> None:
        """Creates the folder ``pictures`` unless it exists; raises RunError if it cannot be created."""
        try:
            self.pictures.mkdir(exist_ok=True)
        except OSError as error:
            raise RunError(f"cannot create the folder {self.pictures}: {error.strerror}") from error

    def draw_curves(self, metrics: "Mapping[str, str | Quality]") -> list[Path]:
        """Draws ``pictures/curves.png``, the loss and the metrics over the steps; returns the files.

        Args:
            metrics: column of ``metrics.csv`` → its name, or a `Quality`.
        """
        from regard.pictures import save, training_curves

        rows = self.read_metrics()
        if not rows:  # before the first validation
            return []
        self.make_pictures()
        figure = training_curves(rows, title=self.path.name, qualities=metrics)
        return [save(figure, self.pictures / "curves.png")]

    def write_config(self, config: RunConfig) -> None:
        """Writes ``config.yaml``."""
        content = {**config.to_dict(), "versions": _installed_versions()}
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"cannot create the run folder {self.path}: {error.strerror}") from error
        write_atomically(self.config, yaml_text(content).encode())

    def read_config(self, task: SectionTypes) -> RunConfig:
        """Returns the configuration in ``config.yaml``.

        Args:
            task: the task of the run; `regard.tasks.registry.of_run` finds it.

        Raises:
            RunError: the file is missing, is not YAML, or is not the configuration of a run of this task.
        """
        return RunConfig.from_dict(read_yaml(self.config), str(self.config), task)

    def read_sections(self) -> dict[str, Any]:
        """Returns the task and the sections of ``config.yaml`` as plain values.

        Raises:
            RunError: the file is missing, is not YAML, or is not the configuration of a run.
        """
        return run_sections(read_yaml(self.config), str(self.config))

    def read_metrics(self) -> list[dict[str, float]]:
        """Returns the rows of ``metrics.csv``, oldest first."""
        path = self.metrics
        try:
            with open_text(path, LARGEST_TEXT, newline="") as file:
                table = csv.DictReader(file)
                rows = [{name: float(value) for name, value in row.items()} for row in table]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise RunError(f"cannot read {self.metrics}: {error.strerror}") from error
        except (ValueError, TypeError, AttributeError, csv.Error) as error:
            raise RunError(f"{self.metrics} is damaged ({error}); restore it, or delete it and resume") from error
        if rows and "step" not in rows[0]:
            raise RunError(f"{self.metrics} is damaged (it has no column step); restore it, or delete it and resume")
        return rows

    def write_metrics(self, rows: list[dict[str, float]]) -> None:
        """Replaces ``metrics.csv``: a resumed run deletes the rows after its checkpoint."""
        lines = []
        if rows:
            lines.append(",".join(rows[0]))
            lines += [",".join(_number(value) for value in row.values()) for row in rows]
        write_atomically(self.metrics, "".join(line + "\n" for line in lines).encode())

    def read_samples(self) -> list[dict[str, Any]]:
        """Returns the records of ``samples.jsonl``, oldest first."""
        path = self.samples
        try:
            lines = read_text(path, LARGEST_TEXT).splitlines()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise RunError(f"cannot read {self.samples}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise RunError(f"{self.samples} is damaged ({error}); restore it, or delete it and resume") from error
        return [self._sample(number, line) for number, line in enumerate(lines, start=1)]

    def write_samples(self, records: list[dict[str, Any]]) -> None:
        """Replaces ``samples.jsonl``."""
        text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        write_atomically(self.samples, text.encode())

    def _sample(self, number: int, line: str) -> dict[str, Any]:
        try:
            record = json.loads(line)
            if not isinstance(record["step"], int):
                raise ValueError("the step is not a number")
            json.dumps(record, ensure_ascii=False).encode()  # ValueError for half a surrogate pair
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise RunError(
                f"{self.samples} is damaged: line {number} is not a record of a run ({error}); "
                "restore it, or delete it and resume"
            ) from error
        return record


def continue_with(path: Path, task: str) -> str:
    """Returns how to continue a run, with a command for a shell."""
    folder = f"--runs {quoted(str(path.parent))} --run {quoted(path.name)}"
    return f"continue with: regard train {quoted(task)} {folder} --resume"


def _installed_versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


def is_empty_folder(folder: Path) -> bool:
    """Whether a folder has no contents; raises RunError if it cannot be read."""
    try:
        return not any(folder.iterdir())
    except OSError as error:
        raise RunError(f"cannot read the folder {folder}: {error.strerror}") from error


def _number(value: float) -> str:
    return repr(value) if isinstance(value, int) else f"{value:.6g}"
