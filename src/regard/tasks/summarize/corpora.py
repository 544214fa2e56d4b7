"""The data of a run: opened, split, tokenized and encoded according to its configuration."""

import itertools
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.data.records import READERS, column_names
from regard.data.text.articles import write_articles
from regard.data.text.sources import local_files, open_pairs
from regard.data.text.tokenizers import Tokenizer
from regard.tasks.run_data import held_out_part, located, run_tokenizer, warn_of_training_data
from regard.tasks.run_files import bundled_path, tokenizer_path
from regard.tasks.summarize.config import DataConfig
from regard.tasks.summarize.encoding import encode_articles
from regard.tasks.summarize.task import SummaryRun
from regard.training.run_folder import RunFolder

if TYPE_CHECKING:
    import datasets

log = logging.getLogger("regard")

BUNDLED_SEED = 1
BUNDLED_VALIDATION, BUNDLED_TEST = 500, 1000
COLUMNS = "article", "summary"


@dataclass(frozen=True, slots=True)
class Corpora:
    """The training and validation data of a run, as text and as token ids."""

    validation_text: "datasets.Dataset"
    """Columns ``source`` (articles) and ``target`` (summaries)."""
    train: "datasets.Dataset"
    """As `encode_articles` returns it."""
    validation: "datasets.Dataset"
    tokenizer: Tokenizer


def open_corpora(run: SummaryRun, folder: RunFolder) -> Corpora:
    """Open, tokenize and encode the training and validation data of a run.

    The tokenizer is trained on the training data and saved in the run folder; a saved one is loaded instead. A run that
    starts from the model of another run takes its tokenizer. The generated articles are written into the run folder as
    ``corpus/*.tsv``.

    Args:
        run: the configuration of the run.
        folder: the run folder.

    Raises:
        DataError: the data cannot be used, or there are too few articles to validate on.
        RunError: the tokenizer of ``init_from`` does not fit.
    """
    config = run.data
    _check_parts(config, folder)
    if config.bundled and not bundled_path(folder, "train").is_file():
        sizes = {"train": config.bundled, "validation": BUNDLED_VALIDATION, "test": BUNDLED_TEST}
        write_articles(folder.tree("corpus"), sizes, BUNDLED_SEED)
    train = open_part(config, folder, "train")
    if config.validation or config.bundled:
        validation = open_part(config, folder, "validation")
    else:
        train, validation = held_out_part(train, config.held_out, f"{config.train} has {len(train)} articles")
    if 0 < run.training.validation_articles < len(validation):
        validation = validation.select(range(run.training.validation_articles))
    tokenizer = run_tokenizer(
        tokenizer_path(folder),
        run.training.init_from,
        config.tokenizer,
        config.lowercase,
        lambda: Tokenizer.train(_texts(train), config.tokenizer, config.vocabulary, config.lowercase, config.min_count),
    )
    limits: Any = {"copy": run.model.copy, "max_length": config.max_length, "max_summary": config.max_summary}
    return Corpora(
        validation_text=validation,
        train=encode_articles(train, tokenizer, **limits),
        validation=encode_articles(validation, tokenizer, **limits, cut_summaries=True),
        tokenizer=tokenizer,
    )


def open_part(config: DataConfig, folder: RunFolder, part: str) -> "datasets.Dataset":
    """The text of one part of a run's data: columns ``source`` (articles) and ``target`` (summaries).

    Args:
        config: the configuration of the data.
        folder: the run folder, which contains the generated articles.
        part: ``"train"``, ``"validation"`` or ``"test"``.
    """
    if config.bundled and not getattr(config, part):
        return open_articles(str(bundled_path(folder, part)), None, None, lowercase=config.lowercase)
    source = located(folder, getattr(config, part))
    assert source is not None
    return open_articles(source, config.article_column, config.summary_column, lowercase=config.lowercase)


def open_articles(
    source: Any,
    article_column: str | None,
    summary_column: str | None,
    *,
    lowercase: bool = False,
    limit: int | None = None,
) -> "datasets.Dataset":
    """Articles with summaries as `regard.data.text.sources.open_pairs` opens them.

    Args:
        source: as there.
        article_column: None: ``article``, if there are columns ``article`` and ``summary``.
        summary_column: None: ``summary``, likewise.
        lowercase: as there.
        limit: as there.
    """
    columns = article_column, summary_column
    if columns == (None, None) and (local_files(source) is None or set(COLUMNS) <= set(columns_of(source))):
        columns = COLUMNS
    return open_pairs(source, *columns, lowercase=lowercase, limit=limit)


def columns_of(source: Any) -> list[str]:
    """The columns of a table that is a file; none for any other source."""
    paths = local_files(source)
    if paths is None or len(paths) != 1 or paths[0].suffix.lower() not in READERS or not paths[0].is_file():
        return []
    return column_names(paths[0])


def write_bundled_test(folder: str) -> Path:
    """Write the test part of the generated articles into a folder, and return its file."""
    return write_articles(folder, {"validation": BUNDLED_VALIDATION, "test": BUNDLED_TEST}, BUNDLED_SEED)["test"]


def _check_parts(config: DataConfig, folder: RunFolder) -> None:
    # The test data are read now, so that a mistake in them does not wait for the end of the training.
    warn_of_training_data(config)
    if config.test is not None:
        open_part(config, folder, "test")


def _texts(dataset: "datasets.Dataset") -> Iterator[str]:
    block: Any
    for block in dataset.iter(10_000):
        yield from itertools.chain(block["source"], block["target"])
