"""Deformable attention: a few sampled points of feature maps, chosen by the query (Zhu et al. 2021)."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention.execution import check_backend
from regard.attention.routes import planned
from regard.attention.verbs import BackendName, run
from regard.distributed.sequence_parts import refuse_parts
from regard.errors import ArgumentError, ShapeError
from regard.nn.feature_maps import as_feature_map, as_sequence, check_feature_map
from regard.nn.fx_leaf import fx_leaf
from regard.normalizers import Normalizing, own_normalizer
from regard.shapes.checks import Requested, check_floating, check_sizes
from regard.summaries import summarized
from regard.tracing.module_calls import Module


@summarized
class Deformed(NamedTuple):
    """The output of `DeformableAttention`.

    Attributes:
        output: ``[batch, queries, embed_dim]``.
        weights: ``[batch, num_heads, queries, levels, points]``.
        positions: where each point was sampled, ``(x, y)`` from 0 to 1 over the map: ``[batch, num_heads, queries,
            levels, points, 2]``. Both are None unless ``need_weights``.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> attention = nn.DeformableAttention(8, 2, points=3)
        >>> seen = attention(torch.ones(1, 4, 8), torch.full((1, 4, 2), 0.5), torch.ones(1, 8, 5, 5), need_weights=True)
        >>> seen.output.shape, seen.weights.shape, seen.positions.shape
        (torch.Size([1, 4, 8]), torch.Size([1, 2, 4, 1, 3]), torch.Size([1, 2, 4, 1, 3, 2]))
    """

    output: Tensor
    weights: Requested[Tensor]
    positions: Requested[Tensor]


@fx_leaf
class DeformableAttention(Module):
    r"""Attention of each query to a few points near its reference point, at offsets that the query computes.

    .. math::

        output_q = \sum_m W_m \sum_{l, k} A_{mlqk} \, W'_m x_l(p_q + \Delta p_{mlqk}), \qquad
        A_{m q} = normalize_{lk}(W^A_m z_q)

    Zhu et al. 2021, "Deformable DETR", eq. 2 for one map and eq. 3 for several levels. :math:`z_q` is our query,
    :math:`\Delta p` are ``offset`` of the query in units of a map's elements, :math:`A` the weights, which depend on
    the query alone, :math:`x_l(p)` a map at a point between its elements (bilinear, 0 outside). It costs as many pairs
    as there are points, whatever the size of the maps. At first the points of head m lie in direction
    :math:`2 \pi m / M`, at distances 1 to ``points``, and have equal weights, as in the authors' code.

    The points of a query are keys of one call of attention, so that backends and `regard.watch` see the weights.

    Args:
        embed_dim: features of a query, and channels of a map.
        num_heads: M, a divisor of ``embed_dim``.
        points: K, points of each head on each level.
        levels: L, number of maps.
        normalizer: over the points of all levels: a name, a `Normalizer` or a function.
        backend: ``auto``, or one by name, which runs or raises.

    Raises:
        ArgumentError, KindError, UnknownNameError: an argument is invalid; the message names it.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> attention = nn.DeformableAttention(8, 2, points=3, levels=2)
        >>> maps = torch.randn(1, 8, 16, 16), torch.randn(1, 8, 8, 8)
        >>> seen = attention(torch.randn(1, 4, 8), torch.full((1, 4, 2), 0.5), maps, need_weights=True)
        >>> seen.positions[0, 0, 0, :, :, 0].detach()  # x: one, two and three elements to the right, in both maps
        tensor([[0.5625, 0.6250, 0.6875],
                [0.6250, 0.7500, 0.8750]])
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        points: int = 4,
        levels: int = 1,
        *,
        normalizer: Normalizing = "softmax",
        backend: BackendName = "auto",
    ):
        super().__init__()
        check_sizes(embed_dim=embed_dim, num_heads=num_heads, points=points, levels=levels)
        if embed_dim % num_heads:
            raise ArgumentError(
                f"num_heads must divide embed_dim; embed_dim is {embed_dim} and num_heads is {num_heads}"
            )
        self.embed_dim, self.num_heads, self.points, self.levels = embed_dim, num_heads, points, levels
        self.normalizer = own_normalizer(normalizer)
        self.backend: BackendName = check_backend(backend)
        self.offset = nn.Linear(embed_dim, num_heads * levels * points * 2)
        self.weight = nn.Linear(embed_dim, num_heads * levels * points)
        self.value_proj, self.out_proj = nn.Linear(embed_dim, embed_dim), nn.Linear(embed_dim, embed_dim)
        for linear in (self.offset, self.weight):
            nn.init.zeros_(linear.weight)
            nn.init.zeros_(linear.bias)
        for linear in (self.value_proj, self.out_proj):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)
        angle = torch.arange(num_heads, dtype=torch.float64, device="cpu") * (2 * math.pi / num_heads)
        direction = torch.stack((angle.cos(), angle.sin()), dim=-1)
        direction = direction / direction.abs().amax(-1, keepdim=True)
        distance = torch.arange(1, points + 1, device="cpu")[:, None]
        with torch.no_grad():
            self.offset.bias.view(num_heads, levels, points, 2).copy_(direction[:, None, None] * distance)

    def forward(
        self, query: Tensor, reference: Tensor, maps: Tensor | Sequence[Tensor], *, need_weights: bool = False
    ) -> Deformed:
        """Samples the maps around the reference points.

        Args:
            query: ``[batch, queries, embed_dim]``.
            reference: the point of each query, ``(x, y)`` from 0 (left, top) to 1: ``[batch, queries, 2]``, or one for
                each level, ``[batch, queries, levels, 2]``.
            maps: one feature map ``[batch, embed_dim, height, width]``, or one for each level.
            need_weights: whether to give weights and positions, which carry gradients; the output is the same, bit for
                bit.

        Raises:
            ShapeError, KindError, ArgumentError: bad input; the message names the argument.
        """
        refuse_parts(type(self).__name__)
        maps = (maps,) if isinstance(maps, Tensor) else tuple(maps)
        if len(maps) != self.levels:
            raise ArgumentError(f"maps must be one feature map for each level, {self.levels}; there are {len(maps)}")
        check_floating("query", query)
        check_floating("reference", reference)
        if query.dim() != 3 or query.shape[-1] != self.embed_dim:
            raise ShapeError(f"query must be [batch, queries, {self.embed_dim}]; it has shape {list(query.shape)}")
        batch, queries, _ = query.shape
        if tuple(reference.shape) not in ((batch, queries, 2), (batch, queries, self.levels, 2)):
            raise ShapeError(
                f"reference must be [batch, queries, 2] or [batch, queries, levels, 2], [{batch}, {queries}, "
                f"{self.levels}, 2]; it has shape {list(reference.shape)}"
            )
        for features in maps:
            check_feature_map("maps", features, self.embed_dim)
            if features.shape[0] != batch:
                raise ShapeError(f"maps must have query's batch, {batch}; a map has {features.shape[0]}")
        positions = self._positions(query, reference, maps)
        sampled = torch.stack([self._sampled(each, positions[:, :, :, n]) for n, each in enumerate(maps)], dim=-2)
        # Each query is a problem of one query; its points are the keys, which it names by their number.
        value = sampled.permute(0, 3, 1, 4, 5, 2).flatten(3, 4).flatten(0, 1)  # B·Q M L·K features
        logits = self.weight(query).view(batch * queries, self.num_heads, 1, -1)
        points = torch.eye(logits.shape[-1], dtype=logits.dtype, device=logits.device)
        key = points.expand(batch * queries, self.num_heads, -1, -1)
        problem = planned(logits, key, value, score="dot", normalizer=self.normalizer, backend=self.backend)
        attended = run(problem, self.backend, need_weights=need_weights, layer=self)
        output = self.out_proj(attended.output.reshape(batch, queries, self.embed_dim))
        if attended.weights is None:
            return Deformed(output, None, None)
        weights = attended.weights.reshape(batch, queries, self.num_heads, self.levels, self.points).transpose(1, 2)
        return Deformed(output, weights, positions)

    def _positions(self, query: Tensor, reference: Tensor, maps: Sequence[Tensor]) -> Tensor:
        """Returns where points are, ``[batch, num_heads, queries, levels, points, 2]``."""
        batch, queries, _ = query.shape
        offset = self.offset(query).view(batch, queries, self.num_heads, self.levels, self.points, 2)
        lengths = [[features.shape[3], features.shape[2]] for features in maps]
        sizes = torch.tensor(lengths, dtype=offset.dtype, device=offset.device)
        start = reference[:, :, None] if reference.dim() == 3 else reference
        return (start[:, :, None, :, None] + offset / sizes[:, None]).transpose(1, 2)

    def _sampled(self, features: Tensor, positions: Tensor) -> Tensor:
        """Returns a projected map at points ``[batch, num_heads, queries, points, 2]``, as
        ``[batch, num_heads, features of a head, queries, points]``."""
        batch, _, height, width = features.shape
        value = as_feature_map(self.value_proj(as_sequence(features)), height, width)
        value = value.reshape(batch * self.num_heads, -1, height, width)
        scaled = 2 * positions.flatten(0, 1) - 1  # of grid_sample: −1 to 1
        sampled = F.grid_sample(value, scaled.to(value.dtype), align_corners=False)
        return sampled.unflatten(0, (batch, self.num_heads))

    def extra_repr(self) -> str:
        return f"embed_dim={self.embed_dim}, num_heads={self.num_heads}, points={self.points}, levels={self.levels}"
