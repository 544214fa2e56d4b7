"""The state, the readout and the base classes of recurrent decoders, and the decoder without attention."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.errors import ArgumentError, UnknownNameError
from regard.models.encoders import Encoded
from regard.models.hard_attention import Choices
from regard.models.recurrence import Recurrence, State
from regard.names.missing_names import hinted
from regard.nn import EarlierWeights, Memory
from regard.summaries import summarized
from regard.tracing.module_calls import Module

READOUTS = ("tanh", "maxout")


@hinted
@summarized
@dataclass(frozen=True)
class DecoderState:
    """The state of a recurrent decoder for a batch of rows.

    ``recurrent`` tensors are ``[layers, batch, hidden_dim]``; ``memory`` are the prepared annotations, None without
    attention; ``position`` counts the tokens decoded so far, the same for all rows; ``fed`` is the last attentional
    vector ``[batch, embedding_dim]``, for input feeding; ``earlier`` are the weights of the steps so far, or the stops
    of a monotonic attention, for a decoder whose attention depends on them.
    """

    recurrent: State
    memory: Memory | None
    lengths: Tensor
    position: int = 0
    fed: Tensor | None = None
    earlier: EarlierWeights | None = None

    def select(self, index: Tensor) -> "DecoderState":
        """Returns the rows ``index [rows]`` of this state, in that order; a row may occur several times."""
        memory = None if self.memory is None else self.memory.select(index)
        return replace(self.reordered(index), memory=memory, lengths=self.lengths[index])

    def reordered(self, index: Tensor) -> "DecoderState":
        """Selects rows that have the source of the row that each replaces, so that the memory is not copied."""
        fed = None if self.fed is None else self.fed[index]
        earlier = None if self.earlier is None else self.earlier.select(index)
        recurrent = tuple(tensor[:, index] for tensor in self.recurrent)
        return replace(self, recurrent=recurrent, fed=fed, earlier=earlier)


@summarized
class Decoded(NamedTuple):
    """The result of some decoder steps: the readout ``[batch, steps, embedding_dim]``, which is the input of the output
    matrix; the state after the last step; attention weights ``[batch, steps, source]``, or None without attention; and
    the choices of hard attention by REINFORCE in training."""

    readout: Tensor
    state: DecoderState
    weights: Tensor | None = None
    choices: Choices | None = None


class SearchStep(NamedTuple):
    """The result of one search step: log-probabilities of the next token, float32 ``[rows, vocabulary]``, the decoder's
    state after the step, and attention weights ``[rows, source]``, or None without attention."""

    log_probabilities: Tensor
    state: Any
    weights: Tensor | None


class Readout(Module):
    """One hidden layer over several inputs: ``tanh(W [x; y; …] + b)``, or maxout (Goodfellow et al. 2013) over pairs of
    such sums, the maximum of each.

    With state, embedded token and context as inputs and maxout it is the deep output of Bahdanau et al. 2015, A.2.2
    (their ``t̃ = U s + V E y + C c`` and ``t``; we add a bias). With state and context and tanh it is the attentional
    vector ``h̃`` of Luong et al. 2015, eq. 5.
    """

    def __init__(self, input_dims: tuple[int, ...], output_dim: int, kind: str = "tanh"):
        super().__init__()
        if kind not in READOUTS:
            raise UnknownNameError("readout", kind, READOUTS)
        self.kind = kind
        self.linear = nn.Linear(sum(input_dims), output_dim * (2 if kind == "maxout" else 1))

    def forward(self, *inputs: Tensor) -> Tensor:
        """Maps inputs ``[..., input_dim]`` with equal leading axes to ``[..., output_dim]``."""
        features = self.linear(torch.cat(inputs, dim=-1))
        if self.kind == "tanh":
            return features.tanh()
        first, second = features.chunk(2, dim=-1)
        return torch.maximum(first, second)


class RecurrentDecoder(Module, ABC):
    """A recurrent network that predicts a sentence token by token; the base of all recurrent decoders.

    `BahdanauDecoder` attends before each step of the recurrence, `LuongDecoder` after it,
    `BottleneckDecoder` never.

    Args:
        embedding: target tokens → ``[..., embedding_dim]``.
        output: ``embedding_dim`` → logits over the vocabulary.
        fed_dim: features of each step's input besides the embedded token (a context, an attentional vector), or 0.
        summary_dim: features of the encoder's summary, from which the first state is computed.
        hidden_dim: features of each layer's state.
        layers: number of layers.
        cell: ``"lstm"`` or ``"gru"``.
        dropout: rate on embeddings, between layers and on the readout.

    Raises:
        UnknownNameError: an unknown cell.

    Example:
        >>> import torch
        >>> from regard import models
        >>> translator = models.RecurrentTranslator(models.TranslatorConfig(100, 50, hidden=16, embedding=8))
        >>> decoder = translator.decoder
        >>> type(decoder).__name__, isinstance(decoder, models.RecurrentDecoder)
        ('BahdanauDecoder', True)
        >>> state = decoder.start(translator.encode(torch.tensor([[3, 4, 5]]), torch.tensor([3])))
        >>> step = decoder.step(torch.tensor([1]), state)
        >>> step.log_probabilities.shape, step.weights.shape, step.state.position
        (torch.Size([1, 50]), torch.Size([1, 3]), 1)
    """

    def __init__(
        self,
        embedding: nn.Embedding,
        output: nn.Linear,
        fed_dim: int,
        summary_dim: int,
        hidden_dim: int,
        layers: int = 1,
        cell: str = "lstm",
        dropout: float = 0.0,
    ):
        super().__init__()
        self.embedding = embedding
        self.output = output
        self.recurrence = Recurrence(cell, embedding.embedding_dim + fed_dim, hidden_dim, layers, dropout)
        self.bridge = nn.Linear(summary_dim, layers * self.recurrence.states * hidden_dim)
        self.dropout = nn.Dropout(dropout)

    def start(self, encoded: Encoded) -> DecoderState:
        """Returns the state before the first token, ``tanh(W summary)`` of each layer (Bahdanau et al. 2015, A.2.2)."""
        if encoded.summary is None:
            raise ArgumentError("a recurrent decoder needs an encoder with a summary; this one has none")
        first = self.bridge(encoded.summary).tanh()
        parts = first.unflatten(-1, (self.recurrence.layers, self.recurrence.states, -1))  # batch layers states dim
        recurrent = parts.permute(2, 1, 0, 3).contiguous().unbind()
        return DecoderState(recurrent, self.remember(encoded), encoded.lengths)

    @abstractmethod
    def remember(self, encoded: Encoded) -> Memory | None:
        """Prepares the annotations for the attention of all steps; returns None without attention."""

    @abstractmethod
    def decode(self, tokens: Tensor, state: DecoderState) -> Decoded:
        """Runs all steps for known tokens (teacher forcing).

        Args:
            tokens: ``int64 [batch, steps]``; each is the token before the predicted one.
            state: the state before the first step.
        """

    def forward(self, tokens: Tensor, state: DecoderState) -> Decoded:
        """Calls `decode`."""
        return self.decode(tokens, state)

    def step(self, tokens: Tensor, state: DecoderState) -> SearchStep:
        """Runs one search step.

        Args:
            tokens: ``int64 [rows]``, the last token of each row.
            state: the state before the step.
        """
        decoded = self(tokens[:, None], state)
        logits = self.output(decoded.readout[:, 0]).float()
        weights = None if decoded.weights is None else decoded.weights[:, 0]
        return SearchStep(torch.log_softmax(logits, dim=-1), decoded.state, weights)

    def decode_sampling(self, tokens: Tensor, state: DecoderState, probability: float) -> Decoded:
        """Decodes with scheduled sampling (Bengio et al. 2015, §2.4).

        Each token after the first is replaced with this probability by the most likely token of the previous step. No
        gradient passes through that choice.
        """
        steps = []
        inputs = tokens[:, 0]
        for time in range(tokens.shape[1]):
            steps.append(self(inputs[:, None], state))
            state = steps[-1].state
            if time + 1 < tokens.shape[1]:
                with torch.no_grad():
                    predicted = self.output(steps[-1].readout[:, 0]).argmax(-1)
                replaced = torch.rand(len(predicted), device=predicted.device) < probability
                inputs = torch.where(replaced, predicted, tokens[:, time + 1])
        weights = [step.weights for step in steps if step.weights is not None]
        choices = [step.choices for step in steps if step.choices is not None]
        return Decoded(
            readout=torch.cat([step.readout for step in steps], dim=1),
            state=state,
            weights=torch.cat(weights, dim=1) if weights else None,
            choices=Choices(*(torch.cat(parts, dim=1) for parts in zip(*choices, strict=True))) if choices else None,
        )


class BottleneckDecoder(RecurrentDecoder):
    """A decoder without attention: only its first state depends on the source (Cho et al. 2014; Sutskever et al. 2014).

    It is the baseline for the decoders with attention. All inputs are known, so one call runs all steps.

    Args:
        embedding, output, summary_dim, hidden_dim, layers, cell, dropout: as for `RecurrentDecoder`.
        readout: ``"tanh"`` or ``"maxout"``, over state and embedded token.

    Raises:
        UnknownNameError: an unknown cell or readout.

    Example:
        >>> import torch
        >>> from regard import models
        >>> embedding, output = torch.nn.Embedding(50, 8), torch.nn.Linear(8, 50)
        >>> decoder = models.BottleneckDecoder(embedding, output, summary_dim=6, hidden_dim=16)
        >>> state = decoder.start(models.Encoded(torch.rand(2, 5, 6), torch.tensor([5, 3]), torch.rand(2, 6)))
        >>> decoded = decoder(torch.tensor([[1, 7, 9], [1, 4, 4]]), state)
        >>> output(decoded.readout).shape, decoded.weights
        (torch.Size([2, 3, 50]), None)
    """

    def __init__(
        self,
        embedding: nn.Embedding,
        output: nn.Linear,
        summary_dim: int,
        hidden_dim: int,
        layers: int = 1,
        cell: str = "lstm",
        readout: str = "tanh",
        dropout: float = 0.0,
    ):
        super().__init__(embedding, output, 0, summary_dim, hidden_dim, layers, cell, dropout)
        self.readout = Readout((hidden_dim, embedding.embedding_dim), embedding.embedding_dim, readout)

    def remember(self, encoded: Encoded) -> None:
        return None

    def decode(self, tokens: Tensor, state: DecoderState) -> Decoded:
        embedded = self.dropout(self.embedding(tokens))
        hidden, recurrent = self.recurrence(embedded, state.recurrent)
        readout = self.dropout(self.readout(hidden, embedded))
        return Decoded(readout, replace(state, recurrent=recurrent, position=state.position + tokens.shape[1]))
