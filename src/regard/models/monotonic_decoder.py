"""The decoder whose attention goes over its source once (Raffel et al. 2017; Chiu & Raffel 2018)."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from regard.models.encoders import Encoded
from regard.models.recurrent_decoder import Decoded, DecoderState, Readout, RecurrentDecoder
from regard.nn import MonotonicAttention, MonotonicMemory


@dataclass(frozen=True)
class MonotonicState(DecoderState):
    """The state of a `MonotonicDecoder` for a batch of rows.

    Attributes:
        stops: ``[batch, source]``: where the step before stopped; None before the first step.
    """

    stops: Tensor | None = None

    def reordered(self, index: Tensor) -> "MonotonicState":
        state = DecoderState.reordered(self, index)
        assert isinstance(state, MonotonicState)
        return replace(state, stops=None if self.stops is None else self.stops[index])


class MonotonicDecoder(RecurrentDecoder):
    """A recurrent decoder whose attention never goes back.

    .. math::

        c_t, stops_t = attention(s_{t−1}, annotations, stops_{t−1})
        s_t = cell([y_{t−1}; c_t], s_{t−1})
        readout = tanh or maxout of W [s_t; y_{t−1}; c_t]

    It is the `BahdanauDecoder` with the attention of Raffel et al. 2017, section 2.2, or of Chiu & Raffel 2018, section
    2.4: in training each step sees the expected context, in evaluation that of one stop.

    Args:
        embedding: target tokens → ``[..., embedding_dim]``.
        output: ``embedding_dim`` → logits over the vocabulary.
        attention: queries of ``hidden_dim``, keys and values of ``annotation_dim`` features.
        annotation_dim: features of an annotation.
        summary_dim: features of the encoder's summary.
        hidden_dim: features of each layer's state.
        layers: number of layers.
        cell: ``"lstm"`` or ``"gru"``.
        readout: ``"tanh"`` or ``"maxout"``.
        dropout: rate on embeddings, between layers and on the readout.

    Raises:
        UnknownNameError: an unknown cell or readout.

    Example:
        >>> import torch
        >>> from regard import models, nn
        >>> embedding, output = torch.nn.Embedding(50, 8), torch.nn.Linear(8, 50)
        >>> attention = nn.MonotonicAttention.create("additive", query_dim=16, key_dim=6)
        >>> decoder = models.MonotonicDecoder(embedding, output, attention, 6, summary_dim=6, hidden_dim=16)
        >>> encoded = models.Encoded(torch.rand(1, 5, 6), torch.tensor([5]), torch.rand(1, 6))
        >>> weights = decoder(torch.tensor([[1, 7, 9]]), decoder.start(encoded)).weights
        >>> weights.shape, bool((weights.cumsum(-1).diff(dim=1) <= 0).all())  # each step is at or behind the one before
        (torch.Size([1, 3, 5]), True)
    """

    def __init__(
        self,
        embedding: nn.Embedding,
        output: nn.Linear,
        attention: MonotonicAttention,
        annotation_dim: int,
        summary_dim: int,
        hidden_dim: int,
        layers: int = 1,
        cell: str = "lstm",
        readout: str = "tanh",
        dropout: float = 0.0,
    ):
        super().__init__(embedding, output, annotation_dim, summary_dim, hidden_dim, layers, cell, dropout)
        self.attention = attention
        embedding_dim = embedding.embedding_dim
        self.readout = Readout((hidden_dim, embedding_dim, annotation_dim), embedding_dim, readout)

    def start(self, encoded: Encoded) -> MonotonicState:
        state = super().start(encoded)
        return MonotonicState(state.recurrent, state.memory, state.lengths)

    def remember(self, encoded: Encoded) -> MonotonicMemory:
        return self.attention.remember(encoded.annotations, encoded.lengths)

    def decode(self, tokens: Tensor, state: DecoderState) -> Decoded:
        assert isinstance(state, MonotonicState)
        assert isinstance(state.memory, MonotonicMemory)
        embedded = self.dropout(self.embedding(tokens))
        recurrent, stops = state.recurrent, state.stops
        hidden = recurrent[0][-1]
        outputs, contexts, weights = [], [], []
        for token in embedded.unbind(1):
            context, weight, stops = self.attention(hidden, state.memory, stops=stops)
            hidden, recurrent = self.recurrence.step(torch.cat([token, context.to(token.dtype)], -1), recurrent)
            outputs.append(hidden)
            contexts.append(context)
            weights.append(weight)
        context = torch.stack(contexts, dim=1).to(embedded.dtype)
        readout = self.readout(torch.stack(outputs, dim=1).to(embedded.dtype), embedded, context)
        after = replace(state, recurrent=recurrent, position=state.position + tokens.shape[1], stops=stops)
        return Decoded(self.dropout(readout), after, torch.stack(weights, dim=1))
