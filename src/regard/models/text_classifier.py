"""A text classifier: an encoder makes annotations of the tokens, pooling makes one vector, a linear layer the label."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard import masks
from regard.errors import ArgumentError, UnknownNameError
from regard.masks import Mask
from regard.models.encoders import RecurrentEncoder
from regard.models.token_input import POSITIONS, TokenInput, relative_position
from regard.models.translator import token_embedding
from regard.nn import AttentionPooling, LayerConfig, TransformerEncoder
from regard.transforms import exportable

ENCODERS = ("none", "lstm", "gru", "transformer")
POOLINGS = ("attention", "mean", "max")


@dataclass(frozen=True)
class TextClassifierConfig:
    """The configuration of a `TextClassifier`."""

    vocabulary: int
    """Tokens."""
    labels: int
    """Labels."""
    encoder: str = "lstm"
    """``none`` (the embeddings are the annotations), ``lstm``, ``gru`` (both bidirectional) or ``transformer``."""
    embedding_dim: int = 128
    """Features of an embedded token; for a Transformer they are ``hidden_dim``."""
    hidden_dim: int = 256
    """Features of an annotation of an encoder."""
    layers: int = 1
    """Layers of the encoder."""
    heads: int = 4
    """Transformer: heads; a divisor of ``hidden_dim``."""
    feedforward: int = 0
    """Transformer: units of the hidden layer of the feedforward networks; 0: four times ``hidden_dim``."""
    position: str = "sinusoidal"
    """Transformer: one of `regard.models.token_input.POSITIONS`."""
    max_length: int = 512
    """Position ``learned``: the longest text, in tokens."""
    window: int = 0
    """Transformer: each token sees so many tokens on each side, besides the global ones; 0: all tokens."""
    global_tokens: int = 0
    """Transformer with a window: so many first tokens are seen by all tokens."""
    feedforward_chunk: int = 0
    """Transformer: rows that the feedforward networks treat at a time; 0: all."""
    activation_checkpointing: bool = False
    """Transformer: activation checkpointing; see `regard.nn.LayerConfig`."""
    pooling: str = "attention"
    """``attention`` (Yang et al. 2016), ``mean`` or ``max``."""
    pooling_heads: int = 1
    """Attention pooling: learned queries."""
    score: str = "additive"
    """Attention pooling: a name of `regard.nn.attention_pooling.POOLING_SCORES`."""
    normalizer: str = "softmax"
    """Attention pooling: the name of a normalizer."""
    dropout: float = 0.5
    """Rate on embeddings, annotations and the pooled vector; in [0, 1)."""
    word_dropout: float = 0.0
    """Probability that a token is replaced by ``unknown`` while training; in [0, 1)."""
    unknown: int = 3
    """Token that stands for unknown words."""

    def __post_init__(self) -> None:
        for name, known in (("encoder", ENCODERS), ("position", POSITIONS), ("pooling", POOLINGS)):
            if getattr(self, name) not in known:
                raise UnknownNameError(name, getattr(self, name), known)
        for name in ("vocabulary", "labels", "embedding_dim", "hidden_dim", "layers", "heads", "max_length",
                     "pooling_heads"):  # fmt: skip
            if getattr(self, name) < 1:
                raise ArgumentError(f"{name} must be at least 1; it is {getattr(self, name)}")
        for name in ("feedforward", "window", "global_tokens"):
            if getattr(self, name) < 0:
                raise ArgumentError(f"{name} must be at least 0; it is {getattr(self, name)}")
        for name in ("dropout", "word_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ArgumentError(f"{name} must be in [0, 1); it is {getattr(self, name)}")
        if not 0 <= self.unknown < self.vocabulary:
            raise ArgumentError(f"unknown must be a token; it is {self.unknown}")
        if self.window and self.encoder != "transformer":
            raise ArgumentError(f"window is for the encoder 'transformer'; encoder is {self.encoder!r}")
        if self.global_tokens and not self.window:
            raise ArgumentError("global_tokens need a window: without, every token is seen by all tokens")
        if self.encoder == "transformer":
            self.layer  # noqa: B018 (checks the sizes of the layers)

    @property
    def layer(self) -> LayerConfig:
        """How the layers of a Transformer are made."""
        return LayerConfig(
            dim=self.hidden_dim,
            heads=self.heads,
            feedforward=self.feedforward or 4 * self.hidden_dim,
            dropout=self.dropout,
            norm_first=True,
            position=relative_position(self.position),
            feedforward_chunk=self.feedforward_chunk,
            activation_checkpointing=self.activation_checkpointing,
        )

    @property
    def annotation_dim(self) -> int:
        """Features of an annotation."""
        return self.embedding_dim if self.encoder == "none" else self.hidden_dim


@exportable
class Classified(NamedTuple):
    """The output of a `TextClassifier`.

    Attributes:
        logits: ``[batch, labels]``, float32 or float64.
        weights: weights of the attention pooling ``[batch, heads, length]``; None unless they were requested, and
            for other poolings.
    """

    logits: Tensor
    weights: Tensor | None


class TextClassifier(nn.Module):
    """Tells the label of a text.

    ::

        annotations = encoder(tokens)
        logits      = W pool(annotations) + b

    With a recurrent encoder and attention pooling it is the word level of Yang et al. 2016, section 2.2. A Transformer
    with a ``window`` sees, from each token, the tokens around it and the first ones of the text
    (``masks.window(w, w) | masks.prefix(g)``; Beltagy et al. 2020, section 3.1), in memory linear in the length.

    Args:
        config: the configuration.
    """

    def __init__(self, config: TextClassifierConfig):
        super().__init__()
        self.config = config
        transformer = config.encoder == "transformer"
        embedding = token_embedding(config.vocabulary, config.hidden_dim if transformer else config.embedding_dim)
        self.input: nn.Embedding | TokenInput | None = None
        self.encoder: RecurrentEncoder | TransformerEncoder | None = None
        if config.encoder == "none":
            self.input = embedding
        elif transformer:
            self.input = TokenInput(embedding, config.position, config.max_length, config.dropout)
            self.encoder = TransformerEncoder.create(config.layers, config.layer)
        else:
            self.encoder = RecurrentEncoder(embedding, config.hidden_dim, config.layers, config.encoder, config.dropout)
        dim = config.annotation_dim
        self.pooling: AttentionPooling | None = None
        if config.pooling == "attention":
            self.pooling = AttentionPooling(dim, config.pooling_heads, score=config.score, normalizer=config.normalizer)
            dim *= config.pooling_heads
        self.dropout = nn.Dropout(config.dropout)
        self.output = nn.Linear(dim, config.labels)
        nn.init.normal_(self.output.weight, std=1 / math.sqrt(dim))
        nn.init.zeros_(self.output.bias)

    @property
    def attends(self) -> bool:
        """Whether there are attention weights to read."""
        return self.pooling is not None

    def forward(self, tokens: Tensor, lengths: Tensor, *, need_weights: bool = False) -> Classified:
        """The labels of a batch of texts.

        Args:
            tokens: ``int64 [batch, length]``, the values of padding tokens do not matter.
            lengths: ``int64 [batch]``, tokens of each text; a text of none gives the same logits as any other such.
            need_weights: whether to give the weights; the logits are the same, bit for bit.
        """
        if self.training and self.config.word_dropout:
            dropped = torch.rand(tokens.shape, device=tokens.device) < self.config.word_dropout
            tokens = tokens.masked_fill(dropped, self.config.unknown)
        annotations = self.annotations(tokens, lengths)
        weights = None
        if self.pooling is not None:
            pooled, weights = self.pooling(annotations, lengths, need_weights=need_weights)
        else:
            pooled = pool(annotations, lengths, self.config.pooling)
        logits = self.output(self.dropout(pooled))
        return Classified(logits if logits.dtype == torch.float64 else logits.float(), weights)

    def annotations(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """``[batch, length, annotation_dim]``: what the encoder makes of each token."""
        if not tokens.shape[1]:  # a recurrent kernel needs a step
            return self.output.weight.new_zeros(*tokens.shape, self.config.annotation_dim)
        if isinstance(self.encoder, RecurrentEncoder):
            return self.encoder(tokens, lengths).annotations
        assert self.input is not None
        embedded = self.input(tokens)
        if self.encoder is None:
            return self.dropout(embedded)
        return self.encoder(embedded, lengths=lengths, mask=self.mask)

    @property
    def mask(self) -> Mask | None:
        """Which tokens each token of a Transformer sees; None: all."""
        config = self.config
        if not config.window:
            return None
        around = masks.window(config.window, config.window)
        return around | masks.prefix(config.global_tokens) if config.global_tokens else around


def pool(annotations: Tensor, lengths: Tensor, kind: str) -> Tensor:
    """Mean or maximum over the annotations of each sequence, ``[batch, dim]``; 0 for a sequence of none.

    Args:
        annotations: ``[batch, length, dim]``.
        lengths: ``int64 [batch]``.
        kind: ``"mean"`` or ``"max"``.
    """
    present = torch.arange(annotations.shape[1], device=lengths.device) < lengths[:, None]
    if kind == "mean":
        total = annotations.masked_fill(~present[..., None], 0).sum(1)
        return total / lengths.clamp(min=1)[:, None]
    if not annotations.shape[1]:
        return annotations.sum(1)
    highest = annotations.masked_fill(~present[..., None], -math.inf).amax(1)
    return highest.masked_fill((lengths == 0)[:, None], 0)
