"""The images of a run: opened, split, and brought to one size, as the tasks on images need them."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.images.image_rows import ImageRow, class_images
from regard.data.images.pictures import pixel_table
from regard.data.images.reading import save_png
from regard.data.images.scenes import write_scenes
from regard.tasks.run_data import held_out_size, located, located_files, warn_of_training_data
from regard.tasks.run_files import bundled_path
from regard.training.run_folder import RunFolder

log = logging.getLogger("regard")

SUFFIX = ".jsonl"
"""Of the files of a bundled corpus."""

BUNDLED_SEED = 1
BUNDLED_VALIDATION, BUNDLED_TEST = 500, 500

EXAMPLES = 8
"""Test scenes that are written as image files as well, to predict."""

MOST_SUMMED = 20_000
"""A folder of more images is not compared with what it was: the sums of all files would take too long."""

Open = Callable[..., list[ImageRow]]
"""Opens a source of images: `captioned_images` or `labelled_images`."""


def open_parts(config: Any, folder: RunFolder, open_images: Open, kind: str) -> tuple[list[ImageRow], list[ImageRow]]:
    """The training and the validation images of a run; the bundled corpus is written into the run folder first.

    Args:
        config: the configuration of the data.
        folder: the run folder.
        open_images: opens a source.
        kind: of the bundled corpus, see `regard.data.images.scenes.write_scenes`.

    Raises:
        DataError: the data cannot be read, or there are too few images to validate on.
    """
    warn_of_training_data(config)
    if config.bundled and not bundled_path(folder, "train", SUFFIX).is_file():
        sizes = {"train": config.bundled, "validation": BUNDLED_VALIDATION, "test": BUNDLED_TEST}
        write_scenes(folder.tree("corpus"), kind, sizes, BUNDLED_SEED)
        write_examples(folder, open_images)
    train = open_images(image_source(config, folder, "train"))
    if config.test is not None:  # a mistake in them does not wait for the end of the training
        for row in open_images(image_source(config, folder, "test")):
            row.picture.state()
    if config.validation or config.bundled:
        return train, open_images(image_source(config, folder, "validation"))
    held_out = held_out_size(len(train), config.held_out, f"{config.train} has {len(train)} images", "images")
    # Random images, since the last ones of a table that is sorted would all be alike.
    order = np.random.default_rng(0).permutation(len(train))
    kept, chosen = np.sort(order[held_out:]), np.sort(order[:held_out])
    return [train[row] for row in kept], [train[row] for row in chosen]


def write_examples(folder: RunFolder, open_images: Open) -> None:
    """Write the first test scenes as ``corpus/test-1.png``, ... into the run folder."""
    for number, row in enumerate(open_images(str(bundled_path(folder, "test", SUFFIX)), limit=EXAMPLES), start=1):
        save_png(folder.tree("corpus") / f"test-{number}.png", row.picture.pixels())


def write_bundled_test(folder: str, kind: str) -> str:
    """Write the test part of a bundled corpus into a folder, and return its file."""
    return str(write_scenes(folder, kind, {"test": BUNDLED_TEST}, BUNDLED_SEED)["test"])


def image_source(config: Any, folder: RunFolder, part: str) -> str:
    """The source of one part of a run's data.

    Args:
        config: the configuration of the data.
        folder: the run folder, which contains the bundled corpus.
        part: ``"train"``, ``"validation"`` or ``"test"``.
    """
    if config.bundled and getattr(config, part) is None:
        return str(bundled_path(folder, part, SUFFIX))
    source = located(folder, getattr(config, part))
    assert source is not None
    return source


def image_test_source(folder: RunFolder, config: Any) -> str | None:
    """What a run is evaluated on when its training is over: its test data or the bundled corpus's; None: nothing."""
    if config.bundled and not config.test:
        return str(bundled_path(folder, "test", SUFFIX))
    return located(folder, config.test)


def located_images(folder: RunFolder, config: Any) -> dict[str, tuple[Path, ...]]:
    """The files of the training and validation data, to notice when they have changed: tables, or images of classes.

    Images that a table names are not among them, nor those of a folder of more than `MOST_SUMMED`.
    """
    found = {}
    for part, paths in located_files(folder, {part: getattr(config, part) for part in ("train", "validation")}).items():
        files = [file for path in paths for file in (class_images(path).files if path.is_dir() else [path])]
        found[part] = tuple(files) if len(files) <= MOST_SUMMED else ()
    return found


def pixels_of(rows: Sequence[ImageRow], config: Any) -> NDArray[np.uint8]:
    """The pixels of all rows, brought to the size of the configuration; memory-mapped.

    Args:
        rows: the images.
        config: the configuration of the data: ``image_size`` and ``fit``.
    """
    return pixel_table([row.picture for row in rows], (config.image_size, config.image_size), config.fit)
