"""Metrics of labels: the confusion matrix, and precision, recall and F1 of each label."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class LabelScores:
    """How well one label is found; each number is in [0, 1], and 0 where its denominator is."""

    label: str
    precision: float
    """Texts with the label among those that were given it."""
    recall: float
    """Texts that were given the label among those with it."""
    f1: float
    """Harmonic mean of both."""
    texts: int
    """Texts with the label."""


@dataclass(frozen=True, slots=True)
class LabelMetrics:
    """How well labels are found in a data set.

    The macro means are over the labels that occur in the data or among the found labels.
    """

    confusion: list[list[int]]
    """``[true][found]``: numbers of texts."""
    accuracy: float
    macro_precision: float
    macro_recall: float
    macro_f1: float
    by_label: list[LabelScores]
    """In the order of the labels, also of those that do not occur."""


def label_metrics(true: Sequence[int], found: Sequence[int], labels: Sequence[str]) -> LabelMetrics:
    """The metrics of found labels.

    Args:
        true: the number of each text's label.
        found: the number of the label that each text was given.
        labels: the names of the labels.
    """
    confusion = np.zeros((len(labels), len(labels)), np.int64)
    np.add.at(confusion, (np.asarray(true, np.int64), np.asarray(found, np.int64)), 1)
    right, has, given = confusion.diagonal(), confusion.sum(1), confusion.sum(0)
    precision, recall, f1 = _ratio(right, given), _ratio(right, has), _ratio(2 * right, has + given)
    occurs = has + given > 0
    macro = [float(values[occurs].mean()) if occurs.any() else 0.0 for values in (precision, recall, f1)]
    columns = zip(labels, precision.tolist(), recall.tolist(), f1.tolist(), has.tolist(), strict=True)
    scores = [LabelScores(*one) for one in columns]
    return LabelMetrics(
        confusion=confusion.tolist(),
        accuracy=float(right.sum() / max(1, confusion.sum())),
        macro_precision=macro[0],
        macro_recall=macro[1],
        macro_f1=macro[2],
        by_label=scores,
    )


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return part / np.maximum(whole, 1)
