"""Attention pooling: annotations of any number as one vector, by attention with a learned query."""

import math
from typing import ClassVar, NamedTuple, cast, get_args

import torch
from torch import Tensor, nn

from regard import masks, scores
from regard.attention.execution import autocasts, check_backend
from regard.attention.problem import check_dropout
from regard.attention.routes import planned
from regard.attention.verbs import BackendName, run
from regard.distributed.sequence_parts import refuse_parts
from regard.errors import ArgumentError, ShapeError, UnknownNameError
from regard.nn.fx_leaf import fx_leaf
from regard.nn.padding import visible_annotations, without_hidden
from regard.normalizers import Normalizing, own_normalizer
from regard.scores import Additive, Score, own_score
from regard.scores.additive_scores import create_weight
from regard.scores.names import ContentScoreName, Scoring
from regard.shapes.checks import Requested, check_floating, size
from regard.shapes.grid import upcast
from regard.summaries import summarized
from regard.tracing.module_calls import Module

POOLING_SCORES = get_args(ContentScoreName)
"""Names of scores that `AttentionPooling` creates; location scores need a query that moves."""


@summarized
class Pooled(NamedTuple):
    """The output of `AttentionPooling`.

    Attributes:
        output: ``[batch, heads * dim]``, the heads' vectors side by side.
        weights: ``[batch, heads, length]``, 0 for padding; None unless ``need_weights``.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> pooled = nn.AttentionPooling(2, score="dot")(torch.ones(1, 4, 2), need_weights=True)
        >>> pooled.output.detach(), pooled.weights.detach()
        (tensor([[1., 1.]]), tensor([[[0.2500, 0.2500, 0.2500, 0.2500]]]))
    """

    output: Tensor
    weights: Requested[Tensor]


@fx_leaf
class AttentionPooling(Module):
    """Attention with a learned query for each head, over all annotations of a sequence.

    .. math::

        weights_h = normalize_j(score(query_h, annotation_j))
        output_h = Σ_j weights_{hj} · annotation_j

    With the additive score and one head this is Yang et al. 2016, "Hierarchical Attention Networks for Document
    Classification", eq. 5 to 7: ``score = u_w · tanh(W_w h_j + b_w)``. Their annotation h_it is ours, α_it our weights,
    s_i our output, W_w the score's ``key_projection``, u_w its ``weight`` and b_w the learned query. Several heads
    share W_w and have a u_w and a query each, as Lin et al. 2017, "A Structured Self-Attentive Sentence Embedding",
    eq. 6 and 7, have several rows of W_s2.

    Args:
        dim: features of an annotation.
        heads: learned queries; each gives a vector of ``dim`` features.
        score: a name of `POOLING_SCORES`, which creates a score, or a `Score` or function of queries and keys of
            ``dim`` features.
        score_dim: tanh units of ``additive`` and ``concat``, hidden units of ``mlp``. Default: ``dim``.
        normalizer: a name, a `Normalizer` or a function.
        dropout: probability of dropping a weight while training, in [0, 1); some backends round it on a CPU (see
            `regard.attend`).
        backend: ``auto``, or one by name, which runs or raises.

    Raises:
        ArgumentError: a size is below 1, or ``score_dim`` is given for a score without it.
        KindError: an argument has the wrong type.
        UnknownNameError: no score, normalizer or backend has this name, or no learned query can have this score.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> pool = nn.AttentionPooling(4, heads=2)
        >>> annotations = torch.randn(3, 5, 4)
        >>> pooled = pool(annotations, torch.tensor([5, 2, 0]), need_weights=True)
        >>> pooled.output.shape, pooled.weights.shape
        (torch.Size([3, 8]), torch.Size([3, 2, 5]))
        >>> pooled.weights.sum(-1).detach()  # the third sequence is empty
        tensor([[1.0000, 1.0000],
                [1.0000, 1.0000],
                [0.0000, 0.0000]])
    """

    is_cross_attention: ClassVar[bool] = True  # for `regard.watch`

    def __init__(
        self,
        dim: int,
        heads: int = 1,
        *,
        score: Scoring | ContentScoreName = "additive",
        score_dim: int | None = None,
        normalizer: Normalizing = "softmax",
        dropout: float = 0.0,
        backend: BackendName = "auto",
    ):
        super().__init__()
        for name, value in (("dim", dim), ("heads", heads), ("score_dim", score_dim)):
            if value is not None or name != "score_dim":
                size(name, value)
        self.dim, self.heads = dim, heads
        self.score = _score(score, dim, heads, score_dim)
        if score == "additive":
            # The query is added to the projected keys as it is: it is the bias of the equation.
            query = torch.zeros(heads, dim if score_dim is None else score_dim)
        else:
            query = torch.randn(heads, dim) / math.sqrt(dim)
        self.query = nn.Parameter(query)
        self.normalizer = own_normalizer(normalizer)
        self.dropout = check_dropout(dropout)
        self.backend: BackendName = check_backend(backend)

    def forward(self, annotations: Tensor, lengths: Tensor | None = None, *, need_weights: bool = False) -> Pooled:
        """Pools the annotations of each sequence.

        Args:
            annotations: ``[batch, length, dim]``; padding has no effect.
            lengths: integers ``[batch]``, annotations of each sequence; None: all. A sequence of none gives 0.
            need_weights: whether to give the weights, which carry a gradient; the output is the same, bit for bit.

        Returns:
            `Pooled`, with ``output [batch, heads * dim]`` and ``weights [batch, heads, length]``.

        Raises:
            ShapeError, KindError, ArgumentError: bad input; the message names the argument.
        """
        refuse_parts(type(self).__name__)
        check_floating("annotations", annotations)
        if annotations.dim() != 3 or annotations.shape[-1] != self.dim:
            raise ShapeError(
                f"annotations must be [batch, length, {self.dim}]; they have shape {list(annotations.shape)}"
            )
        query, value = self.query.to(annotations.dtype), annotations
        key, score, mask = value, self.score, None if lengths is None else masks.lengths(lengths)
        if autocasts(annotations):
            # The projection is a linear layer, whose dtype autocast chooses; the score is computed in float32.
            if mask is not None:
                value, _ = without_hidden(value, value, visible_annotations(mask, value))
            query, value = upcast(query), upcast(value)
            key, score = upcast(score.project_key(value[:, None])[:, 0]), score.projected()
        queries = query[None, :, None].expand(annotations.shape[0], -1, -1, -1)  # B heads 1 dim
        problem = planned(  # one head of keys and values serves all queries
            queries, key[:, None], value[:, None], score=score, normalizer=self.normalizer, mask=mask,
            dropout=self.dropout if self.training else 0.0, backend=self.backend,
        )  # fmt: skip
        output, weights = run(problem, self.backend, need_weights=need_weights, layer=self)
        output = output.to(annotations.dtype)
        return Pooled(output[:, :, 0].flatten(1), None if weights is None else weights[:, :, 0])

    def extra_repr(self) -> str:
        return f"dim={self.dim}, heads={self.heads}"


def _score(score: Scoring | ContentScoreName, dim: int, heads: int, score_dim: int | None) -> Score:
    """Returns a score that learned queries can have: a new one for a name, else a copy of a module's own."""
    if not isinstance(score, str):
        if score_dim is not None:
            raise ArgumentError("score_dim is for scores by name; a score object has its own sizes")
        return own_score(score)
    if score not in POOLING_SCORES:
        raise UnknownNameError("score of attention pooling", score, POOLING_SCORES)
    if score == "additive":
        units = dim if score_dim is None else score_dim
        projection = nn.Linear(dim, units, bias=False)
        nn.init.xavier_uniform_(projection.weight)
        return Additive(create_weight(units, heads), None, projection)
    per_head = heads if score in ("concat", "cosine", "general") else None
    return scores.create(cast(ContentScoreName, score), dim, dim, score_dim, heads=per_head)
