"""The decoder of Bahdanau et al. 2015: attention before the cell; soft, or hard as in Xu et al. 2015."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import ArgumentError
from regard.models.encoders import Encoded
from regard.models.hard_attention import Choices, ChosenKey, HardChoice
from regard.models.recurrent_decoder import Decoded, DecoderState, Readout, RecurrentDecoder
from regard.nn import Attended, Attention, EarlierWeights, Memory, MonotonicAttention
from regard.tracing.transforms import exact_dtype


class BahdanauDecoder(RecurrentDecoder):
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
        attention: queries of ``hidden_dim``, keys and values of ``annotation_dim`` features. If it `sees_earlier`
            weights, the state carries them from step to step: location-aware scores (Chorowski et al. 2015, eq. 5 to
            9, whose g_t is our c_t), coverage, dynamic convolution, stepwise, forward and monotonic attention.
        annotation_dim: features of an annotation.
        readout: ``"tanh"`` or ``"maxout"``.
        choice: hard attention; None: soft attention, the context is the weighted mean of the annotations.
        gated: whether the context is multiplied by ``β_t = σ(f · s_{t−1} + b)``, one number for each step, which says
            how much the next word depends on the annotations at all (Xu et al. 2015, §4.2.1).
        query_token: whether the query is ``[s_{t−1}; y_{t−1}]``: the state before a step has not read the last word
            yet, so without it the attention cannot depend on it. The attention then has queries of ``hidden_dim +
            embedding_dim`` features.

    Attributes:
        window: half-width of the window around the median of the weights of the step before, in annotations, for soft
            attention; None: all annotations are attended to. The first step has no window. It may be set at any time.

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
        attention: Attention | MonotonicAttention,
        annotation_dim: int,
        summary_dim: int,
        hidden_dim: int,
        layers: int = 1,
        cell: str = "lstm",
        readout: str = "tanh",
        dropout: float = 0.0,
        choice: HardChoice | None = None,
        *,
        gated: bool = False,
        query_token: bool = False,
    ):
        super().__init__(embedding, output, annotation_dim, summary_dim, hidden_dim, layers, cell, dropout)
        self.attention: Any = attention
        self.gate = nn.Linear(hidden_dim, 1) if gated else None
        embedding_dim = embedding.embedding_dim
        self.readout = Readout((hidden_dim, embedding_dim, annotation_dim), embedding_dim, readout)
        self.choice, self.query_token = choice, query_token
        self.window: int | None = None

    def remember(self, encoded: Encoded) -> Memory:
        return self.attention.remember(encoded.annotations, encoded.lengths)

    def decode(self, tokens: Tensor, state: DecoderState) -> Decoded:
        embedded = self.dropout(self.embedding(tokens))
        hidden, position = state.recurrent[0][-1], state.position + tokens.shape[1]
        gate, outputs, contexts, weights, choices = self.gate, [], [], [], []
        for token in embedded.unbind(1):
            (context, step_weights), earlier, choice = self._attend(hidden, token, state)
            if gate is not None:
                context = context * gate(hidden).sigmoid().to(context.dtype)
            inputs = torch.cat([token, context.to(token.dtype)], -1)
            hidden, recurrent = self.recurrence.step(inputs, state.recurrent)
            state = replace(state, recurrent=recurrent, earlier=earlier)
            outputs.append(hidden)
            contexts.append(context)
            weights.append(step_weights)
            choices += [] if choice is None else [choice]
        context = torch.stack(contexts, dim=1).to(embedded.dtype)
        readout = self.readout(torch.stack(outputs, dim=1).to(embedded.dtype), embedded, context)
        state = replace(state, position=position)
        return Decoded(self.dropout(readout), state, torch.stack(weights, dim=1), Choices.of_steps(choices))

    def _attend(
        self, hidden: Tensor, token: Tensor, state: DecoderState
    ) -> tuple[Attended, EarlierWeights | None, ChosenKey | None]:
        """Attends to the annotations before a step, with the state of the top layer and the embedded token before the
        predicted one. Returns context and weights, what the next step sees of them, and the choice of REINFORCE in
        training."""
        attention, memory, earlier, choice = self.attention, state.memory, state.earlier, None
        assert memory is not None
        query = torch.cat([hidden.to(token.dtype), token], -1) if self.query_token else hidden
        options: dict[str, Any] = {"earlier": earlier} if attention.sees_earlier else {}
        if self.window is not None and earlier is not None:
            options["mask"] = window_around(earlier.previous, self.window)
        attended = attention(query, memory, **options)
        if self.choice is not None:
            choice = self.choice(attended.weights)
            context = (choice.weights[:, None].to(memory.value.dtype) @ memory.value)[:, 0]
            attended = Attended(context, choice.weights)
            choice = choice if self.choice.estimator == "reinforce" else None
        if attention.sees_earlier or self.window is not None:
            earlier = attention.following(query, memory, attended, earlier)
        return Attended(*attended[:2]), earlier, choice


def window_around(weights: Tensor, half_width: int) -> Tensor:
    """Returns which annotations a step may attend to, bool ``[batch, annotations]``: those near the median of the
    weights α of the step before, ``p − w ≤ j ≤ p + w`` with ``p = min(j : Σ_{k ≤ j} α_k ≥ ½ Σ_k α_k)`` and w =
    ``half_width`` (Chorowski et al. 2015, section 2.3, windowing)."""
    if half_width < 0:
        raise ArgumentError(f"half_width must be at least 0; it is {half_width}")
    total = weights.to(exact_dtype(weights.device)).cumsum(-1)
    median = (total < 0.5 * total[..., -1:]).sum(-1, keepdim=True)
    position = torch.arange(weights.shape[-1], device=weights.device)
    return (position - median).abs() <= half_width
