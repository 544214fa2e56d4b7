"""Images with a map of classes as input: tables and folders of both, their batches, and their variations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.data import images as image_data
from regard.errors import MissingPartError
from regard.tasks.inputs.image import ImageExamples, ImageFiles
from regard.tasks.inputs.input import IGNORED, Examples
from regard.tasks.lazy import np
from regard.training.run_folder import RunFolder

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from regard.data.images.caption_batches import CaptionBatch
    from regard.data.images.masked_images import MaskedImage
    from regard.data.records import Records
    from regard.data.text.batches import IdEncoder
    from regard.tasks.options import DataOptions


class MaskedImages(ImageFiles):
    """Images with a map of classes."""

    stored_columns = ("image", "mask")
    roles = "IMAGE", "MASK"
    written_scenes = 4

    def files_below(self, folder: Path) -> list[Path]:
        # In a folder as for a training, the class maps are no inputs.
        is_masked = (folder / image_data.masked_images.IMAGES).is_dir() and any(
            (folder / name).is_dir() for name in image_data.masked_images.MASKS
        )
        return super().files_below(folder / image_data.masked_images.IMAGES if is_masked else folder)

    def of_cell(self, value: Any, column: str, folder: Path, origin: str) -> Any:
        if column == image_data.streets.COLUMN:
            scene = image_data.masked_images.street_of(value, origin)
            return scene.name, scene.load().pixels
        return super().of_cell(value, column, folder, origin)

    def located(self, folder: RunFolder, source: str) -> str:
        return folder.manifest.resolve(source)

    def data_files(self, folder: RunFolder, data: DataOptions) -> dict[str, tuple[Path, ...]]:
        sources = {part: getattr(data, part) for part in ("train", "validation")}
        located = {part: self.located(folder, source) for part, source in sources.items() if source is not None}
        columns = {part: data.named_columns if part == "train" else self.columns_like(source, data.named_columns)
                   for part, source in located.items()}  # fmt: skip
        return {
            part: tuple(image_data.masked_images.source_files(source, columns[part]))
            for part, source in located.items()
        }

    def has_examples(self, folder: Path) -> bool:
        return (folder / image_data.masked_images.IMAGES).is_dir()

    def open_table(self, source: Any) -> Records | None:
        records = super().open_table(source)
        return None if records is None or records.columns == [image_data.streets.COLUMN] else records

    def open(
        self, source: Any, columns: Sequence[str | None], data: Any, limit: int | None = None
    ) -> list[MaskedImage]:
        return image_data.masked_images.open_masked(source, *columns, limit=limit)

    def open_training(self, data: DataOptions, folder: RunFolder) -> tuple[list[MaskedImage], list[MaskedImage]]:
        with MissingPartError.instead("Pillow", "images"):
            import PIL  # noqa: F401
        return super().open_training(data, folder)

    def pixels_of(self, row: MaskedImage) -> NDArray[np.uint8]:
        return row.load().pixels

    def names(self, rows: list[MaskedImage]) -> list[str]:
        return [row.name for row in rows]

    def encode(
        self, rows: list[MaskedImage], run: Any, learnt: Mapping[str, Any], target: IdEncoder, training: bool
    ) -> ImageExamples:
        classes = learnt["classes"]
        table = image_data.masked_images.masked_table(rows, classes.size, run.data.ignored, classes.numbers)
        # An example is a row of the table, which has the class of each pixel beside its colour, and no caption.
        return ImageExamples(
            [image_data.caption_batches.CaptionExample(row, ((),)) for row in range(len(table))], table
        )

    def class_counts(self, examples: Examples, rows: list[MaskedImage], classes: int) -> tuple[int, ...]:
        assert isinstance(examples, ImageExamples)
        counts = np.zeros(256, np.int64)
        for row in examples.pixels:
            counts += np.bincount(row[..., 3].ravel(), minlength=256)
        return tuple(counts[:classes].tolist())

    def masked(self, batch: CaptionBatch, training: Any = None) -> tuple[tuple[Tensor, ...], Tensor]:
        images = batch.images[..., :3].permute(0, 3, 1, 2).float() / 255
        classes = batch.images[..., 3].long()
        classes = classes.masked_fill(classes == image_data.masked_images.IGNORED_NUMBER, IGNORED)
        if training is not None:
            height, width = (max(1, round(side * training.crop)) for side in classes.shape[1:])
            changes = image_data.augmentation.MaskedAugmentation(
                (height, width), training.rescale, training.jitter, training.flip
            )
            images, classes = image_data.augmentation.augment_masked(images, classes, changes)
        return (images,), classes

    def read(self, inputs: Sequence[Any], trained: Any) -> list[Any]:
        """Returns the name and the pixels uint8 ``[height, width, 3]`` of each image, at its own size."""
        return [
            one if isinstance(one, tuple) else image_data.pictures.input_pixels(one, f"inputs[{number}]")
            for number, one in enumerate(inputs)
        ]
