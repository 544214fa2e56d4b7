"""Compressed sparse attention: near tokens and compressed blocks of tokens in one softmax (DeepSeek-V4)."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention.execution import check_backend
from regard.attention.routes import planned
from regard.attention.verbs import BackendName, run
from regard.distributed.sequence_parts import refuse_parts
from regard.errors import ArgumentError
from regard.masks import Compressed, Mask, causal, columns, lengths
from regard.masks.mask import joined_masks
from regard.nn.fx_leaf import fx_leaf
from regard.nn.indexer import Indexer
from regard.nn.key_values import SequenceCache, check_continued
from regard.nn.layer_inputs import Biasing, Masking
from regard.nn.padding import padding_of
from regard.nn.sequence_attention import SequenceAttention, SequenceOutput
from regard.normalizers import softmax_with_sink
from regard.positions import Rotary
from regard.shapes.checks import check_sizes, size
from regard.shapes.grid import Grid, upcast
from regard.tracing.ownership import own_copy


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


class CompressedKeys(NamedTuple):
    """The keys of the tokens so far: of near tokens and of complete blocks, ``[batch, 1, tokens or blocks, head_dim]``;
    of blocks for the indexer, ``[batch, 1, blocks, index_dim]``, or ``[batch, 1, 0, 0]`` without one; and the
    ``recent`` inputs that the next block reads, ``[batch, tokens, embed_dim]``."""

    tokens: Tensor
    blocks: Tensor
    index_keys: Tensor
    recent: Tensor


@dataclass(frozen=True, repr=False)
class CompressedCache(SequenceCache):
    """The cache of `CompressedAttention`: the keys, None before the first token, and the number of tokens so far."""

    keys: CompressedKeys | None = None
    length: int = 0

    @property
    def tensors(self) -> dict[str, Tensor]:
        return {} if self.keys is None else self.keys._asdict()

    def rows(self, index: Tensor) -> "CompressedCache":
        keys = None if self.keys is None else CompressedKeys(*(part[index] for part in self.keys))
        return CompressedCache(keys, self.length)


class PackedTokens(NamedTuple):
    """Tokens ``[batch, length, embed_dim]`` with padding last, as zeros; the number of tokens that are no padding,
    ``[batch]``, and where each token was, ``[batch, length]``, both None without padding."""

    x: Tensor
    ends: Tensor | None = None
    order: Tensor | None = None


@fx_leaf
class CompressedAttention(SequenceAttention):
    r"""Self-attention to near tokens and to compressed blocks of all tokens, in one softmax with a sink for each head.

    .. math::

        k_s &= R_s \, norm(W_K x_s), \qquad \tilde k_i = R_{m i} \, compress(x)_i, \qquad
            q_{t,h} = R_t \, norm(W_{Q,h} \, norm(W_D x_t)) \\
        a_{t,h} &= softmax\big([\,q_{t,h} \cdot k_s / \sqrt d\,]_{t - n < s \le t} ; \,
            [\,q_{t,h} \cdot \tilde k_i / \sqrt d\,]_{i \in S_t} ; \, b_h\big), \qquad
        S_t = topk_i \, \{I_{ti} \mid m (i + 1) \le t + 1\} \\
        head_{t,h} &= R_{-t} \Big(\sum_s a_{t,h,s} \, k_s + \sum_i a_{t,h,i} \, \tilde k_i\Big), \qquad
        output_t = W_O \, [A_1 head_{t, group 1} ; \ldots ; A_g head_{t, group g}]

    DeepSeek-AI 2026, "DeepSeek-V4", sections 2.3.1 and 2.3.2, as released. One head of keys, which are the values too,
    serves all queries; :math:`R_t` rotates the last features. A block of m tokens becomes one key by a
    `GatedCompressor`, seen from its last token on. With ``selected`` (compressed sparse attention) an indexer chooses
    blocks, which also read the ones before them; None (heavily compressed attention): all complete ones are seen.

    No token sees a later one, whatever the mask, which may hide padding besides, as if it were left out. The indexer
    gets no gradient. `regard.watch` records a row for the tokens, then the blocks, with a sum below 1 (the sink);
    the weights that are returned are those of tokens, with a block's weight spread evenly over its m tokens.

    Args:
        compressed: m, tokens of a block; None: no blocks.
        selected: blocks that a token sees at most; None: all, without an indexer.
        near: n, tokens of the window, the token's own among them.
        index_heads, index_dim: heads of the indexer (None: half of ``num_heads``) and their features (``head_dim``).
        query_rank, group_rank: features of compressed queries, and of a group's output; None: twice ``head_dim``.
        rotary: rotates the last features, ``dim`` of them; None: pairs of neighbours, half of the features.
        groups: g, groups of heads with a projection each, a divisor of ``num_heads``.
        embed_dim, num_heads, head_dim, dropout, backend, device, dtype: as elsewhere; no projection has a bias.

    Raises:
        ArgumentError, KindError: an argument is invalid, or the mask is another one; the message names it.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import nn
        >>> attention, x = nn.CompressedAttention(16, 2, compressed=4, selected=2, near=3), torch.randn(3, 14, 16)
        >>> with regard.watch(attention, read=regard.Readings(weights=True)) as seen:
        ...     output = attention(x, mask="causal").output
        >>> seen.calls[0].weights.shape  # 14 tokens and 3 blocks
        torch.Size([3, 2, 14, 17])
    """

    is_causal = True

    def __init__(
        self, embed_dim: int, num_heads: int, *, compressed: int | None = 4, selected: int | None = 512,
        near: int = 128, index_heads: int | None = None, index_dim: int | None = None, head_dim: int | None = None,
        query_rank: int | None = None, rotary: Rotary | None = None, groups: int = 1, group_rank: int | None = None,
        dropout: float = 0.0, backend: BackendName = "auto", device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):  # fmt: skip
        super().__init__(
            embed_dim, num_heads, head_dim=head_dim, dropout=dropout, bias=False, device=device, dtype=dtype
        )
        check_sizes(near=near, groups=groups)
        if num_heads % groups:
            raise ArgumentError(f"groups must divide num_heads, {num_heads}; it is {groups}")
        self.compressed = None if compressed is None else size("compressed", compressed)
        self.selected = None if selected is None or compressed is None else size("selected", selected)
        self.near, self.groups, self.backend, features = near, groups, check_backend(backend), self.head_dim
        self.rotary = Rotary(2 * -(-features // 4), interleaved=True) if rotary is None else own_copy(rotary)
        index_features = features if index_dim is None else size("index_dim", index_dim)
        if min(features, index_features) < (turns := self.rotary.dim):
            wide = f"{turns}; they are {features} and {index_features}"
            raise ArgumentError(f"head_dim and index_dim must be at least the features that positions rotate, {wide}")
        query_rank = 2 * features if query_rank is None else size("query_rank", query_rank)
        self.query_down = self.projection(embed_dim, query_rank)
        self.query_norm = nn.RMSNorm(query_rank, eps=1e-6, **self._factory)
        self.query_up = self.projection(query_rank, num_heads * features)
        self.kv_proj = self.projection(embed_dim, features)
        self.kv_norm = nn.RMSNorm(features, eps=1e-6, **self._factory)
        self.normalizer = softmax_with_sink(nn.Parameter(torch.zeros(num_heads, **self._factory)))
        self.compressor = self.indexer = None
        if self.compressed is not None:
            overlaps = self.selected is not None
            self.compressor = GatedCompressor(embed_dim, features, self.compressed, overlaps, self._factory)
            if overlaps:
                heads = -(-num_heads // 2) if index_heads is None else index_heads
                sizes = self.compressed, embed_dim, query_rank, heads, index_features
                self.indexer = BlockIndexer(*sizes, self.rotary, device, dtype)
        group_rank = 2 * features if group_rank is None else size("group_rank", group_rank)
        self.out_down = nn.Parameter(torch.empty(groups, group_rank, num_heads // groups * features, **self._factory))
        nn.init.xavier_uniform_(self.out_down.data.flatten(0, 1))
        self.out_proj = self.projection(groups * group_rank, embed_dim)

    def projection_weights(self) -> list[Tensor]:
        return [*super().projection_weights(), self.out_down]

    def new_cache(self) -> CompressedCache:
        return CompressedCache()

    def forward(
        self, x: Tensor, *, mask: Masking | None = None, bias: Biasing | None = None,
        cache: SequenceCache | None = None, need_weights: bool = False,
    ) -> SequenceOutput:  # fmt: skip
        refuse_parts(type(self).__name__)
        if bias is not None:
            raise ArgumentError(
                "bias is that of pairs of tokens, and here blocks are attended to as well: leave it out"
            )
        past = self.checked_cache(cache, CompressedCache)
        first = 0 if past is None else past.length
        x, ends, order = self._packed(x, self.checked_input(x, mask), past)
        total = first + x.shape[1]
        positions = torch.arange(first, total, device=x.device)
        down = self.query_norm(self.query_down(x))
        query = self.query_up(down).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        query = turned(self.rotary, F.rms_norm(query, (self.head_dim,), eps=1e-6), positions)
        key = turned(self.rotary, self.kv_norm(self.kv_proj(x))[:, None], positions)
        keys = self._extended(x, None if past is None else past.keys, key)
        tokens = keys.tokens
        key = torch.cat([tokens, keys.blocks], dim=2)
        seen = columns(self._seen(x, down, keys, ends, total))
        problem = planned(
            query, key, key, score="scaled_dot", normalizer=self.normalizer, mask=seen, bias=None,
            dropout=self.dropout if self.training else 0.0, backend=self.backend,
        )  # fmt: skip
        output, weights = run(problem, self.backend, need_weights=need_weights, layer=self)
        output = turned(self.rotary, output, -positions)
        grouped = output.transpose(1, 2).flatten(2).unflatten(-1, (self.groups, -1))
        output = self.out_proj(torch.einsum("blgi,gri->blgr", grouped, self.out_down).flatten(2))
        if weights is not None:
            weights, spread = F.pad(weights[..., : tokens.shape[2]], (total - tokens.shape[2], 0)), weights
            if self.compressed is not None:
                spread = spread[..., tokens.shape[2] :].repeat_interleave(self.compressed, dim=-1) / self.compressed
                weights = weights + F.pad(spread, (0, total - spread.shape[-1]))
        if order is not None:
            back = order.argsort(dim=1)
            output = output.gather(1, back[..., None].expand_as(output))
            if weights is not None:
                rows, cells = back[:, None, :, None].expand_as(weights), back[:, None, None].expand_as(weights)
                weights = weights.gather(2, rows).gather(3, cells)
        if past is not None:
            near = tokens[:, :, max(0, tokens.shape[2] - self.near + 1) :]
            past = CompressedCache(keys._replace(tokens=near), total)
        return SequenceOutput(output, weights, past)

    def _packed(self, x: Tensor, mask: Mask | None, past: CompressedCache | None) -> PackedTokens:
        """Returns the tokens with padding last."""
        if mask is None or mask == causal():
            return PackedTokens(x)
        so_far = x.shape[1] + (0 if past is None else past.length)
        keys, queries, rest = padding_of(mask, Grid.whole(len(x), self.num_heads, x.shape[1], so_far, x.device))
        is_shared = keys is None or (past is None and keys.shape[1] == 1)
        if not is_shared or queries is not None or any(part != causal() for part in joined_masks(rest)):
            raise ArgumentError(
                "mask of CompressedAttention may be causal and hide padding of all heads without a cache, for blocks "
                f"know no other: it is {mask!r}"
            )
        if keys is None:
            return PackedTokens(x)
        seen = keys[:, 0, 0].expand(len(x), -1)
        order = seen.int().argsort(dim=1, descending=True, stable=True)
        packed = x.masked_fill(~seen[..., None], 0.0).gather(1, order[..., None].expand_as(x))
        return PackedTokens(packed, seen.sum(1), order)

    def _extended(self, x: Tensor, past: CompressedKeys | None, tokens: Tensor) -> CompressedKeys:
        """Returns the keys so far and those of more tokens, also of tokens that are not near any more."""
        index = x.new_zeros(len(x), 1, 0, 0 if self.indexer is None else self.indexer.head_dim)
        if past is None:
            past = CompressedKeys(tokens[:, :, :0], tokens[:, :, :0], index, x[:, :0])
        for cached, new, axis in ((past.tokens, tokens, 2), (past.index_keys, index, 2), (past.recent, x, 1)):
            check_continued(cached, new, axis)
        tokens = torch.cat([past.tokens, tokens], dim=2)
        if self.compressor is None:
            return past._replace(tokens=tokens)
        blocks, index, recent = past.blocks, past.index_keys, torch.cat([past.recent, x], dim=1)
        length, done = self.compressor.length, blocks.shape[2]
        earlier = int(self.compressor.overlap and done > 0)
        new = recent.shape[1] // length - earlier
        whole = recent[:, : (new + earlier) * length if new else 0]
        positions = torch.arange(done, done + new, device=x.device) * length
        blocks = torch.cat([blocks, turned(self.rotary, self.compressor(whole, earlier)[:, None], positions)], dim=2)
        if self.indexer is not None:
            with torch.no_grad():
                added = turned(self.rotary, self.indexer.compressor(whole, earlier)[:, None], positions)
                index = torch.cat([index, added], dim=2)
        read = recent.shape[1] % length + length * (self.compressor.overlap and done + new > 0)
        return CompressedKeys(tokens, blocks, index, recent[:, recent.shape[1] - read :])

    @torch.no_grad()
    def _seen(self, x: Tensor, down: Tensor, keys: CompressedKeys, ends: Tensor | None, total: int) -> Tensor:
        """Returns the keys that each token sees, ``[batch or 1, 1, length, keys]``, −1 for none; blocks come last."""
        length, tokens = x.shape[1], keys.tokens.shape[2]
        visible: Mask = causal()
        own = torch.arange(tokens - length, tokens, device=x.device)[:, None]
        window = (own - torch.arange(min(self.near, tokens), device=x.device)).clamp(min=-1)[None, None]
        if ends is not None:
            window, visible = torch.where(window < ends[:, None, None, None], window, -1), visible & lengths(ends)
        if self.compressor is None or not (count := total // self.compressor.length):
            return window
        visible = Compressed(visible, total, self.compressor.length, self.compressor.length)
        grid = Grid.whole(x.shape[0], 1, length, count, x.device)
        if self.indexer is not None and self.selected is not None and count > self.selected:
            queries = self.indexer.queries(x, down, total - length)
            chosen = self.indexer.largest(queries, keys.index_keys, self.selected, visible, grid)
        else:
            chosen = torch.where(visible.with_four_axes(grid), torch.arange(count, device=x.device), -1)
        chosen = torch.where(chosen < 0, -1, chosen + tokens)
        batch = max(len(window), len(chosen)) if x.shape[0] else 0
        return torch.cat([part.expand(batch, -1, length, -1) for part in (window, chosen)], dim=-1)
