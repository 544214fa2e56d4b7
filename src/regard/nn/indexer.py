"""The lightning indexer: a few small heads that score each token for each query (DeepSeek-AI 2025)."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.attention.backends.tiled import block_elements
from regard.masks import Mask
from regard.masks.blocks import largest_blocks
from regard.positions import Rotary
from regard.shapes.checks import size
from regard.shapes.grid import Grid, is_open, upcast
from regard.tracing.module_calls import Module
from regard.tracing.ownership import own_copy


class IndexQueries(NamedTuple):
    """The queries ``[batch, heads, length, head_dim]`` of an indexer, and the weight of each head,
    ``[batch, heads, length, 1]``."""

    query: Tensor
    weight: Tensor

    def rows(self, batch: range, queries: range) -> "IndexQueries":
        """Returns those of some queries."""
        b, q = slice(batch.start, batch.stop), slice(queries.start, queries.stop)
        return IndexQueries(self.query[b, :, q], self.weight[b, :, q])


class Indexer(Module):
    r"""Scores each token for each query by a few small heads, to select the tokens that attention reads.

    .. math::

        I_{ts} = \sum_h w_{th} \; ReLU(q_{th} \cdot k_s), \qquad
        q_{th} &= RoPE(W_{Q,h} c_t), \quad k_s = RoPE(norm(W_K x_s)), \quad w_t = W_w x_t / \sqrt{n d}

    DeepSeek-AI 2025, "DeepSeek-V3.2", eq. 1, with n heads of d features. As in the released models, all heads share a
    key, which layer normalization precedes, and :math:`w` has this factor.

    Args:
        embed_dim: features of a token :math:`x`.
        query_dim: features of :math:`c`, from which queries are made.
        num_heads: n.
        head_dim: d.
        position: rotates the first features of queries and keys; None: no positions.
        device, dtype: device and dtype of the parameters.

    Numerics: half precision is scored in float32.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> indexer, x = nn.Indexer(16, 16, num_heads=2, head_dim=4), torch.randn(3, 5, 16)
        >>> indexer(indexer.queries(x, x), indexer.keys(x)).shape
        torch.Size([3, 1, 5, 5])
    """

    def __init__(
        self,
        embed_dim: int,
        query_dim: int,
        num_heads: int,
        head_dim: int,
        position: Rotary | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.num_heads, self.head_dim = size("num_heads", num_heads), size("head_dim", head_dim)
        self.query_proj = nn.Linear(size("query_dim", query_dim), num_heads * head_dim, bias=False, **factory)
        self.create_keys(size("embed_dim", embed_dim), factory)
        self.head_weights = nn.Linear(embed_dim, num_heads, bias=False, **factory)
        self.position = None if position is None else own_copy(position)

    def create_keys(self, embed_dim: int, factory: dict[str, Any]) -> None:
        """Creates the modules that make keys."""
        self.key_proj = nn.Linear(embed_dim, self.head_dim, bias=False, **factory)
        self.key_norm = nn.LayerNorm(self.head_dim, eps=1e-6, **factory)

    def queries(self, x: Tensor, compressed: Tensor, first: int = 0) -> IndexQueries:
        """Returns the queries of the tokens ``[batch, length, embed_dim]``, of which the first has this position."""
        query = self.query_proj(compressed).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        weight = upcast(self.head_weights(x)).mT[..., None] * (self.num_heads * self.head_dim) ** -0.5
        return IndexQueries(self._rotated(query, first), weight)

    def keys(self, x: Tensor, first: int = 0) -> Tensor:
        """Returns the keys of the tokens, ``[batch, 1, length, head_dim]``."""
        return self._rotated(self.key_norm(self.key_proj(x))[:, None], first)

    def forward(self, queries: IndexQueries, key: Tensor) -> Tensor:
        """Returns the scores ``[batch, 1, queries, keys]``."""
        scores = (upcast(queries.query) @ upcast(key).mT).relu_()
        return (scores * queries.weight).sum(1, keepdim=True)

    @torch.no_grad()
    def largest(self, queries: IndexQueries, key: Tensor, count: int, visible: Mask | None, grid: Grid) -> Tensor:
        """Returns the keys with the largest scores of those that are visible to any head, in linear memory.

        Returns:
            int64 ``[batch, 1, queries, count]``, −1 where fewer are visible.
        """
        tiles = [grid]
        if not is_open(grid.queries) and not is_open(grid.keys):
            rows = max(1, block_elements(key.device) // max(1, grid.batch * self.num_heads * grid.keys))
            starts = range(0, grid.queries, rows) or (0,)
            tiles = [grid.tile(queries=range(start, min(start + rows, grid.queries))) for start in starts]
        parts = []
        for tile in tiles:
            scores = self(queries.rows(tile.batch_span, tile.query_span), key)
            eligible = torch.ones_like(scores, dtype=torch.bool)
            if visible is not None:
                eligible = visible.with_four_axes(tile).any(1, keepdim=True)
            parts.append(largest_blocks(scores, eligible, count))
        return torch.cat(parts, dim=2)

    def _rotated(self, heads: Tensor, first: int) -> Tensor:
        return heads if self.position is None else self.position(heads, offset=first)

    def extra_repr(self) -> str:
        return f"num_heads={self.num_heads}, head_dim={self.head_dim}"
