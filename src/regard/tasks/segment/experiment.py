"""One prepared training of a segmentation: its data, its model, its loss and its validation."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from regard.data.batches import Batches
from regard.data.images.augmentation import IGNORED_CLASS, MaskedAugmentation, augment_masked
from regard.data.images.masked_images import IGNORED
from regard.models.checkpoint import save_model
from regard.models.vision.segmenter import Segmenter, SegmenterConfig
from regard.tasks.segment.config import ModelConfig
from regard.tasks.segment.corpora import open_corpora
from regard.tasks.segment.metrics import PixelMetrics, count_pixels
from regard.tasks.segment.task import SegmentationRun
from regard.training.randomness import seed_step
from regard.training.run_folder import RunFolder
from regard.training.task import Experiment, StepLoss, ValidationResult

SAMPLES = 4


class SegmentationExperiment(Experiment):
    """A segmentation network and its data.

    Args:
        config: the configuration of the run.
        folder: the run folder, in which the classes and the tables of the bundled corpus are.
    """

    unit = "images"

    def __init__(self, config: SegmentationRun, folder: RunFolder):
        self.config = config.training
        self.corpora = open_corpora(config, folder)
        # The libraries that opened the data may have drawn random numbers.
        seed_step(self.config.seed, -1)
        classes = self.corpora.classes
        self.model: Segmenter = Segmenter(  # pyright: ignore[reportIncompatibleVariableOverride]
            segmenter_config(config.model, len(classes))
        )
        part = [max(1, round(side * self.config.crop)) for side in classes.size]
        self.augmentation = MaskedAugmentation(
            (part[0], part[1]), self.config.zoom, self.config.colour, self.config.mirror
        )
        self.class_weights = class_weights(self.corpora.counts, self.config.class_weights)
        self.description = (
            f"{len(self.corpora.train)} images of {classes.width} × {classes.height} pixels to train on, "
            f"{len(self.corpora.validation)} to validate on · {len(classes)} classes"
        )

    def batches(self, rank: int, world_size: int) -> Batches[Any, Any]:
        return Batches(
            self.corpora.train,  # pyright: ignore[reportArgumentType] (an array is a sequence of its rows)
            self.config.batch_size,
            joined,
            seed=self.config.seed,
            rank=rank,
            world_size=world_size,
        )

    def loss(self, batch: Tensor) -> StepLoss:
        images, classes = augment_masked(*pixels_and_classes(batch), self.augmentation)
        logits = self.model(images).float()
        weight = None if self.class_weights is None else self.class_weights.to(logits)
        total = _mean_loss(logits, classes, weight)
        plain = total if weight is None else _mean_loss(logits.detach(), classes, None)
        return StepLoss(total, float(plain.detach()), len(batch))

    def validate(self, rank: int, world_size: int) -> ValidationResult:
        size, table = self.config.batch_size, self.corpora.validation
        device = next(self.model.parameters()).device
        count = len(self.corpora.classes)
        confusion, loss, samples = torch.zeros(count, count, dtype=torch.int64), 0.0, []
        for first in range(rank * size, len(table), world_size * size):
            images, classes = pixels_and_classes(joined(list(table[first : first + size])).to(device))
            logits = self.model(images).float()
            found = logits.argmax(1)
            confusion += count_pixels(classes, found, count)
            loss += float(F.cross_entropy(logits, classes, ignore_index=IGNORED_CLASS, reduction="sum"))
            rows = range(first, min(first + len(images), SAMPLES))
            samples += [(row, self._sample(row, classes[row - first], found[row - first])) for row in rows]
        if world_size > 1:
            parts: list[Any] = [None] * world_size
            torch.distributed.all_gather_object(parts, (confusion, loss, samples))
            confusion = sum((part[0] for part in parts), torch.zeros_like(confusion))
            loss = sum(part[1] for part in parts)
            samples = [sample for part in parts for sample in part[2]]
        metrics = PixelMetrics(confusion)
        values = {"mean_iou": metrics.mean_iou, "pixel_accuracy": metrics.pixel_accuracy}
        return ValidationResult(
            loss / max(1, int(confusion.sum())),
            values,
            [sample for _, sample in sorted(samples, key=lambda one: one[0])],
        )

    def save_model(self, path: Path) -> None:
        save_model(path, self.model)

    def _sample(self, row: int, classes: Tensor, found: Tensor) -> dict[str, Any]:
        counted = classes >= 0
        right = float((found == classes)[counted].float().mean()) if counted.any() else 0.0
        shares = class_shares(found, self.corpora.classes.names)
        return {"image": Path(self.corpora.names[row]).name, "right": round(right, 4), "found": shares}


def joined(rows: list[np.ndarray]) -> Tensor:
    """Rows of a `masked_table` as a batch, uint8 ``[batch, height, width, 4]``."""
    return torch.from_numpy(np.stack(rows))


def pixels_and_classes(batch: Tensor) -> tuple[Tensor, Tensor]:
    """A batch of `joined` as images ``[batch, 3, height, width]`` from 0 to 1, and classes, −1 where ignored."""
    images = batch[..., :3].permute(0, 3, 1, 2).float() / 255
    classes = batch[..., 3].long()
    return images, classes.masked_fill(classes == IGNORED, IGNORED_CLASS)


def class_weights(counts: tuple[int, ...], kind: str) -> Tensor | None:
    """The weight of a pixel of each class in the loss; the mean weight of all training pixels is 1.

    Args:
        counts: training pixels of each class.
        kind: ``none``, ``root`` or ``balanced``, as `SegmentationTrainingConfig` says.
    """
    if kind == "none":
        return None
    number = torch.tensor(counts, dtype=torch.float64)
    weight = number.clamp(min=1) ** (-0.5 if kind == "root" else -1.0)
    return (weight * number.sum() / (weight * number).sum()).float()


def class_shares(found: Tensor, names: tuple[str, ...]) -> dict[str, float]:
    """The share of each class in a map of classes, those that occur, the largest first."""
    counts = torch.bincount(found.flatten().cpu(), minlength=len(names)) / max(1, found.numel())
    order = counts.argsort(descending=True, stable=True).tolist()
    return {names[number]: round(float(counts[number]), 4) for number in order if counts[number] > 0}


def segmenter_config(model: ModelConfig, classes: int) -> SegmenterConfig:
    """The configuration of the model: that of the run, with the number of classes."""
    return SegmenterConfig(
        classes=classes,
        channels=model.channels,
        levels=model.levels,
        blocks=model.blocks,
        decoder_channels=model.decoder_channels,
        gate=model.gate,
        context=model.context,
        fusion=model.fusion,
        fusion_norm=model.fusion_norm,
        dropout=model.dropout,
    )


def _mean_loss(logits: Tensor, classes: Tensor, weight: Tensor | None) -> Tensor:
    """The weighted mean over the pixels that count; 0, with a gradient of 0, if none does."""
    ignored = IGNORED_CLASS
    if not bool((classes != ignored).any()):
        return logits.sum() * 0.0
    return F.cross_entropy(logits, classes, weight, ignore_index=ignored)
