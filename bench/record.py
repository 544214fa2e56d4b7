"""The record of a benchmark run, which is saved as JSON and loaded for comparisons."""

import datetime
import json
import math
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version as distribution_version
from pathlib import Path
from typing import Any

import torch

from bench.limits import Peaks, cpu_name
from bench.measurement import Measurement
from bench.target import Target
from bench.task import Work
from regard.cli.peers import PEER_PACKAGES, absence, version
from regard.errors import DataError
from regard.files.atomic import write_atomically
from regard.files.regular import LARGEST_TEXT, read_text

FORMAT = 1
"""Version of the JSON format; only files of this version are read."""


@dataclass(frozen=True)
class TaskRecord:
    """The results of one task.

    Attributes:
        name: name of the task.
        title: title of the task, with its sizes.
        group: heading of the task in the report.
        about: a sentence on the task.
        sizes: sizes of its inputs.
        work: the operations that it needs.
        limit: the least seconds for these operations on this machine.
        results: column → measurement.
    """

    name: str
    title: str
    group: str
    about: str
    sizes: Mapping[str, int]
    work: Work
    limit: float
    results: Mapping[str, Measurement]

    def to_json(self) -> str:
        """The results as JSON, in a line; infinite numbers and NaN become null."""
        return json.dumps(_finite(asdict(self)), allow_nan=False)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> "TaskRecord":
        """The inverse of `to_json`, once the text is read."""
        results = {column: Measurement.from_json(result) for column, result in found["results"].items()}
        return cls(**{**found, "work": Work(**found["work"]), "results": results})

    def fraction(self, column: str) -> float | None:
        """The physical limit divided by the implementation's time; None if it was not timed."""
        found = self.results.get(column)
        if found is None or found.state != "measured":
            return None
        seconds = found.seconds.median if found.seconds else found.alone
        return self.limit / seconds if seconds else None


@dataclass(frozen=True)
class CurveRecord:
    """The results of a scaling curve.

    Attributes:
        name: name of the curve.
        title: title of the picture.
        seconds: column → length → median seconds.
        stopped: column → why it was not measured up to the last length.
    """

    name: str
    title: str
    seconds: Mapping[str, Mapping[int, float]]
    stopped: Mapping[str, str]


@dataclass
class Record:
    """The results of a run.

    Attributes:
        quick: whether small sizes were measured, for which requirements are not checked.
        peaks: peak rates of the machine.
        date: ISO 8601, UTC.
        machine: CPU, system, threads; of a run on an accelerator also its name and the dtype.
        versions: versions of regard, Python, PyTorch and the peers; None: absent.
        absent: column → why that peer was not measured.
        tasks: results of the tasks, in their order.
        curves: results of the scaling curves.
        complete: whether all selected tasks and curves were measured.
    """

    quick: bool
    peaks: Peaks
    date: str = field(default_factory=lambda: datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"))
    machine: dict[str, Any] = field(default_factory=lambda: describe_machine())
    versions: dict[str, str | None] = field(default_factory=lambda: describe_versions())
    absent: dict[str, str] = field(default_factory=lambda: describe_absent())
    tasks: list[TaskRecord] = field(default_factory=list)
    curves: list[CurveRecord] = field(default_factory=list)
    complete: bool = False

    def to_json(self) -> str:
        """The record as JSON; infinite numbers and NaN become null."""
        return json.dumps({"format": FORMAT, **_finite(asdict(self))}, indent=1, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str, name: str = "record") -> "Record":
        """Read a record.

        Raises:
            DataError: the text is not a record, or has another format.
        """
        try:
            found = json.loads(text)
            if found.pop("format") != FORMAT:
                raise DataError(f"{name} was written by another version of regard; measure again")
            return cls(
                **{
                    **found,
                    "peaks": Peaks(**found["peaks"]),
                    "tasks": [TaskRecord.from_json(task) for task in found["tasks"]],
                    "curves": [_curve(curve) for curve in found["curves"]],
                }
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"{name} is not a record of regard bench: {error}") from error

    def save(self, path: Path) -> None:
        """Write the record to a file; raises DataError if the file cannot be written."""
        write_atomically(path, (self.to_json() + "\n").encode())

    @classmethod
    def load(cls, path: Path) -> "Record":
        """Read a file that `save` wrote; raises DataError if it is no such file."""
        try:
            text = read_text(path, LARGEST_TEXT)
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"cannot read {path}: {error}") from error
        return cls.from_json(text, str(path))


def describe_machine(target: Target | None = None) -> dict[str, Any]:
    """The CPU, the number of threads and the system, and the accelerator if tasks are measured there."""
    accelerator = {} if target is None or target.is_cpu else {"accelerator": target.name(), "dtype": target.dtype}
    return {
        "cpu": cpu_name(),
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
        **accelerator,
    }


def describe_versions() -> dict[str, str | None]:
    """Versions of regard, Python, PyTorch and the peers; None: not installed."""
    return {
        "regard": distribution_version("regard"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        **{column: version(column) for column in PEER_PACKAGES},
    }


def describe_absent() -> dict[str, str]:
    """Column → why the peer cannot run."""
    reasons = {column: absence(column) for column in PEER_PACKAGES}
    return {column: reason for column, reason in reasons.items() if reason is not None}


def _curve(found: dict[str, Any]) -> CurveRecord:
    seconds = {
        column: {int(length): value for length, value in points.items()} for column, points in found["seconds"].items()
    }
    return CurveRecord(**{**found, "seconds": seconds})


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _finite(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
