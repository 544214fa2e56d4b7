"""The data of a run: opened, split, tokenized and encoded as its configuration says."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from regard.data.batches import encode_pairs
from regard.data.sources import open_pairs
from regard.data.tokenizers import Tokenizer
from regard.errors import DataError
from regard.training.config import DataConfig
from regard.training.run_folder import RunFolder

if TYPE_CHECKING:
    import datasets

BUNDLED_SEED = 1
BUNDLED_VALIDATION, BUNDLED_TEST = 500, 1000


@dataclass(frozen=True, slots=True)
class Corpora:
    """What a run learns from and is validated on, as text and as ids."""

    validation_text: "datasets.Dataset"
    """Columns ``source`` and ``target``."""
    train: "datasets.Dataset"
    """As `encode_pairs` gives it."""
    validation: "datasets.Dataset"
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer


def open_corpora(config: DataConfig, folder: RunFolder, validation_pairs: int = 0) -> Corpora:
    """Open, tokenize and encode the training and validation data of a run.

    Tokenizers are learned from the training side and saved in the run folder; if they are there already, they are used
    as they are. The bundled corpus is written into the run folder as ``corpus/*.tsv``.

    Args:
        config: which data.
        folder: of the run.
        validation_pairs: at most so many validation pairs; 0: all.

    Raises:
        DataError: as `open_pairs` and `encode_pairs` raise it.
    """
    if config.bundled:
        write_bundled(folder, config.bundled)
    train = open_part(config, folder, "train")
    if config.validation or config.bundled:
        validation = open_part(config, folder, "validation")
    else:
        held_out = min(config.held_out, len(train) // 10)
        if not held_out:
            raise DataError(
                f"{config.train} has {len(train)} pairs, too few to keep some back for validation; "
                "name validation data with --validation"
            )
        validation = train.select(range(len(train) - held_out, len(train)))
        train = train.select(range(len(train) - held_out))
    if 0 < validation_pairs < len(validation):
        validation = validation.select(range(validation_pairs))
    tokenizers = []
    for column, path in (("source", folder.tokenizer_source), ("target", folder.tokenizer_target)):
        if not path.is_file():
            learned = Tokenizer.train(_texts(train, column), config.tokenizer, config.vocabulary, config.lowercase)
            learned.save(path)
        tokenizers.append(Tokenizer.load(path))
    source, target = tokenizers
    return Corpora(
        validation_text=validation,
        train=encode_pairs(train, source, target, max_length=config.max_length, overlong="drop"),
        validation=encode_pairs(validation, source, target, max_length=config.max_length, overlong="cut"),
        source_tokenizer=source,
        target_tokenizer=target,
    )


def open_part(config: DataConfig, folder: RunFolder, part: str) -> "datasets.Dataset":
    """The text of one part of a run's data.

    Args:
        config: which data.
        folder: of the run; holds the bundled corpus.
        part: ``"train"``, ``"validation"`` or ``"test"``.
    """
    if config.bundled:
        return open_pairs(bundled_path(folder, part), "english", "spanish", lowercase=config.lowercase)
    return open_pairs(getattr(config, part), config.source_column, config.target_column, lowercase=config.lowercase)


def bundled_path(folder: RunFolder, part: str) -> Path:
    """Where a run keeps a part of the bundled corpus."""
    return folder.path / "corpus" / f"{part}.tsv"


def write_bundled(folder: RunFolder, pairs: int) -> None:
    """Generate the bundled English-Spanish corpus into the run folder, unless it's there.

    Args:
        folder: of the run.
        pairs: of the training part; validation gets 500 more and test 1000, none of them with a training sentence.
    """
    from regard.data.generated import write_corpus

    if not bundled_path(folder, "train").is_file():
        sizes = {"train": pairs, "validation": BUNDLED_VALIDATION, "test": BUNDLED_TEST}
        write_corpus(folder.path / "corpus", sizes, BUNDLED_SEED)


def _texts(dataset: "datasets.Dataset", column: str) -> Iterator[str]:
    return itertools.chain.from_iterable(block[column] for block in dataset.iter(10_000))  # pyright: ignore
