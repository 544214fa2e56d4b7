"""Self-attention in linear time: a sum of keys and values that decays or is corrected, in place of all keys."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
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
from regard.masks import Band, Mask
from regard.nn.fx_leaf import fx_leaf
from regard.nn.key_values import SequenceCache
from regard.nn.layer_inputs import Biasing, Masking
from regard.nn.padding import Padding, padding_of
from regard.nn.sequence_attention import SequenceAttention, SequenceOutput
from regard.normalizers import NormalizerName
from regard.positions import Rotary
from regard.scores import Decayed, DeltaRule, Features, ScaledDot, Score
from regard.shapes.grid import Grid, upcast
from regard.tracing.portable import vector
from regard.tracing.transforms import can_read, is_finite, sent


@dataclass(frozen=True)
class LinearState(SequenceCache):
    """The cache of a layer in linear time: one matrix a head, however many tokens it sums.

    Attributes:
        state: ``[batch, heads, dim, value_dim]``, in float32 or float64; None before the first token.
        length: number of tokens so far.

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

    def rows(self, index: Tensor) -> "LinearState":
        return LinearState(None if self.state is None else self.state[index], self.length)


class RecurrenceInputs(NamedTuple):
    """The inputs of the recurrence for each token; all but the last two are ``[batch, heads, length, n]``.

    Attributes:
        query, key, value: of each head.
        log_decay: logarithm of the share of the state that stays, one for a key or for each of its features; or None.
        beta: strength of the delta rule, ``[batch, heads, length]``; or None.
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
    """

    normalizer: NormalizerName = "identity"

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        bias: bool = True,
        backend: BackendName = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__(embed_dim, num_heads, bias=bias, device=device, dtype=dtype)
        self.backend: BackendName = check_backend(backend)
        self.in_proj = self.projection(embed_dim, 3 * embed_dim)
        self.norm: nn.Module | None = None
        self.gate_proj: nn.Linear | None = None
        self.product = self.add_parts(**self._factory)
        self.out_proj = self.projection(embed_dim, embed_dim)

    @abstractmethod
    def add_parts(self, **factory: Any) -> Score:
        """Creates the further parts, with the ``device`` and ``dtype`` of ``factory``; returns the inner score."""

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns queries, keys and values ``[batch, heads, length, head_dim]``."""
        query, key, value = self.in_proj(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        return query, key, value

    def tokens(self, x: Tensor, first: int) -> RecurrenceInputs:
        """Returns what each token reads and adds; ``first`` is the position of the first one."""
        return RecurrenceInputs(*self.heads(x))

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
        past = self.checked_cache(cache, LinearState)
        if past is None:
            output, weights = self._attended(x, visible, need_weights)
            return SequenceOutput(self._joined(x, output), weights, None)
        if need_weights:
            raise ArgumentError(
                "weights of tokens in the cache are gone: it is their sum; leave out cache or need_weights"
            )
        if visible is not None and not _is_causal(visible, x, past.length):
            raise ArgumentError(f"mask must be 'causal' with a cache, which is a sum of all tokens; it is {visible!r}")
        if visible is None and x.shape[1] > 1 and not self.is_causal:
            raise ArgumentError(
                f"a token that continues a cache sees no later one, and without a mask the {x.shape[1]} tokens would "
                "all see each other; write mask='causal'"
            )
        inputs = self.tokens(x, past.length)
        with full_precision(x):
            output, past = self._continued(inputs, past)
        return SequenceOutput(self._joined(x, output), None, past)

    def _attended(self, x: Tensor, mask: Mask | None, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        """Returns the outputs of all heads, and their weights if they are needed."""
        inputs, length = self.tokens(x, 0), whole_length(x.shape[1], "x")
        score = self.product
        if mask is not None and (inputs.log_decay is not None or inputs.beta is not None):
            padding = padding_of(mask, Grid.whole(x.shape[0], self.num_heads, length, length, x.device))
            inputs = _without_padding(inputs, padding)
            mask = mask if inputs.beta is None else padding.rest
        if inputs.log_decay is not None:
            score = Decayed(score, joined(inputs.log_decay, 2, "x"))
        if inputs.beta is not None:
            score = DeltaRule(score, joined(inputs.beta, 2, "x"))
        problem = planned(*inputs[:3], score=score, normalizer=self.normalizer, mask=mask, backend=self.backend)
        attended = run(problem, self.backend, need_weights=need_weights, layer=self)
        return attended.output, attended.weights

    def _continued(self, inputs: RecurrenceInputs, past: LinearState) -> tuple[Tensor, LinearState]:
        """Returns the outputs of all heads after the tokens of a cache, and the cache with these tokens."""
        prepared = self.product.prepare(inputs.query, inputs.key)
        query, key = upcast(prepared.query) * prepared.scale, upcast(prepared.key)
        is_ratio = self.normalizer == "ratio"
        value = with_ones(upcast(inputs.value)) if is_ratio else upcast(inputs.value)
        length = query.shape[2]
        tokens = query, key, value, inputs.log_decay, inputs.beta, past.state
        output, state = recurrent(*tokens) if length == 1 else chunked(*tokens)
        if length > 1 and can_read(output) and not is_finite(output):
            # Products within a chunk let a token that is not finite reach earlier ones.
            output, state = recurrent(*tokens)
        output = divided(output) if is_ratio else output
        return output.to(inputs.value.dtype), LinearState(state, past.length + length)

    def _joined(self, x: Tensor, output: Tensor) -> Tensor:
        """Returns the outputs of all heads, normalized, gated and projected."""
        output = output.transpose(1, 2)
        if self.norm is not None:
            output = self.norm(output)
        output = output.flatten(2)
        if self.gate_proj is not None:
            output = output * F.silu(self.gate_proj(x))
        return self.out_proj(output)

    def new_cache(self) -> LinearState:
        return LinearState()


def _is_causal(mask: Mask, x: Tensor, past: int) -> bool:
    """Whether a mask over the tokens of a cache and of a call is causal, or hides nothing."""
    batch, length, _ = x.shape
    grid = Grid.whole(batch, 1, length, past + length, x.device)
    if isinstance(mask, Band) and mask.is_causal:
        offset = mask.offset_on(grid)
        return isinstance(offset, int) and offset == past
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


@fx_leaf
class LinearAttention(RecurrentAttention):
    r"""Self-attention by kernel features, whose weights are shares of products.

    .. math:: w_{ij} = \frac{\phi(q_i) \cdot \phi(k_j)}{\sum_l \phi(q_i) \cdot \phi(k_l)}, \qquad \phi(x) = elu(x) + 1

    Katharopoulos et al. 2020, "Transformers are RNNs", equations 5 and 7; `regard.scores.Features` with ``ratio``.
    It takes causal masks, lengths and no mask in linear time, and any other mask in quadratic time.

    Args:
        embed_dim: features of a token.
        num_heads: heads, a divisor of ``embed_dim``.
        bias: whether the projections have biases; default True.
        backend: ``auto``, the default, or one by name, which runs or raises.
        device, dtype: device and dtype of the parameters; default: PyTorch's.

    Raises:
        ArgumentError, KindError, UnknownNameError: an argument is invalid; the message names it.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> attention = nn.LinearAttention(16, 2)
        >>> x = torch.randn(3, 5, 16)
        >>> attention(x, mask="causal", need_weights=True).weights.sum(-1).allclose(torch.ones(3, 2, 5))
        True
        >>> cache, parts = attention.new_cache(), []
        >>> for token in x.split(1, dim=1):
        ...     output, _, cache = attention(token, cache=cache)
        ...     parts.append(output)
        >>> torch.allclose(torch.cat(parts, dim=1), attention(x, mask="causal").output, atol=1e-6)
        True
    """

    normalizer = "ratio"

    def add_parts(self, **factory: Any) -> Score:
        return Features("elu")


@fx_leaf
class Retention(RecurrentAttention):
    r"""Multi-scale retention: products that decay with distance, at another rate in each head.

    .. math::

        w_{ij} &= \gamma_h^{\,i - j} \, (q_i \cdot k_j) \, / \, \sqrt d, \qquad \gamma_h = 1 - 2^{-5-h} \\
        y &= W_O \big( swish(W_G x) \odot norm(W V) \big)

    Sun et al. 2023, "Retentive Network", equations 5 and 8: queries and keys are rotated (`regard.positions.Rotary`),
    and each head is normalized by itself. Without a causal mask, weights decay in both directions.

    Args and Raises: as for `LinearAttention`; ``embed_dim / num_heads`` is even.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> attention = nn.Retention(16, 2)
        >>> attention(torch.randn(3, 5, 16), mask="causal").output.shape
        torch.Size([3, 5, 16])
    """

    def add_parts(self, **factory: Any) -> Score:
        self.position = Rotary(self.head_dim)
        self.norm = nn.LayerNorm(self.head_dim, **factory)
        self.gate_proj = self.projection(self.embed_dim, self.embed_dim)
        return ScaledDot()

    def tokens(self, x: Tensor, first: int) -> RecurrenceInputs:
        query, key, value = self.heads(x)
        batch, length, _ = x.shape
        rates = [math.log1p(-(2.0 ** (-5 - head))) for head in range(self.num_heads)]
        decay = sent(vector(rates, upcast(value).dtype), x.device)[:, None, None].expand(batch, -1, length, 1)
        return RecurrenceInputs(self.position(query, offset=first), self.position(key, offset=first), value, decay)


@fx_leaf
class GatedLinearAttention(RecurrentAttention):
    r"""Gated linear attention: each token decides how much of every feature of the state stays.

    .. math::

        w_{ij} &= \sum_d q_{id} \, k_{jd} \prod_{t=j+1}^{i} \alpha_{td} \, / \, \sqrt d,
        \qquad \alpha_t = \sigma(W_2 W_1 x_t + b)^{1 / 16} \\
        y &= W_O \big( swish(W_G x) \odot norm(W V) \big)

    Yang et al. 2024, "Gated Linear Attention Transformers with Hardware-Efficient Training", equations 3, 4 and
    section 4.4; the gates have rank 16.

    Args and Raises: as for `LinearAttention`. The gates of ``decay_proj`` have biases in any case.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> attention = nn.GatedLinearAttention(16, 2)
        >>> attention(torch.randn(3, 5, 16), mask="causal").output.shape
        torch.Size([3, 5, 16])
    """

    TEMPERATURE, RANK = 16.0, 16

    def add_parts(self, **factory: Any) -> Score:
        self.decay_proj = nn.Sequential(
            nn.Linear(self.embed_dim, self.RANK, bias=False, **factory), nn.Linear(self.RANK, self.embed_dim, **factory)
        )
        self.norm = nn.LayerNorm(self.head_dim, **factory)
        self.gate_proj = self.projection(self.embed_dim, self.embed_dim)
        return ScaledDot()

    def tokens(self, x: Tensor, first: int) -> RecurrenceInputs:
        gates = F.logsigmoid(upcast(self.decay_proj(x))) / self.TEMPERATURE
        return RecurrenceInputs(*self.heads(x), gates.unflatten(-1, (self.num_heads, -1)).transpose(1, 2))


@fx_leaf
class DeltaNet(RecurrentAttention):
    r"""The delta rule: each token replaces what its key recalls by its value.

    .. math::

        S_t &= S_{t-1} + \beta_t \, k_t (v_t - S_{t-1}^\top k_t)^\top, \qquad \beta_t = \sigma(w_\beta \cdot x_t) \\
        y &= W_O \, norm(S_t^\top q_t \, / \, \sqrt d)

    Yang et al. 2024, "Parallelizing Linear Transformers with the Delta Rule over Sequence Length", sections 2.2 and
    3.3: queries and keys are swish(x W), of length 1. The paper's short convolutions are left out.

    A recurrence sees no later token: without a mask it is causal too, and it is no part of a bidirectional layer.
    Lengths, and tensors with one row for all queries, hide padding; there is no other mask.

    Args and Raises: as for `LinearAttention`.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> attention = nn.DeltaNet(16, 2)
        >>> weights = attention(torch.randn(3, 5, 16), mask="causal", need_weights=True).weights
        >>> weights.shape, weights.triu(1).any()
        (torch.Size([3, 2, 5, 5]), tensor(False))
    """

    is_causal = True

    def add_parts(self, **factory: Any) -> Score:
        self.beta_proj = nn.Linear(self.embed_dim, self.num_heads, bias=self._has_bias, **factory)
        self.norm = nn.RMSNorm(self.head_dim, eps=1e-5, **factory)
        return ScaledDot()

    def tokens(self, x: Tensor, first: int) -> RecurrenceInputs:
        query, key, value = self.heads(x)
        query, key = (F.normalize(F.silu(heads), dim=-1) for heads in (query, key))
        return RecurrenceInputs(query, key, value, beta=torch.sigmoid(upcast(self.beta_proj(x))).transpose(1, 2))


@fx_leaf
class GatedDeltaNet(DeltaNet):
    r"""The delta rule on a state that decays.

    .. math::

        S_t &= \alpha_t \, S_{t-1} + \beta_t \, k_t (v_t - \alpha_t \, S_{t-1}^\top k_t)^\top,
        \qquad \alpha_t = \exp\!\big(-e^{a} \, softplus(w_\alpha \cdot x_t + b)\big) \\
        y &= W_O \big( swish(W_G x) \odot norm(S_t^\top q_t \, / \, \sqrt d) \big)

    Yang et al. 2025, "Gated Delta Networks", equation 10 and section 3.4, with a decay and a strength for each head;
    the rest is `DeltaNet`.

    Args and Raises: as for `LinearAttention`. The decays of ``decay_proj`` have biases in any case.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> attention = nn.GatedDeltaNet(16, 2)
        >>> attention(torch.randn(3, 5, 16), mask="causal").output.shape
        torch.Size([3, 5, 16])
    """

    def add_parts(self, **factory: Any) -> Score:
        self.decay_proj = nn.Linear(self.embed_dim, self.num_heads, **factory)
        self.log_rate = nn.Parameter(torch.zeros(self.num_heads, **factory))
        with torch.no_grad():  # the heads' rates are 0.001 to 0.1, as in state space models
            rates = torch.logspace(-3, -1, self.num_heads, dtype=torch.float64, device="cpu")
            self.decay_proj.bias.copy_(rates.expm1().log())
        self.gate_proj = self.projection(self.embed_dim, self.embed_dim)
        return super().add_parts(**factory)

    def tokens(self, x: Tensor, first: int) -> RecurrenceInputs:
        # An infinite rate would be NaN times 0; a product that overflows clears the state.
        rates = F.softplus(upcast(self.decay_proj(x))) * upcast(self.log_rate).clamp(max=88.0).exp()
        return super().tokens(x, first)._replace(log_decay=-rates.transpose(1, 2)[..., None])
