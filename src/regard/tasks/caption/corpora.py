"""The data of a run: images with captions, opened, split, tokenized and encoded according to its configuration."""

import logging
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.data.images.caption_batches import CaptionExample, caption_examples
from regard.data.images.image_rows import ImageRow, captioned_images
from regard.data.text.tokenizers import Tokenizer
from regard.tasks.caption.task import CaptionRun
from regard.tasks.image_corpora import open_parts, pixels_of
from regard.tasks.run_data import run_tokenizer
from regard.tasks.run_files import tokenizer_path
from regard.training.run_folder import RunFolder

log = logging.getLogger("regard")


@dataclass(frozen=True, slots=True)
class Corpora:
    """The training and validation data of a run.

    Attributes:
        train: the training examples.
        train_pixels: uint8 ``[images, height, width, 3]``.
        validation: the validation examples.
        validation_pixels: as ``train_pixels``.
        validation_rows: the validation images as they were read.
        tokenizer: of the captions.
    """

    train: list[CaptionExample]
    train_pixels: NDArray[np.uint8]
    validation: list[CaptionExample]
    validation_pixels: NDArray[np.uint8]
    validation_rows: list[ImageRow]
    tokenizer: Tokenizer


def open_corpora(run: CaptionRun, folder: RunFolder) -> Corpora:
    """Open, tokenize and encode the training and validation data of a run.

    The tokenizer is trained on the training captions and saved in the run folder; a saved one is loaded instead. The
    bundled corpus is written into the run folder as ``corpus/*.jsonl``.

    Args:
        run: the configuration of the run.
        folder: the run folder.

    Raises:
        DataError: the data cannot be read, an image cannot be read, or there are too few images to validate on.
        RunError: the tokenizer of ``init_from`` does not fit.
    """
    config = run.data
    train, validation = open_parts(config, folder, captioned_images, "captions")
    tokenizer = run_tokenizer(
        tokenizer_path(folder),
        run.training.init_from,
        config.tokenizer,
        config.lowercase,
        lambda: Tokenizer.train(
            (text for row in train for text in row.texts),
            config.tokenizer,
            config.vocabulary,
            config.lowercase,
            config.min_count,
        ),
    )
    encoded, cut = caption_examples((row.texts for row in train), tokenizer, config.max_length)
    if cut:
        log.warning("cut %d captions with more than %d tokens", cut, config.max_length)
    return Corpora(
        train=encoded,
        train_pixels=pixels_of(train, config),
        validation=caption_examples((row.texts for row in validation), tokenizer, config.max_length)[0],
        validation_pixels=pixels_of(validation, config),
        validation_rows=validation,
        tokenizer=tokenizer,
    )
