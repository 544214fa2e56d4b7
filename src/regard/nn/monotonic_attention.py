"""Monotonic and chunkwise attention of decoders: expected while they train, hard and in linear time while they decode.

Raffel et al. 2017, and Chiu & Raffel 2018.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from regard.attention.verbs import BackendName
from regard.distributed.sequence_parts import refuse_parts
from regard.errors import ArgumentError, KindError, ShapeError
from regard.nn.attention import Attention
from regard.nn.earlier_weights import EarlierWeights
from regard.nn.fx_leaf import fx_leaf
from regard.nn.memory import Memory
from regard.normalizers import Chunkwise, Monotonic
from regard.scores import (
    MLP,
    Additive,
    AnyScoreName,
    Cosine,
    Distance,
    Dot,
    Features,
    General,
    RandomFeatures,
    ScaledDot,
    Score,
    Scoring,
    SoftCap,
    Trilinear,
    create,
)
from regard.shapes.checks import check_floating, finite_number, size, type_text
from regard.summaries import summarized
from regard.tracing.module_calls import Module
from regard.tracing.transforms import can_read

BLOCK_KEYS = 16
"""Keys that a decoder scores at a time while it looks for the one to stop at."""

VECTOR_SCORES = (Additive, Cosine, Distance, Dot, General, MLP, ScaledDot, Trilinear)
"""Scores that read a query and a key, and no position, so that a part of the keys has the scores that it has in all."""


@summarized
@dataclass(frozen=True)
class MonotonicMemory(Memory):
    """The memory of a `MonotonicAttention`: the keys at which it stops, and those of the chunks.

    Attributes:
        key, value, score, mask, cached: as in `Memory`, prepared by the score that decides where to stop.
        chunk: the same annotations, prepared by the score of the chunks; None without chunks.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> attention = nn.MonotonicAttention.create("additive", query_dim=4, key_dim=6, width=2)
        >>> memory = attention.remember(torch.randn(2, 5, 6), torch.tensor([5, 3]))
        >>> memory.select(torch.tensor([1, 1, 0])).chunk.lengths
        tensor([3, 3, 5])
    """

    chunk: Memory | None = None

    def select(self, index: Tensor) -> "MonotonicMemory":
        selected = super().select(index)
        assert isinstance(selected, MonotonicMemory)
        return selected if self.chunk is None else replace(selected, chunk=self.chunk.select(index))


@summarized
class Stopped(NamedTuple):
    """The output of `MonotonicAttention`.

    Attributes:
        output: ``[batch, value_dim]``, or ``[batch, queries, value_dim]``.
        weights: those that mixed it, ``[batch, keys]`` or ``[batch, queries, keys]``.
        stops: where the last query stopped, ``[batch, keys]``: probabilities in training, otherwise 1 at one key at
            most; the next call begins there.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> attention = nn.MonotonicAttention.create("additive", query_dim=4, key_dim=6)
        >>> stopped = attention(torch.zeros(2, 4), attention.remember(torch.ones(2, 5, 6)))
        >>> stopped.output.shape, stopped.weights.shape
        (torch.Size([2, 6]), torch.Size([2, 5]))
    """

    output: Tensor
    weights: Tensor
    stops: Tensor


@fx_leaf
class MonotonicAttention(Module):
    """Attention of a decoder that goes over a memory once, from its first key to its last one.

    .. math::

        stops = monotonic(score(query, annotation_j) + r)
        weights = stops    if width = 1
        weights = chunkwise(chunk score(query, annotation_j))    otherwise
        output = Σ_j weights_j annotation_j

    Raffel et al. 2017, "Online and Linear-Time Attention by Enforcing Monotonic Alignments", section 2, and Chiu &
    Raffel 2018, "Monotonic Chunkwise Attention", section 2: their h_j is our annotation, s_{i−1} our query, e our
    score, u our chunk score; the two normalizers are `regard.normalizers.Monotonic` and
    `regard.normalizers.Chunkwise`. While the module trains, stops are probabilities, so that every score receives a
    gradient, and noise teaches them to be near 0 or 1. While it does not, it stops at the first key with probability
    above 1/2. One step of a decoder on a CPU then scores no key after that one but those of its block of 16, so that a
    whole output costs a number of scores linear in keys and steps. Several queries at once, devices, and scores that
    read positions (`regard.scores.Modified`, `regard.scores.Location`) or may do so (functions) score all keys.

    Args:
        score: a `Score`, a name, or a function of ``(query, key)``: decides where to stop.
        chunk_score: the same, for the weights of a chunk; needed with ``width`` above 1, and only there.
        width: w, keys of a chunk; 1: the weights are the stops.
        bias: the initial r; below 0, so that the first queries pass over more than the first keys.
        noise: standard deviation of the noise that is added to the scores in training.
        backend: ``auto``, or one by name, which runs or raises.

    Raises:
        KindError: the bias is no number.
        ArgumentError: the width is below 1, a number is not finite, or there is no chunk score or one too many.
        UnknownNameError: no score or backend has this name.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> attention = nn.MonotonicAttention("dot", bias=0.0).eval()
        >>> memory = attention.remember(torch.tensor([[[1.0, -1.0], [-1.0, -1.0], [-1.0, 1.0]]]))
        >>> first = attention(torch.tensor([[1.0, 0.0]]), memory)
        >>> second = attention(torch.tensor([[0.0, 1.0]]), memory, earlier=nn.EarlierWeights(first.stops))
        >>> first.weights, second.weights
        (tensor([[1., 0., 0.]]), tensor([[0., 0., 1.]]))
        >>> earlier = nn.EarlierWeights(second.stops)
        >>> attention(torch.tensor([[1.0, 0.0]]), memory, earlier=earlier).weights  # it never goes back
        tensor([[0., 0., 0.]])
    """

    sees_earlier: ClassVar[tuple[str, ...]] = ("previous",)

    def __init__(
        self,
        score: Scoring,
        chunk_score: Scoring | None = None,
        *,
        width: int = 1,
        bias: float = -1.0,
        noise: float = 1.0,
        backend: BackendName = "auto",
    ):
        super().__init__()
        self.width = size("width", width)
        if chunk_score is None and self.width > 1:
            raise ArgumentError(
                f"width={width} needs a chunk_score: write MonotonicAttention(score, chunk_score, width={width})"
            )
        if chunk_score is not None and self.width == 1:
            raise ArgumentError(
                "chunk_score weighs the keys of a chunk, and width=1 has none: write width=2 or more, or leave it out"
            )
        self.monotonic = Monotonic(bias=nn.Parameter(torch.tensor(finite_number("bias", bias))), noise=noise)
        self.attention = Attention(score, backend=backend)
        self.chunk = None if chunk_score is None else Attention(chunk_score, backend=backend)

    @classmethod
    def create(
        cls,
        score: AnyScoreName,
        query_dim: int,
        key_dim: int,
        dim: int | None = None,
        *,
        width: int = 1,
        bias: float = -1.0,
        noise: float = 1.0,
        backend: BackendName = "auto",
    ) -> "MonotonicAttention":
        """Creates a monotonic attention with new, initialized scores.

        Args:
            score, query_dim, key_dim, dim: as in `regard.scores.create`; chunks have another score of the same name.
            width, bias, noise, backend: as in `MonotonicAttention`.
        """
        new_scores = [create(score, query_dim, key_dim, dim) for _ in range(1 + (width > 1))]
        return cls(*new_scores, width=width, bias=bias, noise=noise, backend=backend)

    def remember(
        self, annotations: Tensor, lengths: Tensor | None = None, *, mask: Tensor | None = None
    ) -> MonotonicMemory:
        """Prepares a memory that queries will go over; the arguments are those of `Attention.remember`."""
        memory = self.attention.remember(annotations, lengths, mask=mask)
        chunk = None if self.chunk is None else self.chunk.remember(annotations, lengths, mask=mask)
        return MonotonicMemory(memory.key, memory.value, memory.score, memory.mask, memory.cached, chunk)

    def forward(self, query: Tensor, memory: MonotonicMemory, *, earlier: EarlierWeights | None = None) -> Stopped:
        """Goes on from where the query before stopped.

        Args:
            query: ``[batch, query_dim]``, or ``[batch, queries, query_dim]`` for several queries in their order.
            memory: the result of `remember`.
            earlier: the ``stops`` of the call before, as the previous weights; None: at the first key.

        Raises:
            ShapeError, KindError: bad input; the message names the argument.
        """
        refuse_parts(type(self).__name__)
        self._check(query, memory, earlier)
        stops = None if earlier is None else earlier.previous
        if (
            not self.training
            and query.dim() == 2
            and memory.key.shape[1]
            and can_read(query, memory.key)
            and _is_vector_score(memory.score)
            and (memory.chunk is None or _is_vector_score(memory.chunk.score))
        ):
            return self._decode(query, memory, stops)
        normalizer = self.monotonic.given(
            None if stops is None else stops[:, None], "expected" if self.training else "hard"
        )
        output, weights = self.attention(query, memory, normalizer=normalizer)
        assert weights is not None
        if query.dim() == 2 or query.shape[1]:
            last = weights if query.dim() == 2 else weights[:, -1]
        else:
            last = self.first(memory).previous if stops is None else stops
        if self.chunk is None:
            return Stopped(output, weights, last)
        assert memory.chunk is not None
        normalizer = Chunkwise(weights.view(weights.shape[0], 1, -1, weights.shape[-1]), self.width)
        output, weights = self.chunk(query, memory.chunk, normalizer=normalizer)
        assert weights is not None
        return Stopped(output, weights, last)

    @staticmethod
    def first(memory: Memory) -> EarlierWeights:
        """Returns what the first query sees: it begins at the first key."""
        batch, keys = memory.key.shape[:2]
        return EarlierWeights(torch.eye(1, keys, dtype=memory.value.dtype, device=memory.value.device).repeat(batch, 1))

    def following(
        self, query: Tensor, memory: Memory, attended: Stopped, earlier: EarlierWeights | None
    ) -> EarlierWeights:
        """Returns what the query after this one sees, where this one stopped; see `Attention.following`."""
        return EarlierWeights(attended.stops)

    def _check(self, query: Tensor, memory: MonotonicMemory, earlier: EarlierWeights | None) -> None:
        """Raises an error unless `forward` takes these arguments; `Attention` checks the features of queries."""
        if not isinstance(memory, MonotonicMemory) or (memory.chunk is None) != (self.chunk is None):
            raise KindError(
                f"memory must be what remember of this MonotonicAttention of width {self.width} returns; it is "
                f"{type_text(memory) if not isinstance(memory, MonotonicMemory) else 'of another width'}: "
                "write attention(query, attention.remember(annotations))"
            )
        batch = memory.key.shape[0]
        check_floating("query", query)
        if query.dim() not in (2, 3) or query.shape[0] != batch:
            raise ShapeError(
                f"query must be [batch, query_dim] or [batch, queries, query_dim] with memory's batch, {batch}; "
                f"it has shape {list(query.shape)}"
            )
        EarlierWeights.check(earlier, memory.key)

    def _decode(self, query: Tensor, memory: MonotonicMemory, stops: Tensor | None) -> Stopped:
        """Decodes one step, hard, in time linear in the keys that it passes."""
        batch, keys = memory.key.shape[:2]
        start = torch.zeros(batch, dtype=torch.int64)
        if stops is not None:
            start = torch.where(stops.any(1), stops.argmax(1), keys)
        stop, weight = self._first_stop(query, memory, start)
        one = torch.zeros(batch, keys + 1, dtype=memory.value.dtype)
        stops = one.scatter(1, stop[:, None], weight[:, None].to(one.dtype))[:, :keys]
        back = torch.arange(self.width - 1, -1, -1)
        index = stop[:, None] - back
        rows = torch.arange(batch)
        chunk = _part(memory if memory.chunk is None else memory.chunk, rows, index, (stop < keys)[:, None])
        if self.chunk is None:
            output = (chunk.value[:, 0] * stops.sum(1, keepdim=True)).to(query.dtype)
            return Stopped(output, stops, stops)
        output, weights = self.chunk(query, chunk)
        assert weights is not None
        weights = torch.zeros_like(stops).scatter_add(1, index.clamp(0, keys - 1), weights.to(stops.dtype))
        weight = weight[:, None].to(stops.dtype)
        return Stopped(output * weight.to(output.dtype), weights * weight, stops)

    def _first_stop(self, query: Tensor, memory: Memory, start: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the first key of each row, from ``start [batch]`` on, that it stops at (the number of keys if it
        stops nowhere), and the weight there: 1, or NaN where the score is."""
        keys, position = memory.key.shape[1], start.clone()
        stop, weight = torch.full_like(start, keys), torch.ones(len(start), dtype=query.dtype, device=start.device)
        projected = self.attention.score.project_query(query[:, None, None])
        going = (position < keys).nonzero()[:, 0]
        while len(going):
            index = position[going, None] + torch.arange(BLOCK_KEYS)
            block = _part(memory, going, index, torch.ones(len(going), 1, dtype=torch.bool))
            assert block.mask is not None
            scores = block.score(projected[going], block.key[:, None])[:, 0, 0] + self.monotonic.bias
            stops = ~(scores <= 0) & block.mask
            stopped, first = stops.any(1), stops.int().argmax(1)
            here = going[stopped]
            stop[here] = position[here] + first[stopped]
            weight[here] = weight[here].masked_fill(
                scores[stopped].gather(1, first[stopped, None])[:, 0].isnan(), torch.nan
            )
            position[going] += BLOCK_KEYS
            going = going[~stopped & (position[going] < keys)]
        return stop, weight

    def extra_repr(self) -> str:
        return f"width={self.width}"


def _is_vector_score(score: Score) -> bool:
    """Whether a score is known to read no position."""
    if type(score) is SoftCap:
        return _is_vector_score(score.score)
    if type(score) is Features:
        return isinstance(score.map, (str, RandomFeatures))
    return type(score) in VECTOR_SCORES


def _part(memory: Memory, rows: Tensor, index: Tensor, exists: Tensor) -> Memory:
    """Returns the keys ``index [rows, length]`` of batch rows; those outside, or that do not exist, are hidden."""
    keys = memory.key.shape[1]
    inside = (index >= 0) & (index < keys) & exists
    index = index.clamp(0, keys - 1)
    if memory.mask is not None:
        inside = inside & memory.mask[rows[:, None], index]
    return Memory(memory.key[rows[:, None], index], memory.value[rows[:, None], index], memory.score, inside)
