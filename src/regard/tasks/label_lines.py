"""How well labels are found, as lines of text: a table of the labels, and the confusion matrix."""

from collections.abc import Sequence

from regard.tasks.label_metrics import LabelScores

MOST_SHOWN = 12
"""Labels of the confusion matrix that is printed."""


def table_lines(by_label: Sequence[LabelScores], unit: str) -> list[str]:
    """A line for each label with its precision, recall, F1 and number of examples.

    Args:
        by_label: the scores of each label.
        unit: what an example is, in the plural, at most six letters.
    """
    width = max(5, *(len(one.label) for one in by_label))
    rows = [
        f"  {one.label:<{width}}  {one.precision:9.4f}  {one.recall:6.4f} {one.f1:6.4f}  {one.texts:6}"
        for one in by_label
    ]
    return [f"  {'label':<{width}}  precision  recall     F1  {unit:>6}", *rows]


def confusion_lines(confusion: Sequence[Sequence[int]], labels: Sequence[str]) -> list[str]:
    """The confusion matrix ``[true][found]``, or where it is if it has more than `MOST_SHOWN` labels."""
    if len(labels) > MOST_SHOWN:
        return [f"  the confusion matrix of {len(labels)} labels is in the results"]
    width = max(4, *(len(label) for label in labels))
    digits = max(width, *(len(str(number)) for row in confusion for number in row))
    head = f"  {'true':<{width}} | " + " ".join(f"{label:>{digits}}" for label in labels) + "  (found)"
    rows = [
        f"  {label:<{width}} | " + " ".join(f"{number:>{digits}}" for number in row)
        for label, row in zip(labels, confusion, strict=True)
    ]
    return [head, *rows]
