"""The data of a run: opened, split, tokenized and encoded according to its configuration."""

import itertools
import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from regard.data.labels import Labels
from regard.data.text.batches import encode_labelled
from regard.data.text.sources import open_labelled
from regard.data.text.tokenizers import Tokenizer
from regard.tasks.classify.config import DataConfig
from regard.tasks.classify.task import ClassificationRun, labels_path
from regard.tasks.run_data import held_out_size, located, run_tokenizer, warn_of_training_data
from regard.tasks.run_files import bundled_path, tokenizer_path
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
    """Columns ``source`` (the texts) and ``target`` (their labels)."""
    train: "datasets.Dataset"
    """As `encode_labelled` returns it."""
    validation: "datasets.Dataset"
    tokenizer: Tokenizer
    labels: Labels
    counts: tuple[int, ...]
    """Training texts of each label."""


def open_corpora(run: ClassificationRun, folder: RunFolder) -> Corpora:
    """Open, tokenize and encode the training and validation data of a run.

    The labels are those of the training data, the tokenizer is trained on its texts; both are saved in the run folder,
    and saved ones are loaded instead. A run that starts from the model of another run takes its tokenizer and labels.
    The bundled corpus is written into the run folder as ``corpus/*.tsv``.

    Args:
        run: the configuration of the run.
        folder: the run folder.

    Raises:
        DataError: the data cannot be read, have one label only, validation or test data have a label that no training
            text has, or there are too few texts to validate on.
        RunError: the tokenizer of ``init_from`` does not fit.
    """
    config = run.data
    if config.bundled:
        write_bundled(folder, config.bundled)
    train = open_part(config, folder, "train")
    labels = _labels(run, folder, train)
    _check_parts(config, folder, labels)
    if config.validation or config.bundled:
        validation = open_part(config, folder, "validation")
    else:
        train, validation = _held_out(train, config)
    tokenizer = run_tokenizer(
        tokenizer_path(folder),
        run.training.init_from,
        config.tokenizer,
        config.lowercase,
        lambda: Tokenizer.train(_texts(train), config.tokenizer, config.vocabulary, config.lowercase),
    )
    numbers = Counter(itertools.chain.from_iterable(block["target"] for block in train.iter(10_000)))  # pyright: ignore
    return Corpora(
        validation_text=validation,
        train=encode_labelled(train, tokenizer, labels, config.max_length),
        validation=encode_labelled(validation, tokenizer, labels, config.max_length),
        tokenizer=tokenizer,
        labels=labels,
        counts=tuple(numbers[name] for name in labels.names),
    )


def _labels(run: ClassificationRun, folder: RunFolder, train: "datasets.Dataset") -> Labels:
    path, initial = labels_path(folder), run.training.init_from
    if path.is_file():
        labels = Labels.load(path)
    elif initial is not None:
        labels = Labels.load(labels_path(RunFolder(initial)))
    else:
        labels = Labels.of(train, _name(run.data, "train"))
    if path.is_file() or initial is not None:
        labels.require(train, _name(run.data, "train"))
    if not path.is_file():
        labels.save(path)
    return labels


def _check_parts(config: DataConfig, folder: RunFolder, labels: Labels) -> None:
    # The test data are read now, so that a mistake in them does not wait for the end of the training.
    warn_of_training_data(config)
    for part in ("validation", "test"):
        if getattr(config, part) is not None:
            labels.require(open_part(config, folder, part), _name(config, part))


def _held_out(train: "datasets.Dataset", config: DataConfig) -> tuple["datasets.Dataset", "datasets.Dataset"]:
    # Random texts, since the last ones of a file that is sorted by its labels would all have one label.
    held_out = held_out_size(len(train), config.held_out, f"{config.train} has {len(train)} texts")
    order = np.random.default_rng(0).permutation(len(train))
    return train.select(np.sort(order[held_out:])), train.select(np.sort(order[:held_out]))


def open_part(config: DataConfig, folder: RunFolder, part: str) -> "datasets.Dataset":
    """The texts of one part of a run's data: columns ``source`` and ``target``.

    Args:
        config: the configuration of the data.
        folder: the run folder, which contains the bundled corpus.
        part: ``"train"``, ``"validation"`` or ``"test"``.
    """
    if config.bundled and getattr(config, part) is None:
        return open_labelled(str(bundled_path(folder, part)))
    source = located(folder, getattr(config, part))
    assert source is not None
    return open_labelled(source, config.text_column, config.label_column)


def write_bundled(folder: RunFolder, texts: int) -> None:
    """Write the bundled reviews into the run folder, unless they are already there.

    Args:
        folder: the run folder.
        texts: training texts. The validation part has 500 texts, the test part 1000; none of them occurs in the
            training part.
    """
    from regard.data.text.reviews import write_reviews

    if not bundled_path(folder, "train").is_file():
        sizes = {"train": texts, "validation": BUNDLED_VALIDATION, "test": BUNDLED_TEST}
        write_reviews(folder.tree("corpus"), sizes, BUNDLED_SEED)


def write_bundled_test(folder: str) -> str:
    """Write the test part of the bundled reviews into a folder, and return its file."""
    from regard.data.text.reviews import write_reviews

    return str(write_reviews(folder, {"validation": BUNDLED_VALIDATION, "test": BUNDLED_TEST}, BUNDLED_SEED)["test"])


def _name(config: DataConfig, part: str) -> str:
    return getattr(config, part) or "the bundled corpus"


def _texts(dataset: "datasets.Dataset") -> Iterator[str]:
    return itertools.chain.from_iterable(block["source"] for block in dataset.iter(10_000))  # pyright: ignore
