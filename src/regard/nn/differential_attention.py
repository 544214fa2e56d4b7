"""Differential attention: the difference of two maps of weights."""

import math

import torch
from torch import Tensor, nn

from regard.attention.verbs import BackendName
from regard.nn.fx_leaf import fx_leaf
from regard.nn.key_values import SequenceCache
from regard.nn.layer_inputs import Biasing, Masking
from regard.nn.named_positions import Position
from regard.nn.projected_attention import ProjectedAttention
from regard.nn.sequence_attention import SequenceOutput
from regard.normalizers import Normalizing
from regard.shapes.checks import size
from regard.shapes.grid import upcast


@fx_leaf
class DifferentialAttention(ProjectedAttention):
    r"""Self-attention whose weights are the difference of two maps, so that what both see cancels out.

    .. math::

        head &= (1 - \lambda_{init}) \; norm\big((A_1 - \lambda A_2) \, V\big), \qquad
        A_m = normalize\big(Q_m K_m^T / \sqrt{d}\big) \\
        \lambda &= \exp(\lambda_{q1} \cdot \lambda_{k1}) - \exp(\lambda_{q2} \cdot \lambda_{k2}) + \lambda_{init}

    Ye et al. 2024, "Differential Transformer", eq. 1 to 3. A head has values of ``head_dim = embed_dim / num_heads``
    features, and queries and keys of half as many (:math:`d`) for each map. :math:`\lambda` is a number of the layer;
    :math:`\lambda_{q1}` and :math:`\lambda_{q2}` are the rows of ``lambda_query``, :math:`\lambda_{k1}` and
    :math:`\lambda_{k2}` those of ``lambda_key``. ``norm`` is a root mean square of each head, the paper's GroupNorm.

    Each map is one call of attention, the first one before the second, so that backends, masks, biases and
    `regard.watch` treat it as any other. The weights that are returned are :math:`A_1 - \lambda A_2`.

    Args:
        embed_dim: features of a token.
        num_heads: heads, a divisor of ``embed_dim``; the paper has half as many as a Transformer of the same size.
        dropout, normalizer: as for `SelfAttention`, in each map.
        bias, kv_heads, bidirectional, backend, device, dtype: as for `SelfAttention`.
        position: as for `MultiheadAttention`, for heads of ``head_dim / 2`` features.
        depth: number of the layer in its stack, from 0: :math:`\lambda_{init} = 0.8 - 0.6 \exp(-0.3 \, depth)`.

    Raises:
        ArgumentError, KindError, UnknownNameError: an argument is invalid; the message names it.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import nn
        >>> attention = nn.DifferentialAttention(16, 2, position="rotary")
        >>> x = torch.randn(3, 5, 16)
        >>> attended = attention(x, mask="causal", need_weights=True)
        >>> attended.weights.shape, attended.weights.triu(1).any()  # no token sees a later one
        (torch.Size([3, 2, 5, 5]), tensor(False))
        >>> with regard.watch(attention, read=regard.Readings(weights=True)) as seen:
        ...     _ = attention(x, mask="causal")
        >>> first, second = (call.weights for call in seen.calls)  # the two maps
        >>> torch.allclose(first - attention.lambda_full * second, attended.weights)
        True
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        dropout: float = 0.0,
        bias: bool = True,
        normalizer: Normalizing = "softmax",
        kv_heads: int | None = None,
        position: Position | None = None,
        bidirectional: bool = True,
        backend: BackendName = "auto",
        depth: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__(
            embed_dim, num_heads, dropout=dropout, bias=bias, normalizer=normalizer, kv_heads=kv_heads,
            position=position, bidirectional=bidirectional, backend=backend, device=device, dtype=dtype, maps=2,
        )  # fmt: skip
        self.depth = size("depth", depth, low=0)
        self.lambda_init = 0.8 - 0.6 * math.exp(-0.3 * depth)
        half = self.head_dim // 2
        self.lambda_query = nn.Parameter(torch.empty(2, half, device=device, dtype=dtype).normal_(std=0.1))
        self.lambda_key = nn.Parameter(torch.empty(2, half, device=device, dtype=dtype).normal_(std=0.1))
        self.norm = nn.RMSNorm(self.head_dim, eps=1e-5, device=device, dtype=dtype)
        self.out_proj = self.projection(embed_dim, embed_dim)

    @property
    def lambda_full(self) -> Tensor:
        """λ, the weight of the second map, a number in float32 or float64."""
        first, second = (upcast(self.lambda_query) * upcast(self.lambda_key)).sum(-1).exp()
        return first - second + self.lambda_init

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
        # The heads of the first map come before those of the second.
        maps = [
            self.attend(one_query, one_key, value, visible, bias, need_weights)
            for one_query, one_key in zip(query.chunk(2, dim=1), key.chunk(2, dim=1), strict=True)
        ]
        factor = self.lambda_full
        first_output, second_output = (attended.output for attended in maps)
        difference = self.norm(first_output - factor.to(value.dtype) * second_output) * (1 - self.lambda_init)
        output = self.out_proj(difference.transpose(1, 2).flatten(2))
        weights = None
        if need_weights:
            first_weights, second_weights = (attended.weights for attended in maps)
            assert first_weights is not None
            assert second_weights is not None
            weights = first_weights - factor * second_weights
        return SequenceOutput(output, weights, past)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, depth={self.depth}"
