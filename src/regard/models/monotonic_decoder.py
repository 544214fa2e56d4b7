"""The decoder whose attention goes over its source once (Raffel et al. 2017; Chiu & Raffel 2018)."""

from dataclasses import replace

from torch import Tensor

from regard.models.recurrent_decoder import AttendedStep, ContextDecoder, DecoderState
from regard.nn import EarlierWeights


class MonotonicDecoder(ContextDecoder):
    """A recurrent decoder whose attention never goes back.

    .. math::

        c_t, stops_t = attention(s_{t−1}, annotations, stops_{t−1})
        s_t = cell([y_{t−1}; c_t], s_{t−1})
        readout = tanh or maxout of W [s_t; y_{t−1}; c_t]

    It is the `BahdanauDecoder` with the attention of Raffel et al. 2017, section 2.2, or of Chiu & Raffel 2018, section
    2.4: in training each step sees the expected context, in evaluation that of one stop.

    Args:
        embedding, output, summary_dim, hidden_dim, layers, cell, dropout: as for `RecurrentDecoder`.
        attention: a `regard.nn.MonotonicAttention` with queries of ``hidden_dim``, keys and values of
            ``annotation_dim`` features.
        annotation_dim: features of an annotation.
        readout: ``"tanh"`` or ``"maxout"``.
        gated: whether the context is multiplied by ``β_t = σ(f · s_{t−1} + b)``.

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

    def attend(self, hidden: Tensor, token: Tensor, state: DecoderState) -> AttendedStep:
        stops = None if state.earlier is None else state.earlier.previous
        context, weights, stops = self.attention(hidden, state.memory, stops=stops)
        return AttendedStep(context, weights, replace(state, earlier=EarlierWeights(stops)))
