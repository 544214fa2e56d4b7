"""A run of the benchmark as a record: what is written as JSON, and read again to be compared."""

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

from regard.bench.limits import Peaks, cpu_name
from regard.bench.measurement import Measurement
from regard.bench.peers import PEERS, absence, version
from regard.bench.task import Work
from regard.errors import DataError

FORMAT = 1
"""Of the JSON; a reader of another number refuses it."""


@dataclass(frozen=True)
class TaskRecord:
    """One row as it was measured.

    Attributes:
        name, title, group, about: of the task, the title with its sizes.
        sizes: of its inputs.
        work: what it needs at least.
        limit: seconds that this takes at best on this machine.
        results: column → what was measured.
    """

    name: str
    title: str
    group: str
    about: str
    sizes: Mapping[str, int]
    work: Work
    limit: float
    results: Mapping[str, Measurement]

    def fraction(self, column: str) -> float | None:
        """The part of the physical limit that this contender reaches; None if it was not timed."""
        found = self.results.get(column)
        if found is None or found.state != "measured":
            return None
        seconds = found.seconds.median if found.seconds else found.alone
        return self.limit / seconds if seconds else None


@dataclass(frozen=True)
class CurveRecord:
    """How long a task takes as its length grows.

    Attributes:
        name: of the curve.
        title: what is drawn over it.
        seconds: column → length → seconds, the median.
        stopped: column → why it ends where it does, if not at the last length.
    """

    name: str
    title: str
    seconds: Mapping[str, Mapping[int, float]]
    stopped: Mapping[str, str]


@dataclass
class Record:
    """Everything that one run found out.

    Attributes:
        date: ISO, UTC.
        quick: whether the sizes were small ones, which no bar is held against.
        machine: CPU, system, threads.
        versions: of regard, Python, PyTorch and the peers; None: absent.
        absent: column → why that peer was not asked.
        peaks: of the machine.
        tasks: rows in their order.
        curves: over length.
        complete: whether everything that was asked for was measured.
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
        """The record as JSON, without numbers that JSON does not have."""
        return json.dumps({"format": FORMAT, **_finite(asdict(self))}, indent=1, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str, name: str = "record") -> "Record":
        """Read a record.

        Raises:
            DataError: this is none, or one of another format.
        """
        try:
            found = json.loads(text)
            if found.pop("format") != FORMAT:
                raise DataError(f"{name} was written by another version of regard; measure again")
            return cls(
                **{
                    **found,
                    "peaks": Peaks(**found["peaks"]),
                    "tasks": [_task(task) for task in found["tasks"]],
                    "curves": [_curve(curve) for curve in found["curves"]],
                }
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"{name} is not a record of regard bench: {error}") from error

    def save(self, path: Path) -> None:
        """Write it; raises DataError if that cannot be done."""
        draft = path.with_name(f".{path.name}.part")
        try:
            draft.write_text(self.to_json() + "\n", encoding="utf-8")
            os.replace(draft, path)
        except OSError as error:
            raise DataError(f"cannot write {path}: {error.strerror or error}") from error

    @classmethod
    def load(cls, path: Path) -> "Record":
        """Read a file that `save` has written; raises DataError if it is none."""
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"cannot read {path}: {error}") from error
        return cls.from_json(text, str(path))


def describe_machine() -> dict[str, Any]:
    """What the numbers depend on."""
    return {
        "cpu": cpu_name(),
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def describe_versions() -> dict[str, str | None]:
    """Versions of everything that was compared; None: not installed."""
    return {
        "regard": distribution_version("regard"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        **{column: version(column) for column in PEERS},
    }


def describe_absent() -> dict[str, str]:
    """Peers that cannot be asked, and why."""
    reasons = {column: absence(column) for column in PEERS}
    return {column: reason for column, reason in reasons.items() if reason is not None}


def _task(found: dict[str, Any]) -> TaskRecord:
    results = {column: Measurement.from_json(result) for column, result in found["results"].items()}
    return TaskRecord(**{**found, "work": Work(**found["work"]), "results": results})


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
