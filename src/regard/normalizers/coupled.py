"""Normalizers whose weights depend on more than their row: on all heads, or on all queries."""

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from regard.errors import ArgumentError, ShapeError
from regard.fields import set_field
from regard.normalizers.normalizer import Normalizer, WrappingNormalizer, check_rows, log_sum_exp, safe_softmax
from regard.normalizers.parameter import check_range
from regard.shapes.axes import Float
from regard.shapes.checks import check_floating, size
from regard.shapes.grid import Grid, upcast
from regard.shapes.layout import Pairs


def _other_axis(scores: Tensor, dim: int) -> int:
    """Returns the axis of the queries where ``dim``, one of the last two, is that of the keys."""
    axis = dim % scores.dim() - scores.dim()
    if scores.dim() < 2 or axis < -2:
        raise ShapeError(
            f"scores must be [..., queries, keys], with the keys along dim, -1 or -2; they have shape "
            f"{list(scores.shape)} and dim is {dim}"
        )
    return -3 - axis


class OverQueries(Normalizer, fields=("epsilon",)):
    r"""Lets the queries compete for each key, and takes the mean over the keys with these weights: slot attention.

    .. math:: w_{ij} = \frac{a_{ij} + \varepsilon}{\sum_k (a_{ik} + \varepsilon)}, \qquad
        a_{ij} = \frac{\exp(s_{ij})}{\sum_l \exp(s_{lj})}

    Locatello et al. 2020, "Object-centric learning with slot attention", eq. 1 and 2, and the :math:`\varepsilon` of
    algorithm 1; their slots are our queries, their inputs our keys. Sums run over visible pairs.

    Args:
        epsilon: :math:`\varepsilon \ge 0`: a query that wins no key takes the mean of all keys.

    Raises:
        ArgumentError, KindError: epsilon is negative or no number.

    Example:
        >>> import torch
        >>> from regard import normalizers
        >>> weights = normalizers.OverQueries()(torch.tensor([[4.0, 0.0, 0.0], [0.0, 4.0, 0.0]]))
        >>> weights  # the third key is shared
        tensor([[0.6547, 0.0120, 0.3333],
                [0.0120, 0.6547, 0.3333]])
    """

    couples = "queries"

    def __init__(self, epsilon: float = 1e-8):
        super().__init__()
        check_range("epsilon", epsilon)
        if epsilon < 0:
            raise ArgumentError(f"epsilon must be at least 0; it is {epsilon}")
        self.epsilon = float(epsilon)

    def forward(self, scores: Float[Tensor, "*shape"] | ArrayLike, dim: int = -1) -> Float[Tensor, "*shape"]:
        scores = check_rows(scores, dim)
        row, queries = upcast(scores), _other_axis(scores, dim)
        hidden = row == -torch.inf
        won = (safe_softmax(row, queries) + self.epsilon).masked_fill(hidden, 0.0)
        total = won.sum(dim, keepdim=True)
        weights = won / total.masked_fill(total == 0.0, 1.0)
        return weights.masked_fill(hidden, 0.0).to(scores.dtype)


class Sinkhorn(Normalizer, fields=("iterations",)):
    r"""Normalizes rows and columns in turn, towards weights whose rows and columns have equal sums.

    .. math:: K^0 = \exp(s), \qquad K^{l+1} = N_R(K^l) \; \text{for even} \; l, \;\; N_C(K^l) \; \text{for odd} \; l

    where :math:`N_R` divides each row by its sum, and :math:`N_C` each column: Sander et al. 2022, "Sinkformers:
    transformers with doubly stochastic attention". One iteration is softmax. Where there are not as many queries as
    keys, columns get the sum queries / keys, of those that see or are seen. Masked pairs stay 0, so that the limit may
    not exist; the last step normalizes the rows, which sum to 1 in any case.

    Args:
        iterations: number of normalizations, odd; default 5.

    Raises:
        ArgumentError, KindError: ``iterations`` is even, below 1, or no integer.

    Numerics: the logarithms of the matrices are computed, in float32 for half precision.

    Example:
        >>> import torch
        >>> from regard import normalizers
        >>> weights = normalizers.Sinkhorn(21)(torch.tensor([[2.0, 1.0, 0.0], [2.0, 0.0, 0.0], [2.0, 0.0, 1.0]]))
        >>> weights.sum(0), weights.sum(1)
        (tensor([1., 1., 1.]), tensor([1., 1., 1.]))
    """

    couples = "queries"

    def __init__(self, iterations: int = 5):
        super().__init__()
        if size("iterations", iterations) % 2 == 0:
            raise ArgumentError(f"iterations must be odd, so that the last one normalizes the rows; it is {iterations}")
        self.iterations = iterations

    def forward(self, scores: Float[Tensor, "*shape"] | ArrayLike, dim: int = -1) -> Float[Tensor, "*shape"]:
        scores = check_rows(scores, dim)
        if self.iterations == 1:
            return safe_softmax(upcast(scores), dim).to(scores.dtype)
        row, queries = upcast(scores), _other_axis(scores, dim)
        hidden = row == -torch.inf
        seeing, seen = ((~hidden).any(axis, keepdim=True).sum((-2, -1), keepdim=True) for axis in (dim, queries))
        log_sum = (seeing / seen.clamp(min=1)).clamp(min=torch.finfo(row.dtype).tiny).log().to(row.dtype)
        for number in range(self.iterations - 1):
            axis = queries if number % 2 else dim
            sums = log_sum_exp(row.transpose(axis, -1)).unsqueeze(-1).transpose(axis, -1)
            divided = row - sums.masked_fill(sums == -torch.inf, 0.0)
            row = (divided + log_sum if number % 2 else divided).masked_fill(hidden, -torch.inf)
        return safe_softmax(row, dim).to(scores.dtype)


class TalkingHeads(WrappingNormalizer, fields=("before", "after", "normalizer")):
    r"""Mixes the scores of all heads before another normalizer, and the weights of all heads after it.

    .. math:: w_h = \sum_l normalize\Big(\sum_g s_g \, P^{before}_{gl}\Big) \, P^{after}_{lh}

    Shazeer et al. 2020, "Talking-heads attention", section 4, whose :math:`P_l` is our ``before`` and whose
    :math:`P_w` is our ``after``. A pair that is hidden from a head has weight 0 in it; hidden scores of other heads
    count as 0.

    Args:
        before: :math:`P^{before}`, ``[heads, heads]``: a row for each head of the scores; None: no mixing.
        after: :math:`P^{after}`, ``[heads, heads]``: a row for each head of the normalizer; None: no mixing.
        normalizer: computes the weights of the mixed scores.

    Raises:
        KindError, ShapeError: an argument has another type or shape.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import normalizers
        >>> mean = torch.full((2, 2), 0.5)  # each head gets the mean of both
        >>> talking = normalizers.talking_heads(after=mean)
        >>> query, key = torch.randn(1, 2, 3, 4), torch.randn(1, 2, 5, 4)
        >>> weights = regard.attend_with_weights(query, key, key, normalizer=talking).weights
        >>> torch.equal(weights[:, 0], weights[:, 1])
        True
    """

    couples = "heads"
    before: Tensor | None
    after: Tensor | None

    def __init__(self, before: Tensor | None, after: Tensor | None, normalizer: Normalizer):
        super().__init__(normalizer)
        self.couples = "queries" if normalizer.couples == "queries" else "heads"
        for name, matrix in (("before", before), ("after", after)):
            if matrix is not None:
                check_floating(name, matrix)
                if matrix.dim() != 2 or matrix.shape[0] != matrix.shape[1]:
                    raise ShapeError(f"{name} must be [heads, heads]; it has shape {list(matrix.shape)}")
                check_range(name, matrix)
            set_field(self, name, matrix)

    def forward(self, scores: Float[Tensor, "*shape"] | ArrayLike, dim: int = -1) -> Float[Tensor, "*shape"]:
        scores = check_rows(scores, dim)
        _other_axis(scores, dim)
        row = upcast(scores)
        return self._talk(row, self.normalizer(self._mixed_scores(row), dim)).to(scores.dtype)

    def weigh(self, scores: Pairs, grid: Grid) -> Pairs:
        row = upcast(scores)
        return self._talk(row, self.normalizer.weigh(self._mixed_scores(row), grid)).to(scores.dtype)

    def log_sum_exp(self, scores: Float[Tensor, "*rows keys"]) -> Float[Tensor, "*rows"]:
        return self.normalizer.log_sum_exp(self._mixed_scores(upcast(scores))).to(scores.dtype)

    def _mixed_scores(self, row: Tensor) -> Tensor:
        if self.before is None:
            return row
        hidden = row == -torch.inf
        return _mixed(row.masked_fill(hidden, 0.0), self.before, "before").masked_fill(hidden, -torch.inf)

    def _talk(self, row: Tensor, weights: Tensor) -> Tensor:
        if self.after is None:
            return weights
        return _mixed(weights, self.after, "after").masked_fill(row == -torch.inf, 0.0)


def _mixed(heads: Tensor, matrix: Tensor, name: str) -> Tensor:
    """Returns ``Σ_g heads_g matrix[g, h]`` of ``[..., heads, queries, keys]``."""
    if heads.dim() < 3 or heads.shape[-3] != len(matrix):
        raise ShapeError(
            f"{name} mixes {len(matrix)} heads, so scores must be [..., {len(matrix)}, queries, keys]; "
            f"they have shape {list(heads.shape)}"
        )
    return torch.einsum("...gqk,gh->...hqk", heads, matrix.to(heads.dtype))
