"""The decoder of Chorowski et al. 2015: attention that sees where it was at the step before."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from regard.errors import ArgumentError, UnknownNameError
from regard.models.encoders import Encoded
from regard.models.recurrent_decoder import Decoded, DecoderState, Readout, RecurrentDecoder
from regard.nn import Attention, Memory
from regard.normalizers import Normalizer, as_normalizer
from regard.scores import LocationAware
from regard.tracing.transforms import exact_dtype

FOCUSES = ("softmax", "smoothing", "sparsemax", "entmax15")


@dataclass(frozen=True)
class ListeningState(DecoderState):
    """The state of a `LocationDecoder` for a batch of rows.

    Attributes:
        weights: ``[batch, annotations]``: the weights of the step before; None before the first step.
    """

    weights: Tensor | None = None

    def reordered(self, index: Tensor) -> "ListeningState":
        state = DecoderState.reordered(self, index)
        assert isinstance(state, ListeningState)
        return replace(state, weights=None if self.weights is None else self.weights[index])


def smoothed(scores: Tensor) -> Tensor:
    """Weights that spread over several keys: logistic functions instead of exponentials.

    .. math::

        α_j = σ(e_j) / Σ_k σ(e_k)

    Chorowski et al. 2015, section 2.3, "smooth focus". Computed by logarithms, so that large negative scores of a whole
    row do not give 0 / 0.

    Args:
        scores: ``[..., keys]``; −inf gives weight 0.
    """
    return torch.softmax(torch.nn.functional.logsigmoid(scores), dim=-1)


def focus(name: str) -> Normalizer:
    """The normalizer of a decoder's attention, by its name in `FOCUSES`."""
    if name not in FOCUSES:
        raise UnknownNameError("normalizer", name, FOCUSES)
    return as_normalizer(smoothed if name == "smoothing" else name)


def window_around(weights: Tensor, half_width: int) -> Tensor:
    """Which annotations a step may attend to: those near the median of the weights of the step before.

    .. math::

        p = min(j : Σ_{k ≤ j} α_k ≥ ½ Σ_k α_k),    p − w ≤ j ≤ p + w

    Chorowski et al. 2015, section 2.3, windowing.

    Args:
        weights: ``[batch, annotations]``, of the step before.
        half_width: w, in annotations.

    Returns:
        bool ``[batch, annotations]``; True: may be attended to.
    """
    if half_width < 0:
        raise ArgumentError(f"half_width must be at least 0; it is {half_width}")
    total = weights.to(exact_dtype(weights.device)).cumsum(-1)
    median = (total < 0.5 * total[..., -1:]).sum(-1, keepdim=True)
    position = torch.arange(weights.shape[-1], device=weights.device)
    return (position - median).abs() <= half_width


class LocationDecoder(RecurrentDecoder):
    """A recurrent decoder whose attention sees the weights of the step before.

    .. math::

        α_t, c_t = attention(s_{t−1}, α_{t−1}, annotations)
        s_t = cell([y_{t−1}; c_t], s_{t−1})
        readout = tanh(W [s_t; y_{t−1}; c_t])

    Chorowski et al. 2015, eq. 5 to 9: their g_t is our c_t. α_0 is 0.

    Args:
        embedding: target tokens → ``[..., embedding_dim]``.
        output: ``embedding_dim`` → logits over the vocabulary.
        attention: with a `regard.scores.LocationAware` score, or any other, which then sees no weights.
        annotation_dim: features of an annotation.
        summary_dim: features of the encoder's summary.
        hidden_dim: features of each layer's state.
        layers: number of layers.
        dropout: rate on embeddings, between layers and on the readout.

    Attributes:
        window: half-width of the window around the median of the weights of the step before, in annotations; None:
            all annotations are attended to. The first step has no window. It may be set at any time.
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
        dropout: float = 0.0,
    ):
        super().__init__(embedding, output, annotation_dim, summary_dim, hidden_dim, layers, "lstm", dropout)
        self.attention = attention
        self.located = isinstance(attention.score, LocationAware)
        self.window: int | None = None
        embedding_dim = embedding.embedding_dim
        self.readout = Readout((hidden_dim, embedding_dim, annotation_dim), embedding_dim)

    def start(self, encoded: Encoded) -> ListeningState:
        state = super().start(encoded)
        return ListeningState(state.recurrent, state.memory, state.lengths)

    def remember(self, encoded: Encoded) -> Memory:
        return self.attention.remember(encoded.annotations, encoded.lengths)

    def decode(self, tokens: Tensor, state: DecoderState) -> Decoded:
        assert isinstance(state, ListeningState)
        assert state.memory is not None
        embedded = self.dropout(self.embedding(tokens))
        recurrent, weight = state.recurrent, state.weights
        hidden = recurrent[0][-1]
        outputs, contexts, weights = [], [], []
        for token in embedded.unbind(1):
            mask = None
            if self.window is not None and weight is not None:
                mask = window_around(weight, self.window)
            context, weight = self.attention(
                hidden, state.memory, mask=mask, previous_weights=weight if self.located else None
            )
            hidden, recurrent = self.recurrence.step(torch.cat([token, context.to(token.dtype)], -1), recurrent)
            outputs.append(hidden)
            contexts.append(context)
            weights.append(weight)
        context = torch.stack(contexts, dim=1).to(embedded.dtype)
        readout = self.readout(torch.stack(outputs, dim=1).to(embedded.dtype), embedded, context)
        after = replace(state, recurrent=recurrent, position=state.position + tokens.shape[1], weights=weight)
        return Decoded(self.dropout(readout), after, torch.stack(weights, dim=1))
