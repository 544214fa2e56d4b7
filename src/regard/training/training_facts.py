"""The facts of a training that no other file of its run has: ``training.json``."""

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.errors import RunError
from regard.files.atomic import write_atomically
from regard.files.regular import LARGEST_RECORD, read_text
from regard.training.sections import record_of

FACTS = "training.json"


@dataclass(frozen=True)
class TrainingFacts:
    """The content of ``training.json``."""

    description: str = ""
    """The sizes of data and model."""
    model: str = ""
    """Class of the model."""
    parameters: int = 0
    """Number of trained parameters."""
    hardware: str = ""
    """Kind of the machine, without its name."""
    steps: int = 0
    epochs: float = 0.0
    seconds: float = 0.0
    """Seconds of training and validation."""
    best_step: int = 0
    """Step of the best validation."""
    finished: str = ""
    """Why the training ended; empty if it was interrupted."""
    baseline: Mapping[str, Any] = field(default_factory=dict)
    """The simple ``rule`` and the ``value`` of its metric on the validation data; {} if none was measured."""
    exports: Sequence[str] = ()
    """The formats that the model has an export of; empty in a run of an earlier version."""
    evaluations: Mapping[str, str] = field(default_factory=dict)
    """Name of an evaluation → SHA-256 sum of the model that it measured."""

    @classmethod
    def read(cls, path: Path) -> "TrainingFacts | None":
        """Returns the facts in a file; None if there is none, as in runs of earlier versions. Raises RunError for a
        damaged one."""
        try:
            content = json.loads(read_text(path, LARGEST_RECORD))
            if isinstance(content, dict):
                content = {"baseline": {}, "exports": []} | content  # of a run of an earlier version
            facts = record_of(cls, content)
            for name, value in vars(facts).items():
                if isinstance(value, (int, float)) and not abs(value) < 1 << 63:
                    raise ValueError(f"{name} must be a number below 2⁶³")
            rule = facts.baseline
            if rule and not (isinstance(rule.get("rule"), str) and finite_number(rule.get("value")) is not None):
                raise ValueError("baseline must have a rule and a value")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise RunError(f"cannot read {path}: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            raise RunError(f"{path} is damaged ({error}); restore it, or delete it") from error
        return facts

    def write(self, path: Path) -> None:
        """Writes the facts into a file."""
        text = json.dumps(dataclasses.asdict(self), indent=1, ensure_ascii=False)
        write_atomically(path, f"{text}\n".encode())


def finite_number(value: object) -> float | None:
    """Returns a value as a number; None if it is no number, or not finite."""
    try:
        number = float(value) if isinstance(value, (int, float)) else math.nan
    except OverflowError:  # a whole number of hundreds of digits
        return None
    return number if math.isfinite(number) else None
