"""The metrics of a validation, and the simple rule that a model is compared with."""

import math
from dataclasses import dataclass
from typing import NamedTuple

TIME_LIMIT_REASON = "minutes are over"
"""The end of the reason why a training ended, if its time limit ended it."""


@dataclass(frozen=True)
class Metric:
    """A number that each validation measures in addition to the loss."""

    name: str
    """In `ValidationResult.metrics`; ``metrics.csv`` has it as ``val_<name>``."""
    label: str
    """The name in messages and pictures."""
    higher_is_better: bool = True
    digits: int = 2
    """Decimals in messages."""
    trivial: float | None = None
    """A value that a model reaches without having learned anything, for example by giving empty texts. Values up to it
    do not tell which model is better. None: there is no such value."""
    perfect: float | None = None
    """The best possible value, at which a training ends; None: no model reaches it."""
    unit: str = ""
    """The unit of the values; metrics of one unit share a panel of the picture."""

    def is_informative(self, value: float) -> bool:
        """Whether a value is better than that of a model that has learned nothing."""
        return self.trivial is None or self.better(value, self.trivial)

    def is_perfect(self, value: float | None) -> bool:
        """Whether a value is the best possible one, up to rounding."""
        if value is None or self.perfect is None:
            return False
        return math.isclose(value, self.perfect, abs_tol=1e-9) or self.better(value, self.perfect)

    def better(self, value: float, best: float | None) -> bool:
        """Whether a value is better than the best earlier one; None: there is no earlier one."""
        return best is None or (value > best if self.higher_is_better else value < best)

    def text(self, value: float) -> str:
        """Returns a value with its label: ``"BLEU 31.20"``."""
        return f"{self.label} {value:.{self.digits}f}"


class Baseline(NamedTuple):
    """A simple rule that a trained model should beat."""

    rule: str
    """The rule: ``"the most frequent label"``."""
    value: float
    """The value of the task's first metric for its answers to the validation data."""


def comparison_with_rule(metric: Metric, value: float, rule: float, finished: str = "") -> str:
    """Returns a remark on a model whose ``value`` of the task's first metric is not better than that of the simple
    rule; "" if it is better. ``finished`` is why the training ended (`Progress.finished`)."""
    if metric.text(value) == metric.text(rule):
        same = "the model and that simple rule are equal"
        return f"{same}: both are as good as can be" if metric.is_perfect(value) else same
    if metric.better(value, rule):
        return ""
    is_cut = finished.endswith(TIME_LIMIT_REASON)
    needs = f"its training was cut when {finished}: it needs more time" if is_cut else "it needs more data, more epochs"
    return f"the model is not better than that simple rule: {needs} or another model"
