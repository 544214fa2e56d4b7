"""Blocks of tokens that become one token each, by weights of their own for each feature (DeepSeek-V4)."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.nn.indexer import Indexer
from regard.positions import Rotary
from regard.shapes.grid import upcast


def turned(position: Rotary, x: Tensor, positions: Tensor) -> Tensor:
    """Rotates the last features of ``[..., length, features]``, which has these positions ``[length]``."""
    rest, last = x.split([x.shape[-1] - position.dim, position.dim], dim=-1)
    return torch.cat([rest, position(last, positions=positions)], dim=-1)


class GatedCompressor(nn.Module):
    r"""Turns each block of tokens into one, as a sum with weights for each feature.

    .. math::

        c_i = norm\Big(\sum_{j \in block_i} w_j \odot W_b x_j + \sum_{j \in block_{i-1}} w_j \odot W_a x_j\Big)

    with weights :math:`w` from a softmax over all tokens of both sums, of :math:`G_b x_j + p_{b,j}` and
    :math:`G_a x_j + p_{a,j}` with p learned for each position in the block; without ``overlap`` there is no second sum.
    """

    def __init__(self, embed_dim: int, head_dim: int, length: int, overlap: bool, factory: dict[str, Any]):
        super().__init__()
        self.length, self.overlap = length, overlap
        width = 2 * head_dim if overlap else head_dim
        self.value_proj = nn.Linear(embed_dim, width, bias=False, **factory)
        self.gate_proj = nn.Linear(embed_dim, width, bias=False, **factory)
        self.position = nn.Parameter(torch.zeros(length, width, **factory))
        self.norm = nn.RMSNorm(head_dim, eps=1e-6, **factory)

    def forward(self, x: Tensor, earlier: int = 0) -> Tensor:
        """Returns ``[batch, blocks, head_dim]`` of the tokens ``[batch, tokens, embed_dim]`` of whole blocks, without
        the first ``earlier`` blocks, which only the next ones read."""
        blocks = x.unflatten(1, (x.shape[1] // self.length, self.length))  # B blocks length embed_dim
        values, gates = self.value_proj(blocks), upcast(self.gate_proj(blocks)) + upcast(self.position)
        if self.overlap:
            values, gates = (
                torch.cat([F.pad(a, (0, 0, 0, 0, 1, 0), value=first)[:, : a.shape[1]], b], dim=2)
                for (a, b), first in ((values.chunk(2, -1), 0.0), (gates.chunk(2, -1), -torch.inf))
            )
        powers = (gates - gates.detach().amax(2, keepdim=True)).exp()  # a softmax, but by features: no attention
        return self.norm(((upcast(values) * powers).sum(2) / powers.sum(2)).to(x.dtype)[:, earlier:])


class BlockIndexer(Indexer):
    """An `Indexer` whose keys are those of blocks, by a `GatedCompressor`; it rotates the last features."""

    position: Rotary

    def __init__(self, length: int, *args: Any):
        self.length = length
        super().__init__(*args)

    def create_keys(self, embed_dim: int, factory: dict[str, Any]) -> None:
        self.compressor = GatedCompressor(embed_dim, self.head_dim, self.length, True, factory)

    def _rotated(self, heads: Tensor, first: int) -> Tensor:
        return turned(self.position, heads, torch.arange(first, first + heads.shape[-2], device=heads.device))
