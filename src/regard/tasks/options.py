"""Options that tasks have in common: their data, tokens, batches and the search for a text; and the checks of options.

A configuration of a task is a frozen dataclass with a docstring under each field, which is the help of its option. The
files of this room import no PyTorch at module level, so that options are listed and checked quickly: functions import
what they need.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from regard.configuration import AT_LEAST_1, SEED, Configuration, Range, option
from regard.configuration.options import fill
from regard.errors import ArgumentError

if TYPE_CHECKING:
    from regard.models.search import MinimumRisk

BATCH = Range(1, 1_000_000)
"""Examples of a batch: a larger one would not fit into any memory."""

BATCH_TOKENS = Range(1, 100 * BATCH.high)
"""Tokens of a batch."""

VOCABULARY = Range(8, 10_000_000)
"""Tokens of a vocabulary."""

LENGTH = Range(1, 1_000_000)
"""Tokens of a text."""


@dataclass(frozen=True)
class DataOptions(Configuration):
    """The data of a run: files of the user, or a generated corpus."""

    train: str | None = None
    """Training data, or 'bundled' for generated data."""
    validation: str | None = None
    """Validation data, in any form of the training data. Default: a part of the training data, as large as held_out
    says."""
    test: str | None = None
    """Test data, evaluated when training is over. Default: none."""
    bundled: int = option(0, within=Range(0, 10_000_000))
    """Number of generated examples to train on, instead of train."""
    held_out: float = 500
    """Training examples that are used for validation when there are no validation data: a number, of which at most a
    tenth of the examples are used, or a share below 1."""

    columns: ClassVar[tuple[str, ...]] = ()
    """The fields that name the columns of the input and of the target."""
    default_bundled: ClassVar[int] = 0
    """Generated examples when no number is given; 0: the task has none."""
    least_bundled: ClassVar[int] = 0
    """The least number of generated examples; with fewer, a label would be missing from the training data."""
    generated: ClassVar[str] = "generated examples"
    """The name of the generated examples in messages."""
    source: ClassVar[str] = "FILE"
    """The value of the option train in messages."""

    def check(self) -> None:
        super().check()
        if self.train == "bundled" and self.default_bundled:
            fill(self, train=None, bundled=self.bundled or self.default_bundled)
        if self.train is not None and self.bundled:
            raise ArgumentError("--train and --bundled exclude each other; give one of them")
        if self.train is None and not self.bundled:
            generated = (
                f", or --train bundled for {self.default_bundled:,} {self.generated} (--bundled says how many)"
                if self.default_bundled
                else ""
            )
            raise ArgumentError(f"there is nothing to train on; give --train {self.source}{generated}")
        for name in ("train", "validation", "test", *self.columns):
            if getattr(self, name) == "":
                raise ArgumentError(f"{name} is empty; give a name, or leave it out")
        if self.columns:
            first, second = self.columns
            column = getattr(self, first)
            if column is not None and column == getattr(self, second):
                raise ArgumentError(f"{first} must not be the column that {second} names; both are {column!r}")
        if self.held_out >= 1:
            fill(self, held_out=int(self.held_out))
        elif not self.held_out > 0:
            raise ArgumentError(f"held_out must be at least 1, or a share above 0; it is {self.held_out}")

    def check_new(self) -> None:
        """Raises ArgumentError if a new run cannot have these data, although a run of an earlier version may."""
        if 0 < self.bundled < self.least_bundled:
            raise ArgumentError(
                f"bundled must be at least {self.least_bundled}, so that each label is among the {self.generated}; "
                f"it is {self.bundled}"
            )

    @property
    def named_columns(self) -> tuple[str | None, ...]:
        """The columns of the data."""
        return tuple(getattr(self, name) for name in self.columns)


@dataclass(frozen=True)
class TokenOptions(DataOptions):
    """The data of a run, and how texts are split into tokens."""

    tokenizer: Literal["bpe", "word", "char"] = "word"
    """bpe (sub-words), word or char."""
    lowercase: bool = False
    """Turn all text into lower case, references included."""
    vocabulary: int = option(8000, within=VOCABULARY)
    """Largest size of a vocabulary, in tokens."""
    max_length: int = option(100, within=LENGTH)
    """Largest number of tokens of a text."""


@dataclass(frozen=True)
class WordVectorOptions(Configuration):
    """Pretrained vectors for the words that a model reads; a base of `DataOptions` of a task on texts."""

    word_vectors: str | None = None
    """tokenizer word: file of pretrained word vectors in the text format of word2vec, GloVe or fastText (or .gz), from
    which the embeddings of its words start. Default: random embeddings."""

    def check(self) -> None:
        super().check()
        kind = getattr(self, "source_tokenizer", None) or getattr(self, "tokenizer", "word")
        if self.word_vectors == "":
            raise ArgumentError("word_vectors is empty; give a file, or leave it out")
        if self.word_vectors is not None and kind != "word":
            raise ArgumentError(f"word_vectors needs tokenizer 'word'; it is {kind!r}")


@dataclass(frozen=True)
class SequenceOptions(Configuration):
    """How many processes share a text; a base of the `TrainingConfig` of a task on texts."""

    sequence_processes: int = option(1, within=AT_LEAST_1)
    """Processes that share the tokens of each text, so that a longer one fits into their memory; a divisor of the
    number of all processes (devices times nodes). The groups of so many processes train on different texts."""


@dataclass(frozen=True)
class BatchOptions(Configuration):
    """How a trained model is used."""

    batch_size: int = option(64, within=BATCH)
    """Inputs treated at once."""


@dataclass(frozen=True)
class NBestOptions(Configuration):
    """How many answers a prediction has; the first base of the options of a prediction."""

    n_best: int = option(1, within=Range(1, 1000))
    """Answers for each input, the best first; equal texts are one, so there may be fewer."""

    def check(self) -> None:
        super().check()
        if not isinstance(self, SearchOptions):
            return
        width = "samples" if self.samples else "beam"
        if self.n_best > getattr(self, width):
            raise ArgumentError(
                f"n_best is {self.n_best}, and a search with {width} {getattr(self, width)} finds no more than that; "
                f"give {width} {self.n_best} too"
            )


@dataclass(frozen=True)
class LabelOptions(NBestOptions, BatchOptions):
    """How inputs are classified."""


@dataclass(frozen=True)
class EvaluationOptions(BatchOptions):
    """How a trained model is measured on a data set."""

    limit: int | None = option(None, within=AT_LEAST_1)
    """Number of examples to evaluate, from the first. Default: all."""


@dataclass(frozen=True)
class LabelColumn:
    """The column of the labels of evaluated data; a base of `EvaluationOptions`, as the next ones."""

    label_column: str | None = None
    """Column of the labels. Default: as in training."""


@dataclass(frozen=True)
class TextColumn:
    """The column of the texts of evaluated data."""

    text_column: str | None = None
    """Column of the texts. Default: as in training."""


@dataclass(frozen=True)
class ImageColumn:
    """The column of the images of evaluated data."""

    image_column: str | None = None
    """Column of the paths of the images. Default: as in training."""


@dataclass(frozen=True)
class SoundColumn:
    """The column of the sounds of evaluated data."""

    sound_column: str | None = None
    """Column of the paths. Default: as in training."""


@dataclass(frozen=True)
class SearchOptions(BatchOptions):
    """How a text is searched for."""

    beam: int = option(5, within=Range(1, 1000))
    """Beam width; 1: greedy search."""
    length_penalty: float = option(1.0, within=Range(0, 100))
    """Exponent of the beam's length normalization, 0 or more; 0 favours short texts."""
    samples: int = option(0, within=Range(0, 1000))
    """Draw so many texts and choose the one that has most in common with all of them (minimum Bayes risk), without a
    beam; 0: a beam."""
    temperature: float = option(0.7, within=Range(1e-6, 1e6))
    """Temperature of the samples, above 0; below 1, likely tokens become more likely."""
    utility_order: int = option(4, within=Range(1, 100))
    """Samples are compared by the BLEU of their tokens, with n-grams up to this length."""
    seed: int = option(1, within=SEED)
    """Seed of the samples."""

    @property
    def minimum_risk(self) -> MinimumRisk | None:
        """How samples are drawn and compared; None: a beam search."""
        if self.samples == 0:
            return None
        from regard.models.search import MinimumRisk

        return MinimumRisk(self.samples, self.temperature, self.utility_order, self.seed)


def search_line(
    width: int, length_penalty: float, risk: Mapping[str, Any] | None, bounds: tuple[int, int], *others: str
) -> str:
    """Returns a line about a search: ``"search: beam 5 · length penalty 1 · at most 12–57 tokens"``.

    Args:
        risk: the fields of a `regard.models.search.MinimumRisk`; None: a beam search.
        bounds: the most tokens that could be written, for the input with the fewest and for that with the most.
        others: what else the search of a task depends on.
    """
    if risk is not None:
        parts = [
            f"minimum Bayes risk of {risk['samples']} samples", f"temperature {risk['temperature']:g}",
            f"utility order {risk['order']}", f"seed {risk['seed']}",
        ]  # fmt: skip
    elif width == 1:
        parts = ["greedy (beam 1)"]
    else:
        parts = [f"beam {width}", f"length penalty {length_penalty:g}"]
    least, most = bounds
    parts.append(f"at most {most:,} tokens" if least == most else f"at most {least:,}–{most:,} tokens")
    return f"search: {' · '.join([*parts, *others])}"
