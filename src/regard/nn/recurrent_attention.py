"""The base of self-attention in linear time: a recurrence over tokens, whose state is the cache."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention.execution import check_backend, full_precision
from regard.attention.routes import planned
from regard.attention.verbs import BackendName, run
from regard.distributed.sequence_parts import joined, own_part, whole_length
from regard.errors import ArgumentError
from regard.linear import chunked, divided, recurrent, with_ones
from regard.masks import Band, Documents, Mask, causal
from regard.masks.content import Lengths
from regard.masks.mask import joined_masks
from regard.nn.key_values import SequenceCache, check_continued
from regard.nn.layer_inputs import Biasing, Masking
from regard.nn.padding import Padding, padding_of
from regard.nn.sequence_attention import SequenceAttention, SequenceOutput
from regard.nn.short_convolution import ShortConvolution
from regard.normalizers import NormalizerName
from regard.scores import Decayed, DeltaRule, Score
from regard.shapes.checks import check_sizes
from regard.shapes.grid import Grid, spread_heads, upcast
from regard.tracing.transforms import can_read, has_host_data, is_finite

LARGEST_LOG_RATE = 88.0
"""A logarithm whose exponential is finite in float32: an infinite rate would be NaN times 0."""


@dataclass(frozen=True, repr=False)
class LinearState(SequenceCache):
    """The cache of a layer in linear time: one matrix a head, however many tokens it sums.

    Attributes:
        state: ``[batch, heads, dim, value_dim]``, in float32 or float64; None before the first token.
        length: number of tokens so far.
        recent: the last projected tokens, which a short convolution reads again, ``[batch, width - 1, channels]``; None
            without a convolution, and before the first token.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> attention = nn.Retention(16, 2)
        >>> cache = attention(torch.randn(3, 500, 16), mask="causal", cache=attention.new_cache()).cache
        >>> cache.length, cache.state.shape
        (500, torch.Size([3, 2, 8, 8]))
    """

    state: Tensor | None = None
    length: int = 0
    recent: Tensor | None = None

    @property
    def tensors(self) -> dict[str, Tensor]:
        parts = {"state": self.state, "recent": self.recent}
        return {name: part for name, part in parts.items() if part is not None}

    def rows(self, index: Tensor) -> "LinearState":
        return replace(self, **{name: part[index] for name, part in self.tensors.items()})


class RecurrenceInputs(NamedTuple):
    """The inputs of the recurrence for each token, ``[batch, heads, length, n]``; heads may share queries and keys.

    ``log_decay`` is the logarithm of the share of the state that stays, for a key or each of its features, and
    ``beta [batch, heads, length]`` the strength of the delta rule; each may be None.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    log_decay: Tensor | None = None
    beta: Tensor | None = None


class RecurrentAttention(SequenceAttention, ABC):
    """The base of self-attention in linear time, whose cache has a constant size.

    Without a cache it is a call of attention with a score of `regard.scores` and the normalizer ``identity`` or
    ``ratio``, so that backends, readings, `regard.explain` and `regard.watch` treat it as any other. With a cache the
    state of the recurrence goes on. A subclass defines `add_parts` and `tokens`.

    Args and Raises: as for `LinearAttention`.

    Attributes:
        key_heads: heads of queries and keys, each of which serves a group of heads of values.
        head_dim: features of a query and of a key.
        value_dim: features of a value.
        norm: normalizes the outputs; None: nothing does.
        gate_proj: projects tokens to what their outputs are multiplied by, behind `activation`; None: there is no gate.
        conv: a convolution of the projected tokens, in a layer that is causal; None: there is none.
        decay_proj, log_rate: projects tokens to steps, and the logarithm of each head's rate, where tokens decide how
            much of the state stays (`steps`, `log_decay`).
    """

    normalizer: NormalizerName = "identity"
    decay_proj: nn.Module
    log_rate: nn.Parameter

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        key_heads: int | None = None,
        head_dim: int | None = None,
        value_dim: int | None = None,
        bias: bool = True,
        backend: BackendName = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__(embed_dim, num_heads, head_dim=head_dim, bias=bias, device=device, dtype=dtype)
        self.key_heads = num_heads if key_heads is None else key_heads
        self.value_dim = self.head_dim if value_dim is None else value_dim
        check_sizes(key_heads=self.key_heads, value_dim=self.value_dim)
        if num_heads % self.key_heads:
            raise ArgumentError(
                f"key_heads must divide num_heads; num_heads is {num_heads} and key_heads is {self.key_heads}"
            )
        self.backend: BackendName = check_backend(backend)
        self.in_proj = self.projection(embed_dim, sum(self.widths))
        self.norm: nn.Module | None = None
        self.gate_proj: nn.Module | None = None
        self.conv: ShortConvolution | None = None
        self.product = self.add_parts(**self._factory)
        self.out_proj = self.projection(num_heads * self.value_dim, embed_dim)

    @property
    def widths(self) -> tuple[int, int, int]:
        """The rows of ``in_proj`` for queries, keys and values."""
        keys = self.key_heads * self.head_dim
        return keys, keys, self.num_heads * self.value_dim

    @abstractmethod
    def add_parts(self, **factory: Any) -> Score:
        """Creates the further parts, with the ``device`` and ``dtype`` of ``factory``; returns the inner score."""

    def heads(self, projected: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns queries and keys ``[batch, key_heads, length, head_dim]``, and values ``[batch, num_heads, length,
        value_dim]``, of projected tokens."""
        counts = self.key_heads, self.key_heads, self.num_heads
        parts = zip(projected.split(self.widths, dim=-1), counts, strict=True)
        query, key, value = (part.unflatten(-1, (count, -1)).transpose(1, 2) for part, count in parts)
        return query, key, value

    def tokens(self, x: Tensor, projected: Tensor, first: int) -> RecurrenceInputs:
        """Returns what each token reads and adds; ``projected`` is `in_proj` of the tokens, convolved if there is a
        convolution, and ``first`` the position of the first one."""
        return RecurrenceInputs(*self.heads(projected))

    def add_rates(self, bias: Tensor, log_rate: Tensor) -> None:
        """Sets the biases of the projection to steps, so that the first steps of the heads are 0.001 to 0.1, as in
        state-space models, and adds the parameter `log_rate` of every head."""
        self.log_rate = nn.Parameter(log_rate)
        with torch.no_grad():
            steps = torch.logspace(-3, -1, self.num_heads, dtype=torch.float64, device="cpu")
            bias.copy_(steps.expm1().log().repeat_interleave(len(bias) // self.num_heads))

    def steps(self, x: Tensor) -> Tensor:
        """Returns softplus of the projection to steps, ``[batch, heads, length, gates]``."""
        return F.softplus(upcast(self.decay_proj(x))).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def log_decay(self, steps: Tensor) -> Tensor:
        """Returns the log-decays of steps: each head's rate times them; a product that overflows clears the state."""
        return -steps * upcast(self.log_rate).clamp(max=LARGEST_LOG_RATE).exp()[:, None, None]

    def activation(self, gates: Tensor) -> Tensor:
        """Returns what the outputs are multiplied by."""
        return F.silu(gates)

    def combined(self, x: Tensor, output: Tensor, value: Tensor) -> Tensor:
        """Returns the outputs of all heads ``[batch, heads, length, value_dim]`` side by side, normalized and gated,
        ``[batch, length, features]``; ``value`` has the values of the tokens, 0 for padding."""
        output = output.transpose(1, 2)
        if self.norm is not None:
            output = self.norm(output)
        output = output.flatten(2)
        return output if self.gate_proj is None else output * self.activation(self.gate_proj(x))

    def forward(
        self,
        x: Tensor,
        *,
        mask: Masking | None = None,
        bias: Biasing | None = None,
        cache: SequenceCache | None = None,
        need_weights: bool = False,
    ) -> SequenceOutput:
        visible = self.checked_input(x, mask)
        if bias is not None:
            raise ArgumentError(f"{type(self).__name__} makes no scores that a bias could be added to; leave bias out")
        past, padding = self.checked_cache(cache, LinearState), Padding(None, None, visible)
        length, order = whole_length(x.shape[1], "x"), visible
        if past is not None:
            self._check_continued(x, visible, past, need_weights)
        elif self.normalizer == "identity":  # a share of a row's sum is a matter of the mask
            grid = Grid.whole(x.shape[0], self.num_heads, length, length, x.device)
            padding = padding_of(visible, grid)
            order = self._causal_order(padding.rest, grid) if self.is_causal else visible
        projected, recent = self.in_proj(x), None
        if self.conv is not None and past is None:
            projected = self._convolved(projected, self.conv, visible, padding)
        elif self.conv is not None and past is not None:
            if past.recent is not None:
                check_continued(past.recent, projected, 1)
            recent = self.conv.continued(projected, past.recent)
            projected = self.conv(projected, past.recent)
        inputs = self.tokens(x, projected, 0 if past is None else past.length)
        query, key = (self._of_all_heads(part) for part in inputs[:2])
        inputs = _without_padding(inputs._replace(query=query, key=key), padding)
        if past is None:
            output, weights = self._attended(inputs, order, need_weights)
        else:
            with full_precision(x):
                output, state = self._continued(inputs, past.state)
            weights, past = None, LinearState(state, past.length + length, recent)
        return SequenceOutput(self.out_proj(self.combined(x, output, inputs.value)), weights, past)

    def _of_all_heads(self, rows: Tensor) -> Tensor:
        """Returns queries or keys of each head; a single head is repeated without a copy."""
        return rows.expand(-1, self.num_heads, -1, -1) if rows.shape[1] == 1 else spread_heads(rows, self.num_heads)

    def _check_continued(self, x: Tensor, mask: Mask | None, past: LinearState, need_weights: bool) -> None:
        """Raises ArgumentError for what a call with a cache cannot do."""
        if need_weights:
            raise ArgumentError(
                "weights of tokens in the cache are gone: it is their sum; leave out cache or need_weights"
            )
        if past.length and (past.recent is None) != (self.conv is None):
            reads, holds = ("has no" if self.conv is None else "has a"), ("no" if past.recent is None else "its")
            raise ArgumentError(
                f"cache must be one of this layer, which {reads} convolution; it holds {holds} recent tokens"
            )
        if mask is not None and not _is_causal(mask, x, past.length):
            raise ArgumentError(f"mask must be 'causal' with a cache, which is a sum of all tokens; it is {mask!r}")
        if mask is None and x.shape[1] > 1 and not self.is_causal:
            raise ArgumentError(
                f"a token that continues a cache sees no later one, and without a mask the {x.shape[1]} tokens would "
                "all see each other; write mask='causal'"
            )

    def _causal_order(self, mask: Mask | None, grid: Grid) -> Mask:
        """Returns what is left of a mask without padding, with a causal one if there is none; raises ArgumentError for
        another mask than a causal one, of documents, or both."""
        parts = [part for part in joined_masks(mask) if not _aligns_ends(part, grid)]
        documents = [part for part in parts if isinstance(part, Documents)]
        if len(documents) < len(parts) or len(documents) > 1:
            raise ArgumentError(
                f"mask must be 'causal', of lengths, of documents or None: in {type(self).__name__} a token depends on "
                f"all tokens before it; it is {mask!r}"
            )
        return reduce(and_, documents, causal())

    def _convolved(self, projected: Tensor, conv: ShortConvolution, mask: Mask | None, padding: Padding) -> Tensor:
        """Returns the projected tokens after the convolution, which reads tokens of one document, and no padding."""
        whole, documents, is_in_order = joined(projected, 1, "x"), None, True
        for part in joined_masks(mask):
            if isinstance(part, Documents):
                if part.begins is None and (part.key_ids is not None or has_host_data(part.query_ids)):
                    raise ArgumentError(f"tokens of a document must follow one another in {type(self).__name__}")
                documents, is_ordered = part.query_ids.view(-1, part.query_ids.shape[-1]), part.begins is not None
            else:
                is_ordered = isinstance(part, Band | Lengths)
            is_in_order = is_in_order and is_ordered
        if padding.keys is not None:
            if padding.keys.shape[1] > 1:
                raise ArgumentError("mask must hide a token from all heads, since a convolution reads before heads do")
            visible = padding.keys[:, 0, 0]
            documents = torch.where(visible, 0 if documents is None else documents, -1)
        if is_in_order or documents is None:
            convolved = conv(whole, None, documents)
        else:  # each document's tokens one after another, and then back
            order = documents.argsort(dim=1, stable=True)
            rows = torch.take_along_dim(whole, order[..., None], dim=1)
            rows = conv(rows, None, torch.take_along_dim(documents, order, dim=1))
            convolved = torch.take_along_dim(rows, order.argsort(dim=1)[..., None], dim=1)
        return own_part(convolved, 1, projected.shape[1], "x")

    def _attended(
        self, inputs: RecurrenceInputs, mask: Mask | None, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Returns the outputs of all heads, and their weights if they are needed."""
        score = self.product
        if inputs.log_decay is not None:
            score = Decayed(score, joined(inputs.log_decay, 2, "x"))
        if inputs.beta is not None:
            score = DeltaRule(score, joined(inputs.beta, 2, "x"))
        problem = planned(*inputs[:3], score=score, normalizer=self.normalizer, mask=mask, backend=self.backend)
        attended = run(problem, self.backend, need_weights=need_weights, layer=self)
        return attended.output, attended.weights

    def _continued(self, inputs: RecurrenceInputs, state: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns the outputs of all heads after the tokens of a state, and the state after these tokens."""
        prepared = self.product.prepare(inputs.query, inputs.key)
        query, key = upcast(prepared.query) * prepared.scale, upcast(prepared.key)
        is_ratio = self.normalizer == "ratio"
        value = with_ones(upcast(inputs.value)) if is_ratio else upcast(inputs.value)
        if state is not None:
            check_continued(state, key.mT, 3)
            check_continued(state.mT, value.mT, 3)
        tokens, length = (query, key, value, inputs.log_decay, inputs.beta, state), query.shape[2]
        output, state = recurrent(*tokens) if length == 1 else chunked(*tokens)
        if length > 1 and can_read(output) and not is_finite(output):
            # Products within a chunk let a token that is not finite reach earlier ones.
            output, state = recurrent(*tokens)
        output = divided(output) if is_ratio else output
        return output.to(inputs.value.dtype), state

    def new_cache(self) -> LinearState:
        return LinearState()


def _aligns_ends(mask: Mask, grid: Grid) -> bool:
    """Whether a mask is causal, and the last query sees the last key."""
    offset = mask.offset_on(grid) if isinstance(mask, Band) and mask.is_causal else None
    return offset is not None and not isinstance(offset, Tensor) and offset == grid.offset


def _is_causal(mask: Mask, x: Tensor, past: int) -> bool:
    """Whether a mask over the tokens of a cache and of a call is causal, or hides nothing."""
    batch, length, _ = x.shape
    grid = Grid.whole(batch, 1, length, past + length, x.device)
    if isinstance(mask, Band) and mask.is_causal:
        return _aligns_ends(mask, grid)
    return length == 1 and mask.hides_nothing(grid)


def _without_padding(inputs: RecurrenceInputs, padding: Padding) -> RecurrenceInputs:
    """Returns the inputs with padding that changes no state: it adds nothing, decays nothing and reads nothing."""
    query, key, value, decay, beta = inputs
    length = query.shape[2]
    if padding.keys is not None:
        hidden = own_part(~padding.keys.mT, 2, length, "x")  # B H K 1
        key, value = key.masked_fill(hidden, 0.0), value.masked_fill(hidden, 0.0)
        decay = None if decay is None else decay.masked_fill(hidden, 0.0)
        beta = None if beta is None else beta.masked_fill(hidden[..., 0], 0.0)
    if padding.queries is not None:
        query = query.masked_fill(own_part(~padding.queries, 2, length, "x"), 0.0)
    return RecurrenceInputs(query, key, value, decay, beta)
