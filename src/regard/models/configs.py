"""The configurations of models of texts, which are the options of their tasks; this file imports no PyTorch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal

from regard.configuration import (
    COUNT,
    HEADS,
    LAYERS,
    RATE,
    SIZE,
    WEIGHT,
    Configuration,
    Range,
    from_data,
    option,
    varies,
)
from regard.configuration.options import fill
from regard.errors import ArgumentError
from regard.nn.attention_names import CLASSES, AttentionName, check_direction, check_options

RECURRENT_CELLS = ("lstm", "gru")
"""Architectures with a state that each step changes."""

STEP_SCORES = ("location", "coverage", "location_aware", "dynamic_convolution")
"""Scores that see positions or earlier weights: not those of a Transformer, nor of attention that stops early."""

MONOTONIC_KINDS = ("monotonic", "chunkwise")
"""Kinds of attention of a decoder that go over the source once."""

FREE_TOKENS = 10
"""Tokens that may be written about any input."""

FEEDFORWARD = Range(0, 16 * SIZE.high)

Position = Literal["sinusoidal", "learned", "rotary", "alibi", "t5", "shaw", "none"]
ADDED_POSITIONS = ("sinusoidal", "learned")
"""Positions that are added to the tokens, so that self-attention need not know them."""
Normalizer = Literal["softmax", "sparsemax", "entmax15", "sigmoid"]


@dataclass(frozen=True, kw_only=True)
class TransformerOptions(Configuration):
    """The layers of a Transformer; a subclass has ``hidden`` and ``dropout``."""

    heads: int = option(8, within=HEADS, architecture="transformer")
    """Query heads; a divisor of ``hidden``."""
    kv_heads: int | None = option(None, within=HEADS, architecture="transformer")
    """Key and value heads, a divisor of ``heads``. Default: as many as heads."""
    self_attention: AttentionName = option("multihead", architecture="transformer")
    """Self-attention of the layers, by its name."""
    feedforward: int = option(0, within=FEEDFORWARD, architecture="transformer")
    """Units of the hidden layer of the feedforward networks; 0: four times ``hidden``."""
    norm: Literal["pre", "post"] = option("pre", architecture="transformer")
    """Layer normalization before each part (pre) or after the sum (post)."""
    final_norm: bool = option(False, architecture="transformer", norm="post")
    """One more layer normalization at the end of each stack, as in version 0.1; with pre there always is one."""
    position: Position = option("sinusoidal", architecture="transformer")
    """Positions that are added (sinusoidal, learned) or part of self-attention (rotary, alibi, t5, shaw); or none."""
    activation: Literal["relu", "gelu", "silu"] = option("relu", architecture="transformer")
    """Activation of the feedforward networks: relu, gelu or silu."""
    feedforward_chunk: int = option(0, within=COUNT, architecture="transformer")
    """Tokens that the feedforward networks treat at a time, to save memory when checkpointing; 0: all."""
    activation_checkpointing: bool = option(False, architecture="transformer")
    """Activations are computed again in the backward pass: less memory, the same gradients."""

    bidirectional: ClassVar[bool] = True
    """Whether tokens of a stack see later ones."""
    of_self_attention: ClassVar[tuple[str, ...]] = ("kv_heads", "position")
    """Options that a stack has for its self-attention alone."""

    @classmethod
    def refused(cls, name: str) -> Sequence[Any]:
        if name != "self_attention":
            return super().refused(name)
        # An indexer learns from a loss of its own.
        causal = [choice for choice, kind in CLASSES.items() if kind.is_causal and cls.bidirectional]
        return ["indexed", *causal]

    @property
    def ends_normalized(self) -> bool:
        """Whether stacks end with a layer normalization: after post-norm layers there need not be one."""
        return self.norm == "pre" or self.final_norm

    def check(self) -> None:
        super().check()
        check_heads(self)
        score, is_transformer = getattr(self, "score", None), getattr(self, "architecture", None) == "transformer"
        if score in STEP_SCORES and is_transformer and self.has_meaning("score"):
            raise ArgumentError(f"score {score!r} is that of a recurrent decoder; architecture is 'transformer'")
        if is_transformer and self.self_attention in CLASSES:
            _, lacks, is_causal = CLASSES[self.self_attention]
            owner = f"self_attention {self.self_attention!r}"
            options = {name: getattr(self, name) for name in self.of_self_attention}
            if self.position in ADDED_POSITIONS:
                options["position"] = "none"
            check_options(owner, lacks, options)
            check_direction(owner, is_causal, self.bidirectional)


def check_heads(config: Any) -> None:
    """Raises ArgumentError unless the heads of a Transformer divide its features, and those of keys the heads."""
    if config.architecture not in ("transformer", "vit"):
        return
    hidden, heads, kv_heads = config.hidden, config.heads, getattr(config, "kv_heads", None)
    if hidden % heads:
        raise ArgumentError(f"heads must divide hidden, {hidden}; it is {heads}")
    if kv_heads is not None and heads % kv_heads:
        raise ArgumentError(f"kv_heads must divide heads, {heads}; it is {kv_heads}")
    if getattr(config, "position", None) == "rotary" and hidden // heads % 2:
        raise ArgumentError(
            f"position 'rotary' needs an even number of features a head; hidden / heads is {hidden // heads}"
        )


def check_even(config: Any) -> None:
    """Raises ArgumentError if the features of a bidirectional encoder are odd."""
    if config.architecture in (*RECURRENT_CELLS, "hierarchical") and config.hidden % 2:
        raise ArgumentError(f"hidden must be even, half for each direction; it is {config.hidden}")


@dataclass(frozen=True, kw_only=True)
class SpecialTokens(Configuration):
    """The special tokens of the targets of a model that predicts a text."""

    pad: int = from_data(0, low=0)
    """Token that pads the rows of a batch."""
    bos: int = from_data(1, low=0)
    """Token that begins each target."""
    eos: int = from_data(2, low=0)
    """Token that ends each target."""

    def check(self) -> None:
        super().check()
        vocabulary = getattr(self, "target_vocabulary", None)
        for name in ("pad", "bos", "eos", "unk"):
            token = getattr(self, name, 0)
            if vocabulary is not None and not 0 <= token < vocabulary:
                raise ArgumentError(f"{name} must be a target token; it is {token}")


@dataclass(frozen=True, kw_only=True)
class WritingConfig(SpecialTokens):
    """A model that writes a text about its input."""

    length_ratio: float = from_data(2.0, low=0)
    """Tokens that are written at most for each annotation, besides `FREE_TOKENS`: a search ends there."""

    def longest(self, annotations: int) -> int:
        """Returns the largest number of tokens that are written about an input with so many annotations."""
        return math.ceil(self.length_ratio * annotations) + FREE_TOKENS


@dataclass(frozen=True)
class TextToTextConfig(WritingConfig):
    """An encoder and a decoder of tokens."""

    source_vocabulary: int = from_data()
    """Source tokens."""
    target_vocabulary: int = from_data()
    """Target tokens."""
    _: KW_ONLY
    architecture: Literal["lstm", "gru", "transformer"] = "lstm"
    """Architecture: lstm, gru or transformer."""
    attention: Literal["none", "bahdanau", "luong", "hard", "monotonic", "chunkwise", "stepwise", "forward"] = option(
        "bahdanau", architecture=RECURRENT_CELLS
    )
    """Attention of the decoder: none, bahdanau (before the cell), luong (after it), hard (as bahdanau, but of one
    annotation), monotonic (as hard, and only forwards), chunkwise (of a chunk that ends there), stepwise or forward
    (both move on by one annotation a step at most, forward as an agent decides)."""
    score: Literal["additive", "concat", "cosine", "coverage", "dot", "general", "location", "scaled_dot"] = varies(
        "additive", luong="general", transformer="scaled_dot"
    )
    """Score of the attention: additive (= concat), cosine, coverage (additive, and sees how much each annotation has
    received), dot, scaled_dot, general or location."""
    embedding: int = option(256, within=SIZE, architecture=RECURRENT_CELLS)
    """Features of an embedded token and of the readout; a transformer has ``hidden`` features everywhere."""
    hidden: int = option(512, within=SIZE)
    """Features of an annotation and of a decoder state; even for lstm and gru."""
    encoder_layers: int = varies(1, transformer=6, within=LAYERS)
    """Layers of the encoder."""
    decoder_layers: int = varies(1, transformer=6, within=LAYERS)
    """Layers of the decoder."""
    readout: Literal["tanh", "maxout"] = option("tanh", architecture=RECURRENT_CELLS)
    """Layer between the decoder and the output matrix: tanh or maxout."""
    dropout: float = varies(0.3, transformer=0.1, within=RATE)
    """Dropout rate, 0 to below 1."""
    tied: Literal["none", "target", "all"] = "target"
    """Embeddings that share their weights: none, target (with the output matrix) or all (needs one vocabulary size on
    both sides)."""
    input_feeding: bool = option(True, architecture=RECURRENT_CELLS, attention="luong")
    """The attentional vector is an input of the next step."""
    normalizer: Normalizer = option("softmax", architecture="transformer")
    """Normalizer of the attention weights: softmax, sparsemax, entmax15 or sigmoid."""
    max_length: int = from_data(512)
    """Position ``learned``: the longest source or target, in tokens."""

    def check(self) -> None:
        super().check()
        check_even(self)
        if self.tied == "all" and self.source_vocabulary != self.target_vocabulary:
            raise ArgumentError(
                "tied 'all' needs one vocabulary size on both sides; source_vocabulary is "
                f"{self.source_vocabulary}, target_vocabulary is {self.target_vocabulary}"
            )


@dataclass(frozen=True, kw_only=True)
class TranslatorConfig(TransformerOptions, TextToTextConfig):
    """The configuration of a `RecurrentTranslator` or a `TransformerTranslator`.

    Raises:
        UnknownNameError: a name that the field does not know.
        ArgumentError: a number is out of its range, or fields contradict each other.

    Example:
        >>> from regard import models
        >>> config = models.TranslatorConfig(8000, 8000, architecture="transformer", hidden=256)
        >>> config.encoder_layers, config.score, config.dropout
        (6, 'scaled_dot', 0.1)
        >>> models.TranslatorConfig(8000, 8000, attention="luong").score
        'general'
    """

    scope: Literal["global", "local-m", "local-p"] = option("global", architecture=RECURRENT_CELLS, attention="luong")
    """Source tokens that are attended to: global (all), local-m (a window that moves on) or local-p (a predicted
    one)."""
    window: int = option(10, within=Range(1, COUNT.high), scope=("local-m", "local-p"))
    """Tokens on each side that are attended to."""
    hard_estimator: Literal["reinforce", "straight_through"] = option(
        "reinforce", architecture=RECURRENT_CELLS, attention="hard"
    )
    """Estimator of the gradient: reinforce or straight_through."""
    entropy_weight: float = option(
        0.01, within=WEIGHT, architecture=RECURRENT_CELLS, attention="hard", hard_estimator="reinforce"
    )
    """Weight of the entropy bonus."""
    chunk_width: int = option(4, within=Range(2, COUNT.high), architecture=RECURRENT_CELLS, attention="chunkwise")
    """Annotations of a chunk (Chiu and Raffel 2018)."""
    max_source: int = option(0, within=COUNT, score="location")
    """The longest source, in tokens, that the model can attend to; 0: the ``max_length`` of the data."""

    of_self_attention: ClassVar[tuple[str, ...]] = ("kv_heads", "position", "score", "normalizer")
    models: ClassVar[dict[str, str]] = {
        **dict.fromkeys(RECURRENT_CELLS, "regard.models.recurrent_translator:RecurrentTranslator"),
        "transformer": "regard.models.transformer_translator:TransformerTranslator",
    }

    def check(self) -> None:
        super().check()
        if self.score in STEP_SCORES and self.attention in MONOTONIC_KINDS:
            raise ArgumentError(f"score {self.score!r} sees all annotations; attention is {self.attention!r}")
        if (
            self.score == "coverage"
            and self.attention == "luong"
            and (not self.input_feeding or self.scope != "global")
        ):
            raise ArgumentError("score 'coverage' with attention 'luong' needs input_feeding and scope 'global'")


@dataclass(frozen=True, kw_only=True)
class PointerConfig(TransformerOptions, TextToTextConfig):
    """The configuration of a `RecurrentPointerGenerator` or a `TransformerPointerGenerator`.

    Raises:
        UnknownNameError: a name that the field does not know.
        ArgumentError: a number is out of its range, or fields contradict each other.

    Example:
        >>> from regard import models
        >>> config = models.PointerConfig(5000, 5000, hidden=128, coverage=True)
        >>> config.copy, config.score, config.coverage_weight
        (True, 'additive', 1.0)
    """

    attention: Literal["bahdanau", "luong"] = option("bahdanau", architecture=RECURRENT_CELLS)
    """Attention of the decoder: bahdanau (before the cell) or luong (after it)."""
    score: Literal["additive", "concat", "cosine", "dot", "general", "scaled_dot"] = varies(
        "additive", luong="general", transformer="scaled_dot"
    )
    """Score of the attention: additive (= concat), cosine, dot, scaled_dot or general; lstm and gru with coverage:
    additive."""
    embedding: int = option(128, within=SIZE, architecture=RECURRENT_CELLS)
    hidden: int = option(256, within=SIZE)
    encoder_layers: int = varies(1, transformer=4, within=LAYERS)
    decoder_layers: int = varies(1, transformer=4, within=LAYERS)
    dropout: float = option(0.1, within=RATE)
    tied: Literal["none", "target", "all"] = "all"
    """Embeddings that share their weights: none, target (with the output matrix) or all."""
    copy: bool = True
    """Words of the article can be copied (See et al. 2017)."""
    coverage: bool = False
    """The loss counts attention to tokens that were attended to before; the score of lstm and gru sees it too."""
    coverage_weight: float = option(1.0, within=Range(0, 1e6), coverage=True)
    """Weight of the coverage loss, λ of See et al. 2017, eq. 13."""
    unk: int = from_data(3, low=0)
    """Token for words out of the vocabulary."""

    # Constants for options of a plain translator; only softmax gives each word a weight above 0.
    normalizer: ClassVar[Any] = "softmax"
    scope: ClassVar[str] = "global"
    window, max_source, hard_estimator, entropy_weight, chunk_width = 10, 0, "reinforce", 0.0, 1
    of_self_attention: ClassVar[tuple[str, ...]] = ("kv_heads", "position", "score")
    models: ClassVar[dict[str, str]] = {
        **dict.fromkeys(RECURRENT_CELLS, "regard.models.pointer_generator:RecurrentPointerGenerator"),
        "transformer": "regard.models.pointer_generator:TransformerPointerGenerator",
    }

    def __post_init__(self) -> None:
        if self.coverage and self.score is None and self.architecture in RECURRENT_CELLS:
            fill(self, score="additive")
        super().__post_init__()

    def check(self) -> None:
        super().check()
        if self.source_vocabulary != self.target_vocabulary:
            raise ArgumentError(
                f"copying needs one vocabulary for both sides; source_vocabulary is {self.source_vocabulary}, "
                f"target_vocabulary is {self.target_vocabulary}"
            )
        if self.coverage and self.architecture in RECURRENT_CELLS:
            if self.score not in ("additive", "concat"):
                raise ArgumentError(f"score must be 'additive' with coverage, a part of it; it is {self.score!r}")
            if self.attention == "luong" and not self.input_feeding:
                raise ArgumentError("coverage with attention 'luong' needs input_feeding")


@dataclass(frozen=True)
class LanguageModelConfig(TransformerOptions):
    """The configuration of a `LanguageModel`.

    Raises:
        UnknownNameError: a name that the field does not know.
        ArgumentError: a number is out of its range, or fields contradict each other.

    Example:
        >>> from regard import models
        >>> config = models.LanguageModelConfig(5000, context=128, hidden=192, layers=4)
        >>> config.heads, config.position
        (6, 'rotary')
        >>> models.LanguageModelConfig(5000, hidden=200)
        Traceback (most recent call last):
            ...
        regard.errors.ArgumentError: heads must divide hidden, 200; it is 6
    """

    vocabulary: int = from_data()
    """Tokens."""
    _: KW_ONLY
    context: int = option(256, within=Range(1, COUNT.high))
    """Tokens of a window: the longest text that the model reads at once."""
    hidden: int = option(384, within=SIZE)
    """Features of a token."""
    layers: int = option(6, within=LAYERS)
    """Layers of the Transformer."""
    heads: int = option(6, within=HEADS)
    position: Position = varies(
        "rotary",
        linear="sinusoidal",
        compressed="none",
        **dict.fromkeys(("retention", "gated_linear", "delta", "gated_delta", "kimi_delta", "mamba2"), "none"),
    )
    activation: Literal["relu", "gelu", "silu"] = "gelu"
    score: Literal["additive", "concat", "cosine", "distance", "dot", "general", "mlp", "scaled_dot"] = "scaled_dot"
    """Score of the attention: additive (= concat), cosine, distance, dot, general, mlp or scaled_dot."""
    normalizer: Normalizer = "softmax"
    """Normalizer of the attention weights: softmax, sparsemax, entmax15 or sigmoid."""
    dropout: float = option(0.1, within=RATE)
    """Dropout rate, 0 to below 1."""
    tied: Literal["none", "target"] = "target"
    """Embeddings that share their weights: none, or target (with the output matrix)."""

    architecture: ClassVar[str] = "transformer"
    bidirectional: ClassVar[bool] = False
    of_self_attention: ClassVar[tuple[str, ...]] = ("kv_heads", "position", "score", "normalizer")
    models: ClassVar[dict[str, str]] = {"transformer": "regard.models.language_model:LanguageModel"}


@dataclass(frozen=True, kw_only=True)
class PoolingConfig(Configuration):
    """The pooling of annotations to one vector."""

    pooling: Literal["attention", "mean", "max"] = "attention"
    """Pooling of the annotations to one vector: attention (with a learned query), mean or max."""
    pooling_heads: int = option(1, within=HEADS, pooling="attention")
    """Learned queries."""
    score: Literal["additive", "concat", "cosine", "distance", "dot", "general", "mlp", "scaled_dot"] = option(
        "additive", pooling="attention"
    )
    """Score of the attention: additive, concat, cosine, distance, dot, general, mlp or scaled_dot."""
    normalizer: Normalizer = option("softmax", pooling="attention")
    """Normalizer of the attention weights: softmax, sparsemax, entmax15 or sigmoid."""


ENCODED_KINDS = (*RECURRENT_CELLS, "transformer", "hierarchical")


@dataclass(frozen=True)
class TextClassifierConfig(PoolingConfig, TransformerOptions):
    """The configuration of a `TextClassifier`.

    Raises:
        UnknownNameError: a name that the field does not know.
        ArgumentError: a number is out of its range, or fields contradict each other.

    Example:
        >>> from regard import models
        >>> config = models.TextClassifierConfig(5000, labels=2, hidden=64, pooling_heads=4)
        >>> config.architecture, config.pooling, config.score
        ('lstm', 'attention', 'additive')
    """

    vocabulary: int = from_data()
    """Tokens."""
    labels: int = from_data()
    """Labels."""
    _: KW_ONLY
    architecture: Literal["none", "lstm", "gru", "transformer", "hierarchical"] = "lstm"
    """Architecture: none (pooling of the embeddings), lstm, gru (both bidirectional), transformer or hierarchical
    (gru and attention over the words of each sentence, then over the sentences)."""
    embedding: int = option(128, within=SIZE, architecture=("none", *RECURRENT_CELLS, "hierarchical"))
    """Features of an embedded token; a transformer has ``hidden`` features everywhere."""
    hidden: int = option(256, within=SIZE, architecture=ENCODED_KINDS)
    """Features of an annotation; even for lstm, gru and hierarchical."""
    layers: int = option(1, within=LAYERS, architecture=ENCODED_KINDS)
    """Layers of the encoder; hierarchical: of each of the two."""
    longest_sentence: int = option(50, within=Range(1, COUNT.high), architecture="hierarchical")
    """Tokens of the longest sentence; a longer one is read as several."""
    heads: int = option(4, within=HEADS, architecture="transformer")
    pooling: Literal["attention", "mean", "max", "cls"] = "attention"  # pyright: ignore[reportIncompatibleVariableOverride]
    """Pooling of the annotations to one vector: attention (with a learned query), mean, max or cls (transformer: a
    layer with tanh on the output of a class token)."""
    embedding_norm: bool = option(False, architecture="transformer")
    """Layer normalization of the embedded tokens with their positions."""
    window: int = option(0, within=COUNT, architecture="transformer")
    """Tokens on each side that are attended to, in memory linear in the length; 0: all tokens."""
    global_tokens: int = option(0, within=COUNT, architecture="transformer")
    """With ``window``: so many first tokens of the text are seen by all tokens."""
    dropout: float = option(0.5, within=RATE)
    """Dropout rate, 0 to below 1."""
    word_dropout: float = option(0.1, within=RATE)
    """Probability that a token becomes an unknown one in training, 0 to below 1."""
    max_length: int = from_data(512)
    """Position ``learned``: the longest text, in tokens."""
    unknown: int = from_data(3, low=0)
    """Token that stands for unknown words."""
    sentence_ends: str = from_data("", low=None)
    """Architecture ``hierarchical``: the tokens that end a sentence, with spaces between them."""

    models: ClassVar[dict[str, str]] = dict.fromkeys(
        ("none", *ENCODED_KINDS), "regard.models.text_classifier:TextClassifier"
    )

    def check(self) -> None:
        super().check()
        check_even(self)
        if self.vocabulary is not None and self.unknown >= self.vocabulary:
            raise ArgumentError(f"unknown must be a token; it is {self.unknown}")
        ends = self.sentence_ends.split()
        if not all(end.isdecimal() and len(end) < 10 and int(end) < (self.vocabulary or 0) for end in ends):
            raise ArgumentError(f"sentence_ends must be tokens with spaces between them; it is {ends[:9]}")
        if self.architecture == "hierarchical" and (self.pooling, self.pooling_heads) != ("attention", 1):
            raise ArgumentError("architecture 'hierarchical' pools by attention with one head: leave pooling out")
        if self.global_tokens and not self.window:
            raise ArgumentError("global_tokens needs window; without, every token is seen by all tokens")
        if self.pooling == "cls" and self.architecture != "transformer":
            raise ArgumentError(
                f"pooling 'cls' has no meaning with architecture {self.architecture!r}, only with 'transformer'"
            )
        if self.pooling == "cls" and self.window:
            raise ArgumentError("pooling 'cls' needs a class token that sees all tokens; leave window out")

    @property
    def ends(self) -> tuple[int, ...]:
        """The tokens that end a sentence."""
        return tuple(map(int, self.sentence_ends.split()))

    @property
    def annotation_dim(self) -> int:
        """Features of an annotation."""
        return self.embedding if self.architecture == "none" else self.hidden

    @property
    def leading(self) -> int:
        """Tokens that the model reads before those of the text: 1 with a class token, otherwise 0."""
        return int(self.pooling == "cls")
