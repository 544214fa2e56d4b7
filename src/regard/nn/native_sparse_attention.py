"""Native sparse attention: compressed, selected and near tokens, weighted by gates (Yuan et al. 2025)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention.verbs import BackendName
from regard.distributed.sequence_parts import refuse_parts
from regard.errors import ArgumentError
from regard.masks import Compressed, Mask, columns, window
from regard.masks.blocks import largest_blocks
from regard.nn.fx_leaf import fx_leaf
from regard.nn.key_values import SequenceCache
from regard.nn.layer_inputs import Biasing, Masking
from regard.nn.named_positions import Position
from regard.nn.projected_attention import ProjectedAttention
from regard.nn.sequence_attention import SequenceOutput
from regard.normalizers import Normalizing
from regard.shapes.checks import check_sizes
from regard.shapes.grid import Grid


class Compressor(nn.Module):
    """Turns each block of ``length`` keys, or values, into one: an MLP of the block with learned positions."""

    def __init__(self, length: int, head_dim: int, **factory: torch.device | str | torch.dtype | None):
        super().__init__()
        self.position = nn.Parameter(torch.empty(length, head_dim, **factory).normal_(std=0.02))  # type: ignore[arg-type]
        self.first = nn.Linear(length * head_dim, head_dim, **factory)  # type: ignore[arg-type]
        self.second = nn.Linear(head_dim, head_dim, **factory)  # type: ignore[arg-type]

    def forward(self, tokens: Tensor) -> Tensor:
        """Returns ``[batch, heads, blocks, head_dim]`` of ``[batch, heads, blocks, length, head_dim]``."""
        return self.second(F.gelu(self.first((tokens + self.position).flatten(-2))))


@fx_leaf
class NativeSparseAttention(ProjectedAttention):
    r"""Self-attention to compressed tokens, to blocks of tokens that these select, and to near tokens.

    .. math::

        head_t &= \sum_{c} g_t^c \; normalize(q_t \tilde K_c^T / \sqrt d) \, \tilde V_c,
            \qquad c \in \{compressed, selected, near\} \\
        \tilde K_{compressed} &= \{\varphi(k_{i s + 1 : i s + l})\}, \qquad
        \tilde K_{selected} = \{k_j \mid block(j) \in I_t\} \\
        I_t &= topn_B \; \sum_{heads} \sum_i overlap(i, B) \, p_t^{compressed}[i]

    Yuan et al. 2025, "Native Sparse Attention", eq. 5 (gates), 7 (compression), 8 to 12 (selection) and section 3.3.3
    (window). Each of the three branches has its own keys and values; :math:`\varphi` is an MLP of a block with learned
    positions, one for keys and one for values. The gates are sigmoids of the token, one for each head and branch. A
    block's score is the weight of the compressed tokens that overlap it, summed over the heads that share its keys; the
    first block, the token's own and the one before it are always selected. As published, no gradient passes through
    the selection; the gates and both other branches are learned as usual.

    Each branch is one call of attention; the masks are computed from the data, and kernels read the selected blocks
    alone (`regard.masks.columns`). A compressed token is seen where all of its tokens may be seen. Positions are those
    of tokens: ``rotary`` before the compression; a bias is added to the scores of tokens, not to those of compressed
    ones. The weights that are returned are the sum of the three, times their gates, where a compressed token's weight
    is spread evenly over its tokens.

    Args:
        embed_dim: features of a token.
        num_heads: heads, a divisor of ``embed_dim``.
        compressed: l, tokens of a compressed one.
        stride: s, distance between the first tokens of compressed ones.
        block: tokens of a block that is selected as a whole.
        selected: n, blocks that a token attends to.
        near: tokens of the window, the token's own among them.
        dropout, normalizer, kv_heads: as for `SelfAttention`, in each branch.
        bias, position, bidirectional, backend, device, dtype: as for `SelfAttention`.

    Raises:
        ArgumentError, KindError, UnknownNameError: an argument is invalid; the message names it.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import nn
        >>> attention = nn.NativeSparseAttention(16, 2, compressed=4, stride=2, block=4, selected=4, near=6)
        >>> x = torch.randn(3, 32, 16)
        >>> attention(x, mask="causal").output.shape
        torch.Size([3, 32, 16])
        >>> with regard.watch(attention, read=regard.Readings(weights=True)) as seen:
        ...     _ = attention(x, mask="causal")
        >>> [tuple(call.weights.shape) for call in seen.calls]  # 15 compressed tokens, 32 tokens, 32 tokens
        [(3, 2, 32, 15), (3, 2, 32, 32), (3, 2, 32, 32)]
        >>> (seen.calls[1].weights[0, 0, -1] > 0).sum()  # the last token attends to four blocks
        tensor(16)
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        compressed: int = 32,
        stride: int = 16,
        block: int = 64,
        selected: int = 16,
        near: int = 512,
        dropout: float = 0.0,
        bias: bool = True,
        normalizer: Normalizing = "softmax",
        kv_heads: int | None = None,
        position: Position | None = None,
        bidirectional: bool = True,
        backend: BackendName = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__(
            embed_dim, num_heads, dropout=dropout, bias=bias, normalizer=normalizer, kv_heads=kv_heads,
            position=position, bidirectional=bidirectional, backend=backend, device=device, dtype=dtype, branches=3,
        )  # fmt: skip
        check_sizes(compressed=compressed, stride=stride, block=block, selected=selected, near=near)
        if stride > compressed:
            raise ArgumentError(
                f"stride must be at most compressed, {compressed}, so that no token is left out; it is {stride}"
            )
        self.compressed, self.stride, self.block, self.selected, self.near = compressed, stride, block, selected, near
        self.compress_key = Compressor(compressed, self.head_dim, **self._factory)
        self.compress_value = Compressor(compressed, self.head_dim, **self._factory)
        self.gates = self.projection(embed_dim, 3 * num_heads)
        self.out_proj = self.projection(embed_dim, embed_dim)

    def forward(
        self,
        x: Tensor,
        *,
        mask: Masking | None = None,
        bias: Biasing | None = None,
        cache: SequenceCache | None = None,
        need_weights: bool = False,
    ) -> SequenceOutput:
        refuse_parts(type(self).__name__)
        visible = self.checked_input(x, mask)
        if bias is not None:
            raise ArgumentError(
                "bias is that of pairs of tokens, and NativeSparseAttention also attends to compressed tokens: "
                "leave it out, or use position="
            )
        query, key, value, past = self.heads(x, cache)
        grid = Grid.whole(x.shape[0], self.num_heads, x.shape[1], key.shape[2], x.device)
        if visible is not None:
            visible.check(grid)
        (coarse, fine, near), (coarse_value, fine_value, near_value) = key.chunk(3, dim=1), value.chunk(3, dim=1)
        summary = self.attend_without_position(
            query, self.compress_key(self._blocks(coarse)), self.compress_value(self._blocks(coarse_value)),
            None if visible is None else Compressed(visible, grid.keys, self.compressed, self.stride), None, True,
        )  # fmt: skip
        chosen: Mask = columns(self._selected(summary.weights, visible, grid), self.block)
        around: Mask = window(self.near - 1, self.near - 1)
        if visible is not None:
            chosen, around = chosen & visible, around & visible
        branches = [
            summary,
            self.attend(query, fine, fine_value, chosen, None, need_weights),
            self.attend(query, near, near_value, around, None, need_weights),
        ]
        gates = self.gates(x).sigmoid().unflatten(-1, (3, -1)).permute(2, 0, 3, 1)[..., None]  # 3 B H Q 1
        joined = torch.stack([gate * branch.output for gate, branch in zip(gates, branches, strict=True)]).sum(0)
        weights = None
        if need_weights:
            weights = gates[0] * (summary.weights @ self._spread(summary.weights, grid.keys))
            weights = weights + gates[1] * branches[1].weights + gates[2] * branches[2].weights
        return SequenceOutput(self.out_proj(joined.transpose(1, 2).flatten(2)), weights, past)

    def _blocks(self, tokens: Tensor) -> Tensor:
        """Returns the tokens of each compressed one, ``[batch, kv_heads, blocks, compressed, head_dim]``."""
        if tokens.shape[2] < self.compressed:
            return tokens[:, :, :0, None].expand(-1, -1, -1, self.compressed, -1)
        return tokens.unfold(2, self.compressed, self.stride).mT

    def _shared(self, weights: Tensor, length: int, blocks: int) -> Tensor:
        """Returns how many tokens each compressed one shares with blocks of a length, ``[compressed, blocks]``."""
        start = torch.arange(weights.shape[-1], device=weights.device)[:, None] * self.stride
        first = torch.arange(blocks, device=weights.device) * length
        shared = torch.minimum(start + self.compressed, first + length) - torch.maximum(start, first)
        return shared.clamp(min=0).to(weights.dtype)

    def _spread(self, weights: Tensor, keys: int) -> Tensor:
        """Returns the share of each token in each compressed one."""
        return self._shared(weights, 1, keys) / self.compressed

    def _selected(self, weights: Tensor, visible: Mask | None, grid: Grid) -> Tensor:
        """Returns the selected blocks of each token, ``[batch, kv_heads, queries, selected]``, −1 for none."""
        count = -(-grid.keys // self.block)
        with torch.no_grad():
            groups = (self.kv_heads, self.num_heads // self.kv_heads)
            scores = weights.detach() @ self._shared(weights, self.block, count)
            scores = scores.unflatten(1, groups).sum(2)  # B kv_heads Q blocks
            index = torch.arange(count, device=grid.device)
            own = torch.arange(grid.keys - grid.queries, grid.keys, device=grid.device)[:, None] // self.block
            always = (index == 0) | (index == own) | (index == own - 1)
            eligible = torch.ones_like(index, dtype=torch.bool)
            if visible is not None:
                of_blocks = Grid.whole(grid.batch, grid.heads, grid.queries, count, grid.device)
                reached = ~Compressed(~visible, grid.keys, self.block, self.block)
                eligible = reached.dense(of_blocks).unflatten(1, groups).any(2)
            return largest_blocks(scores.masked_fill(always, torch.inf), eligible, self.selected)
