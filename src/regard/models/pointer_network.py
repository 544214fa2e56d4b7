"""Pointer networks: the attention weights are the answer, positions of the input (Vinyals et al. 2015)."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from regard.configuration import LAYERS, SIZE, Configuration, from_data, option
from regard.errors import ArgumentError, ShapeError
from regard.models.encoders import Encoded
from regard.models.recurrence import Recurrence, State, initialize_forget_bias, run_sequences
from regard.models.search import Hypothesis, beam, greedy
from regard.models.text_predictor import Loss
from regard.names.missing_names import hinted
from regard.nn import Attention, Memory
from regard.shapes.checks import check_floating, check_integers
from regard.summaries import summarized
from regard.tracing.module_calls import Module
from regard.tracing.transforms import can_read

END_TOKEN, BEGIN_TOKEN, FIRST_POSITION = 0, 1, 2
"""Tokens of a search: the end of the answer, its beginning, and the first position of the input."""


@dataclass(frozen=True)
class PointerNetworkConfig(Configuration):
    """The configuration of a `PointerNetwork`.

    Raises:
        ArgumentError: a number is out of its range.

    Example:
        >>> from regard import models
        >>> models.PointerNetworkConfig(features=2, hidden=32).layers
        1
    """

    features: int = from_data()
    """Features of an element of the input."""
    _: KW_ONLY
    hidden: int = option(128, within=SIZE)
    """Features of a state of the encoder and of the decoder."""
    layers: int = option(1, within=LAYERS)
    """Layers of the encoder, and as many of the decoder."""
    once: bool = False
    """Whether the answer names each position once at most, as a tour does; the others have probability 0."""

    models: ClassVar[dict[str, str]] = {"": "regard.models.pointer_network:PointerNetwork"}


@hinted
@dataclass(frozen=True)
class PointingState:
    """The state of a `PointerNetwork` for a batch of rows: that of the decoder's layers; the memory, annotations as
    keys and embedded elements as values, both with those of the end first; and ``named``, bool ``[batch, 1 + length]``,
    where the answer has pointed already."""

    recurrent: State
    memory: Memory
    named: Tensor

    def select(self, index: Tensor) -> "PointingState":
        """Returns the rows ``index [rows]``, in that order."""
        return replace(self.reordered(index), memory=self.memory.select(index))

    def reordered(self, index: Tensor) -> "PointingState":
        """Selects rows that have the input of the row that each replaces."""
        return replace(self, recurrent=tuple(one[:, index] for one in self.recurrent), named=self.named[index])


@summarized
class Pointed(NamedTuple):
    """The prediction of known answers.

    Attributes:
        log_probabilities: ``[batch, steps + 1, 1 + length]``, at least float32: of the end, then of each position; −inf
            for padding.
        weights: their exponentials, the attention weights.

    Example:
        >>> import torch
        >>> from regard import models
        >>> model = models.PointerNetwork(models.PointerNetworkConfig(features=2, hidden=8))
        >>> pointed = model(torch.rand(3, 5, 2), torch.tensor([5, 4, 3]), torch.tensor([[0, 1], [1, 0], [2, 2]]))
        >>> pointed.weights.shape, pointed.weights.sum(-1).allclose(torch.ones(3, 3))
        (torch.Size([3, 3, 6]), True)
    """

    log_probabilities: Tensor
    weights: Tensor


class PointerNetwork(Module):
    """Answers with positions of its input: each step points to an element, or to the end.

    .. math::

        e_j = encoder(x_1 … x_n)_j,    d_i = decoder(x_{C_{i−1}}, d_{i−1})
        u_{ij} = v · tanh(W₁ e_j + W₂ d_i)
        p(C_i | C_1 … C_{i−1}, x) = softmax(u_i)

    Vinyals, Fortunato & Jaitly 2015, "Pointer Networks", section 2.3, with the attention of equation 3. Encoder and
    decoder are LSTMs; the decoder begins in the last state of the encoder. The end is one more element, learned, that
    stands before the others (their symbol ⇐). A search runs on the model as on any decoder: token 0 is the end, and
    token j + 2 the position j.

    Args:
        config: the configuration.

    Raises:
        ArgumentError: the number of features is missing.

    Example:
        >>> import torch
        >>> from regard import models
        >>> model = models.PointerNetwork(models.PointerNetworkConfig(features=1, hidden=8, once=True))
        >>> numbers, lengths = torch.rand(2, 4, 1), torch.tensor([4, 3])
        >>> numbers[1, 3] = 1.0  # padding, which sorts last
        >>> loss = model.loss(numbers, lengths, numbers[..., 0].argsort(1), lengths)  # for sorting
        >>> loss.tokens  # the end counts
        tensor(9)
        >>> answers = model.point(numbers, lengths, width=3)
        >>> all(len(set(best.tokens)) == len(best.tokens) for best in answers)
        True
    """

    def __init__(self, config: PointerNetworkConfig):
        super().__init__()
        self.config = config = config.complete()
        hidden, layers = config.hidden, config.layers
        self.input = nn.Linear(config.features, hidden)
        self.encoder = nn.LSTM(hidden, hidden, layers, batch_first=True)
        initialize_forget_bias(self.encoder)
        self.decoder = Recurrence("lstm", hidden, hidden, layers)
        self.attention = Attention.create("additive", hidden, hidden, hidden)
        self.end = nn.Parameter(torch.randn(2, hidden) / hidden**0.5)
        self.begin = nn.Parameter(torch.randn(hidden) / hidden**0.5)

    def encode(self, inputs: Tensor, lengths: Tensor) -> Encoded:
        """Computes the annotations of ``inputs [batch, length, features]`` with ``lengths [batch]``.

        Returns:
            Annotations ``[batch, 1 + length, 2 · hidden]``: the encoder's outputs beside the embedded elements, those
            of the end first; the summary is the encoder's last state.

        Raises:
            ShapeError, KindError: bad input; the message names the argument.
            ArgumentError: a length is above that of the inputs.
        """
        check_floating("inputs", inputs)
        if inputs.dim() != 3 or inputs.shape[-1] != self.config.features:
            raise ShapeError(
                f"inputs must be [batch, length, {self.config.features}]; they have shape {list(inputs.shape)}"
            )
        _check_lengths("lengths", lengths, *inputs.shape[:2])
        # What padding holds, even NaN, reaches no gradient of the layer.
        padding = torch.arange(inputs.shape[1], device=inputs.device) >= lengths[:, None]
        embedded = self.input(inputs.masked_fill(padding[..., None], 0.0))
        outputs, last = run_sequences(self.encoder, embedded, lengths)
        end = self.end.flatten().expand(len(inputs), 1, -1)
        annotations = torch.cat([end, torch.cat([outputs, embedded], dim=-1)], dim=1)
        summary = torch.stack(last).permute(2, 1, 0, 3).flatten(1)  # batch, layers · 2 · hidden
        return Encoded(annotations, lengths + 1, summary)

    def start(self, encoded: Encoded) -> PointingState:
        """Returns the state before the first step."""
        assert encoded.summary is not None
        keys, elements = encoded.annotations.chunk(2, dim=-1)
        memory = self.attention.remember(keys, encoded.lengths, value=elements)
        parts = encoded.summary.unflatten(-1, (self.config.layers, 2, -1)).permute(2, 1, 0, 3)
        named = torch.zeros(keys.shape[:2], dtype=torch.bool, device=keys.device)
        return PointingState(parts.contiguous().unbind(), memory, named)

    def step(self, tokens: Tensor, state: PointingState) -> tuple[Tensor, PointingState, Tensor]:
        """Runs one search step: the last tokens ``[rows]`` → log-probabilities of the next token, state, weights."""
        pointed, state = self._decode(tokens[:, None], state)
        logs = pointed.log_probabilities[:, 0].float()
        never = torch.full_like(logs[:, :1], -torch.inf)
        return torch.cat([logs[:, :1], never, logs[:, 1:]], dim=1), state, pointed.weights[:, 0]

    def forward(self, inputs: Tensor, lengths: Tensor, target: Tensor) -> Pointed:
        """Predicts each position of known answers from the input and the positions before it.

        Args:
            inputs: ``[batch, length, features]``.
            lengths: integers ``[batch]``, elements of each input.
            target: int64 ``[batch, steps]``, positions from 0; after the end of an answer any of them, or −1.

        Raises:
            ShapeError, KindError: bad input; the message names the argument.
            ArgumentError: a length or a position is out of its range.
        """
        self._check_target(inputs, target)
        tokens = torch.cat([target.new_full((len(target), 1), BEGIN_TOKEN), target + FIRST_POSITION], dim=1)
        return self._decode(tokens, self.start(self.encode(inputs, lengths)))[0]

    def loss(self, inputs: Tensor, lengths: Tensor, target: Tensor, target_lengths: Tensor) -> Loss:
        """Computes the mean −log p of the positions of answers and of their ends.

        Args:
            inputs, lengths: as in `forward`.
            target: int64 ``[batch, steps]``, positions from 0; padding has no effect.
            target_lengths: integers ``[batch]``, positions of each answer.

        Raises:
            ShapeError, KindError: bad input; the message names the argument.
            ArgumentError: a length is out of its range, or an answer names a position that its input does not have, or
                one twice although ``once`` is set. Values on a device are not checked.
        """
        self._check_target(inputs, target, lengths, target_lengths)
        step = torch.arange(target.shape[1] + 1, device=target.device)
        target = target.masked_fill(step[:-1] >= target_lengths[:, None], -1)
        logs = self(inputs, lengths, target).log_probabilities
        labels = torch.cat([target + 1, torch.zeros_like(target[:, :1])], dim=1)
        labels = labels.masked_fill(step >= target_lengths[:, None], END_TOKEN)
        counts = step <= target_lengths[:, None]
        nll = -logs.gather(-1, labels[..., None])[..., 0].masked_fill(~counts, 0.0).sum()
        tokens = counts.sum()
        mean = nll / tokens.clamp(min=1)
        return Loss(mean, mean.detach(), tokens)

    @torch.no_grad()
    def point(
        self, inputs: Tensor, lengths: Tensor, *, width: int = 1, max_length: int | Sequence[int] | None = None
    ) -> list[Hypothesis]:
        """Returns the best answer of a search for each input.

        Args:
            inputs, lengths: as in `forward`.
            width: beam width; 1: greedy search.
            max_length: largest number of positions of an answer, of all or of each; None: as many as the input has.

        Returns:
            Hypotheses, whose ``tokens`` are positions from 0, and whose ``weights`` are those of the end and of each
            position.
        """
        longest = lengths.tolist() if max_length is None else max_length
        limits: dict[str, Any] = {"bos": BEGIN_TOKEN, "eos": END_TOKEN, "max_length": longest}
        encoded = self.encode(inputs, lengths)
        if width == 1:
            answers = greedy(self, encoded, **limits)
        else:
            answers = beam(self, encoded, width=width, length_penalty=0.0, **limits)
        return [replace(best, tokens=[token - FIRST_POSITION for token in best.tokens]) for best in answers]

    def _check_target(
        self, inputs: Tensor, target: Tensor, lengths: Tensor | None = None, target_lengths: Tensor | None = None
    ) -> None:
        """Raises an error unless positions are those of inputs; with lengths, unless they are the answers of a loss."""
        check_floating("inputs", inputs)
        check_integers("target", target)
        if target.dim() != 2 or len(target) != len(inputs):
            raise ShapeError(
                f"target must be [batch, steps] with {len(inputs)} rows; it has shape {list(target.shape)}"
            )
        if lengths is not None and target_lengths is not None:
            _check_lengths("lengths", lengths, *inputs.shape[:2])
            _check_lengths("target_lengths", target_lengths, *target.shape)
            if not can_read(target, lengths, target_lengths):
                return
            ends, first = lengths.tolist(), 0
            answers = [row[:end] for row, end in zip(target.tolist(), target_lengths.tolist(), strict=True)]
        elif can_read(target):
            ends, answers, first = [inputs.shape[1]] * len(target), target.tolist(), -1
        else:
            return
        for row, (answer, end) in enumerate(zip(answers, ends, strict=True)):
            if answer and not (first <= min(answer) and max(answer) < end):
                raise ArgumentError(
                    f"target[{row}] must hold positions of its input, 0..{end - 1}; its answer is {answer}"
                )
            if first == 0 and self.config.once and len(set(answer)) < len(answer):
                raise ArgumentError(
                    f"target[{row}] must name each position once, as once=True says; its answer is {answer}"
                )

    def _decode(self, tokens: Tensor, state: PointingState) -> tuple[Pointed, PointingState]:
        """Runs some steps, each after one of ``tokens [batch, steps]``."""
        memory = state.memory
        index = (tokens - 1).clamp(min=0)  # 0: the end, or the beginning, which is no element
        elements = memory.value[torch.arange(len(tokens), device=tokens.device)[:, None], index]
        begins = (tokens == BEGIN_TOKEN)[..., None]
        # The memory is float32 where the model has half precision.
        elements = torch.where(begins, self.begin, elements.to(self.begin.dtype))
        hidden, recurrent = self.decoder(elements, state.recurrent)
        pointed = torch.zeros(*tokens.shape, memory.key.shape[1], dtype=torch.bool, device=tokens.device)
        pointed = pointed.scatter(2, index[..., None], tokens[..., None] >= FIRST_POSITION)
        named = state.named[:, None] | (pointed.cumsum(1) > 0)
        weights = self.attention(hidden, memory, mask=~named if self.config.once else None).weights
        assert weights is not None
        logs = weights.clamp(min=torch.finfo(weights.dtype).tiny).log()
        hidden_keys = named if self.config.once else torch.zeros_like(named)
        if memory.mask is not None:
            hidden_keys = hidden_keys | ~memory.mask[:, None]
        return Pointed(logs.masked_fill(hidden_keys, -torch.inf), weights), PointingState(
            recurrent, memory, named[:, -1]
        )


def _check_lengths(name: str, lengths: Tensor, batch: int, limit: int) -> None:
    """Raises an error unless there is one length for each row, which is in 0..limit if it can be read."""
    check_integers(name, lengths)
    if list(lengths.shape) != [batch]:
        raise ShapeError(f"{name} must be [batch] = [{batch}]; it has shape {list(lengths.shape)}")
    if can_read(lengths) and bool(((lengths < 0) | (lengths > limit)).any()):
        raise ArgumentError(f"{name} must be in 0..{limit}; they are {lengths.tolist()}")
