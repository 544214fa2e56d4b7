"""A mask as output: the class of each pixel or frame, its loss, validation and metrics, predictions, evaluation."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from regard.configuration import option
from regard.errors import DataError
from regard.tasks.inputs.input import IGNORED, chunks
from regard.tasks.lazy import F, torch
from regard.tasks.options import BATCH, BatchOptions, EvaluationOptions
from regard.tasks.outputs.label_metrics import cells, draw_confusion
from regard.tasks.task import SAMPLES, TableExperiment, TableTask, gathered, summed
from regard.tasks.trained_run import RunEvaluation, TableTrained
from regard.training.config import TrainingConfig
from regard.training.metrics import Baseline, Metric
from regard.training.results import Evaluation, Prediction, rounded
from regard.training.task import StepLoss, ValidationResult

if TYPE_CHECKING:
    from torch import Tensor

    from regard.training.run_folder import RunFolder


@dataclass(frozen=True)
class MaskTraining(TrainingConfig):
    """How a segmentation is trained, and for how long."""

    batch_size: int = option(4, within=BATCH)
    """Examples of a batch, on each device."""
    class_weights: Literal["none", "root", "balanced"] = "root"
    """none; balanced: a pixel counts in inverse proportion to the number of training pixels of its class; root: to the
    square root of that number."""


class MaskExperiment(TableExperiment):
    """A segmentation and its data.

    Attributes:
        counts: training pixels of each class.
    """

    @property
    def unit(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.input.examples

    def examine(self, rows: Any) -> None:
        classes = self.files["classes"]
        self.counts = self.input.class_counts(self.train, rows, len(classes))
        self.input.class_counts(self.validation, self.validation_rows, len(classes))
        if not any(self.counts):
            raise DataError(f"{self.run.data.train}: no pixel of the training data has a class that counts")
        self.class_weights = class_weights(self.counts, self.training.class_weights)

    @property
    def validated(self) -> int:
        return len(self.validation) if sum(map(bool, self._validation_counts())) > 1 else 0

    def _validation_counts(self) -> tuple[int, ...]:
        return self.input.class_counts(self.validation, self.validation_rows, len(self.counts))

    def baseline(self) -> Baseline:
        counts = self._validation_counts()
        most = max(range(len(self.counts)), key=self.counts.__getitem__)
        there = sum(map(bool, counts))
        return Baseline("always the most frequent class", counts[most] / max(1, sum(counts)) / max(1, there))

    def loss(self, batch: Any) -> StepLoss:
        arguments, classes = self.input.masked(batch, self.training)
        logits = self.model(*arguments).float()
        weight = self.class_weights = None if self.class_weights is None else self.class_weights.to(logits)
        total = _mean_loss(logits, classes, weight)
        plain = total if weight is None else _mean_loss(logits.detach(), classes, None)
        return StepLoss(total, plain.detach(), len(batch))

    def validate(self, rank: int, world_size: int) -> ValidationResult:
        count = len(self.files["classes"])
        confusion, losses, samples = torch.zeros(count, count, dtype=torch.int64, device=self.device), [], {}
        for batch in islice(self.validation.in_order(self.training), rank, None, world_size):
            rows, batch = batch.index.tolist(), batch.to(self.device)
            arguments, classes = self.input.masked(batch)
            logits = self.model(*arguments).float()
            predicted = logits.argmax(1)
            confusion += count_pixels(classes, predicted, count)
            losses.append(F.cross_entropy(logits, classes, ignore_index=IGNORED, reduction="sum"))
            if min(rows) < SAMPLES:
                for row, *maps in zip(rows, *torch.stack((classes, predicted)).cpu(), strict=True):
                    if row < SAMPLES:
                        samples[row] = self._sample(row, *maps)
        parts = gathered((confusion.cpu(), summed(losses), samples), world_size)
        metrics = PixelMetrics(torch.stack([part[0] for part in parts]).sum(0))
        samples = {row: sample for part in parts for row, sample in part[2].items()}
        return ValidationResult(
            sum(part[1] for part in parts) / max(1, int(metrics.confusion.sum())),
            {"mean_iou": metrics.mean_iou, "pixel_accuracy": metrics.pixel_accuracy},
            [samples[row] for row in sorted(samples)],
        )

    def _sample(self, row: int, classes: Tensor, predicted: Tensor) -> dict[str, Any]:
        counted = classes != IGNORED
        right = float((predicted == classes)[counted].float().mean()) if counted.any() else 0.0
        shares = class_shares(predicted, self.files["classes"].names)
        name = self.input.names(self.validation_rows)[row]
        return {self.input.sample_name: name, "right": round(right, 4), "found": shares}


def class_weights(counts: Sequence[int], kind: str) -> Tensor | None:
    """Returns the weight of each class's pixels in the loss; the mean weight of all training pixels is 1.

    Args:
        counts: training pixels of each class.
        kind: ``none``, ``root`` or ``balanced``, as `MaskTraining` says.
    """
    if kind == "none":
        return None
    number = torch.tensor(counts, dtype=torch.float64)
    weight = number.clamp(min=1) ** (-0.5 if kind == "root" else -1.0)
    return (weight * number.sum() / (weight * number).sum()).float()


def class_shares(predicted: Tensor, names: Sequence[str]) -> dict[str, float]:
    """Returns the share of each class that occurs in a map of classes, the largest first."""
    counts = torch.bincount(predicted.flatten().cpu(), minlength=len(names)) / max(1, predicted.numel())
    order: list[int] = counts.argsort(descending=True, stable=True).tolist()
    return {names[number]: round(float(counts[number]), 4) for number in order if counts[number] > 0}


def _mean_loss(logits: Tensor, classes: Tensor, weight: Tensor | None) -> Tensor:
    """Returns the weighted mean over the pixels that count; 0, with a gradient of 0, if there are none."""
    mean = F.cross_entropy(logits, classes, weight, ignore_index=IGNORED)
    # A mean of no pixels is NaN. Which it is, is decided on the device, so that the host does not wait.
    return torch.where((classes != IGNORED).any(), mean, 0.0)


@dataclass(frozen=True)
class PixelMetrics:
    """How many pixels of each class were found to be which.

    Attributes:
        confusion: int64 ``[true, found]``, on the CPU.
    """

    confusion: Tensor

    @property
    def iou(self) -> list[float | None]:
        """Intersection over union of each class: TP / (TP + FP + FN); None for one that neither occurs nor is found."""
        hits = self.confusion.diagonal().double()
        union = (self.confusion.sum(0) + self.confusion.sum(1)).double() - hits
        return [float(hit / one) if one else None for hit, one in zip(hits, union, strict=True)]

    @property
    def mean_iou(self) -> float:
        """The mean of `iou` over the classes that have one; 0 without any pixel."""
        known = [one for one in self.iou if one is not None]
        return sum(known) / max(1, len(known))

    @property
    def pixel_accuracy(self) -> float:
        """The share of pixels whose class was found; 0 without any pixel."""
        return float(self.confusion.diagonal().sum()) / max(1, int(self.confusion.sum()))

    @property
    def recall(self) -> list[float | None]:
        """The share of each class's pixels that were found; None for a class that does not occur."""
        total = self.confusion.sum(1)
        return [
            float(hit) / int(one) if one else None for hit, one in zip(self.confusion.diagonal(), total, strict=True)
        ]


def count_pixels(true: Tensor, predicted: Tensor, classes: int) -> Tensor:
    """Returns the confusion matrix of pixels, int64 ``[true, found]``, on their device.

    Args:
        true: int64 of any shape; pixels of a class below 0 do not count.
    """
    # A selection of pixels, and `torch.bincount`, would wait for an accelerator: pixels that do not count get a cell.
    pairs = torch.where(true >= 0, true * classes + predicted, classes * classes).flatten()
    counts = torch.zeros(classes * classes + 1, dtype=torch.int64, device=pairs.device)
    return counts.scatter_add_(0, pairs, torch.ones_like(pairs))[:-1].view(classes, classes)


@dataclass(frozen=True, eq=False, repr=False)
class MaskPrediction(Prediction):
    """An input and the classes of its parts.

    Attributes:
        source: as in every prediction.
        classes: the class of each pixel ``[height, width]`` or frame ``[frames]``.
        shares: the share of each class that was found, the largest first.
        names: the names of all classes, in the order of their numbers.
    """

    source: Any
    classes: Any
    shares: dict[str, float]
    names: tuple[str, ...]

    kind: ClassVar[str] = "input"
    """The name of the input in texts for people."""

    @property
    def answer(self) -> Any:
        return self.classes

    @property
    def answer_text(self) -> str:
        from regard.pictures.numbers import plain_percent

        return " · ".join(f"{name} {plain_percent(share)}" for name, share in self.shares.items())

    def lines(self) -> list[str]:
        return [f"{self.input_text}: {self.answer_text}"]

    def texts(self) -> tuple[tuple[str, str], ...]:
        return (self.kind, self.input_text), ("classes", self.answer_text)

    def details(self) -> dict[str, Any]:
        """Returns the share of each class."""
        return {"shares": {name: rounded(share) for name, share in self.shares.items()}}


class TrainedMasks(TableTrained):
    """The best model of a run with its classes."""

    @property
    def classes(self) -> Any:
        """The classes: their names, in the order of the model's outputs."""
        return self.files["classes"]

    def classes_of(self, inputs: Sequence[Any]) -> list[Any]:
        """Returns the class of each part of a batch of inputs, as arrays of integers."""
        batch = self.input.batch(inputs).to(self.device)
        with torch.inference_mode():
            maps = self.model(*self.input.arguments(batch)).argmax(1).cpu().numpy()
        return [classes[: self.input.annotations(one)] for classes, one in zip(maps, inputs, strict=True)]

    def true_classes(self, rows: Any) -> tuple[list[Any], list[Tensor]]:
        """Returns the inputs of rows, and the true classes of their parts as int64, below 0 where none counts."""
        ids = self.task.target(self.files).encode_batch(self.input.targets(rows))
        return self.input.inputs(rows, self), [torch.tensor(classes) for classes in ids]

    def predict_with(self, inputs: Sequence[Any], options: BatchOptions) -> list[Any]:
        read, predictions, names = self.input.read(inputs, self), [], self.classes.names
        for rows in chunks(range(len(read)), options.batch_size):
            part = [read[row] for row in rows]
            for one, classes in zip(part, self.classes_of(part), strict=True):
                shares = class_shares(torch.from_numpy(classes).long(), names)
                predictions.append(MaskPrediction(self.input.original(one), classes, shares, names))
        return predictions

    def measure(self, source: Any, columns: Sequence[str | None], options: Any) -> MaskEvaluation:
        rows, count = self.input.open(source, columns, self.config.data, options.limit), len(self.classes)
        confusion, seconds = torch.zeros(count, count, dtype=torch.int64), 0.0
        for numbers in chunks(range(len(rows)), options.batch_size):
            part = self.input.select(rows, numbers)
            inputs, true = self.true_classes(part)
            start = time.monotonic()
            predicted = self.classes_of(inputs)
            seconds += time.monotonic() - start
            for name, own, classes in zip(self.input.names(part), true, predicted, strict=True):
                if int(own.max()) >= count:
                    raise DataError(
                        f"{name}: a pixel has the class {int(own.max())}, and the model knows {count} classes, from 0 "
                        f"to {count - 1}"
                    )
                confusion += count_pixels(own, torch.from_numpy(classes).long(), count)
        metrics = PixelMetrics(confusion)
        scores = zip(self.classes.names, metrics.iou, metrics.recall, confusion.sum(1).tolist(), strict=True)
        return MaskEvaluation(
            data=str(source),
            images=len(rows),
            unit=self.input.examples,
            mean_iou=metrics.mean_iou,
            pixel_accuracy=metrics.pixel_accuracy,
            seconds=seconds,
            by_class=[ClassScores(*one) for one in scores],
            confusion=confusion.tolist(),
        )


@dataclass(frozen=True)
class ClassScores:
    """How well one class is found."""

    name: str
    iou: float | None
    """Intersection over union, 0 to 1; None for a class that neither occurs nor is found."""
    recall: float | None
    """Share of its pixels that were found; None for a class that does not occur."""
    pixels: int
    """The number of pixels of the class."""


@dataclass(frozen=True, repr=False)
class MaskEvaluation(RunEvaluation):
    """How good a segmentation is on a data set, pixel by pixel, at the size of its class maps."""

    images: int
    """Evaluated images, or other inputs."""
    unit: str
    """The noun for the inputs, in the plural."""
    mean_iou: float
    """Mean over the classes that occur or are found, 0 to 1."""
    pixel_accuracy: float
    """Share of the pixels that count whose class was found."""
    seconds: float
    """Duration of the segmentation."""
    by_class: list[ClassScores]
    confusion: list[list[int]]
    """``[true][found]``: numbers of pixels."""

    examples: ClassVar[tuple[str, ...]] = ("unit",)

    def lines(self) -> list[str]:
        first = (
            f"{self.data}: {self.images} {self.unit} · mean IoU {self.mean_iou:.4f} · pixel accuracy "
            f"{self.pixel_accuracy:.4f} · {self.images / max(1e-9, self.seconds):.1f} {self.unit}/s"
        )
        from rich.cells import cell_len

        width = max(5, *(cell_len(one.name) for one in self.by_class))
        table = [f"  {'class':<{width}}     IoU  recall      pixels"]
        table += [
            f"  {cells(one.name, width)}  {_share(one.iou)}  {_share(one.recall)}  {one.pixels:10,}"
            for one in self.by_class
        ]
        return [first, *table]

    def write(self, folder: RunFolder, name: str) -> list[Path]:
        """Writes the numbers, and a picture of the confusion matrix."""
        names = [one.name for one in self.by_class]
        picture = draw_confusion(folder, self.confusion, names, f"confusion-{name}")
        return [*Evaluation.write(self, folder, name), picture]


def _share(value: float | None) -> str:
    return "     –" if value is None else f"{value:6.4f}"


class MaskTask(TableTask):
    """A task that tells the class of each part of an input; its files have ``"classes"`` with names."""

    metrics = (
        Metric("mean_iou", "mean IoU", digits=4, perfect=1.0, unit="0 to 1"),
        Metric("pixel_accuracy", "pixel accuracy", digits=4, perfect=1.0, unit="0 to 1"),
    )
    answer_name = "Classes"
    training_config = MaskTraining
    prediction_config = BatchOptions
    evaluation_config = EvaluationOptions
    experiment = MaskExperiment
    trained = TrainedMasks

    @property
    def results(self) -> tuple[str, ...]:
        return ("pictures/confusion-*.png", *super().results)

    def sizes(self, experiment: TableExperiment) -> list[str]:
        return [f"{len(experiment.files['classes'])} classes"]
