"""Self-attention in linear time: a sum of keys and values, all of them or those that decay with distance."""

import math
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from regard.nn.fx_leaf import fx_leaf
from regard.nn.recurrent_attention import RecurrenceInputs, RecurrentAttention
from regard.positions import Rotary
from regard.scores import Features, ScaledDot, Score
from regard.shapes.grid import upcast
from regard.tracing.portable import vector
from regard.tracing.transforms import sent


@fx_leaf
class LinearAttention(RecurrentAttention):
    r"""Self-attention by kernel features, whose weights are shares of products.

    .. math:: w_{ij} = \frac{\phi(q_i) \cdot \phi(k_j)}{\sum_l \phi(q_i) \cdot \phi(k_l)}, \qquad \phi(x) = elu(x) + 1

    Katharopoulos et al. 2020, "Transformers are RNNs", equations 5 and 7; `regard.scores.Features` with ``ratio``.
    It takes causal masks, lengths and no mask in linear time, and any other mask in quadratic time.

    Args:
        embed_dim: features of a token.
        num_heads: heads, a divisor of ``embed_dim`` unless ``head_dim`` is given.
        key_heads: heads of queries and keys, a divisor of ``num_heads``, if groups of heads share them; None: all.
        head_dim: features of a query and of a key; None: ``embed_dim / num_heads``.
        value_dim: features of a value; None: ``head_dim``.
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

    Args and Raises: as for `LinearAttention`; ``head_dim`` is even.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> attention = nn.Retention(16, 2)
        >>> attention(torch.randn(3, 5, 16), mask="causal").output.shape
        torch.Size([3, 5, 16])
    """

    def add_parts(self, **factory: Any) -> Score:
        self.position = Rotary(self.head_dim)
        self.norm = nn.LayerNorm(self.value_dim, **factory)
        self.gate_proj = self.projection(self.embed_dim, self.num_heads * self.value_dim)
        return ScaledDot()

    def tokens(self, x: Tensor, projected: Tensor, first: int) -> RecurrenceInputs:
        query, key, value = self.heads(projected)
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
            nn.Linear(self.embed_dim, self.RANK, bias=False, **factory),
            nn.Linear(self.RANK, self.num_heads * self.head_dim, **factory),
        )
        self.norm = nn.LayerNorm(self.value_dim, **factory)
        self.gate_proj = self.projection(self.embed_dim, self.num_heads * self.value_dim)
        return ScaledDot()

    def tokens(self, x: Tensor, projected: Tensor, first: int) -> RecurrenceInputs:
        gates = F.logsigmoid(upcast(self.decay_proj(x))) / self.TEMPERATURE
        return RecurrenceInputs(*self.heads(projected), gates.unflatten(-1, (self.num_heads, -1)).transpose(1, 2))
