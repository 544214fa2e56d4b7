"""Metrics of a trained classifier of images on a data set."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from regard.data.images.image_rows import ImageRow, cells_inside, labelled_images
from regard.tasks.images.image_label import ImageLabel
from regard.tasks.images.pictures import draw_images
from regard.tasks.images.trained_classifier import TrainedImageClassifier
from regard.tasks.label_evaluation import LabelEvaluation
from regard.tasks.label_lines import table_lines
from regard.tasks.label_metrics import LabelScores, label_metrics
from regard.training.run_folder import RunFolder

DRAWN = 6
"""Images that are drawn."""


@dataclass(frozen=True, slots=True, repr=False)
class Evaluation(LabelEvaluation):
    """How good a classifier of images is on a data set."""

    example = "image"
    lists = ("found", "rows")

    data: str
    """Name of the data set."""
    images: int
    """Evaluated images."""
    accuracy: float
    """0 to 1."""
    macro_precision: float
    """Mean over labels, 0 to 1."""
    macro_recall: float
    macro_f1: float
    loss: float
    """Mean −log p of the true label, in nats."""
    pointing: float | None
    """The share of the images for which the cell with the largest weight is on a named object, 0 to 1; None if the data
    do not say where objects are, or the model has no attention."""
    pointing_chance: float | None
    """The share for cells drawn at random."""
    seconds: float
    """Duration of the classification, with the reading of the images."""
    labels: list[str]
    by_label: list[LabelScores]
    confusion: list[list[int]]
    """``[true][found]``: numbers of images."""
    found: list[ImageLabel]
    """What was found."""
    rows: list[ImageRow]
    """The images with their true labels."""

    def lines(self) -> list[str]:
        place = "" if self.pointing is None else f" · pointing {self.pointing:.3f} (chance {self.pointing_chance:.3f})"
        first = (
            f"{self.data}: {self.images} images · accuracy {self.accuracy:.4f} · macro F1 {self.macro_f1:.4f} · "
            f"loss {self.loss:.4f}{place}"
        )
        return [first, *table_lines(self.by_label, "images")]

    def predicted(self) -> list[tuple[str, str, str, float]]:
        return [
            (row.picture.name, row.texts[0], one.label, one.probabilities[one.label])
            for row, one in zip(self.rows, self.found, strict=True)
        ]

    def write(self, folder: RunFolder, name: str) -> list[Path]:
        """As for every classifier, and the first images with their weights."""
        paths = LabelEvaluation.write(self, folder, name)
        return [*paths, *draw_images(folder.pictures, self.found[:DRAWN], f"image-{name}")]


def evaluate(
    classifier: TrainedImageClassifier, data: Any, *, batch_size: int = 64, limit: int | None = None
) -> Evaluation:
    """Measure a classifier on a data set.

    Args:
        classifier: the trained model.
        data: a source of `regard.data.images.image_rows.labelled_images`.
        batch_size: images classified at once.
        limit: number of images, from the first; None: all.

    Raises:
        DataError: the data cannot be used, or a label was not among the training data.
    """
    rows = labelled_images(data, limit=limit)
    labels = classifier.labels
    labels.require({row.texts[0] for row in rows}, str(data), "image")
    start = time.monotonic()
    found = classifier.classify([row.picture for row in rows], batch_size)
    seconds = time.monotonic() - start
    names = [row.texts[0] for row in rows]
    metrics = label_metrics(
        [labels.number(name) for name in names], [labels.number(one.label) for one in found], labels.names
    )
    probabilities = [max(one.probabilities[name], 1e-300) for one, name in zip(found, names, strict=True)]
    pointing = _pointing(rows, found)
    return Evaluation(
        data=str(data),
        images=len(rows),
        accuracy=metrics.accuracy,
        macro_precision=metrics.macro_precision,
        macro_recall=metrics.macro_recall,
        macro_f1=metrics.macro_f1,
        loss=float(-np.log(probabilities).mean()),
        pointing=None if pointing is None else pointing[0],
        pointing_chance=None if pointing is None else pointing[1],
        seconds=seconds,
        labels=list(labels.names),
        by_label=metrics.by_label,
        confusion=metrics.confusion,
        found=found,
        rows=rows,
    )


def _pointing(rows: Sequence[ImageRow], found: Sequence[ImageLabel]) -> tuple[float, float] | None:
    # The pointing accuracy and that of cells drawn at random, over the images whose objects are known.
    hits, chances = [], []
    for row, one in zip(rows, found, strict=True):
        if one.weights is None or not row.objects:
            continue
        x0, y0, x1, y1 = (edge / one.image.scale for edge in one.image.box)
        inside = cells_inside([each.box for each in row.objects], one.grid, (x0, y0, x1, y1))
        hits.append(bool(inside[int(one.weights.argmax())]))
        chances.append(float(inside.mean()))
    return (float(np.mean(hits)), float(np.mean(chances))) if hits else None
