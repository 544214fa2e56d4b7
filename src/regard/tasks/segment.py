"""The task ``segment``: the class of each pixel of an image, told by a network with attention to the whole image."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from regard.configuration import RATE, Range, option
from regard.data import images as image_data
from regard.data.label_doubts import label_doubts
from regard.data.labels import PixelClasses
from regard.data.records import text_lines
from regard.errors import ArgumentError, DataError, RunError
from regard.files.regular import path_inside
from regard.models.vision.configs import SegmenterConfig
from regard.tasks.attended import attended_regions
from regard.tasks.inputs.input import Generated, chunks
from regard.tasks.inputs.masked_image import MaskedImages
from regard.tasks.lazy import F, np, pictures, records, torch
from regard.tasks.options import BatchOptions, DataOptions, EvaluationOptions, ImageColumn
from regard.tasks.outputs.mask import IGNORED, MaskPrediction, MaskTask, MaskTraining, TrainedMasks, class_shares
from regard.tasks.registry import BUILT_IN_TASKS
from regard.tasks.rules import SEGMENT
from regard.training.config import ScheduleName
from regard.training.results import AttendedParts, rounded
from regard.training.run_folder import RunFolder

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from regard.data.images.masked_images import MaskedImage
    from regard.explanations.model_attention import ModelAttention
    from regard.training.results import Prediction

log = logging.getLogger("regard")

MOST_SIDE = 8192
"""Largest height or width of an image, in pixels."""

MOST_POSITIONS = 2048
"""The most positions of an attention whose whole matrix of weights becomes a record."""


@dataclass(frozen=True)
class SegmentData(DataOptions):
    """The data of a run."""

    train: str | None = None
    """Training images: a folder with the folders images and labels (class maps of the same names), a table (.tsv,
    .csv, .jsonl, .parquet) with the columns image and mask, or 'bundled' for generated scenes."""
    image_column: str | None = None
    """Column of the paths of the images. Default: image, or the only one of image files or of a usual name."""
    mask_column: str | None = None
    """Column of the paths of the class maps. Default: mask, or the only one of a usual name."""
    bundled: int = option(0, within=Range(0, 1_000_000))
    held_out: float = 100
    classes: str | None = None
    """Names of the classes in the order of their numbers, separated by commas, or a text file with a name on each line.
    Default: their numbers, from 0 to the largest; or 0 and 255, if class maps are black and white."""
    ignore: int = option(-1, within=Range(-1, 65_535))
    """Number of the pixels in class maps that do not count, such as those without a class, which is then no class; -1:
    all pixels count."""
    height: int = option(0, within=Range(0, MOST_SIDE))
    """Height that images are resized to, in pixels; 0: that of the first training image."""
    width: int = option(0, within=Range(0, MOST_SIDE))
    """Width that images are resized to, in pixels; 0: that of the first training image."""

    columns = ("image_column", "mask_column")
    default_bundled = 500
    generated = "generated scenes"
    source = "FOLDER"

    def check(self) -> None:
        super().check()
        if self.classes == "":
            raise ArgumentError("classes is empty; give a name, or leave it out")
        if self.bundled and (self.classes is not None or self.ignore != -1):
            raise ArgumentError("the generated scenes have classes of their own; leave out --classes and --ignore")
        if bool(self.height) != bool(self.width):
            raise ArgumentError(
                f"--height and --width belong together; they are {self.height} and {self.width}: give both or neither"
            )

    @property
    def ignored(self) -> int | None:
        """The number of the pixels that do not count; None: all count."""
        return None if self.ignore < 0 else self.ignore


@dataclass(frozen=True)
class SegmentationTrainingConfig(MaskTraining):
    """How a segmentation is trained, and for how long."""

    learning_rate: float = 2e-3
    weight_decay: float = 0.02
    schedule: ScheduleName = "cosine"
    warmup: int = 100
    epochs: int = 60
    patience: int = 60
    crop: float = 0.8
    """Sides of the part of an image that is trained on, as a share of the image's; above 0, at most 1."""
    rescale: float = option(1.5, within=Range(1, 10))
    """Images are enlarged by up to this factor and made smaller by up to its inverse; 1: never."""
    jitter: float = option(0.3, within=RATE)
    """Brightness, contrast and saturation change by a factor of up to 1 ± this; 0 to below 1."""
    flip: bool = True
    """Mirror half of the images, left to right."""

    def check(self) -> None:
        super().check()
        if not 0 < self.crop <= 1:
            raise ArgumentError(f"crop must be above 0 and at most 1; it is {self.crop}")


@dataclass(frozen=True)
class SegmentPredictionOptions(BatchOptions):
    """How images are segmented, and what is drawn of them."""

    batch_size: int = 4
    n_best: int = 1
    """Must be 1: an image has one map of classes, without alternatives."""
    pixel: str | None = None
    """Pixel whose attention is drawn, as 'x,y' from the upper left corner. Default: the middle of the image."""
    masks: str | None = None
    """Folder for the class map of each image, as PNG with the numbers of the training's class maps. Default: none are
    written."""

    def check(self) -> None:
        super().check()
        if self.n_best != 1:
            raise ArgumentError(
                f"n_best must be 1, since a segmentation is one map of classes and ranks no others; it is {self.n_best}"
            )
        if self.pixel is not None:
            pixel_of(self.pixel)
        if self.masks == "":
            raise ArgumentError("masks is empty; give the name of a folder, or leave it out")


@dataclass(frozen=True)
class SegmentEvaluationOptions(ImageColumn, EvaluationOptions):
    """How a segmentation is measured on a data set."""

    batch_size: int = 4
    mask_column: str | None = None
    """Column of the paths of the class maps. Default: as in training."""


def pixel_of(text: str) -> tuple[int, int]:
    """Returns the x and y that a text such as ``"120,80"`` names.

    Raises:
        ArgumentError: it is of another form.
    """
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() and len(part) <= 9 for part in parts):
        raise ArgumentError(f"pixel must be two whole numbers, 'x,y'; it is {text!r}")
    return int(parts[0]), int(parts[1])


@dataclass(frozen=True, eq=False, repr=False)
class Segmentation(MaskPrediction):
    """An image and the classes of its pixels.

    Attributes:
        pixels: uint8 ``[height, width, 3]``; ``classes`` is uint8 ``[height, width]``, at the image's own size.
        pixel: x and y of the pixel whose attention was read.
        weights: with which it attends to the image, float32 ``[rows, columns]``, a sum of 1; None for a model whose
            positions do not attend to each other.
        cell: width and height in pixels of what each weight belongs to; the last cells may reach beyond the image.
    """

    pixels: NDArray[np.uint8]
    pixel: tuple[int, int]
    weights: NDArray[np.float32] | None
    cell: tuple[float, float]

    kind: ClassVar[str] = "image"

    @property
    def image(self) -> str:
        """The file of the image."""
        return self.input_text

    @property
    def input_text(self) -> str:
        return super().input_text if isinstance(self.source, (str, os.PathLike)) else self.kind

    def attended(self) -> AttendedParts:
        if self.weights is None:
            return AttendedParts()
        rows, columns = self.weights.shape
        return attended_regions((rows, columns), self.weights.reshape(-1), "pixel {},{}".format(*self.pixel))

    def details(self) -> dict[str, Any]:
        """Returns the size and the shares, and the attention of the pixel: ``weights[row][column]`` of cells."""
        height, width = self.classes.shape
        content = {**super().details(), "width": width, "height": height}
        if self.weights is not None:
            content["pixel"] = list(self.pixel)
            content["cell"] = [round(side, 4) for side in self.cell]
            content["weights"] = rounded(self.weights)
        return content


class TrainedSegmenter(TrainedMasks):
    """The best model of a run with its classes."""

    def check_sizes(self, files: dict[str, Any], config: Any) -> None:
        if len(files["classes"]) != config.classes:
            raise RunError(f"{self.folder.path}: the numbers of classes of classes.json and of the model differ")

    def predict_with(self, inputs: Sequence[Any], options: Any) -> list[Segmentation]:
        if options.masks is not None:
            _require_writable(options.masks, inputs)
        read, predictions = self.input.read(inputs, self), []
        for rows in chunks(range(len(read)), options.batch_size):
            part = [read[row] for row in rows]
            for row, (name, image), classes in zip(rows, part, self.classes_of(part), strict=True):
                source = name if isinstance(inputs[row], tuple) else inputs[row]
                predictions.append(self._segmentation(source, name, image, classes, options.pixel))
        if options.masks is not None:
            numbers = np.array(self.classes.numbers, np.uint8)
            for one in predictions:
                image_data.reading.save_png(
                    path_inside(options.masks, f"{Path(one.image).stem}.png"), numbers[one.classes]
                )
        return predictions

    def remarks(self, predictions: Sequence[Prediction], options: SegmentPredictionOptions) -> list[str]:
        return [f"class maps: {options.masks}"] if options.masks is not None else []

    def true_classes(self, rows: list[MaskedImage]) -> tuple[list[Any], list[Tensor]]:
        inputs, true = [], []
        for row in rows:
            pair = row.load()
            known = image_data.masked_images.known_classes(
                pair.classes, self.config.data.ignored, self.classes.numbers, row.mask_name
            )
            classes = torch.from_numpy(known).long()
            inputs.append((row.name, pair.pixels))
            true.append(classes.masked_fill(classes == image_data.masked_images.IGNORED_NUMBER, IGNORED))
        return inputs, true

    def classes_of(self, inputs: Sequence[tuple[str, NDArray[np.uint8]]]) -> list[NDArray[np.uint8]]:
        """Returns the class of each pixel of images, uint8 ``[height, width]``, at their own sizes.

        An image of another size than those of the training is resized, and the logits are interpolated back.

        Args:
            inputs: name and pixels of each image, uint8 ``[height, width, 3]``.
        """
        maps = []
        with torch.inference_mode():
            logits = self.model(self._batch([self._resized(image, name) for name, image in inputs])).float()
            for one, (_, image) in zip(logits, inputs, strict=True):
                if image.shape[:2] != self.classes.size:
                    one = F.interpolate(one[None], image.shape[:2], mode="bilinear")[0]
                maps.append(one.argmax(0).to(torch.uint8).cpu().numpy())
        return maps

    def pixel_weights(self, image: NDArray[np.uint8], pixel: tuple[int, int], name: str = "image") -> Tensor:
        """Returns the weights with which the position of a pixel attends to all positions.

        Args:
            pixel: x and y.

        Returns:
            float32 ``[rows, columns]`` on the CPU; a sum of 1.

        Raises:
            ArgumentError: the pixel is not in the image, or the model has no such attention.
        """
        from regard.attention import Readings

        height, width = image.shape[:2]
        x, y = pixel
        if not (0 <= x < width and 0 <= y < height):
            raise ArgumentError(f"pixel {x},{y} is not in {name}, which has {width} × {height} pixels")
        across, down = self.cell_of(image)
        rows, columns = self.model.context_size(*self.classes.size)
        row, column = (y + 0.5) // down, (x + 0.5) // across
        read = Readings(rows=[int(row) * columns + int(column)])
        with torch.inference_mode():
            observed = self.model.observe_context(self._batch([self._resized(image, name)]), read)
        assert observed.rows is not None, "asked for"
        return observed.rows[0, 0, 0].float().cpu().view(rows, columns)

    def cell_of(self, image: NDArray[np.uint8]) -> tuple[float, float]:
        """Returns the width and height, in pixels of this image, of the area of each position of the attention."""
        height, width = image.shape[:2]
        cell = self.model.config.cell
        return cell * width / self.classes.width, cell * height / self.classes.height

    def _segmentation(
        self, source: Any, name: str, image: NDArray[np.uint8], classes: NDArray[np.uint8], pixel: str | None
    ) -> Segmentation:
        height, width = classes.shape
        chosen = pixel_of(pixel) if pixel is not None else (width // 2, height // 2)
        return Segmentation(
            source=source,
            classes=classes,
            shares=class_shares(torch.from_numpy(classes).long(), self.classes.names),
            names=self.classes.names,
            pixels=image,
            pixel=chosen,
            weights=self.pixel_weights(image, chosen, name).numpy() if self.model.attends else None,
            cell=self.cell_of(image),
        )

    def figure(self, prediction: Segmentation) -> Any:
        weights, attention = prediction.weights, None
        if weights is not None:
            attention = pictures.PixelAttention(weights, prediction.cell, prediction.pixel)
        title = Path(prediction.image).name
        return pictures.segments(
            prediction.pixels, prediction.classes, prediction.names, attention=attention, title=title
        )

    def attentions(self, prediction: Prediction) -> list[ModelAttention]:
        from regard.attention.execution import recorded_calls
        from regard.explanations.model_attention import ModelAttention

        assert isinstance(prediction, Segmentation)
        if not self.model.attends:
            return []
        image = self._resized(prediction.pixels, prediction.image)
        rows, columns = self.model.context_size(*self.classes.size)
        if rows * columns > MOST_POSITIONS:
            raise ArgumentError(
                f"{self.folder.path}: {rows} × {columns} positions attend to each other, more than the "
                f"{MOST_POSITIONS:,} whose weights a viewer shows; regard predict --pictures draws those of one pixel"
            )
        with torch.inference_mode(), recorded_calls() as calls:
            self.model(self._batch([image]))
        # The model continues an image to whole cells, and so does the picture under them.
        cell, (height, width) = self.model.config.cell, self.classes.size
        shown = np.pad(image, ((0, rows * cell - height), (0, columns * cell - width), (0, 0)), mode="edge")
        axis = records.GridAxis(rows, columns, shown)
        return [ModelAttention("context", 0, "self", axis, axis, calls[-1:])]  # gates came before

    def facts(self) -> str:
        config = self.model.config
        parts = [config.gate, config.attention.replace("_", "-"), config.fusion]
        shown = ", ".join(part for part in parts if part not in ("none", "sum"))
        return f"{config.classes} classes, {shown or 'no attention'}"

    def _resized(self, image: NDArray[np.uint8], name: str) -> NDArray[np.uint8]:
        return image_data.reading.fit_image(image, self.classes.size, "stretch", name).pixels

    def _batch(self, images: Sequence[NDArray[np.uint8]]) -> Tensor:
        return torch.from_numpy(np.stack(images)).to(self.device).permute(0, 3, 1, 2).float() / 255


def _require_writable(folder: str, inputs: Sequence[Any]) -> None:
    named = (one[0] if isinstance(one, tuple) else getattr(one, "name", one) for one in inputs)
    stems = [Path(one).stem if isinstance(one, (str, os.PathLike)) else "image" for one in named]
    for number, stem in enumerate(stems):
        if stem in stems[:number]:
            raise ArgumentError(
                f"masks: two images are named {stem!r}, and their class maps would be one file; predict them one by one"
            )
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder}: the folder of the class maps cannot be made ({error.strerror})") from error


def class_names(text: str | None) -> tuple[str, ...]:
    """Returns the names in the option ``classes``: separated by commas, or the lines of a text file; () for None.

    Raises:
        DataError: the file cannot be read.
    """
    if text is None:
        return ()
    if not text.endswith(".txt"):
        return tuple(name.strip() for name in text.split(",") if name.strip())
    try:
        return tuple(line.strip() for line in text_lines(Path(text)) if line.strip())
    except OSError as error:
        raise DataError(f"{text}: the names of the classes cannot be read ({error.strerror})") from error


class SegmentTask(MaskTask):
    """Telling the class of each pixel of images."""

    name = "segment"
    hub_task = "image-segmentation"
    summary = BUILT_IN_TASKS[name]
    input = MaskedImages(
        Generated(lambda folder, sizes: image_data.streets.write_streets(Path(folder), sizes), validation=60, test=100)
    )
    input_hint = "An image to segment"
    data_config = SegmentData
    model_config = SegmenterConfig
    training_config = SegmentationTrainingConfig
    rules = SEGMENT
    prediction_config = SegmentPredictionOptions
    evaluation_config = SegmentEvaluationOptions
    trained = TrainedSegmenter
    model_class = "regard.models.vision.segmenter:Segmenter"
    picture_prefix = "segments"
    lack = "which does not segment images"

    def loaders(self) -> dict[str, tuple[str, Callable[[Path], Any]]]:
        return {"classes": ("classes.json", PixelClasses.load)}

    def learn(self, run: Any, folder: RunFolder, rows: Any, held_out: Any) -> dict[str, Any]:
        """Learns the classes, which the options name or which are the numbers in the class maps, and a size.

        They are saved in the run folder, and saved ones are loaded instead.

        Raises:
            DataError: the data have no classes to tell apart.
            RunError: the classes of ``init_from`` are others.
        """
        path, initial, data = folder.file("classes.json"), run.training.init_from, run.data
        if path.is_file():
            return {"classes": PixelClasses.load(path)}
        height, width = (data.height, data.width) if data.height else rows[0].load().pixels.shape[:2]
        names = image_data.streets.CLASSES if data.bundled else class_names(data.classes)
        if initial is not None:
            before = PixelClasses.load(RunFolder.open(initial).file("classes.json"))
            if names and names != before.names:
                raise RunError(
                    f"--init-from: {initial} has the classes {', '.join(before.names)}, and --classes names others"
                )
            classes = PixelClasses(before.names, height, width, before.numbers)
        elif data.bundled:
            classes = PixelClasses(names, height, width)
        else:
            names, numbers = _named_numbers(rows, names, data)
            classes = PixelClasses(names, height, width, numbers)
        classes.save(path)
        return {"classes": classes}

    def data_fields(self, run: Any, files: Mapping[str, Any], train: Any) -> dict[str, Any]:
        return {"classes": len(files["classes"])}

    def run_name(self, config: Any) -> str:
        return f"{self.name}-{'attention' if config.model.attends else 'plain'}"


def _named_numbers(
    rows: list[MaskedImage], names: tuple[str, ...], data: SegmentData
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Returns the names and the numbers of the classes in the training data; without names the numbers are the names.
    These are in the order of the numbers from 0 on; the number that does not count may have one among them."""
    seen = Counter[int]()
    numbers = image_data.masked_images.class_numbers_of(rows, data.ignored, seen)
    if not numbers:
        raise DataError(f"{data.train}: no pixel of the training data has a class that counts; check --ignore")
    if numbers == (0, image_data.masked_images.WHITE_LEVEL):
        log.warning(
            "%s: the class maps have the numbers 0 and %d alone, which are two classes",
            data.train,
            image_data.masked_images.WHITE_LEVEL,
        )
    if names and len(names) != len(numbers):
        # Classes that do not occur have names too, and so may the number that does not count.
        numbers = tuple(number for number in range(len(names)) if number != data.ignored)
        names = tuple(names[number] for number in numbers)
    if not names and len(numbers) == 1:
        raise DataError(
            f"{data.train}: every pixel that counts has the class {numbers[0]}; there is nothing to tell apart "
            "(--classes names classes that do not occur)"
        )
    names = names or tuple(map(str, numbers))
    counts = {name: seen[number] for name, number in zip(names, numbers, strict=True) if seen[number]}
    for said in label_doubts(counts, "image", "give them one number in the class maps"):
        log.warning("%s: %s", data.train, said)
    return names, numbers


TASK = SegmentTask()
