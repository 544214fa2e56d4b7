"""The progress of a training run: the counters that a checkpoint saves."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from regard.errors import RunError

FORMAT = 2
"""Of the counters in a checkpoint."""

# The names of version 0.1, which knew one metric and one unit.
_FIRST_NAMES: dict[str, str] = {"best_bleu": "best", "tokens": "units"}


@dataclass(slots=True)
class Progress:
    """The counters of a run. A resumed run needs these, the weights and the optimizer's state, and nothing else."""

    step: int = 0
    """Optimizer steps taken."""
    epoch: int = 0
    """Epochs completed."""
    position: int = 0
    """Batches of the current epoch that the model was trained on."""
    seconds: float = 0.0
    """Seconds of training and validation, summed over all interruptions."""
    best: float | None = None
    """Best value of the task's first metric; None before the first validation."""
    best_step: int = 0
    """Step of the best validation."""
    waited: int = 0
    """Validations since the best one."""
    loss_sum: float = 0.0
    """Loss, summed over the units since the last validation."""
    units: int = 0
    """Units of the loss (tokens, images, ...) since the last validation."""
    training_seconds: float = 0.0
    """Seconds of training since the last validation."""
    finished: str = ""
    """Why the run has ended; empty while it has not."""

    def to_dict(self) -> dict[str, Any]:
        """The counters as plain values, for a checkpoint."""
        return {"format": FORMAT, "progress": dataclasses.asdict(self)}

    def restore(self, content: dict[str, Any]) -> None:
        """Set the counters to those that `to_dict` returned, or that version 0.1 saved.

        Raises:
            RunError: another version of regard saved them.
        """
        if not isinstance(content, dict) or not isinstance(content.get("progress"), dict):
            raise RunError("the checkpoint has no counters of a run")
        saved: dict[str, Any] = dict(content["progress"])
        if content.get("format") == 1:
            saved = {_FIRST_NAMES.get(name, name): value for name, value in saved.items()}
            saved["best"] = None if saved.get("best", -1) < 0 else saved["best"]
        elif content.get("format") != FORMAT:
            raise RunError(
                f"the checkpoint has format {content.get('format')!r}; this version of regard reads 1 and {FORMAT}"
            )
        for name, value in saved.items():
            if name not in self.__slots__ or not isinstance(value, (int, float, str, type(None))):
                raise RunError(f"the checkpoint has a counter {name!r} that is none of regard: {value!r}")
            setattr(self, name, value)
