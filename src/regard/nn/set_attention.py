"""Attention over sets: the blocks of the Set Transformer (Lee et al. 2019)."""

import torch
from torch import Tensor, nn

from regard.attention.result import Attended
from regard.attention.verbs import BackendName
from regard.distributed.sequence_parts import refuse_parts
from regard.errors import ShapeError
from regard.masks import lengths as until
from regard.nn.fx_leaf import fx_leaf
from regard.nn.multihead import MultiheadAttention
from regard.nn.padding import without_padding
from regard.normalizers import Normalizing
from regard.scores import Scoring
from regard.shapes.checks import check_floating, size
from regard.tracing.module_calls import Module


@fx_leaf
class MAB(Module):
    """The multihead attention block of the Set Transformer: queries attend to a set, without any position.

    .. math::

        MAB(X, Y) = norm_2(H + feedforward(H)),    H = norm_1(X + MultiHead(X, Y, Y))

    Lee et al. 2019, "Set Transformer", eq. 6 and 7; ``mab(x, x)`` is their SAB, eq. 8. ``feedforward`` is one linear
    layer and a ReLU. The output does not depend on the order of Y, and has the order of X.

    Args:
        dim: features of an element.
        heads: heads, a divisor of ``dim``.
        score: how queries and keys of a head are compared: a name, a `Score` or a function.
        normalizer: a name, a `Normalizer` or a function.
        dropout: probability of dropping a weight while training, in [0, 1).
        backend: ``auto``, or one by name, which runs or raises.

    Raises:
        ArgumentError, KindError, UnknownNameError: an argument is invalid; the message names it.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> block, queries, elements = nn.MAB(8, 2), torch.randn(3, 4, 8), torch.randn(3, 7, 8)
        >>> attended = block(queries, elements, torch.tensor([7, 2, 0]), need_weights=True)
        >>> attended.output.shape, attended.weights.shape
        (torch.Size([3, 4, 8]), torch.Size([3, 2, 4, 7]))
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        score: Scoring = "scaled_dot",
        normalizer: Normalizing = "softmax",
        dropout: float = 0.0,
        backend: BackendName = "auto",
    ):
        super().__init__()
        self.dim = size("dim", dim)
        self.attention = MultiheadAttention(
            dim, heads, dropout, batch_first=True, score=score, normalizer=normalizer, backend=backend
        )
        self.feedforward = nn.Linear(dim, dim)
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)

    def forward(
        self, query: Tensor, elements: Tensor, lengths: Tensor | None = None, *, need_weights: bool = False
    ) -> Attended:
        """Lets queries attend to the elements of a set.

        Args:
            query: X, ``[batch, queries, dim]``.
            elements: Y, ``[batch, elements, dim]``.
            lengths: integers ``[batch]``, elements of each set; None: all. Padding has no effect; a query of an empty
                set attends to nothing.
            need_weights: whether to give the weights; the output is the same, bit for bit.

        Returns:
            ``output [batch, queries, dim]`` and ``weights [batch, heads, queries, elements]``.

        Raises:
            ShapeError, KindError, ArgumentError: bad input; the message names the argument.
        """
        _check("query", query, self.dim)
        clean = _checked(elements, self.dim, lengths)
        query, elements = clean if query is elements else query, clean
        output, weights = self.attention(
            query, elements, elements, need_weights=need_weights, average_attn_weights=False,
            mask=None if lengths is None else until(lengths),
        )  # fmt: skip
        hidden = self.norm1(query + output)
        return Attended(self.norm2(hidden + self.feedforward(hidden).relu()), weights)


@fx_leaf
class ISAB(Module):
    """Induced set attention: the elements of a set attend to each other by way of a few learned points.

    .. math::

        ISAB(X) = MAB(X, H),    H = MAB(I, X)

    Lee et al. 2019, "Set Transformer", eq. 9 and 10. I are the m learned ``points``. It costs 2 · m · elements pairs
    instead of elements². A permutation of the elements permutes the output in the same way.

    Args:
        dim: features of an element.
        heads: heads, a divisor of ``dim``.
        points: m, the number of learned points.
        score, normalizer, dropout, backend: as for `MAB`.

    Raises:
        ArgumentError, KindError, UnknownNameError: an argument is invalid; the message names it.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> block, elements = nn.ISAB(8, 2, points=3), torch.randn(2, 50, 8)
        >>> attended = block(elements, need_weights=True)
        >>> attended.output.shape, attended.weights.shape
        (torch.Size([2, 50, 8]), torch.Size([2, 2, 50, 50]))
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        points: int = 16,
        *,
        score: Scoring = "scaled_dot",
        normalizer: Normalizing = "softmax",
        dropout: float = 0.0,
        backend: BackendName = "auto",
    ):
        super().__init__()
        self.points = _learned(size("points", points), size("dim", dim))
        self.gather, self.spread = (
            MAB(dim, heads, score=score, normalizer=normalizer, dropout=dropout, backend=backend) for _ in range(2)
        )

    def forward(self, elements: Tensor, lengths: Tensor | None = None, *, need_weights: bool = False) -> Attended:
        """Lets the elements of a set attend to each other.

        Args:
            elements: X, ``[batch, elements, dim]``.
            lengths: integers ``[batch]``, elements of each set; None: all. Padding has no effect on the set, and its
                own output has no meaning.
            need_weights: whether to give the weights; the output is the same, bit for bit.

        Returns:
            ``output [batch, elements, dim]``, and ``weights [batch, heads, elements, elements]``, the products of the
            weights of both attentions: the share of one element in another by way of all points.

        Raises:
            ShapeError, KindError, ArgumentError: bad input; the message names the argument.
        """
        refuse_parts(type(self).__name__)
        elements = _checked(elements, self.points.shape[-1], lengths)
        points, to_points = self.gather(_for_each(self.points, elements), elements, lengths, need_weights=need_weights)
        output, to_elements = self.spread(elements, points, need_weights=need_weights)
        return Attended(output, to_elements @ to_points if need_weights else None)


@fx_leaf
class PMA(Module):
    """Attention pooling by many seeds: a set of any size becomes k vectors.

    .. math::

        PMA_k(Z) = MAB(S, feedforward(Z))

    Lee et al. 2019, "Set Transformer", eq. 11. S are the k learned ``seeds``; ``feedforward`` is one linear layer and a
    ReLU. The k vectors do not depend on the order of the elements. `AttentionPooling` has a query for each head and no
    projections; here all seeds share projected heads, and `MAB` of the result with itself lets them interact.

    Args:
        dim: features of an element.
        heads: heads, a divisor of ``dim``.
        seeds: k, the number of vectors.
        score, normalizer, dropout, backend: as for `MAB`.

    Raises:
        ArgumentError, KindError, UnknownNameError: an argument is invalid; the message names it.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> pool = nn.PMA(8, 2, seeds=4)
        >>> pooled = pool(torch.randn(3, 50, 8), torch.tensor([50, 7, 1]), need_weights=True)
        >>> pooled.output.shape, pooled.weights.shape
        (torch.Size([3, 4, 8]), torch.Size([3, 2, 4, 50]))
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        seeds: int = 1,
        *,
        score: Scoring = "scaled_dot",
        normalizer: Normalizing = "softmax",
        dropout: float = 0.0,
        backend: BackendName = "auto",
    ):
        super().__init__()
        self.seeds = _learned(size("seeds", seeds), size("dim", dim))
        self.feedforward = nn.Linear(dim, dim)
        self.block = MAB(dim, heads, score=score, normalizer=normalizer, dropout=dropout, backend=backend)

    def forward(self, elements: Tensor, lengths: Tensor | None = None, *, need_weights: bool = False) -> Attended:
        """Pools the elements of each set.

        Args:
            elements: Z, ``[batch, elements, dim]``.
            lengths: integers ``[batch]``, elements of each set; None: all. Padding has no effect.
            need_weights: whether to give the weights; the output is the same, bit for bit.

        Returns:
            ``output [batch, seeds, dim]`` and ``weights [batch, heads, seeds, elements]``.

        Raises:
            ShapeError, KindError, ArgumentError: bad input; the message names the argument.
        """
        refuse_parts(type(self).__name__)
        projected = self.feedforward(_checked(elements, self.seeds.shape[-1], lengths)).relu()
        return self.block(_for_each(self.seeds, elements), projected, lengths, need_weights=need_weights)


def _check(name: str, vectors: Tensor, dim: int) -> None:
    check_floating(name, vectors)
    if vectors.dim() != 3 or vectors.shape[-1] != dim:
        raise ShapeError(f"{name} must be [batch, length, {dim}]; it has shape {list(vectors.shape)}")


def _checked(elements: Tensor, dim: int, lengths: Tensor | None) -> Tensor:
    """Returns the elements of sets with zeros for padding."""
    _check("elements", elements, dim)
    return without_padding(elements, lengths)


def _learned(count: int, dim: int) -> nn.Parameter:
    """Creates learned vectors with uniform elements (Glorot and Bengio 2010)."""
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(count, dim)))


def _for_each(vectors: Tensor, elements: Tensor) -> Tensor:
    """Returns learned vectors for each set, ``[batch, count, dim]``, in the dtype of the elements."""
    return vectors.to(elements.dtype).expand(elements.shape[0], -1, -1)
