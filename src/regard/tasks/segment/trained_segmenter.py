"""A trained segmentation, loaded from its run folder: tells the class of each pixel, and what a pixel attends to."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from regard.attention import Readings
from regard.attention.execution import recorded_calls
from regard.data.images.pictures import input_pixels
from regard.data.images.reading import fit_image, save_png
from regard.data.labels import PixelClasses
from regard.errors import ArgumentError, DataError, RunError
from regard.explanations.model_attention import ModelAttention
from regard.models.vision.segmenter import Segmenter
from regard.records import GridAxis
from regard.regular_file import path_inside
from regard.tasks.run_data import load_files_and_model, on_device
from regard.tasks.segment.config import EvaluationConfig, PredictionConfig, pixel_of
from regard.tasks.segment.experiment import class_shares
from regard.tasks.segment.segmentation import Segmentation
from regard.tasks.segment.task import TASK, SegmentationRun, classes_path
from regard.training.run_folder import RunFolder
from regard.training.task import Prediction, Trained

if TYPE_CHECKING:
    from regard.tasks.segment.evaluation import Evaluation

MOST_SHOWN = 2048
"""Positions of an attention whose whole matrix of weights becomes a record."""


class TrainedSegmenter(Trained):
    """The best model of a run with its classes.

    Args:
        folder: the run folder, or its path. Only safetensors, JSON and safe YAML are read.
        device: PyTorch device of the model.

    Raises:
        RunError: the folder is not a run folder, or its files are missing, damaged or from different runs.
    """

    def __init__(self, folder: RunFolder | str, device: str = "cpu"):
        self.task = TASK
        self.folder = folder if isinstance(folder, RunFolder) else RunFolder.open(folder)
        self.config: SegmentationRun = self.folder.read_config(TASK)
        (self.classes,), model = load_files_and_model(
            self.folder, {classes_path(self.folder): PixelClasses.load}, Segmenter, "which does not segment images"
        )
        if len(self.classes) != model.config.classes:
            raise RunError(f"{self.folder.path}: the numbers of classes of classes.json and of the model differ")
        self.model: Segmenter = on_device(model, device)  # pyright: ignore[reportIncompatibleVariableOverride]
        self.device = device

    def predict_with(self, inputs: Sequence[Any], options: PredictionConfig) -> list[Segmentation]:
        if options.masks is not None:
            _require_writable(options.masks, inputs)
        found = []
        for first in range(0, len(inputs), options.batch_size):
            part = inputs[first : first + options.batch_size]
            opened = [input_pixels(one, f"inputs[{first + number}]") for number, one in enumerate(part)]
            names, images = [name for name, _ in opened], [image for _, image in opened]
            classes = self.classes_of(images, names)
            found += [
                self._segmentation(name, image, one, options.pixel)
                for name, image, one in zip(names, images, classes, strict=True)
            ]
        if options.masks is not None:
            for one in found:
                save_png(path_inside(options.masks, f"{Path(one.image).stem}.png"), one.classes)
        return found

    def remarks(self, predictions: Sequence[Prediction], options: PredictionConfig) -> list[str]:
        return [f"class maps: {options.masks}"] if options.masks is not None else []

    def evaluate_with(self, data: Any, options: EvaluationConfig) -> Evaluation:
        from regard.tasks.segment.evaluation import evaluate

        if isinstance(data, str) and data == "bundled" and not Path(data).exists():
            from regard.data.images.streets import write_streets
            from regard.tasks.segment.corpora import BUNDLED_TEST

            with tempfile.TemporaryDirectory(prefix="regard-") as folder:
                table = write_streets(Path(folder), {"test": BUNDLED_TEST})["test"]
                return replace(self.evaluate_with(str(table), options), data="bundled")
        return evaluate(self, data, batch_size=options.batch_size, limit=options.limit)

    def draw(self, predictions: Sequence[Prediction], folder: Path) -> list[Path]:
        from regard.tasks.segment.pictures import draw_segments

        return draw_segments(folder, [one for one in predictions if isinstance(one, Segmentation)])

    def attentions(self, prediction: Prediction) -> list[ModelAttention]:
        assert isinstance(prediction, Segmentation)
        if not self.model.attends:
            return []
        image = self._resized(prediction.pixels, prediction.image)
        rows, columns = self.model.context_size(*self.classes.size)
        if rows * columns > MOST_SHOWN:
            raise ArgumentError(
                f"{self.folder.path}: {rows} × {columns} positions attend to each other, more than the "
                f"{MOST_SHOWN:,} whose weights a viewer shows; regard predict --pictures draws those of one pixel"
            )
        with torch.inference_mode(), recorded_calls() as calls:
            self.model(self._batch([image]))
        # The model continues an image to whole cells, and so does the picture under them.
        cell, (height, width) = self.model.config.cell, self.classes.size
        shown = np.pad(image, ((0, rows * cell - height), (0, columns * cell - width), (0, 0)), mode="edge")
        axis = GridAxis(rows, columns, shown)
        return [ModelAttention("context", 0, "self", axis, axis, calls)]

    def classes_of(self, images: Sequence[NDArray[np.uint8]], names: Sequence[str]) -> list[NDArray[np.uint8]]:
        """The class of each pixel of images, at their own sizes.

        Args:
            images: each uint8 ``[height, width, 3]``.
            names: name the images in messages.

        Returns:
            for each image uint8 ``[height, width]``. An image of another size than those of the training is resized,
            and the logits are interpolated back.
        """
        resized = [self._resized(image, name) for image, name in zip(images, names, strict=True)]
        found = []
        with torch.inference_mode():
            logits = self.model(self._batch(resized)).float()
            for one, image in zip(logits, images, strict=True):
                if image.shape[:2] != self.classes.size:
                    one = F.interpolate(one[None], image.shape[:2], mode="bilinear")[0]
                found.append(one.argmax(0).to(torch.uint8).cpu().numpy())
        return found

    def pixel_weights(self, image: NDArray[np.uint8], pixel: tuple[int, int], name: str = "image") -> Tensor:
        """With which weights the position of a pixel attends to all positions.

        Args:
            image: uint8 ``[height, width, 3]``.
            pixel: x and y.
            name: names the image in messages.

        Returns:
            float32 ``[rows, columns]`` on the CPU; a sum of 1.

        Raises:
            ArgumentError: the pixel is not in the image, or the model has no such attention.
        """
        height, width = image.shape[:2]
        x, y = pixel
        if not (0 <= x < width and 0 <= y < height):
            raise ArgumentError(f"pixel {x},{y} is not in {name}, which has {width} × {height} pixels")
        across, down = self.cell_of(image)
        rows, columns = self.model.context_size(*self.classes.size)
        row, column = (y + 0.5) // down, (x + 0.5) // across
        read = Readings(rows=[int(row) * columns + int(column)])
        with torch.inference_mode():
            found = self.model.observe_context(self._batch([self._resized(image, name)]), read)
        assert found.rows is not None, "asked for"
        return found.rows[0, 0, 0].float().cpu().view(rows, columns)

    def cell_of(self, image: NDArray[np.uint8]) -> tuple[float, float]:
        """Width and height, in pixels of this image, of what each position of the attention covers."""
        height, width = image.shape[:2]
        cell = self.model.config.cell
        return cell * width / self.classes.width, cell * height / self.classes.height

    def _segmentation(
        self, name: str, image: NDArray[np.uint8], classes: NDArray[np.uint8], pixel: str | None
    ) -> Segmentation:
        height, width = classes.shape
        place = pixel_of(pixel) if pixel is not None else (width // 2, height // 2)
        weights = self.pixel_weights(image, place, name).numpy() if self.model.attends else None
        shares = class_shares(torch.from_numpy(classes).long(), self.classes.names)
        return Segmentation(name, image, classes, shares, self.classes.names, place, weights, self.cell_of(image))

    def _resized(self, image: NDArray[np.uint8], name: str) -> NDArray[np.uint8]:
        return fit_image(image, self.classes.size, "stretch", name).pixels

    def _batch(self, images: Sequence[NDArray[np.uint8]]) -> Tensor:
        return torch.from_numpy(np.stack(images)).to(self.device).permute(0, 3, 1, 2).float() / 255


def _require_writable(folder: str, inputs: Sequence[Any]) -> None:
    stems = [Path(one).stem if isinstance(one, (str, os.PathLike)) else "image" for one in inputs]
    for number, stem in enumerate(stems):
        if stem in stems[:number]:
            raise ArgumentError(
                f"masks: two images are named {stem!r}, and their class maps would be one file; predict them one by one"
            )
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder}: the folder of the class maps cannot be made ({error.strerror})") from error
