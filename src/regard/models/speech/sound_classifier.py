"""A classifier of sounds: an encoder of sounds, and attention pooling of its annotations."""

import math

from torch import Tensor, nn

from regard.models.speech.configs import SoundClassifierConfig
from regard.models.speech.encoders import SpeechEncoder
from regard.models.text_classifier import Classified, pool
from regard.nn import AttentionPooling
from regard.tracing.module_calls import Module


class SoundClassifier(Module):
    """Predicts the label of a sound.

    .. math::

        annotations = encoder(features)
        logits = W pool(annotations) + b

    Args:
        config: the configuration.
    """

    def __init__(self, config: SoundClassifierConfig):
        super().__init__()
        self.config = config = config.complete()
        self.encoder = SpeechEncoder(config)
        dim = config.hidden
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
        """Classifies a batch of sounds.

        Args:
            features: ``[batch, frames, width]``; padding has no effect.
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
