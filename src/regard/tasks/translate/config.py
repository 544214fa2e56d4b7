"""The configuration of a translator: its data, its model, its training, and how it is used."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from regard.errors import ArgumentError
from regard.tasks.search_options import SearchOptions
from regard.training.config import TrainingConfig
from regard.training.sections import check_at_least, check_between, check_choices, check_probabilities

BUNDLED_PAIRS = 20_000
"""Training pairs of the bundled corpus when no number is given."""

MOST_BUNDLED = 10_000_000
"""Largest number of pairs that are generated."""

MOST_FEATURES, MOST_LAYERS, MOST_BATCH = 65_536, 100, 1_000_000
"""Beyond these a model or a search would not fit into any memory, or never end."""


@dataclass(frozen=True, slots=True)
class DataConfig:
    """The data of a run, and how it is split into tokens."""

    train: str | None = None
    """Training pairs: a .tsv, .csv, .jsonl or .parquet file, two aligned text files as 'a.de,b.en', a Hugging Face data
    set 'owner/name', or 'bundled' for the generated English-Spanish corpus."""
    validation: str | None = None
    """Validation pairs, in any of these forms. Default: the last training pairs, as many as held_out says."""
    test: str | None = None
    """Test pairs, translated with a beam of 5 when training is over. Default: none."""
    source_column: str | None = None
    """Column to translate from. Default: the first of a table with two columns."""
    target_column: str | None = None
    """Column to translate to. Default: the second of a table with two columns."""
    lowercase: bool = False
    """Turn all text into lower case, references included."""
    bundled: int = 0
    """Number of pairs of the generated corpus to train on, instead of train."""
    held_out: int = 500
    """Training pairs that are used for validation when there are no validation pairs; at most a tenth of the pairs."""
    tokenizer: Literal["bpe", "word", "char"] = "bpe"
    """bpe (sub-words), word or char."""
    vocabulary: int = 8000
    """Largest size of each side's vocabulary, in tokens."""
    max_length: int = 100
    """Largest number of tokens of each side; longer training pairs are left out."""

    def __post_init__(self) -> None:
        if self.train == "bundled":
            object.__setattr__(self, "train", None)
            object.__setattr__(self, "bundled", self.bundled or BUNDLED_PAIRS)
        check_between(self, 0, MOST_BUNDLED, "bundled")
        if self.train is not None and self.bundled:
            raise ArgumentError("--train and --bundled exclude each other; give one of them")
        if self.train is None and not self.bundled:
            raise ArgumentError(
                f"there is nothing to train on; give --train FILE, or --train bundled for {BUNDLED_PAIRS:,} pairs of "
                "the bundled corpus (--bundled says how many)"
            )
        for name in ("train", "validation", "test", "source_column", "target_column"):
            if getattr(self, name) == "":
                raise ArgumentError(f"{name} is empty; give a name, or leave it out")
        if self.source_column is not None and self.source_column == self.target_column:
            raise ArgumentError(f"source_column must not be the target's column; both are {self.source_column!r}")
        check_choices(self)
        check_between(self, 8, 10_000_000, "vocabulary")
        check_between(self, 1, 1_000_000, "max_length")
        check_at_least(self, 1, "held_out")


_OF_TRANSFORMER = (
    "heads",
    "kv_heads",
    "feedforward",
    "norm",
    "position",
    "activation",
    "normalizer",
    "feedforward_chunk",
    "activation_checkpointing",
)
_OF_RECURRENT = (
    "scope",
    "window",
    "input_feeding",
    "hard_estimator",
    "entropy_weight",
    "cell",
    "readout",
    "max_source",
)
_DEFAULTS = {
    "recurrent": {"embedding": 256, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.3},
    "transformer": {"encoder_layers": 6, "decoder_layers": 6, "dropout": 0.1},
}


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The model of a run, without the sizes of its vocabularies."""

    attention: Literal["none", "bahdanau", "luong", "hard", "transformer"] = "bahdanau"
    """none, bahdanau (before the cell), luong (after it), hard (as bahdanau, but of one annotation), or transformer (no
    cells)."""
    score: Literal["additive", "concat", "cosine", "dot", "general", "location", "scaled_dot"] | None = None
    """additive (= concat), cosine, dot, scaled_dot, general or location. Default: additive for bahdanau and hard,
    general for luong, scaled_dot for transformer."""
    scope: Literal["global", "local-m", "local-p"] = "global"
    """luong: global, local-m (monotonic) or local-p (predicted)."""
    window: int = 10
    """luong, local scopes: half-width in source tokens."""
    input_feeding: bool = True
    """luong: the attentional vector is an input of the next step."""
    hard_estimator: Literal["reinforce", "straight_through"] = "reinforce"
    """hard: reinforce or straight_through."""
    entropy_weight: float = 0.01
    """hard with reinforce: weight of the entropy bonus."""
    cell: Literal["lstm", "gru"] = "lstm"
    """lstm or gru; a transformer has none."""
    embedding: int | None = None
    """Features of an embedded token and of the readout. Default: 256; a transformer has hidden features everywhere."""
    hidden: int = 512
    """Features of an annotation and of a decoder state; even."""
    encoder_layers: int | None = None
    """Layers of the encoder. Default: 1; transformer: 6."""
    decoder_layers: int | None = None
    """Layers of the decoder. Default: 1; transformer: 6."""
    readout: Literal["tanh", "maxout"] = "tanh"
    """tanh or maxout; a transformer has none."""
    dropout: float | None = None
    """Dropout rate, 0 to below 1. Default: 0.3; transformer: 0.1."""
    tied: Literal["none", "target", "all"] = "target"
    """Embeddings that share their weights: none, target (with the output) or all (needs one vocabulary size on both
    sides)."""
    max_source: int = 0
    """Score location: the longest source, in tokens, that the model can attend to; 0: the max_length of the data."""
    heads: int = 8
    """transformer: query heads; a divisor of hidden."""
    kv_heads: int | None = None
    """transformer: key and value heads, a divisor of heads. Default: as many as heads."""
    feedforward: int = 2048
    """transformer: units of the hidden layer of the feedforward networks."""
    norm: Literal["pre", "post"] = "pre"
    """transformer: layer normalization before each part (pre) or after the sum (post)."""
    position: Literal["sinusoidal", "learned", "rotary", "alibi", "t5", "shaw", "none"] = "sinusoidal"
    """transformer: positions that are added (sinusoidal, learned) or part of self-attention (rotary, alibi, t5, shaw);
    or none."""
    activation: Literal["relu", "gelu", "silu"] = "relu"
    """transformer: relu, gelu or silu."""
    normalizer: Literal["softmax", "sparsemax", "entmax15", "sigmoid"] = "softmax"
    """transformer: softmax, sparsemax, entmax15 or sigmoid, of every attention."""
    feedforward_chunk: int = 0
    """transformer: tokens that the feedforward networks treat at a time, to save memory when checkpointing; 0: all."""
    activation_checkpointing: bool = False
    """transformer: activations are computed again in the backward pass: less memory, the same gradients."""

    def __post_init__(self) -> None:
        check_choices(self)
        transformer = self.attention == "transformer"
        self._check_kind(_OF_RECURRENT if transformer else _OF_TRANSFORMER)
        if transformer and self.embedding not in (None, self.hidden):
            raise ArgumentError(
                f"embedding must be hidden, {self.hidden}, with attention 'transformer'; it is {self.embedding}"
            )
        defaults = _DEFAULTS["transformer" if transformer else "recurrent"]
        for name, value in {"embedding": self.hidden, **defaults}.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        check_between(self, 1, MOST_FEATURES, "embedding", "hidden", "heads", "feedforward")
        check_between(self, 1, MOST_LAYERS, "encoder_layers", "decoder_layers")
        check_at_least(self, 1, "window")
        check_between(self, 0, 1_000_000, "feedforward_chunk")
        check_at_least(self, 0, "max_source", "entropy_weight")
        check_probabilities(self, "dropout")
        if transformer:
            self._check_transformer()
        elif self.hidden % 2:
            raise ArgumentError(f"hidden must be even, half for each direction; it is {self.hidden}")
        if self.scope != "global" and self.attention != "luong":
            raise ArgumentError(f"scope {self.scope!r} is luong's; attention is {self.attention!r}")

    def _check_kind(self, fields_of_others: tuple[str, ...]) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in fields_of_others and value != field.default:
                raise ArgumentError(f"{field.name} has no meaning with attention {self.attention!r}; it is {value!r}")

    def _check_transformer(self) -> None:
        if self.hidden % self.heads:
            raise ArgumentError(f"heads must divide hidden, {self.hidden}; it is {self.heads}")
        if self.kv_heads is not None and (self.kv_heads < 1 or self.heads % self.kv_heads):
            raise ArgumentError(f"kv_heads must divide heads, {self.heads}; it is {self.kv_heads}")
        if self.position == "rotary" and self.hidden // self.heads % 2:
            raise ArgumentError(
                f"position 'rotary' needs an even number of features a head; hidden / heads is "
                f"{self.hidden // self.heads}"
            )
        if self.score == "location":
            raise ArgumentError("score 'location' is that of a recurrent decoder; attention is 'transformer'")


@dataclass(frozen=True, slots=True)
class TranslationTrainingConfig(TrainingConfig):
    """How a translator is trained, and for how long."""

    tokens_per_batch: int = 2000
    """Target tokens of a batch, padding included, on each device."""
    label_smoothing: float = 0.1
    """Probability that is distributed over all words, 0 to below 1 (Szegedy et al. 2016, section 7)."""
    scheduled_sampling: float = 0.0
    """Probability that a decoder step reads the predicted word, 0 to below 1 (Bengio et al. 2015)."""
    validation_pairs: int = 0
    """Pairs that each validation translates: the first of the validation data; 0: all."""

    def __post_init__(self) -> None:
        TrainingConfig.__post_init__(self)  # the class of `super()` is another one in a dataclass with slots
        check_between(self, 1, MOST_BATCH * 100, "tokens_per_batch")
        check_at_least(self, 0, "validation_pairs")
        check_probabilities(self, "label_smoothing", "scheduled_sampling")


@dataclass(frozen=True, slots=True)
class PredictionConfig(SearchOptions):
    """How sentences are translated."""

    replace_unknown: bool = False
    """Replace an unknown word by the source word with the largest weight."""
    merge_words: bool = False
    """Merge sub-words to words, in pictures and in JSON."""
    batch_size: int = 64
    """Sentences translated at once."""

    def __post_init__(self) -> None:
        _check_search(self)


@dataclass(frozen=True, slots=True)
class EvaluationConfig(SearchOptions):
    """How a translator is measured on a data set."""

    source_column: str | None = None
    """Column to translate from. Default: as in training."""
    target_column: str | None = None
    """Column with the references. Default: as in training."""
    batch_size: int = 64
    """Sentences translated at once."""
    limit: int | None = None
    """Number of pairs to evaluate, from the first. Default: all."""

    def __post_init__(self) -> None:
        _check_search(self)
        if self.limit is not None:
            check_at_least(self, 1, "limit")


def _check_search(config: PredictionConfig | EvaluationConfig) -> None:
    SearchOptions.__post_init__(config)  # the class of `super()` is another one in a dataclass with slots
    check_between(config, 1, MOST_BATCH, "batch_size")


# The names of version 0.1.
_MODEL_NAMES = {"embedding_dim": "embedding", "hidden_dim": "hidden", "tied_embeddings": "tied"}


def upgraded(sections: dict[str, Any]) -> dict[str, Any]:
    """The sections of a configuration that version 0.1 wrote, with the names of today."""
    # Without max_source a location score had 200 keys, whatever the length of the data.
    model = {"max_source": 200} | {_MODEL_NAMES.get(name, name): value for name, value in sections["model"].items()}
    return {**sections, "model": model}
