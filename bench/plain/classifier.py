"""The text classifier in plain PyTorch: `torch.nn.LSTM`, eager attention pooling, a linear layer.

It is what a user writes without regard: the same layers, parameters and losses, from modules and functions of PyTorch
alone. `PlainClassifier.like` copies the parameters of our model, so that the losses of both can be compared.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from bench.plain.parameters import with_parameters_of
from regard.models.text_classifier import TextClassifier, TextClassifierConfig


class PlainClassifier(nn.Module):
    """A bidirectional LSTM of one layer, and additive attention pooling with one learned query (Yang et al. 2016).

    Args:
        config: sizes and dropout of the model.
    """

    def __init__(self, config: TextClassifierConfig):
        super().__init__()
        D = config.hidden
        self.embedding = nn.Embedding(config.vocabulary, config.embedding)
        self.encoder = nn.LSTM(config.embedding, D // 2, batch_first=True, bidirectional=True)
        self.key = nn.Linear(D, D)  # its bias is the learned query
        self.energy = nn.Linear(D, 1, bias=False)
        self.output = nn.Linear(D, config.labels)
        self.dropout = nn.Dropout(config.dropout)

    @classmethod
    def like(cls, model: TextClassifier) -> "PlainClassifier":
        """A plain classifier with the configuration and a copy of the parameters of ours."""
        names = {
            "embedding.weight": "encoder.embedding.weight",
            "key.weight": "pooling.score.key_projection.weight",
            "key.bias": "pooling.query",
            "energy.weight": "pooling.score.weight",
        }
        return with_parameters_of(
            model, cls(model.config), lambda name: names.get(name, name.replace("encoder.", "encoder.rnn."))
        )

    def loss(self, tokens: Tensor, lengths: Tensor, labels: Tensor) -> Tensor:
        """The mean cross-entropy of a batch: ``[batch, length]``, ``[batch]``, ``[batch]``."""
        embedded = self.dropout(self.embedding(tokens))
        packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)
        annotations, _ = pad_packed_sequence(self.encoder(packed)[0], batch_first=True, total_length=tokens.shape[1])
        annotations = self.dropout(annotations)
        scores = self.energy(self.key(annotations).tanh()).squeeze(-1)
        padding = torch.arange(tokens.shape[1]) >= lengths[:, None]
        weights = scores.masked_fill(padding, -torch.inf).softmax(-1)
        pooled = (weights[:, None] @ annotations)[:, 0]
        return F.cross_entropy(self.output(self.dropout(pooled)), labels)
