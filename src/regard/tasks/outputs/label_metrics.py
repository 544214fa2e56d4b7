"""Metrics of labels: the confusion matrix, scores of each label, and how they are printed and drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.tasks.lazy import np, pictures, torch

if TYPE_CHECKING:
    from torch import Tensor

    from regard.training.run_folder import RunFolder

MOST_SHOWN_LABELS = 12
"""The most labels of a confusion matrix that is printed."""


def draw_confusion(folder: RunFolder, confusion: Sequence[Sequence[int]], labels: Sequence[str], name: str) -> Path:
    """Draws the confusion matrix into ``pictures/<name>.png``."""
    folder.make_pictures()
    return pictures.save(pictures.confusion_matrix(confusion, labels), folder.pictures / f"{name}.png")


def cell_length(text: str) -> int:
    """Returns how many cells of a terminal a text takes."""
    from rich.cells import cell_len  # which takes a twentieth of a second to import

    return cell_len(text)


def cells(text: str, width: int) -> str:
    """Returns a text padded to a width in cells of a terminal, of which a wide character takes two; before it, if
    negative."""
    spaces = " " * (abs(width) - cell_length(text))
    return text + spaces if width >= 0 else spaces + text


def table_lines(by_label: Sequence[LabelScores], unit: str) -> list[str]:
    """Returns a table with a line for each label: its precision, recall, F1 and number of examples, whose name in the
    plural, ``unit``, has at most six letters."""
    width = max(5, *(cell_length(one.label) for one in by_label))
    rows = [
        f"  {cells(one.label, width)}  {one.precision:9.4f}  {one.recall:6.4f} {one.f1:6.4f}  {one.texts:6}"
        + (f"  (none of these {unit} has this label)" if one.texts == 0 else "")
        for one in by_label
    ]
    return [f"  {'label':<{width}}  precision  recall     F1  {unit:>6}", *rows]


def confusion_lines(confusion: Sequence[Sequence[int]], labels: Sequence[str]) -> list[str]:
    """Returns the lines of the confusion matrix, or a line that says where it is for more than `MOST_SHOWN_LABELS`."""
    if len(labels) > MOST_SHOWN_LABELS:
        return [f"  the confusion matrix of {len(labels)} labels is in the results"]
    width = max(4, *(cell_length(label) for label in labels))
    digits = max(width, *(len(str(number)) for row in confusion for number in row))
    head = f"  {'true':<{width}} | " + " ".join(cells(label, -digits) for label in labels) + "  (found)"
    rows = [
        f"  {cells(label, width)} | " + " ".join(f"{number:>{digits}}" for number in row)
        for label, row in zip(labels, confusion, strict=True)
    ]
    return [head, *rows]


@dataclass(frozen=True)
class LabelScores:
    """How well one label is found; each number is in [0, 1], and 0 where its denominator is."""

    label: str
    precision: float
    """Examples with the label among those that were given it."""
    recall: float
    """Examples that were given the label among those with it."""
    f1: float
    """Harmonic mean of both."""
    texts: int
    """Examples with the label."""


@dataclass(frozen=True, repr=False)
class LabelMetrics:
    """How well labels are found in a data set. The macro means are over the labels that occur in it or among the found
    ones."""

    accuracy: float
    """0 to 1."""
    macro_precision: float
    """Mean over labels, 0 to 1."""
    macro_recall: float
    macro_f1: float
    by_label: list[LabelScores]
    """The scores of all labels in their order, including labels that do not occur."""
    confusion: list[list[int]]
    """``[true][found]``: numbers of examples."""


def label_metrics(true: Sequence[int], predicted: Sequence[int], labels: Sequence[str]) -> LabelMetrics:
    """Returns the metrics of predicted labels."""

    def ratio(part: Any, whole: Any) -> Any:
        return part / np.maximum(whole, 1)

    confusion = np.zeros((len(labels), len(labels)), np.int64)
    np.add.at(confusion, (np.asarray(true, np.int64), np.asarray(predicted, np.int64)), 1)
    right, has, chosen = confusion.diagonal(), confusion.sum(1), confusion.sum(0)
    precision, recall, f1 = ratio(right, chosen), ratio(right, has), ratio(2 * right, has + chosen)
    occurs = has + chosen > 0
    macro = (float(values[occurs].mean()) if occurs.any() else 0.0 for values in (precision, recall, f1))
    columns = zip(labels, precision.tolist(), recall.tolist(), f1.tolist(), has.tolist(), strict=True)
    accuracy = float(right.sum() / max(1, confusion.sum()))
    return LabelMetrics(accuracy, *macro, by_label=[LabelScores(*one) for one in columns], confusion=confusion.tolist())


def balanced_weights(counts: Sequence[int]) -> Tensor:
    """Returns weights of labels in inverse proportion to their counts; their mean over all examples is 1."""
    number = torch.tensor(counts, dtype=torch.float64)
    present = int((number > 0).sum())
    return (number.sum() / (present * number.clamp(min=1))).float()
