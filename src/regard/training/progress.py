"""The progress of a training run: the counters that a checkpoint saves."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from regard.errors import RunError
from regard.training.metrics import Metric

FORMAT = 2
"""Format of the counters in a checkpoint."""

_OLD_NAMES = {"best_bleu": "best", "tokens": "units"}
"""Counter of version 0.1, which knew one metric and one unit → its name now."""


@dataclass
class Progress:
    """The counters of a run. A resumed run also needs the weights and the states of optimizer and schedule."""

    step: int = 0
    """Optimizer steps taken."""
    epoch: int = 0
    """Epochs completed."""
    position: int = 0
    """Batches of the current epoch that the model was trained on."""
    seconds: float = 0.0
    """Seconds of training and validation, summed over all interruptions."""
    best: float | None = None
    """The value of the best validation for the task's first metric; None before the first validation."""
    best_loss: float | None = None
    """Validation loss of the best validation; None before it, and in a checkpoint of an earlier version."""
    lowest_loss: float | None = None
    """Lowest validation loss; None before the first validation."""
    best_step: int = 0
    """Step of the best validation."""
    waited: int = 0
    """Validations in a row, of those that count for patience, in which neither the metric nor the loss improved."""
    perfect: int = 0
    """Validations from the first one with a perfect metric on."""
    last_validation: int = 0
    """Step of the last validation."""
    validation_seconds: float = 0.0
    """Seconds that it took."""
    loss_sum: float = 0.0
    """Loss, summed over the units since the last validation."""
    units: int = 0
    """Units of the loss (tokens, images, ...) since the last validation."""
    training_seconds: float = 0.0
    """Seconds of training since the last validation."""
    finished: str = ""
    """Why the run has ended; empty while it has not."""

    def observe(self, metric: Metric, value: float, loss: float, counts: bool) -> bool:
        """Counts a validation after the current step, and returns whether the model is the best so far.

        The best model is the one with the best value of the task's first metric and, among equal values, the lowest
        loss. Until the metric is informative, the loss alone decides: the word error rate of a model that has just
        begun to learn rises when it begins to write. ``counts`` says whether the validation counts for patience if
        nothing improves; after a perfect value, each does.
        """
        counts = counts or metric.is_perfect(self.best)
        if not (math.isfinite(value) and math.isfinite(loss)):
            self.waited, self.perfect = self.waited + counts, self.perfect + metric.is_perfect(self.best)
            return False
        lower = self.lowest_loss is None or loss < self.lowest_loss
        informative = self.best is not None and metric.is_informative(self.best)
        if metric.is_informative(value):
            lower_than_best = lower if self.best_loss is None else loss < self.best_loss
            best = metric.better(value, self.best if informative else None) or (value == self.best and lower_than_best)
        elif self.best is None or informative:
            best = self.best is None
        else:  # a checkpoint of an earlier version knows no loss
            best = metric.better(value, self.best) if self.lowest_loss is None else lower
        if lower:
            self.lowest_loss = loss
        if best:
            self.best, self.best_loss, self.best_step = value, loss, self.step
        self.waited = 0 if best or lower else self.waited + counts
        self.perfect += metric.is_perfect(self.best)
        return best

    def to_dict(self) -> dict[str, Any]:
        """Returns the counters as plain values, for a checkpoint."""
        return {"format": FORMAT, "progress": dataclasses.asdict(self)}

    def restore(self, content: dict[str, Any]) -> None:
        """Sets the counters to those that `to_dict` returned, or that version 0.1 saved; raises RunError for another
        version's."""
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
