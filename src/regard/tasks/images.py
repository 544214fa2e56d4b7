"""The task ``images``: the label of an image, told by a Vision Transformer or a convolutional network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from regard.data import images as image_data
from regard.errors import ArgumentError
from regard.models.vision.configs import ImageClassifierConfig
from regard.tasks.attended import attended_regions
from regard.tasks.inputs.image import (
    ImageInput,
    ImageOptions,
    ImagePrediction,
    ImageTraining,
    generated_scenes,
    image_box,
    network_facts,
)
from regard.tasks.lazy import np, records
from regard.tasks.options import EvaluationOptions, ImageColumn, LabelColumn
from regard.tasks.outputs.label import (
    LabelEvaluation,
    LabelPrediction,
    LabelTask,
    LabelTraining,
    Outputs,
    TrainedLabels,
)
from regard.tasks.registry import BUILT_IN_TASKS
from regard.tasks.rules import IMAGES
from regard.tasks.trained_run import draw_figures
from regard.training.results import AttendedParts

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from regard.data.images.image_rows import ImageRow
    from regard.data.images.pictures import InputImage
    from regard.explanations.model_attention import ModelAttention
    from regard.records import AttentionRecord, Document, GridAxis
    from regard.training.results import Prediction
    from regard.training.run_folder import RunFolder

DRAWN_IMAGES = 6
"""The most images that an evaluation draws."""


@dataclass(frozen=True)
class ImagesData(ImageOptions):
    """The data of a run."""

    train: str | None = None
    """Training images: a folder with a folder of images for each label, a .jsonl, .json, .tsv or .csv file with the
    columns image and label (paths are relative to the file), or 'bundled' for generated scenes, whose label is the
    shape of the one large object."""
    label_column: str | None = None
    """Column of the labels: texts or numbers. Default: label, or the only one of a usual name, such as Category."""
    held_out: float = 1000

    columns = ("image_column", "label_column")
    least_bundled = 53


@dataclass(frozen=True)
class ImageTrainingConfig(ImageTraining, LabelTraining):
    """How a classifier of images is trained, and for how long."""

    batch_size: int = 64
    label_smoothing: float = 0.1


@dataclass(frozen=True)
class ImagesEvaluationOptions(LabelColumn, ImageColumn, EvaluationOptions):
    """How a classifier of images is measured on a data set."""


@dataclass(frozen=True, repr=False)
class ImageLabel(ImagePrediction, LabelPrediction):
    """An image, its label, and the weights of its parts.

    Attributes:
        image: the image.
        label: the name of the most probable label.
        probabilities: label → probability, the most probable first.
        weights: float32 ``[rows · columns]``, which sum to 1: how much of the output each cell of the grid is made of;
            None for a model without attention.
        grid: rows and columns.
    """

    image: InputImage
    label: str
    probabilities: dict[str, float]
    weights: NDArray[np.float32] | None
    grid: tuple[int, int]

    def attended(self) -> AttendedParts:
        return attended_regions(self.grid, self.weights)

    def texts(self) -> tuple[tuple[str, str], ...]:
        return ("image", self.image.name), ("label", self.label)

    def record(self) -> AttentionRecord | None:
        return self.pooling_record(self.weights, self.axis)

    def details(self) -> dict[str, Any]:
        """Returns the probabilities, and the weights ``[row][column]`` over ``box`` of the image."""
        return {**super().details(), **self.grid_details(self.weights)}


@dataclass(frozen=True, repr=False)
class ImagesEvaluation(LabelEvaluation):
    """How good a classifier of images is on a data set."""

    images: int
    """Evaluated images."""
    pointing: float | None
    """The share of the images for which the cell with the largest weight is on a named object, 0 to 1; None if the data
    do not say where objects are, or the model has no attention."""
    pointing_chance: float | None
    """The share for cells drawn at random."""
    labelled: list[ImageLabel]
    """The predictions."""
    rows: list[ImageRow]
    """The images with their true labels."""

    examples: ClassVar[tuple[str, ...]] = ("predictions", "labelled", "rows")
    example: ClassVar[str] = "image"

    def counted(self) -> str:
        return f"{self.images} images"

    def others(self) -> str:
        if self.pointing is None:
            return ""
        return f" · pointing {self.pointing:.3f} (chance {self.pointing_chance:.3f})"

    def write(self, folder: RunFolder, name: str) -> list[Path]:
        """Writes what every classifier writes, and the first images with their weights."""
        figures = (one.figure() for one in self.labelled[:DRAWN_IMAGES])
        return [*super().write(folder, name), *draw_figures(folder.pictures, figures, f"image-{name}")]


class TrainedImageClassifier(TrainedLabels):
    """The best model of a run with its labels."""

    def classify_batch(self, inputs: Sequence[InputImage], need_weights: bool) -> tuple[Tensor, list[Any]]:
        from regard.attention.execution import recorded_calls

        batch = self.input.batch(inputs).to(self.device)
        with recorded_calls() as calls:
            output = self.model(*self.input.arguments(batch), need_weights=self.model.pooling is not None)
        layers = [call.weights.float().cpu() for call in calls[: self._layers]] if need_weights else []
        pooled = [None] * len(inputs) if output.weights is None else output.weights.float().mean(1).cpu()
        weights = []
        for row, image in enumerate(inputs):
            weights.append(self._weights([layer[row : row + 1] for layer in layers], pooled[row], image))
        return output.logits.float().cpu(), weights

    @property
    def _vit(self) -> Any:
        """The Vision Transformer; None for another network."""
        from regard.models.vision.image_classifier import VisionTransformer

        return self.model.encoder if isinstance(self.model.encoder, VisionTransformer) else None

    @property
    def _layers(self) -> int:
        """Layers of self-attention: those of a Vision Transformer."""
        return 0 if self._vit is None else self.model.config.layers

    @property
    def _leading(self) -> int:
        """Tokens before those of the patches."""
        return 0 if self._vit is None else self._vit.leading

    def _weights(
        self, layers: Sequence[Tensor], pooled: Tensor | None, image: InputImage
    ) -> NDArray[np.float32] | None:
        """Returns the share of each cell in the output, by attention rollout and the weights of the pooling."""
        from regard.watching import rollout

        if not layers:
            return None if pooled is None else pooled.numpy()
        matrix = rollout(self._records(layers, image)).weights
        assert matrix is not None
        read = np.full(len(matrix[0]), 1 / len(matrix[0]))  # what the output is the weighted mean of
        if pooled is not None:
            read = pooled.numpy()
        elif self._leading:
            read = np.eye(len(matrix[0]))[0]
        cells = (read @ matrix[0])[self._leading :]
        return (cells / max(float(cells.sum()), 1e-12)).astype(np.float32)

    def _axis(self, image: InputImage) -> GridAxis:
        rows, columns = self.model.grid
        return records.GridAxis(rows, columns, image.shown, leading=self._leading, box=image.box)

    def _records(self, layers: Sequence[Tensor], image: InputImage) -> list[AttentionRecord]:
        axis = self._axis(image)
        return [
            records.AttentionRecord(f"encoder.layers.{number}.self_attn", number, "self", axis, axis, layer[0].numpy())
            for number, layer in enumerate(layers)
        ]

    def prediction(self, one: InputImage, label: str, probabilities: dict[str, float], weights: Any) -> ImageLabel:
        return ImageLabel(one, label, probabilities, weights, self.model.grid)

    def measures_weights(self, source: Any, rows: Any) -> bool:
        return self.model.attends

    def evaluation(
        self, shared: dict[str, Any], source: Any, rows: list[ImageRow], inputs: list[InputImage], outputs: Outputs
    ) -> ImagesEvaluation:
        weights = outputs.weights or [None] * len(inputs)
        results = zip(inputs, outputs.logits, weights, strict=True)
        labelled: list[Any] = [self.labelled(one, logits, weight) for one, logits, weight in results]
        pointing, chance = _pointing(rows, labelled)
        return ImagesEvaluation(
            **shared, images=len(rows), pointing=pointing, pointing_chance=chance, labelled=labelled, rows=rows
        )

    def check_drawable(self) -> None:
        if not self.model.attends:
            raise ArgumentError(
                f"{self.folder.path} has no attention weights over the image (its pooling is "
                f"{self.model.config.pooling!r}); there is nothing to draw"
            )

    def attentions(self, prediction: Prediction) -> list[ModelAttention]:
        assert isinstance(prediction, ImageLabel)
        calls, pools = self.recorded(prediction.image), self.model.pooling is not None
        calls = [*calls[: self._layers], *(calls[-1:] if pools else ())]
        return self.attentions_of(calls, pools, self._axis(prediction.image), "learned query")

    def document(self, prediction: Prediction, attentions: Sequence[ModelAttention] | None = None) -> Document:
        """Returns the attention of each layer, with the rollout of a Vision Transformer at the end."""
        from regard.watching import rollout

        document = super().document(prediction, attentions)
        if not self._layers:
            return document
        return replace(document, records=(*document.records, rollout(document.records[: self._layers])))

    def facts(self) -> str:
        config = self.model.config
        if config.architecture == "vit":
            return f"Vision Transformer, {config.layers} layers × {config.heads} heads, {config.pooling} pooling"
        gate = "" if config.gate == "none" else f", gate {config.gate}"
        return f"{network_facts(config)}{gate}, {config.pooling} pooling"


def _pointing(rows: Sequence[ImageRow], labelled: Sequence[Any]) -> tuple[float | None, float | None]:
    """Returns the pointing accuracy, and that of random cells, over the images whose objects are known."""
    hits, chances = [], []
    for row, one in zip(rows, labelled, strict=True):
        if one.weights is None or not row.objects:
            continue
        inside = image_data.image_rows.cells_inside([each.box for each in row.objects], one.grid, image_box(one.image))
        hits.append(bool(inside[int(one.weights.argmax())]))
        chances.append(float(inside.mean()))
    return (float(np.mean(hits)), float(np.mean(chances))) if hits else (None, None)


class ImagesTask(LabelTask):
    """Telling the labels of images."""

    name = "images"
    hub_task = "image-classification"
    summary = BUILT_IN_TASKS[name]
    input = ImageInput(generated_scenes("labels"), labelled=True)
    input_hint = "An image to classify"
    data_config = ImagesData
    model_config = ImageClassifierConfig
    training_config = ImageTrainingConfig
    rules = IMAGES
    evaluation_config = ImagesEvaluationOptions
    trained = TrainedImageClassifier
    model_class = "regard.models.vision.image_classifier:ImageClassifier"
    variant = ("model", "architecture")
    picture_prefix = "image"
    lack = "which does not classify images"

    @property
    def results(self) -> tuple[str, ...]:
        return ("pictures/image-*.png", *super().results)

    def check_run(self, run: Any) -> None:
        super().check_run(run)
        run.training.check_backbone(run.model)

    def data_fields(self, run: Any, files: Mapping[str, Any], train: Any) -> dict[str, Any]:
        side = run.data.image_size
        return {"labels": len(files["labels"]), "image_height": side, "image_width": side}


TASK = ImagesTask()
