"""The configuration of a summarizer: its data, its model, its training, and how it is used."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from regard.errors import ArgumentError
from regard.tasks.search_options import SearchOptions
from regard.training.config import TrainingConfig
from regard.training.sections import check_at_least, check_between, check_choices, check_probabilities

BUNDLED_ARTICLES = 20_000
"""Training articles of the bundled corpus when no number is given."""

MOST_BUNDLED = 10_000_000
"""Largest number of articles that are generated."""

MOST_FEATURES, MOST_LAYERS, MOST_BATCH = 65_536, 100, 1_000_000
"""Beyond these a model or a search would not fit into any memory, or never end."""

RECURRENT_ONLY = ("attention", "score", "cell", "embedding", "hidden", "readout")
TRANSFORMER_ONLY = (
    "dim",
    "heads",
    "feedforward",
    "position",
    "norm_first",
    "feedforward_chunk",
    "activation_checkpointing",
)


@dataclass(frozen=True, slots=True)
class DataConfig:
    """The data of a run, and how it is split into tokens."""

    train: str | None = None
    """Training articles with summaries: a .tsv, .csv, .jsonl or .parquet file, two aligned text files as
    'articles.txt,summaries.txt', a Hugging Face data set 'owner/name', or 'bundled' for generated articles."""
    validation: str | None = None
    """Validation articles, in any of these forms. Default: the last training articles, as many as held_out says."""
    test: str | None = None
    """Test articles, summarized with a beam of 4 when training is over. Default: none."""
    article_column: str | None = None
    """Column with the articles. Default: article, or the first of a table with two columns."""
    summary_column: str | None = None
    """Column with the summaries. Default: summary, or the second of a table with two columns."""
    lowercase: bool = False
    """Turn all text into lower case, references included."""
    bundled: int = 0
    """Number of generated articles to train on, instead of train."""
    held_out: int = 500
    """Training articles that are used for validation when there are no validation articles; at most a tenth of them."""
    tokenizer: Literal["word", "bpe", "char"] = "word"
    """word, bpe (sub-words) or char; articles and summaries share it."""
    vocabulary: int = 20000
    """Largest size of the vocabulary, in tokens."""
    min_count: int = 5
    """Tokenizer word: a word that occurs fewer times in the training data is not in the vocabulary; only copying can
    write it."""
    max_length: int = 400
    """Largest number of tokens of an article; the rest of a longer one is cut off."""
    max_summary: int = 100
    """Largest number of tokens of a summary; training articles with longer ones are left out."""

    def __post_init__(self) -> None:
        if self.train == "bundled":
            object.__setattr__(self, "train", None)
            object.__setattr__(self, "bundled", self.bundled or BUNDLED_ARTICLES)
        check_between(self, 0, MOST_BUNDLED, "bundled")
        if self.train is not None and self.bundled:
            raise ArgumentError("--train and --bundled exclude each other; give one of them")
        if self.train is None and not self.bundled:
            raise ArgumentError(
                f"there is nothing to train on; give --train FILE, or --train bundled for {BUNDLED_ARTICLES:,} "
                "generated articles (--bundled says how many)"
            )
        for name in ("train", "validation", "test", "article_column", "summary_column"):
            if getattr(self, name) == "":
                raise ArgumentError(f"{name} is empty; give a name, or leave it out")
        if (self.article_column is None) != (self.summary_column is None):
            raise ArgumentError("--article-column and --summary-column must be given together")
        if self.article_column is not None and self.article_column == self.summary_column:
            raise ArgumentError(f"article_column must not be the summary's column; both are {self.article_column!r}")
        check_choices(self)
        check_between(self, 8, 10_000_000, "vocabulary")
        check_between(self, 1, 1_000_000, "max_length", "max_summary")
        check_at_least(self, 1, "held_out", "min_count")


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The model of a run, without the size of its vocabulary."""

    model: Literal["recurrent", "transformer"] = "recurrent"
    """recurrent or transformer."""
    copy: bool = True
    """Words of the article can be copied (See et al. 2017)."""
    coverage: bool = False
    """The loss has the attention to tokens that were attended to before; the recurrent model's score sees it too."""
    coverage_weight: float = 1.0
    """coverage: weight of that loss."""
    attention: Literal["bahdanau", "luong"] = "bahdanau"
    """recurrent: bahdanau (before the cell) or luong (after it)."""
    score: Literal["additive", "dot", "general", "scaled_dot"] | None = None
    """recurrent: additive, dot, scaled_dot or general. Default: additive for bahdanau and with coverage, else
    general."""
    cell: Literal["lstm", "gru"] = "lstm"
    """recurrent: lstm or gru."""
    embedding: int = 128
    """recurrent: features of an embedded token and of the readout."""
    hidden: int = 256
    """recurrent: features of an annotation and of a decoder state; even."""
    readout: Literal["tanh", "maxout"] = "tanh"
    """recurrent: tanh or maxout."""
    dim: int = 256
    """transformer: features of a token."""
    heads: int = 8
    """transformer: heads; a divisor of dim."""
    feedforward: int = 1024
    """transformer: units of the hidden layer of the feedforward networks."""
    position: Literal["sinusoidal", "learned", "rotary", "alibi", "t5", "shaw"] = "sinusoidal"
    """transformer: sinusoidal, learned, rotary, alibi, t5 or shaw."""
    norm_first: bool = True
    """transformer: layer normalization before each part instead of after the sum."""
    feedforward_chunk: int = 0
    """transformer: tokens that the feedforward networks treat at a time, to save memory when checkpointing; 0: all."""
    activation_checkpointing: bool = False
    """transformer: activations are computed again in the backward pass: less memory, the same gradients."""
    encoder_layers: int | None = None
    """Layers of the encoder. Default: 1 for recurrent, 4 for transformer."""
    decoder_layers: int | None = None
    """Layers of the decoder. Default: 1 for recurrent, 4 for transformer."""
    dropout: float = 0.1
    """Dropout rate, 0 to below 1."""
    tied: Literal["none", "target", "all"] = "all"
    """Embeddings that share their weights: none, target (with the output) or all."""

    def __post_init__(self) -> None:
        check_choices(self)
        other, names = ("transformer", TRANSFORMER_ONLY) if self.model == "recurrent" else ("recurrent", RECURRENT_ONLY)
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        for name in names:
            if getattr(self, name) != defaults[name]:
                option = f"--{name.replace('_', '-')}"
                raise ArgumentError(f"{option} is an option of --model {other}; leave it out with --model {self.model}")
        check_between(self, 1, MOST_FEATURES, "embedding", "hidden", "dim", "heads", "feedforward")
        for name in ("encoder_layers", "decoder_layers"):
            if getattr(self, name) is not None:
                check_between(self, 1, MOST_LAYERS, name)
        check_between(self, 0, 1e6, "coverage_weight")
        check_between(self, 0, 1_000_000, "feedforward_chunk")
        check_probabilities(self, "dropout")
        if self.hidden % 2:
            raise ArgumentError(f"hidden must be even, half for each direction; it is {self.hidden}")
        if self.dim % self.heads:
            raise ArgumentError(f"heads must be a divisor of dim; heads is {self.heads} and dim is {self.dim}")
        if self.coverage and self.model == "recurrent" and self.score not in (None, "additive"):
            raise ArgumentError(f"--score must be additive with --coverage, which is a part of it; it is {self.score}")
        if self.coverage_weight != defaults["coverage_weight"] and not self.coverage:
            raise ArgumentError("--coverage-weight needs --coverage; leave it out, or give both")

    @property
    def layers(self) -> tuple[int, int]:
        """Layers of the encoder and of the decoder."""
        default = 1 if self.model == "recurrent" else 4
        return self.encoder_layers or default, self.decoder_layers or default


@dataclass(frozen=True, slots=True)
class SummaryTrainingConfig(TrainingConfig):
    """How a summarizer is trained, and for how long."""

    tokens_per_batch: int = 8000
    """Tokens of the articles of a batch, padding included, on each device."""
    label_smoothing: float = 0.0
    """Probability that is distributed over the vocabulary, 0 to below 1 (Szegedy et al. 2016, section 7)."""
    validation_articles: int = 0
    """Articles that each validation summarizes: the first of the validation data; 0: all."""

    def __post_init__(self) -> None:
        TrainingConfig.__post_init__(self)  # the class of `super()` is another one in a dataclass with slots
        check_between(self, 1, MOST_BATCH * 100, "tokens_per_batch")
        check_at_least(self, 0, "validation_articles")
        check_probabilities(self, "label_smoothing")


@dataclass(frozen=True, slots=True)
class PredictionConfig(SearchOptions):
    """How articles are summarized."""

    beam: int = 4
    """Beam width; 1: greedy search."""
    max_summary: int | None = None
    """Largest number of tokens of a summary. Default: as in training."""
    mark_copied: bool = False
    """Mark copied words with their places in the article: [Ada Byron @7-8]."""
    merge_words: bool = False
    """Merge sub-words to words, in pictures."""
    batch_size: int = 32
    """Articles summarized at once."""

    def __post_init__(self) -> None:
        _check_search(self)


@dataclass(frozen=True, slots=True)
class EvaluationConfig(SearchOptions):
    """How a summarizer is measured on a data set."""

    article_column: str | None = None
    """Column with the articles. Default: as in training."""
    summary_column: str | None = None
    """Column with the references. Default: as in training."""
    beam: int = 4
    """Beam width; 1: greedy search."""
    max_summary: int | None = None
    """Largest number of tokens of a summary. Default: as in training."""
    batch_size: int = 32
    """Articles summarized at once."""
    limit: int | None = None
    """Number of articles to evaluate, from the first. Default: all."""

    def __post_init__(self) -> None:
        _check_search(self)
        if (self.article_column is None) != (self.summary_column is None):
            raise ArgumentError("--article-column and --summary-column must be given together")
        if self.limit is not None:
            check_at_least(self, 1, "limit")


def _check_search(config: Any) -> None:
    SearchOptions.__post_init__(config)  # the class of `super()` is another one in a dataclass with slots
    check_between(config, 1, MOST_BATCH, "batch_size")
    if config.max_summary is not None:
        check_between(config, 1, 1_000_000, "max_summary")
