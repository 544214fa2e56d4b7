"""Self-attention with one projection to queries, keys and values, and what its kinds add to that of a Transformer."""

from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention import Attended
from regard.attention.execution import check_backend
from regard.attention.routes import planned
from regard.attention.verbs import BackendName, run
from regard.biases import Bias, bias_for
from regard.distributed.sequence_parts import joined, whole_length
from regard.errors import ArgumentError
from regard.masks import Mask, causal
from regard.masks.mask import joined_masks
from regard.nn.fx_leaf import fx_leaf
from regard.nn.key_values import KeyValueCache, SequenceCache
from regard.nn.layer_inputs import Biasing, Masking
from regard.nn.named_positions import Position, position_for
from regard.nn.padding import padding_of
from regard.nn.sequence_attention import SequenceAttention, SequenceOutput
from regard.normalizers import Normalizing, TalkingHeads, as_normalizer
from regard.positions import Rotary
from regard.scores import ForgetGate, Scoring, own_score
from regard.shapes.checks import flag, known_name, size
from regard.shapes.grid import Grid, upcast
from regard.tracing.ownership import own_copy

QkNorm = Literal["rms", "layer"]
QK_NORMS: dict[str, type[nn.Module]] = {"rms": nn.RMSNorm, "layer": nn.LayerNorm}


class ProjectedHeads(NamedTuple):
    """The queries of tokens, ``[batch, maps * num_heads, length, head_dim / maps]``, the keys
    ``[batch, branches * maps * kv_heads, keys, head_dim / maps]``, the values
    ``[batch, branches * kv_heads, keys, head_dim]``, and the cache, if any."""

    query: Tensor
    key: Tensor
    value: Tensor
    cache: KeyValueCache | None


class ProjectedAttention(SequenceAttention):
    """The base of self-attention with one projection to queries, keys and values; options as `SelfAttention`. A head
    has ``maps`` queries and keys of ``head_dim / maps`` features, and ``branches`` keys and values, each for one
    call."""

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        dropout: float,
        bias: bool,
        normalizer: Normalizing,
        kv_heads: int | None,
        position: Position | None,
        bidirectional: bool,
        backend: BackendName,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
        score: Scoring = "scaled_dot",
        maps: int = 1,
        branches: int = 1,
    ):
        super().__init__(embed_dim, num_heads, dropout=dropout, bias=bias, device=device, dtype=dtype)
        if self.head_dim % maps:
            raise ArgumentError(f"embed_dim / num_heads must be even, half for each map; it is {self.head_dim}")
        self.kv_heads = num_heads if kv_heads is None else size("kv_heads", kv_heads)
        if num_heads % self.kv_heads:
            raise ArgumentError(f"kv_heads must divide num_heads, {num_heads}; it is {kv_heads}")
        self._part = self.head_dim // maps
        created = position_for(position, num_heads, self._part, bidirectional, device=device, dtype=dtype)
        self.position = None if created is None else own_copy(created)
        own = own_score(score)
        # A call with a name is the fastest (`regard.attention.kinds`).
        self.score: Any = score if isinstance(score, str) else own
        self.normalizer = self.own_normalizer(normalizer)
        self.backend: BackendName = check_backend(backend)
        self._width = branches * self.kv_heads * self.head_dim
        self.in_proj = self.projection(embed_dim, embed_dim + 2 * self._width)

    def heads(self, x: Tensor, cache: SequenceCache | None) -> ProjectedHeads:
        """Returns the queries of the tokens, and the keys and values of the tokens so far, with positions."""
        past = self.checked_cache(cache, KeyValueCache)
        query, key, value = self.in_proj(x).split([self.embed_dim, self._width, self._width], dim=-1)
        query, key = (self.normed(part.unflatten(-1, (-1, self._part)), part is query) for part in (query, key))
        value = self.remembered(x, value.unflatten(-1, (-1, self.head_dim)))
        query, key, value = (part.transpose(1, 2) for part in (query, key, value))
        if isinstance(self.position, Rotary):
            first = 0 if past is None else past.length
            query, key = self.position(query, offset=first), self.position(key, offset=first)
        if past is None:
            return ProjectedHeads(query, key, value, None)
        past = past.appended(key, value)
        return ProjectedHeads(query, past.key, past.value, past)

    def normed(self, heads: Tensor, is_query: bool) -> Tensor:
        """Returns heads of queries or keys ``[batch, length, heads, dim]`` before they get positions."""
        return heads

    def remembered(self, x: Tensor, value: Tensor) -> Tensor:
        """Returns the values ``[batch, length, heads, head_dim]`` with what else later tokens read of these ones."""
        return value

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Masking | None, bias: Biasing | None, need_weights: bool,
        score: Scoring | None = None,
    ) -> Attended:  # fmt: skip
        """Attends with these heads and the layer's position, score (or another), normalizer, dropout and backend."""
        added = bias_for(bias, self.num_heads)
        if isinstance(self.position, Bias):
            added = self.position if added is None else added + self.position
        return self.attend_without_position(query, key, value, mask, added, need_weights, score)

    def attend_without_position(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Masking | None, bias: Bias | None, need_weights: bool,
        score: Scoring | None = None,
    ) -> Attended:  # fmt: skip
        """Attends as `attend`, without the layer's position."""
        problem = planned(
            query, key, value, score=self.score if score is None else score, normalizer=self.normalizer, mask=mask,
            bias=bias, dropout=self.dropout if self.training else 0.0, backend=self.backend,
        )  # fmt: skip
        return run(problem, self.backend, need_weights=need_weights, layer=self)

    def extra_repr(self) -> str:
        grouped = "" if self.kv_heads == self.num_heads else f", kv_heads={self.kv_heads}"
        return f"{super().extra_repr()}{grouped}"


@fx_leaf
class SelfAttention(ProjectedAttention):
    r"""Multi-head self-attention, also with gates, normalized queries and keys, or talking heads.

    .. math:: output = W_O \big(\sigma(W_G x) \odot [head_1; \ldots; head_n]\big), \qquad
        head_h = normalize\big(norm(Q_h) \, norm(K_h)^T / \sqrt{d}\big) V_h

    - ``gate``: Qiu et al. 2025, "Gated attention for large language models", eq. 5, after each head and for each
      feature; :math:`x` is the input of the attention.
    - ``qk_norm``: Dehghani et al. 2023, "Scaling vision transformers to 22 billion parameters", section 2,
      before positions; the norm has weights that all heads share. That of Henry et al. 2020 is ``score="cosine"`` of
      `MultiheadAttention`.
    - ``forget``: Lin et al. 2025, "Forgetting Transformer", section 3, as in `regard.scores.ForgetGate`: each token and
      head has a gate :math:`σ(w^T x + b)`, and what is before it counts less by this factor. No token sees a later one,
      whatever the mask; a hidden token forgets nothing.
    - ``talking_heads``: Shazeer et al. 2020, as in `regard.normalizers.TalkingHeads`; both
      mixtures begin as the identity.

    Without any of the four it is plain multi-head self-attention, which `MultiheadAttention` computes with PyTorch's
    parameters, and without padding.

    Args:
        embed_dim: features of a token.
        num_heads: heads, a divisor of ``embed_dim``.
        gate: whether the heads' outputs are multiplied by gates.
        qk_norm: the norm of queries and keys: ``rms``, ``layer``, or None.
        forget: whether tokens have forget gates.
        talking_heads: whether scores and weights are mixed over the heads.
        dropout: probability of dropping a weight while training, in [0, 1).
        bias: whether the projections have biases.
        score: how queries and keys of a head are compared: a name, a `Score` or a function.
        normalizer: a name, a `Normalizer` or a function.
        kv_heads: heads of keys and values, a divisor of ``num_heads``; None: as many.
        position: as for `MultiheadAttention`.
        bidirectional: whether tokens may see later ones; if False, ``t5`` has buckets for earlier ones only.
        backend: ``auto``, or one by name, which runs or raises.
        device, dtype: device and dtype of the parameters.

    Raises:
        ArgumentError, KindError, UnknownNameError: an argument is invalid; the message names it.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> attention = nn.SelfAttention(16, 2, gate=True, qk_norm="rms", position="rotary")
        >>> x = torch.randn(3, 5, 16)
        >>> attention(x, mask="causal").output.shape
        torch.Size([3, 5, 16])
        >>> layer = nn.TransformerEncoderLayer(16, 2, attention="talking_heads", batch_first=True)
        >>> layer(x, mask="causal").shape
        torch.Size([3, 5, 16])
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        gate: bool = False,
        qk_norm: QkNorm | None = None,
        talking_heads: bool = False,
        forget: bool = False,
        dropout: float = 0.0,
        bias: bool = True,
        score: Scoring = "scaled_dot",
        normalizer: Normalizing = "softmax",
        kv_heads: int | None = None,
        position: Position | None = None,
        bidirectional: bool = True,
        backend: BackendName = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        if flag("talking_heads", talking_heads):
            mixing = [nn.Parameter(torch.eye(num_heads, device=device, dtype=dtype)) for _ in range(2)]
            normalizer = TalkingHeads(mixing[0], mixing[1], as_normalizer(normalizer))
        super().__init__(
            embed_dim, num_heads, dropout=dropout, bias=bias, normalizer=normalizer, kv_heads=kv_heads,
            position=position, bidirectional=bidirectional, backend=backend, device=device, dtype=dtype, score=score,
        )  # fmt: skip
        self.query_norm = self.key_norm = None
        if qk_norm is not None:
            kind = QK_NORMS[known_name("qk_norm", qk_norm, QK_NORMS)]
            self.query_norm = kind(self.head_dim, eps=1e-6, device=device, dtype=dtype)
            self.key_norm = kind(self.head_dim, eps=1e-6, device=device, dtype=dtype)
        self.forget_gate = self.projection(embed_dim, num_heads) if flag("forget", forget) else None
        self.is_causal = forget
        self.gate = self.projection(embed_dim, embed_dim) if flag("gate", gate) else None
        self.out_proj = self.projection(embed_dim, embed_dim)

    def normed(self, heads: Tensor, is_query: bool) -> Tensor:
        norm = self.query_norm if is_query else self.key_norm
        return heads if norm is None else norm(heads)

    def remembered(self, x: Tensor, value: Tensor) -> Tensor:
        if self.forget_gate is None:
            return value
        # The cache holds the gates of the query heads that share a value as further features of it.
        return torch.cat((value, self.forget_gate(x).unflatten(-1, (self.kv_heads, -1))), dim=-1)

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
        query, key, value, past = self.heads(x, cache)
        score = None
        if self.forget_gate is not None:
            value, gates = value.split((self.head_dim, self.num_heads // self.kv_heads), dim=-1)
            visible, score = self._forgetting(gates.transpose(2, 3).flatten(1, 2), query.shape[2], visible)
        attended = self.attend(query, key, value, visible, bias, need_weights, score)
        joined = attended.output.transpose(1, 2).flatten(2)
        if self.gate is not None:
            joined = joined * torch.sigmoid(self.gate(x))
        return SequenceOutput(self.out_proj(joined), attended.weights, past)

    def _forgetting(self, gates: Tensor, queries: int, mask: Mask | None) -> tuple[Mask, ForgetGate]:
        """Returns the causal mask, and the score with the logarithms of gates ``[batch, heads, keys]``."""
        gates = joined(F.logsigmoid(upcast(gates)), 2, "x")
        grid = Grid.whole(len(gates), self.num_heads, whole_length(queries, "x"), gates.shape[2], gates.device)
        seen = padding_of(mask, grid).keys
        gates = gates if seen is None else torch.where(seen[:, :, 0], gates, 0.0)
        parts = joined_masks(mask)
        mask = causal() if mask is None else mask if causal() in parts else mask & causal()
        return mask, ForgetGate(self.score, gates)


gated = partial(SelfAttention, gate=True)
qk_norm = partial(SelfAttention, qk_norm="rms")
talking_heads = partial(SelfAttention, talking_heads=True)
forgetting = partial(SelfAttention, forget=True)
