"""Indexed sparse attention: each token attends to the tokens that a lightning indexer selects (DeepSeek-AI 2025)."""

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from regard.attention.backends.reference import TileInputs, guarded, weights_alone
from regard.attention.backends.tiled import block_shape, blocks
from regard.attention.execution import unwatched
from regard.attention.problem import Problem
from regard.attention.verbs import BackendName
from regard.distributed.sequence_parts import refuse_parts
from regard.errors import ArgumentError
from regard.masks import Mask, columns
from regard.nn.fx_leaf import fx_leaf
from regard.nn.indexer import Indexer, IndexQueries
from regard.nn.key_values import SequenceCache
from regard.nn.latent_attention import LatentAttention, LatentHeads
from regard.nn.layer_inputs import Biasing, Masking
from regard.nn.named_positions import Position
from regard.nn.sequence_attention import SequenceOutput
from regard.normalizers import Normalizing
from regard.positions import Rotary
from regard.shapes.checks import flag, size
from regard.shapes.grid import Grid, is_open, upcast
from regard.tracing.transforms import active_transform


@fx_leaf
class IndexedAttention(LatentAttention):
    r"""Latent self-attention to the tokens that an indexer selects.

    .. math::

        S_t = topk_s \; I_{ts}, \qquad head_t = \sum_{s \in S_t} normalize_{s \in S_t}(q_t \cdot k_s) \, v_s

    DeepSeek-AI 2025, "DeepSeek-V3.2", section 2.1 ("DeepSeek Sparse Attention"), eq. 1 and 2. :math:`I` are the scores
    of an `Indexer`, whose keys are cached with the compressed vectors; the rest is `LatentAttention`. All heads read
    the same tokens. Where there are at most :math:`k` of them, it is latent attention. Kernels read the selected tokens
    alone (`regard.masks.columns`).

    As published, no gradient passes through the selection: the indexer learns from `index_loss`.

    The layers of DeepSeek V3.2 and GLM 5 in transformers load as those of `LatentAttention`; ``selected`` is
    ``index_topk``, ``index_heads`` ``index_n_heads`` and ``index_dim`` ``index_head_dim``. The indexer of DeepSeek V3.2
    rotates other pairs than its heads: ``index_position=Rotary.from_config(config.rope_parameters, dim=rotary_dim)``.

    Args:
        embed_dim, num_heads, kv_rank, query_rank, rotary_dim, head_dim, value_dim, scale: as for `LatentAttention`.
        selected: k, tokens that each token attends to.
        index_heads: heads of the indexer; None: half of ``num_heads``, rounded up.
        index_dim: features of its heads; None: those of the heads, with their rotary part at least.
        index_position: a `Rotary` of the indexer; None: a copy of the layer's, if it has one.
        dropout, bias, normalizer, position, bidirectional, backend, device, dtype: as for `LatentAttention`.

    Raises:
        ArgumentError, KindError, UnknownNameError: an argument is invalid; the message names it.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import nn
        >>> attention = nn.IndexedAttention(32, 4, selected=3, position="rotary").eval()
        >>> x = torch.randn(2, 7, 32)
        >>> with regard.watch(attention, read=regard.Readings(weights=True, recall=True)) as seen:
        ...     _ = attention(x, mask="causal")
        >>> (seen.calls[0].weights[0, 0] > 0).sum(-1)
        tensor([1, 2, 3, 3, 3, 3, 3])
        >>> seen.calls[0].recall.shape  # the share of dense attention's weight on these tokens
        torch.Size([2, 4, 7])
        >>> attention.index_loss(x, mask="causal").backward()  # trains the indexer alone
        >>> attention.query_up.weight.grad is None, attention.indexer.query_proj.weight.grad is None
        (True, False)
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        selected: int = 2048,
        index_heads: int | None = None,
        index_dim: int | None = None,
        index_position: Rotary | None = None,
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
            embed_dim, num_heads, kv_rank=kv_rank, query_rank=query_rank, rotary_dim=rotary_dim, head_dim=head_dim,
            value_dim=value_dim, scale=scale, dropout=dropout, bias=bias, normalizer=normalizer, position=position,
            bidirectional=bidirectional, backend=backend, device=device, dtype=dtype,
        )  # fmt: skip
        self.selected = size("selected", selected)
        own = self.position if isinstance(self.position, Rotary) else None
        rotary = own if index_position is None else index_position
        features = max(self.head_dim, 0 if rotary is None else rotary.dim) if index_dim is None else index_dim
        if rotary is not None and size("index_dim", features) < rotary.dim:
            raise ArgumentError(
                f"index_dim must be at least the features that positions rotate, {rotary.dim}; it is {features}"
            )
        heads = -(-num_heads // 2) if index_heads is None else size("index_heads", index_heads)
        query_dim = embed_dim if self.query_rank is None else self.query_rank
        self.indexer = Indexer(embed_dim, query_dim, heads, features, rotary, device, dtype)

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
        return super().forward(x, mask=mask, bias=bias, cache=cache, need_weights=need_weights)

    @torch.no_grad()
    def cached_features(self, x: Tensor, first: int) -> Tensor:
        return self.indexer.keys(x, first)

    @torch.no_grad()
    def selection(self, x: Tensor, heads: LatentHeads, visible: Mask | None) -> Mask | None:
        grid = Grid.whole(x.shape[0], self.num_heads, x.shape[1], heads.key.shape[2], x.device)
        if not is_open(grid.keys) and grid.keys <= self.selected:
            return visible
        if visible is not None:
            visible.check(grid)
        queries = self.indexer.queries(x, heads.compressed, grid.keys - grid.queries)
        chosen = columns(self.indexer.largest(queries, heads.cached_features, self.selected, visible, grid))
        return chosen if visible is None else chosen & visible

    def index_loss(
        self, x: Tensor, *, mask: Masking | None = None, bias: Biasing | None = None, sparse: bool = False
    ) -> Tensor:
        r"""Returns how far the indexer is from the attention that it selects for; its gradient is the indexer's alone.

        .. math:: L = mean_t \; D_{KL}\big(p_t \,\|\, softmax_{s \in T_t} I_{ts}\big), \qquad
            p_{ts} = \sum_h a_{hts} \Big/ \sum_{h, s'} a_{hts'}

        DeepSeek-AI 2025, "DeepSeek-V3.2", eq. 3 (dense warm-up: the attention :math:`a` and :math:`T` are those of all
        visible tokens) and eq. 4 (sparse training: those of the selected ones), as a mean over tokens that see any.
        Weights are computed again in the backward pass, in blocks of queries, so that memory is linear.

        Args:
            x, mask, bias: as in the layer's call.
            sparse: whether only selected tokens count.

        Returns:
            A scalar in nats.

        Example:
            >>> import torch
            >>> from regard import nn
            >>> model = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, attention="indexed"), 2)
            >>> losses = []
            >>> for layer in model.layers:
            ...     _ = layer.self_attn.register_forward_pre_hook(
            ...         lambda module, args, options: losses.append(module.index_loss(args[0], mask=options["mask"])),
            ...         with_kwargs=True,
            ...     )
            >>> output = model(torch.randn(3, 5, 16), mask="causal")
            >>> sum(losses).backward()
        """
        refuse_parts(type(self).__name__)
        visible = self.checked_input(x, mask)
        with torch.no_grad():
            heads = self.heads(x, None)
            if flag("sparse", sparse):
                visible = self.selection(x, heads, visible)
            problem = self.problem(heads, visible, bias)
            problem.dropout = 0.0
        queries, key = self.indexer.queries(x.detach(), heads.compressed), self.indexer.keys(x.detach())
        loss = rows = upcast(key).new_zeros(())
        for inputs in blocks(problem, block_shape(problem)) if problem.pairs else ():
            arguments = problem, inputs, queries.rows(inputs.grid.batch_span, inputs.grid.query_span), key
            # A transform would not see what is computed again.
            if active_transform() is None:
                of_block, seen = checkpoint(self._divergence, *arguments, use_reentrant=False)
            else:
                of_block, seen = self._divergence(*arguments)
            loss, rows = loss + of_block, rows + seen
        return loss / rows.clamp(min=1)

    def _divergence(
        self, problem: Problem, inputs: TileInputs, queries: IndexQueries, key: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Returns the sum of the divergences of a block's queries, and the number of those that see a key."""
        batch, keys = inputs.grid.batch_span, inputs.grid.key_span
        with torch.no_grad(), unwatched():
            attention = F.normalize(weights_alone(problem, guarded(problem, inputs)).sum(1, keepdim=True), 1, dim=-1)
        scores = self.indexer(queries, key[batch.start : batch.stop, :, keys.start : keys.stop])
        if problem.mask is not None:
            hidden = ~problem.mask.with_four_axes(inputs.grid).any(1, keepdim=True)
            # Not −∞, whose softmax is NaN in rows without keys.
            scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
        divergence = torch.xlogy(attention, attention) - attention * scores.log_softmax(-1)
        return divergence.sum(), attention.sum(-1).gt(0.5).sum()

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, selected={self.selected}"
