"""The data of a run: opened, split, tokenized and encoded according to its configuration."""

import itertools
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from regard.data.text.batches import encode_pairs
from regard.data.text.sources import open_pairs
from regard.data.text.tokenizers import Tokenizer
from regard.tasks.run_data import held_out_part, located, run_tokenizer, warn_of_training_data
from regard.tasks.run_files import bundled_path, tokenizer_path
from regard.tasks.translate.config import DataConfig
from regard.tasks.translate.task import TranslationRun
from regard.training.run_folder import RunFolder

if TYPE_CHECKING:
    import datasets

log = logging.getLogger("regard")

BUNDLED_SEED = 1
BUNDLED_VALIDATION, BUNDLED_TEST = 500, 1000


@dataclass(frozen=True, slots=True)
class Corpora:
    """The training and validation data of a run, as text and as token ids."""

    validation_text: "datasets.Dataset"
    """Columns ``source`` and ``target``."""
    train: "datasets.Dataset"
    """As `encode_pairs` returns it."""
    validation: "datasets.Dataset"
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer


def open_corpora(run: TranslationRun, folder: RunFolder) -> Corpora:
    """Open, tokenize and encode the training and validation data of a run.

    The tokenizers are trained on the training data and saved in the run folder; saved tokenizers are loaded instead. A
    run that starts from the model of another run takes its tokenizers. The bundled corpus is written into the run
    folder as ``corpus/*.tsv``.

    Args:
        run: the configuration of the run.
        folder: the run folder.

    Raises:
        DataError: `open_pairs` or `encode_pairs` raises it, or there are too few pairs to validate on.
        RunError: the tokenizers of ``init_from`` do not fit.
    """
    config, validation_pairs = run.data, run.training.validation_pairs
    _check_parts(config, folder)
    if config.bundled:
        write_bundled(folder, config.bundled)
    train = open_part(config, folder, "train")
    if config.validation or config.bundled:
        validation = open_part(config, folder, "validation")
    else:
        train, validation = held_out_part(train, config.held_out, f"{config.train} has {len(train)} pairs")
    if 0 < validation_pairs < len(validation):
        validation = validation.select(range(validation_pairs))
    source, target = (
        run_tokenizer(
            tokenizer_path(folder, side),
            run.training.init_from,
            config.tokenizer,
            config.lowercase,
            lambda side=side: Tokenizer.train(
                _texts(train, side), config.tokenizer, config.vocabulary, config.lowercase
            ),
        )
        for side in ("source", "target")
    )
    return Corpora(
        validation_text=validation,
        train=encode_pairs(train, source, target, max_length=config.max_length, overlong="drop"),
        validation=encode_pairs(validation, source, target, max_length=config.max_length, overlong="cut"),
        source_tokenizer=source,
        target_tokenizer=target,
    )


def _check_parts(config: DataConfig, folder: RunFolder) -> None:
    # The test data are read now, so that a mistake in them does not wait for the end of the training.
    warn_of_training_data(config)
    if config.test is not None:
        open_part(config, folder, "test")


def open_part(config: DataConfig, folder: RunFolder, part: str) -> "datasets.Dataset":
    """The text of one part of a run's data: columns ``source`` and ``target``.

    Args:
        config: the configuration of the data.
        folder: the run folder, which contains the bundled corpus.
        part: ``"train"``, ``"validation"`` or ``"test"``.
    """
    if config.bundled:
        return open_pairs(bundled_path(folder, part), "english", "spanish", lowercase=config.lowercase)
    source = located(folder, getattr(config, part))
    assert source is not None
    return open_pairs(source, config.source_column, config.target_column, lowercase=config.lowercase)


def write_bundled(folder: RunFolder, pairs: int) -> None:
    """Write the bundled English-Spanish corpus into the run folder, unless it is already there.

    Args:
        folder: the run folder.
        pairs: training pairs. The validation part has 500 pairs, the test part 1000; no English sentence of these two
            occurs in the training part.
    """
    from regard.data.text.generated import write_corpus

    if not bundled_path(folder, "train").is_file():
        sizes = {"train": pairs, "validation": BUNDLED_VALIDATION, "test": BUNDLED_TEST}
        write_corpus(folder.tree("corpus"), sizes, BUNDLED_SEED)


def write_bundled_test(folder: str) -> str:
    """Write the test part of the bundled corpus into a folder, and return its file."""
    from regard.data.text.generated import write_corpus

    return str(write_corpus(folder, {"validation": BUNDLED_VALIDATION, "test": BUNDLED_TEST}, BUNDLED_SEED)["test"])


def _texts(dataset: "datasets.Dataset", column: str) -> Iterator[str]:
    return itertools.chain.from_iterable(block[column] for block in dataset.iter(10_000))  # pyright: ignore
