"""The task ``images``: the label of an image, told by a Vision Transformer or a convolutional network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from regard.errors import ArgumentError
from regard.tasks.inputs.image import (
    ImageInput,
    ImageOptions,
    ImageTraining,
    NetworkOptions,
    generated_scenes,
    image_box,
    network_facts,
)
from regard.tasks.lazy import np
from regard.tasks.options import (
    MOST_FEATURES,
    MOST_HEADS,
    MOST_LAYERS,
    BatchOptions,
    EvaluationOptions,
    check_heads,
    check_meaning,
    fill_defaults,
    model_fields,
)
from regard.tasks.outputs.label import (
    LabelEvaluation,
    LabelPrediction,
    LabelTask,
    LabelTraining,
    Outputs,
    TrainedLabels,
)
from regard.tasks.trained_run import draw_figures
from regard.training.sections import check_between, check_choices, check_probabilities

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from regard.data.images.image_rows import ImageRow
    from regard.data.images.pictures import InputImage
    from regard.explanations.model_attention import ModelAttention
    from regard.records import AttentionRecord, Document, GridAxis
    from regard.training.run_folder import RunFolder
    from regard.training.task import Prediction

DRAWN = 6
"""Images that an evaluation draws."""


@dataclass(frozen=True)
class DataConfig(ImageOptions):
    """The data of a run."""

    train: str | None = None
    """Training images: a folder with a folder of images for each label, a .jsonl, .json, .tsv or .csv file with the
    columns image and label (paths are relative to the file), or 'bundled' for generated scenes, whose label is the
    shape of the one large object."""
    held_out: int = 1000
    """Training images that are used for validation when there are no validation data; at most a tenth of them."""


_OF_VIT = ("hidden", "layers", "heads", "feedforward")
_OF_CNN = ("grid", "stages", "blocks", "backbone", "backbone_weights", "freeze_backbone")


@dataclass(frozen=True)
class ModelConfig(NetworkOptions):
    """The model of a run, without the number of its labels."""

    network: Literal["vit", "cnn", "se", "cbam"] = "vit"
    """vit (a Transformer on patches), or a residual convolutional network: cnn, se (which weighs channels) or cbam
    (channels and positions)."""
    pooling: Literal["cls", "attention", "mean"] | None = None
    """cls (the output of a class token; vit only), attention (with a learned query) or mean. Default: cls; of the
    other networks mean."""
    pooling_heads: int = 1
    """attention pooling: learned queries."""
    patch: int = 0
    """Pixels of a side of a patch; 0: image_size / 8 for vit, so that there are 8 × 8 patches; image_size / 32 for the
    others, whose three stages then give 8 × 8 cells."""
    hidden: int = 128
    """vit: features of a patch."""
    layers: int = 4
    """vit: layers."""
    heads: int = 4
    """vit: heads; a divisor of hidden."""
    feedforward: int = 0
    """vit: units of the hidden layer of the feedforward networks; 0: four times hidden."""
    dropout: float = 0.1
    """Dropout rate, 0 to below 1."""

    def __post_init__(self) -> None:
        check_choices(self)
        vit = self.network == "vit"
        check_meaning(self, _OF_CNN if vit else _OF_VIT, f"network {self.network!r}")
        fill_defaults(self, pooling="cls" if vit else "mean")
        if self.pooling == "cls" and not vit:
            raise ArgumentError(f"pooling 'cls' is of network 'vit'; network is {self.network!r}")
        if self.backbone and self.network != "cnn":
            raise ArgumentError(f"a backbone is another network than {self.network!r}; give it with network 'cnn'")
        super().__post_init__()
        check_between(self, 1, MOST_FEATURES, "hidden")
        check_between(self, 0, 16 * MOST_FEATURES, "feedforward")
        check_between(self, 1, MOST_LAYERS, "layers")
        check_between(self, 1, MOST_HEADS, "heads", "pooling_heads")
        check_probabilities(self, "dropout")
        if vit:
            check_heads(self)


@dataclass(frozen=True)
class ImageTrainingConfig(ImageTraining, LabelTraining):
    """How a classifier of images is trained, and for how long."""

    batch_size: int = 64
    """Images of a batch, on each device."""
    label_smoothing: float = 0.1
    """Probability that is distributed over all labels, 0 to below 1 (Szegedy et al. 2016, section 7)."""


PredictionConfig = BatchOptions
EvaluationConfig = EvaluationOptions


@dataclass(frozen=True, repr=False)
class ImageLabel(LabelPrediction):
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

    @property
    def text(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.label

    def texts(self) -> tuple[tuple[str, str], ...]:
        return ("image", self.image.name), ("label", self.label)

    def to_dict(self) -> dict[str, Any]:
        """Image, label, probabilities, and weights ``[row][column]`` over ``box`` of the image."""
        content = {"image": self.image.name, **self.label_fields()}
        if self.weights is not None:
            content["box"] = [round(edge, 2) for edge in image_box(self.image)]
            content["weights"] = self.weights.reshape(self.grid).round(5).tolist()
        return content

    def figure(self) -> Any:
        """The image beside its overlay; None without weights."""
        from regard.pictures import image_overlays

        if self.weights is None:
            return None
        return image_overlays(self.image.shown, self.weights[None], [self.titled], self.grid, box=self.image.box)


@dataclass(frozen=True, repr=False)
class Evaluation(LabelEvaluation):
    """How good a classifier of images is on a data set."""

    images: int
    """Evaluated images."""
    pointing: float | None
    """The share of the images for which the cell with the largest weight is on a named object, 0 to 1; None if the data
    do not say where objects are, or the model has no attention."""
    pointing_chance: float | None
    """The share for cells drawn at random."""
    found: list[ImageLabel]
    """The predictions."""
    rows: list[ImageRow]
    """The images with their true labels."""

    examples: ClassVar[tuple[str, ...]] = ("predictions", "found", "rows")
    example: ClassVar[str] = "image"

    def counted(self) -> str:
        return f"{self.images} images"

    def others(self) -> str:
        if self.pointing is None:
            return ""
        return f" · pointing {self.pointing:.3f} (chance {self.pointing_chance:.3f})"

    def write(self, folder: RunFolder, name: str) -> list[Path]:
        """As for every classifier, and the first images with their weights."""
        figures = (one.figure() for one in self.found[:DRAWN])
        return [*super().write(folder, name), *draw_figures(folder.pictures, figures, f"image-{name}")]


class TrainedImageClassifier(TrainedLabels):
    """The best model of a run with its labels."""

    def classify_batch(self, inputs: Sequence[InputImage], need_weights: bool) -> tuple[Tensor, list[Any]]:
        from regard.attention.execution import recorded_calls

        batch = self.input.batch(inputs).to(self.device)
        with recorded_calls() as calls:
            output = self.model(*self.input.arguments(batch), need_weights=self.model.pooling is not None)
        layers = [call.weights for call in calls[: self._layers]] if need_weights else []
        weights = []
        for row, image in enumerate(inputs):
            pooled = None if output.weights is None else output.weights[row].float().mean(0).cpu()
            weights.append(self._weights([layer[row : row + 1] for layer in layers], pooled, image))
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
        """What the output is made of: what the pooling reads of the top layer, and attention rollout below it."""
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
        from regard.records import GridAxis

        rows, columns = self.model.grid
        return GridAxis(rows, columns, image.shown, leading=self._leading, box=image.box)

    def _records(self, layers: Sequence[Tensor], image: InputImage) -> list[AttentionRecord]:
        from regard.records import AttentionRecord

        axis = self._axis(image)
        return [
            AttentionRecord(
                f"encoder.layers.{number}.self_attn", number, "self", axis, axis, layer[0].float().cpu().numpy()
            )
            for number, layer in enumerate(layers)
        ]

    def prediction(self, one: InputImage, label: str, probabilities: dict[str, float], weights: Any) -> ImageLabel:
        return ImageLabel(one, label, probabilities, weights, self.model.grid)

    def measures_weights(self, source: Any, rows: Any) -> bool:
        return self.model.attends

    def evaluation(
        self, shared: dict[str, Any], source: Any, rows: list[ImageRow], inputs: list[InputImage], found: Outputs
    ) -> Evaluation:
        weights = found.weights or [None] * len(inputs)
        outputs = zip(inputs, found.logits, weights, strict=True)
        labelled: list[Any] = [self.labelled(one, logits, weight) for one, logits, weight in outputs]
        pointing, chance = _pointing(rows, labelled)
        return Evaluation(
            **shared, images=len(rows), pointing=pointing, pointing_chance=chance, found=labelled, rows=rows
        )

    def check_drawable(self) -> None:
        if not self.model.attends:
            raise ArgumentError(
                f"{self.folder.path} has no attention weights over the image (its pooling is "
                f"{self.model.config.pooling!r}); there is nothing to draw"
            )

    def figure(self, prediction: ImageLabel) -> Any:
        return prediction.figure()

    def attentions(self, prediction: Prediction) -> list[ModelAttention]:
        assert isinstance(prediction, ImageLabel)
        calls, pools = self.recorded(prediction.image), self.model.pooling is not None
        calls = [*calls[: self._layers], *(calls[self._layers :] if pools else ())]
        return self.attentions_of(calls, pools, self._axis(prediction.image), "learned query")

    def document(self, prediction: Prediction, attentions: Sequence[ModelAttention] | None = None) -> Document:
        """The attention of each layer, and with a Vision Transformer its rollout at the end."""
        from regard.records import Document
        from regard.watching import rollout

        attentions = self.attentions(prediction) if attentions is None else attentions
        records = [attention.record() for attention in attentions]
        if self._layers:
            records.append(rollout(records[: self._layers]))
        return Document(self.folder.path.name, tuple(records), texts=prediction.texts())

    def facts(self) -> str:
        config = self.model.config
        if config.network == "vit":
            return f"Vision Transformer, {config.layers} layers × {config.heads} heads, {config.pooling} pooling"
        weighed = {"none": "", "se": " with squeeze-and-excitation", "cbam": " with CBAM"}[config.weigh]
        return f"{network_facts(config)}{weighed}, {config.pooling} pooling"


def _pointing(rows: Sequence[ImageRow], found: Sequence[Any]) -> tuple[float | None, float | None]:
    """The pointing accuracy and that of cells drawn at random, over the images whose objects are known."""
    from regard.data.images.image_rows import cells_inside

    hits, chances = [], []
    for row, one in zip(rows, found, strict=True):
        if one.weights is None or not row.objects:
            continue
        inside = cells_inside([each.box for each in row.objects], one.grid, image_box(one.image))
        hits.append(bool(inside[int(one.weights.argmax())]))
        chances.append(float(inside.mean()))
    return (float(np.mean(hits)), float(np.mean(chances))) if hits else (None, None)


class ImagesTask(LabelTask):
    """Telling the labels of images."""

    name = "images"
    hub_task = "image-classification"
    summary = "Tell the label of an image: a Vision Transformer, or a convolutional network with SE or CBAM."
    input = ImageInput(generated_scenes("labels"), labelled=True)
    input_hint = "An image to classify"
    data_config = DataConfig
    model_config = ModelConfig
    training_config = ImageTrainingConfig
    trained = TrainedImageClassifier
    model_class = "regard.models.vision.image_classifier:ImageClassifier"
    variant = ("model", "network")
    picture_prefix = "image"
    lack = "which does not classify images"

    @property
    def results(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return ("pictures/image-*.png", *super().results)

    def build_model(self, run: Any, files: Mapping[str, Any], train: Any) -> Any:
        from regard.models.vision.image_classifier import ImageClassifier, ImageClassifierConfig

        model, size = run.model, run.data.image_size
        vit = model.network == "vit"
        fields = model_fields(
            model,
            ImageClassifierConfig,
            labels=len(files["labels"]),
            network="vit" if vit else "cnn",
            weigh=model.network if model.network in ("se", "cbam") else "none",
            dim=model.hidden,
            **model.grid_fields(size),
        )
        if vit:
            fields["patch"] = model.patch or max(1, size // 8)
        return ImageClassifier(ImageClassifierConfig(**fields))


TASK = ImagesTask()
