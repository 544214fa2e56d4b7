"""Co-attention: two sequences attend to each other (bidirectional attention flow, Seo et al. 2017)."""

from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from regard import masks
from regard.attention.execution import check_backend
from regard.attention.problem import validate
from regard.attention.verbs import BackendName, run
from regard.distributed.sequence_parts import refuse_parts
from regard.errors import ShapeError
from regard.masks import Mask
from regard.nn.fx_leaf import fx_leaf
from regard.nn.padding import without_padding
from regard.scores import Trilinear
from regard.shapes.checks import Requested, check_floating, size
from regard.shapes.grid import Grid
from regard.summaries import summarized
from regard.tracing.module_calls import Module


@summarized
class CoAttended(NamedTuple):
    """The output of `CoAttention`.

    Attributes:
        output: ``[batch, context, 4 · dim]``.
        context_to_query: ``[batch, context, query]``: the weights of each context vector over the query.
        query_to_context: ``[batch, context]``: the weights of the query over the context vectors. Both are None unless
            ``need_weights``.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> attended = nn.CoAttention(4)(torch.ones(1, 5, 4), torch.ones(1, 3, 4), need_weights=True)
        >>> attended.output.shape, attended.context_to_query.shape, attended.query_to_context.shape
        (torch.Size([1, 5, 16]), torch.Size([1, 5, 3]), torch.Size([1, 5]))
    """

    output: Tensor
    context_to_query: Requested[Tensor]
    query_to_context: Requested[Tensor]


@fx_leaf
class CoAttention(Module):
    """Lets a context and a query attend to each other, and returns the context with both results.

    .. math::

        S_{tj} = w · [h_t; u_j; h_t ∘ u_j]
        ũ_t = Σ_j softmax_j(S_t:)_j u_j    context to query
        h̃ = Σ_t b_t h_t,    b = softmax_t(max_j S_{tj})    query to context
        G_t = [h_t; ũ_t; h_t ∘ ũ_t; h_t ∘ h̃]

    Seo et al. 2017, "Bidirectional Attention Flow for Machine Comprehension", section 2, item 4, equations 1 and 2: H
    is our context, U our query, a_tj are ``context_to_query``, b_t ``query_to_context``. Both directions attend as
    `regard.attend` does; the maxima need the matrix S, ``[batch, context, query]``.

    Args:
        dim: features of a context vector and of a query vector (the paper's 2d).
        backend: ``auto``, or one by name, which runs or raises.

    Raises:
        ArgumentError: ``dim`` is below 1.
        UnknownNameError: no backend has this name.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> layer = nn.CoAttention(2)
        >>> layer.score.weight.data = torch.tensor([0.0, 0.0, 0.0, 0.0, 1.0, 1.0])  # S = h · u
        >>> context, query = torch.tensor([[[4.0, 0.0], [0.0, 1.0]]]), torch.eye(2)[None]
        >>> attended = layer(context, query, need_weights=True)
        >>> attended.context_to_query.detach()
        tensor([[[0.9820, 0.0180],
                 [0.2689, 0.7311]]])
        >>> attended.query_to_context.detach()
        tensor([[0.9526, 0.0474]])
    """

    is_cross_attention: ClassVar[bool] = True  # for `regard.watch`

    def __init__(self, dim: int, *, backend: BackendName = "auto"):
        super().__init__()
        self.dim = size("dim", dim)
        self.score = Trilinear.create(dim)
        self.backend: BackendName = check_backend(backend)

    def forward(
        self,
        context: Tensor,
        query: Tensor,
        context_lengths: Tensor | None = None,
        query_lengths: Tensor | None = None,
        *,
        need_weights: bool = False,
    ) -> CoAttended:
        """Attends in both directions.

        Args:
            context: H, ``[batch, context, dim]``.
            query: U, ``[batch, query, dim]``.
            context_lengths: integers ``[batch]``, context vectors of each row; None: all. Those after them give 0.
            query_lengths: integers ``[batch]``, query vectors of each row; None: all. For a row of none, ũ and h̃ are 0.
            need_weights: whether to give the weights; the output is the same, bit for bit.

        Raises:
            ShapeError, KindError: bad input; the message names the argument.
        """
        refuse_parts(type(self).__name__)
        for name, tensor in (("context", context), ("query", query)):
            check_floating(name, tensor)
            if tensor.dim() != 3 or tensor.shape[-1] != self.dim or tensor.shape[0] != context.shape[0]:
                raise ShapeError(
                    f"{name} must be [batch, length, {self.dim}], batch as context has it; "
                    f"it has shape {list(tensor.shape)}"
                )
        context, query = without_padding(context, context_lengths), without_padding(query, query_lengths)
        mask = None
        if context_lengths is not None or query_lengths is not None:
            mask = masks.lengths(query.shape[1] if query_lengths is None else query_lengths, context_lengths)
        pair = context[:, None], query[:, None]
        problem = validate(*pair, pair[1], score=self.score, mask=mask)
        answer, to_query = run(problem, self.backend, need_weights=need_weights, layer=self)
        highest = self._highest(*pair, mask)
        nothing = context.new_zeros(context.shape[0], 1, 1, 1)
        problem = validate(
            nothing, nothing.expand(-1, -1, context.shape[1], -1), context[:, None], score="dot", bias=highest
        )
        summary, to_context = run(problem, self.backend, need_weights=need_weights, layer=self)
        answer, summary = answer[:, 0].to(context.dtype), summary[:, 0].to(context.dtype)
        output = torch.cat([context, answer, context * answer, context * summary], dim=-1)
        if to_query is None or to_context is None:
            return CoAttended(output, None, None)
        return CoAttended(output, to_query[:, 0], to_context[:, 0, 0])

    def _highest(self, context: Tensor, query: Tensor, mask: Mask | None) -> Tensor:
        """Returns the maximum score of each context vector, ``[batch, 1, 1, context]``; −inf without a query vector."""
        scores = self.score(context, query)
        if mask is not None:
            scores = scores.masked_fill(~mask.dense(Grid.of(context, query)), -torch.inf)
        if not query.shape[2]:
            return scores.new_full((context.shape[0], 1, 1, context.shape[2]), -torch.inf)
        return scores.amax(-1)[:, :, None]

    def extra_repr(self) -> str:
        return f"dim={self.dim}"
