"""How good a classifier is on a data set: what the evaluations of texts, images and sounds share."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, ClassVar

from regard.atomic_file import write_atomically
from regard.tasks.label_metrics import LabelScores
from regard.training import task
from regard.training.run_folder import RunFolder


class LabelEvaluation(task.Evaluation):
    """How good a classifier is on a data set; a subclass is a dataclass with these fields among others.

    Attributes:
        example: what an example is; the first column of the predictions.
        lists: fields that hold examples, and do not belong to the numbers.
        labels: names of the labels.
        by_label: the scores of each label.
        confusion: ``[true][found]``: numbers of examples.
    """

    example: ClassVar[str]
    lists: ClassVar[tuple[str, ...]] = ("predictions",)
    labels: list[str]
    by_label: list[LabelScores]
    confusion: list[list[int]]

    @abstractmethod
    def predicted(self) -> Iterable[tuple[str, str, str, float]]:
        """Example, true label, found label and its probability, of each example."""

    def to_dict(self) -> dict[str, Any]:
        """All fields but those of `lists`."""
        names = [field.name for field in fields(self) if field.name not in self.lists]  # pyright: ignore[reportArgumentType] (a subclass is a dataclass)
        return {name: getattr(self, name) for name in names} | {"by_label": [asdict(one) for one in self.by_label]}

    def write(self, folder: RunFolder, name: str) -> list[Path]:
        """Write the numbers, the predictions (``evaluation-<name>.tsv``) and a picture of the confusion matrix."""
        paths = task.Evaluation.write(self, folder, name)
        rows = [(self.example, "label", "found", "probability")]
        rows += [(example, label, found, f"{value:.6f}") for example, label, found, value in self.predicted()]
        lines = ("\t".join(" ".join(cell.split()) for cell in row) + "\n" for row in rows)
        path = folder.file(f"evaluation-{name}.tsv")
        write_atomically(path, "".join(lines).encode())
        return [*paths, path, draw_confusion(folder, self.confusion, self.labels, f"confusion-{name}")]


def draw_confusion(folder: RunFolder, confusion: Sequence[Sequence[int]], labels: Sequence[str], name: str) -> Path:
    """Draw ``pictures/<name>.png``: how many examples of each label were given which."""
    from regard.pictures import confusion_matrix, save

    folder.make_pictures()
    return save(confusion_matrix(confusion, labels), folder.pictures / f"{name}.png")
