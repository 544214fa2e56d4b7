"""The decoder of Bahdanau et al. 2015: attention before the cell; soft, or hard as in Xu et al. 2015."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from regard.models.hard_attention import HardChoice
from regard.models.recurrent_decoder import AttendedStep, ContextDecoder, DecoderState
from regard.nn import Attended, Attention


class BahdanauDecoder(ContextDecoder):
    """A recurrent decoder that attends before each step: the query is its state, the context an input of the cell.

    .. math::

        c_t = attention(s_{t−1}, annotations)
        s_t = cell([y_{t−1}; c_t], s_{t−1})
        readout = tanh or maxout of W [s_t; y_{t−1}; c_t]

    Bahdanau et al. 2015, §3.1 and A.2.2. The readout has the new state, as in their eq. 4; their A.2.2 has s_{t−1} in
    its place. With several layers, the state of the top layer is the query, and the context is an input of the bottom
    layer.

    Args:
        embedding, output, summary_dim, hidden_dim, layers, cell, dropout: as for `RecurrentDecoder`.
        attention: queries of ``hidden_dim``, keys and values of ``annotation_dim`` features.
        annotation_dim: features of an annotation.
        readout: ``"tanh"`` or ``"maxout"``.
        choice: hard attention; None: soft attention, the context is the weighted mean of the annotations.
        gated: whether the context is multiplied by ``β_t = σ(f · s_{t−1} + b)``, one number for each step, which says
            how much the next word depends on the annotations at all (Xu et al. 2015, §4.2.1).
        query_token: whether the query is ``[s_{t−1}; y_{t−1}]``: the state before a step has not read the last word
            yet, so without it the attention cannot depend on it. The attention then has queries of ``hidden_dim +
            embedding_dim`` features.

    Raises:
        UnknownNameError: an unknown cell or readout.

    Example:
        >>> import torch
        >>> from regard import models, nn
        >>> embedding, output = torch.nn.Embedding(50, 8), torch.nn.Linear(8, 50)
        >>> attention = nn.Attention.create("additive", query_dim=16, key_dim=6)
        >>> decoder = models.BahdanauDecoder(embedding, output, attention, 6, summary_dim=6, hidden_dim=16, cell="gru")
        >>> state = decoder.start(models.Encoded(torch.rand(2, 5, 6), torch.tensor([5, 3]), torch.rand(2, 6)))
        >>> decoded = decoder(torch.tensor([[1, 7, 9], [1, 4, 4]]), state)
        >>> decoded.readout.shape, decoded.weights.shape
        (torch.Size([2, 3, 8]), torch.Size([2, 3, 5]))
        >>> decoded.weights[1].sum(0) > 0  # the second row has three annotations
        tensor([ True,  True,  True, False, False])
    """

    def __init__(
        self,
        embedding: nn.Embedding,
        output: nn.Linear,
        attention: Attention,
        annotation_dim: int,
        summary_dim: int,
        hidden_dim: int,
        layers: int = 1,
        cell: str = "lstm",
        readout: str = "tanh",
        dropout: float = 0.0,
        choice: HardChoice | None = None,
        gated: bool = False,
        query_token: bool = False,
    ):
        super().__init__(
            embedding, output, attention, annotation_dim, summary_dim, hidden_dim, layers, cell, readout, dropout, gated
        )
        self.choice, self.query_token = choice, query_token

    def attend(self, hidden: Tensor, token: Tensor, state: DecoderState) -> AttendedStep:
        memory = state.memory
        assert memory is not None
        query = torch.cat([hidden.to(token.dtype), token], -1) if self.query_token else hidden
        context, weights = self.attention(query, memory, earlier=state.earlier)
        choice = None
        if self.choice is not None:
            choice = self.choice(weights)
            weights = choice.weights
            context = (weights[:, None].to(memory.value.dtype) @ memory.value)[:, 0]
            choice = choice if self.choice.estimator == "reinforce" else None
        if self.attention.sees_earlier:
            attended = Attended(context, weights)
            state = replace(state, earlier=self.attention.following(query, memory, attended, state.earlier))
        return AttendedStep(context, weights, state, choice)
