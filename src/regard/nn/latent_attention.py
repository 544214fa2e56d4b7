"""Multi-head latent attention: keys and values of all heads from one compressed vector a token."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.attention.execution import check_backend
from regard.attention.problem import Problem
from regard.attention.routes import planned
from regard.attention.verbs import BackendName, run
from regard.biases import Bias, QueryBias, bias_for
from regard.errors import ArgumentError
from regard.masks import Mask
from regard.nn.fx_leaf import fx_leaf
from regard.nn.key_values import KeyValueCache, SequenceCache
from regard.nn.layer_inputs import Biasing, Masking
from regard.nn.named_positions import Position, position_for
from regard.nn.sequence_attention import SequenceAttention, SequenceOutput
from regard.normalizers import Normalizing
from regard.positions import Rotary
from regard.scores import ScaledDot
from regard.shapes.checks import positive_number, size
from regard.tracing.ownership import own_copy


class LatentHeads(NamedTuple):
    """The queries, keys and values of tokens, ``[batch, num_heads, length, features]``; if ``absorbed``, keys and
    values are compressed vectors of one head. ``compressed`` is what queries are made from,
    ``[batch, length, query_rank]``, or the tokens; ``cached_features`` are cached with each token,
    ``[batch, 1, keys, features]``."""

    query: Tensor
    key: Tensor
    value: Tensor
    compressed: Tensor
    cached_features: Tensor
    absorbed: bool
    cache: KeyValueCache | None


@fx_leaf
class LatentAttention(SequenceAttention):
    r"""Self-attention whose keys and values are made from one compressed vector a token, which alone is cached.

    .. math::

        c_t &= norm(W_{DKV} x_t), & k_{t,h} &= [W_{UK,h} c_t ; \, k^R_t], & v_{t,h} &= W_{UV,h} c_t \\
        k^R_t &= RoPE(W_{KR} x_t), & q_{t,h} &= [W_{UQ,h} x_t ; \, RoPE(W_{QR,h} x_t)]

    with scores :math:`q_{t,h} \cdot k_{s,h} / \sqrt{d_h + d_R}`: DeepSeek-AI 2024, "DeepSeek-V2", eq. 9 to 19. The
    rotary part of a key, :math:`k^R`, is shared by all heads. With ``query_rank``, queries are made from a compressed
    vector too (eq. 12 and 13). The norms are those of the paper's section 3.1.2.

    Tokens that continue a cache use the absorbed form, in which the compressed vectors are keys and values of one head
    that all queries share (section 2.1.2), because :math:`q \cdot W_{UK} c = W_{UK}^T q \cdot c`. Its weights and
    outputs are those of the expanded form, up to rounding.

    The layers of DeepSeek V2 and V3 in transformers load by ``load_state_dict``, made with ``bias=False``, the position
    ``Rotary.from_config(config, dim=rotary_dim)`` and the sizes of their configuration: ``kv_rank`` is
    ``kv_lora_rank``, ``query_rank`` ``q_lora_rank``, ``rotary_dim`` ``qk_rope_head_dim``, ``head_dim``
    ``qk_nope_head_dim``, ``value_dim`` ``v_head_dim``, and ``scale`` the layer's ``scaling``, which YaRN changes.

    Args:
        embed_dim: features of a token.
        num_heads: heads, a divisor of ``embed_dim`` unless ``head_dim`` is given.
        kv_rank: features of :math:`c`; None: four times :math:`d_h`, as in the paper.
        query_rank: features of the compressed queries; None: queries are not compressed.
        rotary_dim: :math:`d_R`, even; None: half of :math:`d_h`, rounded up to an even number. It needs
            ``position="rotary"`` or a `Rotary`.
        head_dim: :math:`d_h`; None: ``embed_dim / num_heads``.
        value_dim: features of a value of a head; None: :math:`d_h`.
        scale: the factor of the scores; None: :math:`1 / \sqrt{d_h + d_R}`.
        bias: whether the projections have biases; those to the compressed vectors, and from :math:`c`, have none.
        position: ``rotary`` or a `Rotary`, of :math:`d_R` features; ``alibi``, ``t5`` or another `Bias` that does not
            depend on queries, or None, without a rotary part.
        dropout, normalizer, bidirectional, backend, device, dtype: as for `SelfAttention`.

    Raises:
        ArgumentError, KindError, UnknownNameError: an argument is invalid; the message names it.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> attention = nn.LatentAttention(32, 4, kv_rank=8, position="rotary").eval()
        >>> x, cache = torch.randn(3, 5, 32), attention.new_cache()
        >>> for token in x.split(1, dim=1):
        ...     output, _, cache = attention(token, cache=cache)
        >>> torch.allclose(output, attention(x, mask="causal").output[:, -1:], atol=1e-5)
        True
        >>> cache.key.shape[-1] + cache.value.shape[-1]  # numbers a token: 8 and the rotary part
        12
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        kv_rank: int | None = None,
        query_rank: int | None = None,
        rotary_dim: int | None = None,
        head_dim: int | None = None,
        value_dim: int | None = None,
        scale: float | None = None,
        dropout: float = 0.0,
        bias: bool = True,
        normalizer: Normalizing = "softmax",
        position: Position | None = None,
        bidirectional: bool = True,
        backend: BackendName = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__(
            embed_dim, num_heads, head_dim=head_dim, dropout=dropout, bias=bias, device=device, dtype=dtype
        )
        self.value_dim = self.head_dim if value_dim is None else size("value_dim", value_dim)
        self.kv_rank = 4 * self.head_dim if kv_rank is None else size("kv_rank", kv_rank)
        self.query_rank = None if query_rank is None else size("query_rank", query_rank)
        features = 2 * -(-self.head_dim // 4) if rotary_dim is None else size("rotary_dim", rotary_dim)
        created = position_for(position, num_heads, features, bidirectional, device=device, dtype=dtype)
        if isinstance(created, QueryBias):
            raise ArgumentError(
                "position of latent attention must not depend on queries, of which it has two forms; write rotary, "
                "alibi, t5 or none"
            )
        if rotary_dim is not None and not isinstance(created, Rotary):
            raise ArgumentError("rotary_dim needs position='rotary'")
        self.rotary_dim = features if isinstance(created, Rotary) else 0
        self.position = None if created is None else own_copy(created)
        self.normalizer = self.own_normalizer(normalizer)
        dim = self.head_dim + self.rotary_dim
        self.score = ScaledDot(dim**-0.5 if scale is None else positive_number("scale", scale))
        self.backend: BackendName = check_backend(backend)
        factory = {"device": device, "dtype": dtype}
        self.query_down = self.query_norm = None
        if self.query_rank is not None:
            self.query_down = self.projection(embed_dim, self.query_rank, bias=False)
            self.query_norm = nn.RMSNorm(self.query_rank, eps=1e-6, **factory)
        self.query_up = self.projection(embed_dim if self.query_rank is None else self.query_rank, num_heads * dim)
        self.kv_down = self.projection(embed_dim, self.kv_rank + self.rotary_dim, bias=False)
        self.kv_norm = nn.RMSNorm(self.kv_rank, eps=1e-6, **factory)
        # W_UK and W_UV of each head; without a bias, so that the absorbed form is an inner product.
        self.key_up, self.value_up = (
            nn.Parameter(torch.empty(num_heads, features, self.kv_rank, **factory))
            for features in (self.head_dim, self.value_dim)
        )
        for weight in (self.key_up, self.value_up):
            nn.init.xavier_uniform_(weight.data.view(-1, self.kv_rank))
        self.out_proj = self.projection(num_heads * self.value_dim, embed_dim)

    def projection_weights(self) -> list[Tensor]:
        return [*super().projection_weights(), self.key_up, self.value_up]

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
        heads = self.heads(x, cache)
        problem = self.problem(heads, self.selection(x, heads, visible), bias)
        output, weights = run(problem, self.backend, need_weights=need_weights, layer=self)
        if heads.absorbed:
            output = torch.einsum("bhqc,hdc->bhqd", output, self.value_up)
        return SequenceOutput(self.out_proj(output.transpose(1, 2).flatten(2)), weights, heads.cache)

    def heads(self, x: Tensor, cache: SequenceCache | None) -> LatentHeads:
        """Returns the queries of the tokens, and the keys and values of the tokens so far, with positions."""
        past = self.checked_cache(cache, KeyValueCache)
        first = 0 if past is None else past.length
        down = x if self.query_down is None else self.query_down(x)
        down = down if self.query_norm is None else self.query_norm(down)
        query = self.query_up(down).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        latent, shared = self.kv_down(x)[:, None].split([self.kv_rank, self.rotary_dim], dim=-1)  # B 1 K rank, B 1 K R
        latent = self.kv_norm(latent)
        content, rotated = query.split([self.head_dim, self.rotary_dim], dim=-1)
        if isinstance(self.position, Rotary):
            rotated, shared = self.position(rotated, offset=first), self.position(shared, offset=first)
        others = self.cached_features(x, first)
        if past is not None:
            past = past.appended(latent, torch.cat([shared, others], dim=-1))
            latent, (shared, others) = past.key, past.value.split([self.rotary_dim, others.shape[-1]], dim=-1)
        if first:
            query = torch.cat([torch.einsum("bhqd,hdc->bhqc", content, self.key_up), rotated], dim=-1)
            key, value = torch.cat([latent, shared], dim=-1), latent
        else:
            query = torch.cat([content, rotated], dim=-1)
            key, value = (torch.einsum("bkc,hdc->bhkd", latent[:, 0], up) for up in (self.key_up, self.value_up))
            key = torch.cat([key, shared.expand(-1, self.num_heads, -1, -1)], dim=-1)
        return LatentHeads(query, key, value, down, others, bool(first), past)

    def cached_features(self, x: Tensor, first: int) -> Tensor:
        """Returns other features of tokens to cache, ``[batch, 1, length, features]``; ``first`` is their position."""
        return x[:, None, :, :0]

    def selection(self, x: Tensor, heads: LatentHeads, visible: Mask | None) -> Mask | None:
        """Returns the mask of the keys that each token attends to, of those that are visible."""
        return visible

    def problem(self, heads: LatentHeads, mask: Mask | None, bias: Biasing | None) -> Problem:
        """Returns the call of attention of these heads."""
        added = bias_for(bias, self.num_heads)
        if isinstance(self.position, Bias):
            added = self.position if added is None else added + self.position
        return planned(
            heads.query, heads.key, heads.value, score=self.score, normalizer=self.normalizer, mask=mask, bias=added,
            dropout=self.dropout if self.training else 0.0, backend=self.backend,
        )  # fmt: skip

    def extra_repr(self) -> str:
        ranks = f", kv_rank={self.kv_rank}" + ("" if self.query_rank is None else f", query_rank={self.query_rank}")
        return f"{super().extra_repr()}{ranks}, rotary_dim={self.rotary_dim}"
