"""One prepared training of a classifier of images: its data, its model, its loss and its validation."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from regard.data.batches import Batches
from regard.data.images.augmentation import Augmentation
from regard.data.images.image_rows import ImageRow, labelled_images
from regard.data.labels import Labels
from regard.models.checkpoint import save_model
from regard.models.vision.grid_encoder import GridEncoder
from regard.models.vision.image_classifier import ImageClassifier, ImageClassifierConfig
from regard.tasks.classify.experiment import balanced_weights
from regard.tasks.image_config import patch_size
from regard.tasks.image_corpora import image_source, open_parts, pixels_of
from regard.tasks.images.task import ImageRun, labels_path
from regard.tasks.label_metrics import label_metrics
from regard.tasks.run_data import chunks
from regard.training.randomness import seed_step
from regard.training.run_folder import RunFolder
from regard.training.task import Experiment, StepLoss, ValidationResult

SAMPLES = 4


@dataclass(frozen=True, slots=True)
class ImageBatch:
    """Some images with their labels.

    Attributes:
        images: uint8 ``[images, height, width, 3]``.
        labels: int64 ``[images]``.
    """

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.images)

    def to(self, device: Any, non_blocking: bool = False) -> "ImageBatch":
        """The batch on a device."""
        return ImageBatch(*(part.to(device, non_blocking=non_blocking) for part in (self.images, self.labels)))

    def pin_memory(self) -> "ImageBatch":
        """The batch in memory from which it is copied to a GPU quickly."""
        return ImageBatch(self.images.pin_memory(), self.labels.pin_memory())


class ImageExperiment(Experiment):
    """A classifier of images and its data.

    Args:
        config: the configuration of the run.
        folder: the run folder, in which the labels and the bundled corpus are.
    """

    unit = "images"

    def __init__(self, config: ImageRun, folder: RunFolder):
        self.config = config.training
        train, self.validation_rows = open_parts(config.data, folder, labelled_images, "labels")
        self.labels = _labels(config, folder, train)
        self.labels.require(_names(self.validation_rows), config.data.validation or "the validation images", "image")
        if config.data.test is not None:
            test = labelled_images(image_source(config.data, folder, "test"))
            self.labels.require(_names(test), config.data.test, "image")
        self.train_labels, self.true = (
            [self.labels.number(row.texts[0]) for row in rows] for rows in (train, self.validation_rows)
        )
        self.train_pixels = pixels_of(train, config.data)
        self.validation_pixels = pixels_of(self.validation_rows, config.data)
        self.augmentation = Augmentation(self.config.zoom, self.config.flip, self.config.jitter)
        # The libraries that opened the data may have drawn random numbers.
        seed_step(self.config.seed, -1)
        self.model: ImageClassifier = build_model(config, len(self.labels))  # pyright: ignore[reportIncompatibleVariableOverride]
        if isinstance(self.model.encoder, GridEncoder):
            if config.model.backbone_weights is not None and not folder.model.is_file():
                self.model.encoder.load_backbone(folder.manifest.resolve(config.model.backbone_weights))
            if config.model.freeze_backbone:
                self.model.encoder.freeze_backbone()
        counts = Counter(self.train_labels)
        balanced = self.config.class_weights == "balanced"
        self.class_weights = (
            balanced_weights(tuple(counts[label] for label in range(len(self.labels)))) if balanced else None
        )
        rows, columns = self.model.grid
        self.description = f"{len(train)} images · {len(self.labels)} labels · grid {rows} × {columns}"

    def batches(self, rank: int, world_size: int) -> Batches[Any, Any]:
        return Batches(
            range(len(self.train_labels)),
            self.config.batch_size,
            lambda rows: _batch(rows, self.train_pixels, self.train_labels),
            seed=self.config.seed,
            rank=rank,
            world_size=world_size,
        )

    def loss(self, batch: ImageBatch) -> StepLoss:
        logits = self.model(self.augmentation(batch.images)).logits
        weight = None if self.class_weights is None else self.class_weights.to(logits)
        smoothing = self.config.label_smoothing
        total = F.cross_entropy(logits, batch.labels, weight, label_smoothing=smoothing)
        plain = F.cross_entropy(logits.detach(), batch.labels) if smoothing or weight is not None else total
        return StepLoss(total, float(plain.detach()), len(batch))

    def validate(self, rank: int, world_size: int) -> ValidationResult:
        device = next(self.model.parameters()).device
        loss, found = 0.0, {}
        parts = list(chunks(list(range(len(self.true))), self.config.batch_size))
        for rows in parts[rank::world_size]:
            batch = _batch(rows, self.validation_pixels, self.true).to(device)
            logits = self.model(batch.images).logits
            loss += float(F.cross_entropy(logits, batch.labels, reduction="sum"))
            found.update(zip(rows, logits.argmax(-1).tolist(), strict=True))
        if world_size > 1:
            gathered: list[Any] = [None] * world_size
            torch.distributed.all_gather_object(gathered, (loss, found))
            loss = sum(part[0] for part in gathered)
            found = {row: label for part in gathered for row, label in part[1].items()}
        names = self.labels.names
        metrics = label_metrics(self.true, [found[row] for row in range(len(self.true))], names)
        samples = [
            {"image": row.picture.name, "label": row.texts[0], "found": names[found[number]]}
            for number, row in enumerate(self.validation_rows[:SAMPLES])
        ]
        return ValidationResult(
            loss / len(self.true), {"accuracy": metrics.accuracy, "macro_f1": metrics.macro_f1}, samples
        )

    def save_model(self, path: Path) -> None:
        save_model(path, self.model)


def _batch(rows: Sequence[int], pixels: NDArray[np.uint8], labels: Sequence[int]) -> ImageBatch:
    images = torch.from_numpy(np.stack([pixels[row] for row in rows]))
    return ImageBatch(images, torch.tensor([labels[row] for row in rows]))


def _labels(run: ImageRun, folder: RunFolder, train: Sequence[ImageRow]) -> Labels:
    path, initial = labels_path(folder), run.training.init_from
    name = run.data.train or "the bundled corpus"
    if path.is_file():
        labels = Labels.load(path)
    elif initial is not None:
        labels = Labels.load(labels_path(RunFolder(initial)))
    else:
        labels = Labels.of(_names(train), name, "image")
    labels.require(_names(train), name, "image")
    if not path.is_file():
        labels.save(path)
    return labels


def _names(rows: Sequence[ImageRow]) -> set[str]:
    return {row.texts[0] for row in rows}


def build_model(config: ImageRun, labels: int) -> ImageClassifier:
    """A new model: with the configuration of the run, and the number of labels that the data decide.

    Args:
        config: the configuration of the run.
        labels: labels.
    """
    model, size = config.model, config.data.image_size
    assert model.pooling is not None
    vit = model.network == "vit"
    return ImageClassifier(
        ImageClassifierConfig(
            labels=labels,
            network="vit" if vit else "cnn",
            weigh=model.network if model.network in ("se", "cbam") else "none",
            image_height=size,
            image_width=size,
            grid_dim=model.grid,
            stages=model.stages,
            blocks=model.blocks,
            patch=model.patch or max(1, size // 8) if vit else patch_size(model, size),
            backbone=model.backbone,
            pooling=model.pooling,
            pooling_heads=model.pooling_heads,
            dim=model.hidden,
            layers=model.layers,
            heads=model.heads,
            feedforward=model.feedforward,
            dropout=model.dropout,
        )
    )
