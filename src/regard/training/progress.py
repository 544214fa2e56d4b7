"""The progress of a training run: the counters that a checkpoint saves."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from regard.errors import RunError

FORMAT = 2
"""Format of the counters in a checkpoint."""

_OLD_NAMES = {"best_bleu": "best", "tokens": "units"}
"""Counter of version 0.1, which knew one metric and one unit → its name now."""


@dataclass
class Progress:
    """The counters of a run. Besides them, a resumed run needs the weights and the states of optimizer and schedule."""

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
        """Returns the counters as plain values, for a checkpoint."""
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
            saved = {_OLD_NAMES.get(name, name): value for name, value in saved.items()}
            saved["best"] = None if saved.get("best", -1) < 0 else saved["best"]
        elif content.get("format") != FORMAT:
            raise RunError(
                f"the checkpoint has format {content.get('format')!r}; this version of regard reads 1 and {FORMAT}"
            )
        counters = {field.name for field in dataclasses.fields(self)}
        for name, value in saved.items():
            if name not in counters or not isinstance(value, (int, float, str, type(None))):
                raise RunError(f"the checkpoint has a counter {name!r} that regard does not know: {value!r}")
            setattr(self, name, value)
