"""The data of a run: opened, split, tokenized and encoded according to its configuration."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from regard.data.batches import encode_pairs
from regard.data.sources import local_files, open_pairs
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
    """The training and validation data of a run, as text and as token ids."""

    validation_text: "datasets.Dataset"
    """Columns ``source`` and ``target``."""
    train: "datasets.Dataset"
    """As `encode_pairs` returns it."""
    validation: "datasets.Dataset"
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer


def open_corpora(config: DataConfig, folder: RunFolder, validation_pairs: int = 0) -> Corpora:
    """Open, tokenize and encode the training and validation data of a run.

    The tokenizers are trained on the training data and saved in the run folder; saved tokenizers are loaded instead.
    The bundled corpus is written into the run folder as ``corpus/*.tsv``.

    Args:
        config: the configuration of the data.
        folder: the run folder.
        validation_pairs: largest number of validation pairs; 0: all.

    Raises:
        DataError: `open_pairs` or `encode_pairs` raises it, or there are too few pairs to validate on.
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
                f"{config.train} has {len(train)} pairs, too few to use some of them for validation; "
                "give validation data with --validation"
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
    """The text of one part of a run's data: columns ``source`` and ``target``.

    Args:
        config: the configuration of the data.
        folder: the run folder, which contains the bundled corpus.
        part: ``"train"``, ``"validation"`` or ``"test"``.
    """
    if config.bundled:
        return open_pairs(bundled_path(folder, part), "english", "spanish", lowercase=config.lowercase)
    return open_pairs(getattr(config, part), config.source_column, config.target_column, lowercase=config.lowercase)


def data_files(config: DataConfig, folder: RunFolder) -> dict[str, list[Path]]:
    """The files of each part of a run's data; a part that is a data set of Hugging Face has none."""
    if config.bundled:
        return {}
    given = {part: getattr(config, part) for part in ("train", "validation", "test")}
    return {
        part: [Path(folder.manifest.resolve(str(path))) for path in paths]
        for part, source in given.items()
        if source is not None and (paths := local_files(source)) is not None
    }


def bundled_path(folder: RunFolder, part: str) -> Path:
    """The file of a part of the bundled corpus in a run folder."""
    return folder.path / "corpus" / f"{part}.tsv"


def write_bundled(folder: RunFolder, pairs: int) -> None:
    """Write the bundled English-Spanish corpus into the run folder, unless it is already there.

    Args:
        folder: the run folder.
        pairs: training pairs. The validation part has 500 pairs, the test part 1000; no English sentence of these two
            occurs in the training part.
    """
    from regard.data.generated import write_corpus

    if not bundled_path(folder, "train").is_file():
        sizes = {"train": pairs, "validation": BUNDLED_VALIDATION, "test": BUNDLED_TEST}
        write_corpus(folder.path / "corpus", sizes, BUNDLED_SEED)


def _texts(dataset: "datasets.Dataset", column: str) -> Iterator[str]:
    return itertools.chain.from_iterable(block[column] for block in dataset.iter(10_000))  # pyright: ignore
