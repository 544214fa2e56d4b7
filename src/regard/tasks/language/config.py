"""The configuration of a language model: its text, its model, its training, and how it is used."""

from dataclasses import dataclass
from typing import Literal

from regard.errors import ArgumentError
from regard.training.config import TrainingConfig
from regard.training.sections import check_at_least, check_between, check_choices, check_finite, check_probabilities

BUNDLED_SENTENCES = 20_000
"""Training sentences of the bundled text when no number is given."""

MOST_BUNDLED = 10_000_000
"""Largest number of sentences that are generated."""

MOST_FEATURES, MOST_LAYERS, MOST_CONTEXT, MOST_BATCH, MOST_TOKENS = 65_536, 100, 1_000_000, 1_000_000, 10_000_000
"""Beyond these a model or a text would not fit into any memory, or never end."""


@dataclass(frozen=True, slots=True)
class DataConfig:
    """The text of a run, and how it is split into tokens."""

    train: str | None = None
    """Training text: UTF-8 text files: a file, several with commas between them, a folder (its .txt files), a pattern
    such as 'books/**/*.md', or 'bundled' for the generated English text. A file is a document."""
    validation: str | None = None
    """Validation text, in any of these forms. Default: the end of the training text, as much as held_out says."""
    test: str | None = None
    """Test text, measured when training is over. Default: none."""
    bundled: int = 0
    """Number of sentences of the generated text to train on, instead of train."""
    held_out: int = 100_000
    """Tokens of the training text that are used for validation when there is no validation text; at most a tenth of
    the text."""
    tokenizer: Literal["bpe", "word", "char"] = "bpe"
    """bpe (sub-words of bytes), word or char; each keeps every space and line end."""
    vocabulary: int = 8000
    """Largest size of the vocabulary of bpe and word, in tokens; bpe has at least the 256 bytes."""

    def __post_init__(self) -> None:
        if self.train == "bundled":
            object.__setattr__(self, "train", None)
            object.__setattr__(self, "bundled", self.bundled or BUNDLED_SENTENCES)
        check_between(self, 0, MOST_BUNDLED, "bundled")
        if self.train is not None and self.bundled:
            raise ArgumentError("--train and --bundled exclude each other; give one of them")
        if self.train is None and not self.bundled:
            raise ArgumentError(
                f"there is nothing to train on; give --train FILE, or --train bundled for {BUNDLED_SENTENCES:,} "
                "sentences of the bundled text (--bundled says how many)"
            )
        for name in ("train", "validation", "test"):
            if getattr(self, name) == "":
                raise ArgumentError(f"{name} is empty; give a name, or leave it out")
        check_choices(self)
        check_between(self, 8, 10_000_000, "vocabulary")
        check_at_least(self, 1, "held_out")


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The model of a run, without the size of its vocabulary."""

    context: int = 256
    """Tokens of a window: the longest text that the model reads at once."""
    layers: int = 6
    """Layers of the Transformer."""
    hidden: int = 384
    """Features of a token."""
    heads: int = 6
    """Query heads; a divisor of hidden."""
    kv_heads: int | None = None
    """Key and value heads, a divisor of heads. Default: as many as heads."""
    feedforward: int = 0
    """Units of the hidden layer of the feedforward networks; 0: four times hidden."""
    norm: Literal["pre", "post"] = "pre"
    """Layer normalization before each part (pre) or after the sum (post)."""
    position: Literal["sinusoidal", "learned", "rotary", "alibi", "t5", "shaw", "none"] = "rotary"
    """Positions that are added (sinusoidal, learned) or part of self-attention (rotary, alibi, t5, shaw); or none."""
    activation: Literal["relu", "gelu", "silu"] = "gelu"
    """relu, gelu or silu."""
    score: Literal["additive", "cosine", "dot", "general", "scaled_dot"] = "scaled_dot"
    """additive, cosine, dot, general or scaled_dot, of every attention."""
    normalizer: Literal["softmax", "sparsemax", "entmax15", "sigmoid"] = "softmax"
    """softmax, sparsemax, entmax15 or sigmoid, of every attention."""
    dropout: float = 0.1
    """Dropout rate, 0 to below 1."""
    tied: bool = True
    """The output matrix is the embedding."""
    feedforward_chunk: int = 0
    """Tokens that the feedforward networks treat at a time, to save memory when checkpointing; 0: all."""
    activation_checkpointing: bool = False
    """Activations are computed again in the backward pass: less memory, the same gradients."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_between(self, 1, MOST_CONTEXT, "context")
        check_between(self, 1, MOST_LAYERS, "layers")
        check_between(self, 1, MOST_FEATURES, "hidden", "heads")
        check_between(self, 0, MOST_FEATURES, "feedforward")
        check_between(self, 0, 1_000_000, "feedforward_chunk")
        check_probabilities(self, "dropout")
        if self.hidden % self.heads:
            raise ArgumentError(f"heads must divide hidden, {self.hidden}; it is {self.heads}")
        if self.kv_heads is not None and (self.kv_heads < 1 or self.heads % self.kv_heads):
            raise ArgumentError(f"kv_heads must divide heads, {self.heads}; it is {self.kv_heads}")
        if self.position == "rotary" and self.hidden // self.heads % 2:
            raise ArgumentError(
                f"position 'rotary' needs an even number of features a head; hidden / heads is "
                f"{self.hidden // self.heads}"
            )


@dataclass(frozen=True, slots=True)
class LanguageTrainingConfig(TrainingConfig):
    """How a language model is trained, and for how long."""

    batch_size: int = 32
    """Windows of a batch, on each device."""
    windows: Literal["random", "consecutive"] = "random"
    """Windows begin at any token (random), or an epoch has every token once (consecutive), in random order."""
    steps_per_epoch: int = 0
    """Batches of an epoch; 0: as many as the text has windows for."""
    label_smoothing: float = 0.0
    """Probability that is distributed over all tokens, 0 to below 1 (Szegedy et al. 2016, section 7)."""
    validation_tokens: int = 0
    """Tokens that each validation predicts: the first of the validation text; 0: all."""

    def __post_init__(self) -> None:
        TrainingConfig.__post_init__(self)  # the class of `super()` is another one in a dataclass with slots
        check_between(self, 1, MOST_BATCH, "batch_size")
        check_at_least(self, 0, "steps_per_epoch", "validation_tokens")
        check_probabilities(self, "label_smoothing")


@dataclass(frozen=True, slots=True)
class PredictionConfig:
    """How a text is continued."""

    tokens: int = 200
    """Largest number of new tokens; 0: none."""
    temperature: float = 0.8
    """Below 1, likely tokens become more likely; above 1, less likely; 0: always the most likely token."""
    top_k: int = 0
    """Number of most likely tokens to draw from; 0: all."""
    top_p: float = 1.0
    """Draw from the most likely tokens whose probabilities add up to this, above 0 to 1; 1: all."""
    seed: int = 1
    """Seed of the draws."""
    next: int = 0
    """Number of most likely next tokens of each input to show, with their probabilities."""
    layer: int | None = None
    """Layer whose attention weights, as the mean over its heads, are in pictures and JSON, from 0. Default: the last
    one in pictures, none in JSON."""

    def __post_init__(self) -> None:
        check_finite(self)
        check_between(self, 0, MOST_TOKENS, "tokens")
        check_between(self, 0, 2**63 - 1, "seed")
        check_between(self, 0, 1000, "temperature")
        check_at_least(self, 0, "top_k", "next", *(["layer"] if self.layer is not None else []))
        if not 0 < self.top_p <= 1:
            raise ArgumentError(f"top_p must be above 0 and at most 1; it is {self.top_p}")


@dataclass(frozen=True, slots=True)
class EvaluationConfig:
    """How a language model is measured on a text."""

    stride: int = 0
    """Tokens between the starts of windows, up to the context; a smaller one gives each token more context and takes
    longer; 0: the context."""
    limit: int = 0
    """Number of tokens to predict, from the first; 0: all."""

    def __post_init__(self) -> None:
        check_at_least(self, 0, "stride", "limit")
