"""The data of a run: opened, split, and as tables of pixels with their classes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.data.images.masked_images import IGNORED, MaskedImage, masked_table, open_masked
from regard.data.images.streets import CLASSES, write_streets
from regard.data.labels import PixelClasses
from regard.data.records import text_lines
from regard.errors import DataError, MissingPartError, RunError
from regard.tasks.run_data import held_out_size, warn_of_training_data
from regard.tasks.run_files import bundled_path
from regard.tasks.segment.config import DataConfig
from regard.tasks.segment.task import SegmentationRun, classes_path, part_source
from regard.training.run_folder import RunFolder

BUNDLED_VALIDATION, BUNDLED_TEST = 60, 100

BUNDLED_EXAMPLES = 4
"""Test scenes that are written as image files as well, to predict."""


@dataclass(frozen=True, slots=True)
class Corpora:
    """The training and validation data of a run."""

    train: NDArray[np.uint8]
    """As `masked_table` returns it."""
    validation: NDArray[np.uint8]
    names: list[str]
    """The validation images' names."""
    classes: PixelClasses
    counts: tuple[int, ...]
    """Training pixels of each class."""


def open_corpora(run: SegmentationRun, folder: RunFolder) -> Corpora:
    """Open the training and validation data of a run.

    The classes are those that the options name, or the numbers from 0 to the largest of the training data; they are
    saved in the run folder with the size of the images, and saved ones are loaded instead. The tables of the bundled
    corpus are written into the run folder as ``corpus/*.tsv``.

    Args:
        run: the configuration of the run.
        folder: the run folder.

    Raises:
        DataError: the data cannot be read, a pixel has a class that there is not, or there are too few images.
        RunError: the classes of ``init_from`` are others.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingPartError("Pillow", "images") from error
    config = run.data
    if config.bundled and not bundled_path(folder, "train").is_file():
        parts = {"train": config.bundled, "validation": BUNDLED_VALIDATION, "test": BUNDLED_TEST}
        test = write_streets(folder.tree("corpus"), parts)["test"]
        for number, scene in enumerate(open_masked(test, limit=BUNDLED_EXAMPLES), start=1):
            Image.fromarray(scene.load().pixels).save(folder.tree("corpus") / f"test-{number}.png")
    warn_of_training_data(config)
    source = part_source(folder, run, "train")
    assert source is not None, "checked by the configuration"
    train = open_masked(source)
    validation_source = part_source(folder, run, "validation")
    if validation_source is None:
        train, validation = _held_out(train, config)
    else:
        validation = open_masked(validation_source)
    test_source = part_source(folder, run, "test")
    if test_source is not None:
        open_masked(test_source)  # a mistake in the test data does not wait for the end of the training
    size = _size(run, folder, train)
    ignore = None if config.ignore < 0 else config.ignore
    tables = masked_table(train, size, ignore), masked_table(validation, size, ignore)
    classes = _classes(run, folder, tables[0], size)
    counts = np.zeros(256, np.int64)
    for table, images in zip(tables, (train, validation), strict=True):
        found = _counted(table, images, len(classes))
        counts = found if table is tables[0] else counts
    if not counts[: len(classes)].any():
        raise DataError(f"{config.train}: no pixel of the training data has a class that counts; check --ignore")
    return Corpora(*tables, [one.name for one in validation], classes, tuple(counts[: len(classes)].tolist()))


def _held_out(train: list[MaskedImage], config: DataConfig) -> tuple[list[MaskedImage], list[MaskedImage]]:
    # Random images, since those that follow one another may show the same place.
    held_out = held_out_size(len(train), config.held_out, f"{config.train} has {len(train)} images", "images")
    order = np.random.default_rng(0).permutation(len(train))
    rest, chosen = np.sort(order[held_out:]), np.sort(order[:held_out])
    return [train[row] for row in rest], [train[row] for row in chosen]


def _size(run: SegmentationRun, folder: RunFolder, train: Sequence[MaskedImage]) -> tuple[int, int]:
    path = classes_path(folder)
    if path.is_file():
        return PixelClasses.load(path).size
    if run.data.height:
        return run.data.height, run.data.width
    height, width = train[0].load().pixels.shape[:2]
    return height, width


def _classes(run: SegmentationRun, folder: RunFolder, table: NDArray[np.uint8], size: tuple[int, int]) -> PixelClasses:
    path, initial = classes_path(folder), run.training.init_from
    if path.is_file():
        return PixelClasses.load(path)
    names = CLASSES if run.data.bundled else class_names(run.data.classes)
    if initial is not None:
        before = PixelClasses.load(classes_path(RunFolder(initial))).names
        if names and names != before:
            raise RunError(f"--init-from: {initial} has the classes {', '.join(before)}, and --classes names others")
        names = before
    if not names:
        largest = max((number for number in np.unique(table[..., 3]).tolist() if number != IGNORED), default=-1)
        if largest < 0:
            raise DataError(f"{run.data.train}: no pixel of the training data has a class that counts; check --ignore")
        if largest == 0:
            raise DataError(
                f"{run.data.train}: every pixel that counts has the class 0; there is nothing to tell apart (--classes "
                "names classes that do not occur)"
            )
        names = tuple(str(number) for number in range(largest + 1))
    classes = PixelClasses(names, *size)
    classes.save(path)
    return classes


def class_names(given: str | None) -> tuple[str, ...]:
    """The names that the option ``classes`` gives: separated by commas, or the lines of a text file; () for None.

    Raises:
        DataError: the file cannot be read.
    """
    if given is None:
        return ()
    if not given.endswith(".txt"):
        return tuple(name.strip() for name in given.split(",") if name.strip())
    try:
        return tuple(line.strip() for line in text_lines(Path(given)) if line.strip())
    except OSError as error:
        raise DataError(f"{given}: the names of the classes cannot be read ({error.strerror})") from error


def _counted(table: NDArray[np.uint8], images: Sequence[MaskedImage], classes: int) -> NDArray[np.int64]:
    """Pixels of each class in a table, of 256."""
    counts = np.zeros(256, np.int64)
    for row, image in zip(table, images, strict=True):
        found = np.bincount(row[..., 3].ravel(), minlength=256)
        unknown = np.flatnonzero(found[classes:IGNORED]) + classes
        if len(unknown):
            raise DataError(
                f"{image.name}: a pixel has the class {unknown[0]}, and there are only {classes} classes, from 0 to "
                f"{classes - 1}; name all with --classes, or those that do not count with --ignore"
            )
        counts += found
    return counts
