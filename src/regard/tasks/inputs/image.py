"""Images as input: tables and folders of images, their size, the network that reads them, and their batches."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from regard.configuration import RATE, Range, option
from regard.configuration.options import fill
from regard.data import images as image_data
from regard.data.class_folders import IMAGE_SUFFIXES
from regard.data.text.words import unspaced_share
from regard.errors import ArgumentError
from regard.names.counted import counted
from regard.tasks.inputs.input import Examples, Generated, Input, chunks, drawn_rows
from regard.tasks.lazy import F, np, records, torch
from regard.tasks.options import BATCH, DataOptions
from regard.training.config import TrainingConfig
from regard.training.results import Prediction, rounded

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from regard.data.batches import Batches
    from regard.data.images.caption_batches import CaptionBatch, CaptionExample
    from regard.data.images.image_rows import ImageRow
    from regard.data.images.pictures import InputImage
    from regard.data.text.batches import IdEncoder
    from regard.records import GridAxis
    from regard.training.run_folder import RunFolder

log = logging.getLogger("regard")

MEASURED_IMAGES = 1_000
"""The most images whose texts are examined before a training."""

MOST_SIDE = 4096
"""Largest side of an image that a model reads, in pixels."""

SCENE_SIDE, PHOTO_SIDE = 64, 128
"""The default side of images in pixels: of generated scenes, and of other images."""

MOST_COMPARED_FILES = 20_000
"""A folder of more images is not compared with its state at the training: checksums would take too long."""


@dataclass(frozen=True)
class ImageOptions(DataOptions):
    """The images of a run."""

    image_column: str | None = None
    """Column of the paths of the images. Default: image, or the only one of image files or of a usual name."""
    image_size: int = option(0, within=Range(0, MOST_SIDE))
    """Pixels of a side that every image is brought to; 0: 128, generated scenes 64."""
    fit: Literal["crop", "stretch"] = "crop"
    """How an image becomes square: crop (its middle) or stretch."""

    default_bundled = 6000
    generated = "generated scenes"

    def check(self) -> None:
        super().check()
        fill(self, image_size=self.image_size or (SCENE_SIDE if self.bundled else PHOTO_SIDE))


@dataclass(frozen=True)
class ImageTraining(TrainingConfig):
    """How a model of images is trained, and for how long."""

    batch_size: int = option(32, within=BATCH)
    """Images of a batch, on each device."""
    label_smoothing: float = option(0.0, within=RATE)
    """Probability that is distributed over all labels or words, 0 to below 1 (Szegedy et al. 2016, section 7)."""
    flip: bool = False
    """Mirror half of the training images, left to right; not for captions that say left or right."""
    zoom: float = option(0.0, within=RATE)
    """Read a random part of each training image, whose side is at least 1 − zoom of that of the image."""
    jitter: float = option(0.0, within=RATE)
    """Change brightness and contrast of each training image by a factor from 1 − jitter to 1 + jitter."""
    backbone_weights: str | None = None
    """File with the first weights of the backbone (.safetensors, .pth). Default: random weights."""
    freeze_backbone: bool = False
    """Whether the weights of the backbone stay as they are."""

    def check_backbone(self, model: Any) -> None:
        """Raises ArgumentError if options are for the backbone of a model that has none."""
        for name in ("backbone_weights", "freeze_backbone"):
            if getattr(self, name) and not model.backbone:
                raise ArgumentError(f"{name} needs backbone; leave it out, or give both")


PLAIN_SIDE, PLAIN_TONES = 8, 8
"""The cells of each side of an image, and the tones, whose means and shares are features of a linear model."""


class ImageExamples(Examples):
    """Images of one size with encoded captions, or with a label as the only token of a caption.

    Args:
        examples: the captions of each row of the table of pixels.
        pixels: uint8 ``[images, height, width, 3]``.
    """

    def __init__(self, examples: list[CaptionExample], pixels: NDArray[np.uint8]):
        self.examples, self.pixels = examples, pixels
        self.description = f"{len(examples)} images"

    def __len__(self) -> int:
        return len(self.examples)

    def epochs(self, training: Any, rank: int, world_size: int) -> Batches[CaptionExample, CaptionBatch]:
        from regard.data.batches import Batches

        return Batches(
            self.examples, training.batch_size, self._batch, seed=training.seed, rank=rank, world_size=world_size
        )

    def in_order(self, training: Any) -> Iterator[CaptionBatch]:
        for rows in chunks(range(len(self.examples)), training.batch_size):
            yield self._batch([self.examples[row] for row in rows])

    def _batch(self, examples: Sequence[CaptionExample]) -> CaptionBatch:
        return image_data.caption_batches.CaptionBatch.of(examples, self.pixels)


class ImageFiles(Input):
    """Images in files, in tables and in memory, with anything that is told of them.

    Attributes:
        written_scenes: generated test scenes that are written as image files as well, to predict.
    """

    kind = "image"
    examples = "images"
    written_scenes: ClassVar[int] = 8

    @property
    def results(self) -> tuple[str, ...]:
        return ("corpus/test-[0-9]*.png",)

    @property
    def suffixes(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return IMAGE_SUFFIXES

    def of_cell(self, value: Any, column: str, folder: Path, origin: str) -> Any:
        return image_data.image_rows.table_picture(value, column, folder, origin)

    def write_examples(self, folder: RunFolder) -> None:
        rows = self.open(str(self.generated_path(folder, "test")), (), None, limit=self.written_scenes)
        for number, row in enumerate(rows, start=1):
            image_data.reading.save_png(folder.tree("corpus") / f"test-{number}.png", self.pixels_of(row))

    def pixels_of(self, row: Any) -> NDArray[np.uint8]:
        """Returns the pixels of a row's image, uint8 ``[height, width, 3]``."""
        return row.picture.pixels()


class ImageInput(ImageFiles):
    """Images with a label or with captions.

    Args:
        generated: the generated corpus.
        labelled: whether the images have labels; else they have captions.
    """

    labelled_unit = "image"
    plain = "mean colours and tones"

    def __init__(self, generated: Generated, labelled: bool):
        super().__init__(generated)
        self.roles = ("IMAGE", "LABEL" if labelled else "CAPTION")
        self.labelled = labelled
        self.stored_columns = ("image", "label" if labelled else "captions")

    def class_files(self, folder: Path) -> Sequence[Path]:
        return image_data.image_rows.class_images(folder).files

    def source_files(self, folder: RunFolder, source: str) -> tuple[Path, ...] | None:
        files = super().source_files(folder, source)
        return files if files is None or len(files) <= MOST_COMPARED_FILES else ()

    def open(self, source: Any, columns: Sequence[str | None], data: Any, limit: int | None = None) -> list[ImageRow]:
        return (image_data.image_rows.labelled_images if self.labelled else image_data.image_rows.captioned_images)(
            source, *columns, limit=limit
        )

    def check_rows(self, rows: list[ImageRow]) -> None:
        for row in rows:
            row.picture.state()

    def unspaced(self, rows: list[ImageRow]) -> tuple[float, float]:
        numbers = drawn_rows(len(rows), MEASURED_IMAGES)
        return 0.0, unspaced_share(text for number in numbers for text in rows[number].texts)

    def targets(self, rows: list[ImageRow]) -> list[str]:
        return [row.texts[0] for row in rows]

    def names(self, rows: list[ImageRow]) -> list[str]:
        return [row.picture.name for row in rows]

    def labelled_contents(
        self, rows: list[ImageRow], examples: Callable[[], Examples], most: int
    ) -> tuple[Sequence[Any], list[str]]:
        numbers, encoded = drawn_rows(len(rows), most), examples()
        assert isinstance(encoded, ImageExamples)
        return [encoded.pixels[number] for number in numbers], self.targets(self.select(rows, numbers))

    def content(self, one: InputImage) -> NDArray[np.uint8]:
        return one.pixels

    def plain_features(self, content: NDArray[np.uint8]) -> NDArray[np.float32]:
        image = torch.from_numpy(content.astype(np.float32) / 255).permute(2, 0, 1)
        colours = F.adaptive_avg_pool2d(image, PLAIN_SIDE).flatten().numpy()
        tones = content.reshape(-1, 3) // (256 // PLAIN_TONES) + np.arange(3) * PLAIN_TONES
        shares = np.bincount(tones.ravel(), minlength=3 * PLAIN_TONES) / len(tones)
        return np.concatenate((colours, shares.astype(np.float32)))

    def inputs(self, rows: list[ImageRow], trained: Any) -> list[InputImage]:
        return self.read([row.picture for row in rows], trained)

    def encode(
        self, rows: list[ImageRow], run: Any, learnt: Mapping[str, Any], target: IdEncoder, training: bool
    ) -> ImageExamples:
        data = run.data
        longest = 1 if self.labelled else data.max_length
        examples, cut = image_data.caption_batches.caption_examples((row.texts for row in rows), target, longest)  # pyright: ignore[reportArgumentType]
        if cut and training:
            log.warning("cut %s with more than %d tokens", counted(cut, "caption"), longest)
        pixels = image_data.pictures.pixel_table(
            [row.picture for row in rows], (data.image_size, data.image_size), data.fit
        )
        return ImageExamples(examples, pixels)

    def sizes(self, experiment: Any) -> list[str]:
        rows, columns = experiment.model.grid
        return [f"grid {rows} × {columns}"]

    def prepare_model(self, model: Any, run: Any, folder: RunFolder, train: Examples) -> None:
        from regard.models.vision.grid_encoder import GridEncoder

        training = run.training
        if not isinstance(training, ImageTraining) or not isinstance(model.encoder, GridEncoder):
            return
        if training.backbone_weights is not None and not folder.model.is_file():
            model.encoder.load_backbone(folder.manifest.resolve(training.backbone_weights))
        if training.freeze_backbone:
            model.encoder.freeze_backbone()

    def arguments(self, batch: CaptionBatch, training: Any = None) -> tuple[Tensor, ...]:
        if training is None:
            return (batch.images,)
        return (image_data.augmentation.Augmentation(training.zoom, training.flip, training.jitter)(batch.images),)

    def pair_arguments(self, batch: CaptionBatch, training: Any = None) -> tuple[Tensor, ...]:
        return (*self.arguments(batch, training), batch.owners)

    def read(self, inputs: Sequence[Any], trained: Any) -> list[InputImage]:
        size, fit = trained.model.encoder.size, trained.config.data.fit
        return [
            one
            if isinstance(one, image_data.pictures.InputImage)
            else image_data.pictures.InputImage.open(one, size, fit, f"inputs[{number}]")
            for number, one in enumerate(inputs)
        ]

    def batch(self, inputs: Sequence[InputImage], targets: Sequence[Sequence[int]] | None = None) -> CaptionBatch:
        """Returns a batch of images; ``targets`` has a caption, or a list of captions, for each."""
        pixels = np.stack([one.pixels for one in inputs])
        captions = [((),)] * len(inputs) if targets is None else [_captions(one) for one in targets]
        return image_data.caption_batches.CaptionBatch.of(
            [image_data.caption_batches.CaptionExample(row, ids) for row, ids in enumerate(captions)], pixels
        )


def _captions(ids: Sequence[Any]) -> tuple[tuple[int, ...], ...]:
    nested = bool(ids) and not isinstance(ids[0], int)
    return tuple(tuple(caption) for caption in ids) if nested else (tuple(ids),)


class ImagePrediction(Prediction):
    """A prediction for an image, with weights over a grid of its cells; a subclass is a dataclass.

    Attributes:
        image: the image.
        grid: rows and columns.
    """

    image: InputImage
    grid: tuple[int, int]

    @property
    def source(self) -> Any:
        return self.image.source

    @property
    def input_text(self) -> str:
        return self.image.name

    @property
    def model_input(self) -> Any:
        """The input as the run reads it again."""
        return self.image

    @property
    def axis(self) -> GridAxis:
        """The grid over the image, for records."""
        return records.GridAxis(*self.grid, self.image.shown, box=self.image.box)

    def grid_details(self, weights: NDArray[np.float32] | None) -> dict[str, Any]:
        """Returns weights ``[..., rows · columns]`` as ``[...][row][column]``, with ``box`` of the image."""
        if weights is None:
            return {}
        box = [round(edge, 2) for edge in image_box(self.image)]
        return {"box": box, "weights": rounded(weights.reshape(*weights.shape[:-1], *self.grid))}


def image_box(image: InputImage) -> tuple[float, float, float, float]:
    """Returns the part of an image that the model sees, in pixels of the original image."""
    x0, y0, x1, y1 = (edge / image.scale for edge in image.box)
    return x0, y0, x1, y1


def generated_scenes(kind: str) -> Generated:
    """Returns the corpus of generated scenes.

    Args:
        kind: what is said of them, see `regard.data.images.scenes.write_scenes`.
    """

    def write(folder: Any, sizes: dict[str, int]) -> Mapping[str, Path]:
        return image_data.scenes.write_scenes(folder, kind, sizes, seed=1)

    return Generated(write, validation=500, test=500, suffix=".jsonl")


def network_facts(config: Any) -> str:
    """Returns the name of the network that reads an image."""
    return config.backbone or "a convolutional network"
