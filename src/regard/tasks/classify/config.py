"""The configuration of a text classifier: its data, its model, its training, and how it is used."""

from dataclasses import dataclass
from typing import Literal

from regard.errors import ArgumentError
from regard.training.config import TrainingConfig
from regard.training.sections import check_at_least, check_between, check_choices, check_probabilities

BUNDLED_TEXTS = 10_000
"""Training texts of the bundled corpus when no number is given."""

MOST_BUNDLED = 10_000_000
"""Largest number of texts that are generated."""

MOST_FEATURES, MOST_LAYERS, MOST_HEADS, MOST_BATCH = 65_536, 100, 1024, 1_000_000
"""Beyond these a model or a batch would not fit into any memory."""


@dataclass(frozen=True, slots=True)
class DataConfig:
    """The data of a run, and how it is split into tokens."""

    train: str | None = None
    """Training texts: a .tsv, .csv, .jsonl or .parquet file, a folder with a folder of .txt files for each label, a
    Hugging Face data set 'owner/name', or 'bundled' for generated reviews."""
    validation: str | None = None
    """Validation texts, in any of these forms. Default: random training texts, as many as held_out says."""
    test: str | None = None
    """Test texts, evaluated when training is over. Default: none."""
    text_column: str = "text"
    """Column of the texts."""
    label_column: str = "label"
    """Column of the labels: texts or numbers."""
    bundled: int = 0
    """Number of generated reviews to train on, instead of train."""
    held_out: int = 1000
    """Training texts that are used for validation when there are no validation texts; at most a tenth of the texts."""
    tokenizer: Literal["bpe", "word", "char"] = "word"
    """bpe (sub-words), word or char."""
    lowercase: bool = False
    """Turn the texts into lower case."""
    vocabulary: int = 20000
    """Largest size of the vocabulary, in tokens."""
    max_length: int = 512
    """Largest number of tokens of a text; longer ones are cut."""

    def __post_init__(self) -> None:
        if self.train == "bundled":
            object.__setattr__(self, "train", None)
            object.__setattr__(self, "bundled", self.bundled or BUNDLED_TEXTS)
        check_between(self, 0, MOST_BUNDLED, "bundled")
        if self.train is not None and self.bundled:
            raise ArgumentError("--train and --bundled exclude each other; give one of them")
        if self.train is None and not self.bundled:
            raise ArgumentError(
                f"there is nothing to train on; give --train FILE, or --train bundled for {BUNDLED_TEXTS:,} generated "
                "reviews (--bundled says how many)"
            )
        for name in ("train", "validation", "test", "text_column", "label_column"):
            if getattr(self, name) == "":
                raise ArgumentError(f"{name} is empty; give a name, or leave it out")
        if self.text_column == self.label_column:
            raise ArgumentError(f"text_column must not be the column of the labels; both are {self.text_column!r}")
        check_choices(self)
        check_between(self, 8, 10_000_000, "vocabulary")
        check_between(self, 1, 1_000_000, "max_length")
        check_at_least(self, 1, "held_out")


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The model of a run, without the sizes that the data decide."""

    encoder: Literal["none", "lstm", "gru", "transformer"] = "lstm"
    """none (pooling of the embeddings), lstm, gru (both bidirectional) or transformer."""
    embedding: int = 128
    """Features of an embedded token; transformer: as hidden says."""
    hidden: int = 256
    """Features of an annotation of the encoder; even."""
    layers: int = 1
    """Layers of the encoder."""
    heads: int = 4
    """transformer: heads; a divisor of hidden."""
    feedforward: int = 0
    """transformer: units of the hidden layer of the feedforward networks; 0: four times hidden."""
    position: Literal["sinusoidal", "learned", "rotary", "alibi", "t5", "shaw", "none"] = "sinusoidal"
    """transformer: sinusoidal, learned, rotary, alibi, t5, shaw or none."""
    window: int = 0
    """transformer: each token sees so many tokens on each side, in memory linear in the length; 0: all tokens."""
    global_tokens: int = 0
    """transformer with a window: so many first tokens of the text are seen by all tokens."""
    feedforward_chunk: int = 0
    """transformer: tokens that the feedforward networks treat at a time, to save memory when checkpointing; 0: all."""
    activation_checkpointing: bool = False
    """transformer: activations are computed again in the backward pass: less memory, the same gradients."""
    pooling: Literal["attention", "mean", "max"] = "attention"
    """attention (with a learned query), mean or max."""
    pooling_heads: int = 1
    """attention pooling: learned queries."""
    score: Literal["additive", "concat", "cosine", "distance", "dot", "general", "mlp", "scaled_dot"] = "additive"
    """attention pooling: additive, concat, cosine, distance, dot, general, mlp or scaled_dot."""
    normalizer: Literal["softmax", "sparsemax", "entmax15", "sigmoid"] = "softmax"
    """attention pooling: softmax, sparsemax, entmax15 or sigmoid."""
    dropout: float = 0.5
    """Dropout rate, 0 to below 1."""
    word_dropout: float = 0.1
    """Probability that a token becomes an unknown one in training, 0 to below 1."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_between(self, 1, MOST_FEATURES, "embedding", "hidden")
        check_between(self, 1, MOST_LAYERS, "layers")
        check_between(self, 1, MOST_HEADS, "heads", "pooling_heads")
        check_between(self, 0, 16 * MOST_FEATURES, "feedforward")
        check_between(self, 0, 1_000_000, "window", "global_tokens", "feedforward_chunk")
        check_probabilities(self, "dropout", "word_dropout")
        if self.hidden % 2:
            raise ArgumentError(f"hidden must be even, half for each direction; it is {self.hidden}")
        if self.encoder == "transformer" and self.hidden % self.heads:
            raise ArgumentError(f"heads must divide hidden, which is {self.hidden}; it is {self.heads}")
        if self.window and self.encoder != "transformer":
            raise ArgumentError(f"window is for the encoder 'transformer'; encoder is {self.encoder!r}")
        if self.encoder != "transformer" and (self.activation_checkpointing or self.feedforward_chunk):
            raise ArgumentError(
                "--activation-checkpointing and --feedforward-chunk are options of --encoder transformer; the encoder "
                f"is {self.encoder!r}"
            )
        if self.global_tokens and not self.window:
            raise ArgumentError("--global-tokens needs --window; without, every token is seen by all tokens")


@dataclass(frozen=True, slots=True)
class ClassificationTrainingConfig(TrainingConfig):
    """How a classifier is trained, and for how long."""

    batch_size: int = 64
    """Largest number of texts of a batch, on each device."""
    tokens_per_batch: int = 16384
    """Largest number of tokens of a batch, padding included; a longer text is a batch of one."""
    label_smoothing: float = 0.1
    """Probability that is distributed over all labels, 0 to below 1 (Szegedy et al. 2016, section 7)."""
    class_weights: Literal["none", "balanced"] = "none"
    """none, or balanced: a text counts in inverse proportion to the number of training texts with its label."""

    def __post_init__(self) -> None:
        TrainingConfig.__post_init__(self)  # the class of `super()` is another one in a dataclass with slots
        check_between(self, 1, MOST_BATCH, "batch_size")
        check_between(self, 1, MOST_BATCH * 1000, "tokens_per_batch")
        check_probabilities(self, "label_smoothing")


@dataclass(frozen=True, slots=True)
class PredictionConfig:
    """How texts are classified."""

    batch_size: int = 64
    """Texts classified at once."""

    def __post_init__(self) -> None:
        check_between(self, 1, MOST_BATCH, "batch_size")


@dataclass(frozen=True, slots=True)
class EvaluationConfig:
    """How a classifier is measured on a data set."""

    text_column: str | None = None
    """Column of the texts. Default: as in training."""
    label_column: str | None = None
    """Column of the labels. Default: as in training."""
    batch_size: int = 64
    """Texts classified at once."""
    limit: int | None = None
    """Number of texts to evaluate, from the first. Default: all."""

    def __post_init__(self) -> None:
        check_between(self, 1, MOST_BATCH, "batch_size")
        if self.limit is not None:
            check_at_least(self, 1, "limit")
