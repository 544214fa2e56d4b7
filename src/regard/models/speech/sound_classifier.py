"""A classifier of sounds: an encoder of sounds, and attention pooling of its annotations."""

import math
from dataclasses import dataclass

from torch import Tensor, nn

from regard.errors import ArgumentError, UnknownNameError
from regard.models.speech.encoders import SpeechEncoder, SpeechEncoderConfig
from regard.models.text_classifier import POOLINGS, Classified, pool
from regard.nn import AttentionPooling


@dataclass(frozen=True, kw_only=True)
class SoundClassifierConfig(SpeechEncoderConfig):
    """The configuration of a `SoundClassifier`."""

    labels: int
    """Different labels."""
    pooling: str = "attention"
    """``attention``, ``mean`` or ``max``."""
    pooling_heads: int = 1
    """Attention pooling: learned queries."""
    score: str = "additive"
    """Attention pooling: a name of `regard.nn.attention_pooling.POOLING_SCORES`."""
    normalizer: str = "softmax"
    """Attention pooling: the name of a normalizer."""

    def __post_init__(self) -> None:
        SpeechEncoderConfig.__post_init__(self)  # the class of `super()` is another one in a dataclass with slots
        for name in ("labels", "pooling_heads"):
            if getattr(self, name) < 1:
                raise ArgumentError(f"{name} must be at least 1; it is {getattr(self, name)}")
        if self.pooling not in POOLINGS:
            raise UnknownNameError("pooling", self.pooling, POOLINGS)


class SoundClassifier(nn.Module):
    """Tells the label of a sound.

    ::

        annotations = encoder(features)
        logits      = W pool(annotations) + b

    Args:
        config: the configuration.
    """

    def __init__(self, config: SoundClassifierConfig):
        super().__init__()
        self.config = config
        self.encoder = SpeechEncoder(config)
        dim = config.hidden_dim
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

    def forward(self, features: Tensor, lengths: Tensor, *, need_weights: bool = False) -> Classified:
        """The labels of a batch of sounds.

        Args:
            features: ``[batch, frames, width]``; what stands after the end of a sound has no effect.
            lengths: ``int64 [batch]``, frames of each sound.
            need_weights: whether to give the weights ``[batch, heads, annotations]``; the logits are the same, bit for
                bit.
        """
        encoded = self.encoder(features, lengths)
        weights = None
        if self.pooling is not None:
            pooled, weights = self.pooling(encoded.annotations, encoded.lengths, need_weights=need_weights)
        else:
            pooled = pool(encoded.annotations, encoded.lengths, self.config.pooling)
        return Classified(self.output(self.dropout(pooled)).float(), weights)
