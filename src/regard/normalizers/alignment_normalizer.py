"""The base of normalizers whose weights begin at those of the query before, and the steps of such alignments."""

from abc import abstractmethod

import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.nn import functional as F

from regard.errors import ArgumentError
from regard.normalizers.normalizer import Normalizer, check_rows, hidden_pairs
from regard.shapes.axes import Float
from regard.shapes.checks import check_broadcast, check_floating
from regard.shapes.grid import upcast


class AlignmentNormalizer(Normalizer):
    """A normalizer whose weights of a query depend on those of the query before; the first begins at the first key.

    The weights of a query depend on the scores of all earlier queries, so only backends that compute whole grids run
    it. A decoder calls it step by step: `given` takes the weights of the step before. A query that sees no key leaves
    the place to the next one as it is.

    Attributes:
        previous: weights of the last query before these; None: there is none.
    """

    couples = "queries"
    previous: Tensor | None

    def bind(self, previous: Tensor | None) -> None:
        """Sets the attribute."""
        if previous is not None:
            check_floating("previous", previous)
        self.register_buffer("previous", previous, persistent=False)

    @abstractmethod
    def given(self, previous: Tensor | None) -> "AlignmentNormalizer":
        """Returns this normalizer, with the same parameters, for the queries after those with these weights.

        Args:
            previous: weights of the last query before, broadcastable to ``[batch, heads, keys]``; None: there is none.
                A gradient flows through them to that query.
        """

    @abstractmethod
    def parts(self, row: Tensor, hidden: Tensor | None) -> tuple[Tensor, ...]:
        """Returns what `advance` reads of each query.

        Args:
            row: the scores, ``[..., queries, keys]``.
            hidden: bool, True where the mask hides the pair; None: nowhere.

        Returns:
            Tensors ``[..., queries, keys]``, or with one number for all keys.
        """

    @abstractmethod
    def advance(self, before: Tensor, hidden: Tensor | None, *parts: Tensor) -> Tensor:
        """Returns the weights ``[..., keys]`` of a query from those ``before`` and its `parts`."""

    def forward(self, scores: Float[Tensor, "*shape"] | ArrayLike, dim: int = -1) -> Float[Tensor, "*shape"]:
        """Returns weights of the shape of ``scores [..., queries, keys]``; one axis alone is one query.

        Raises:
            ArgumentError: ``dim`` is not the last axis.
        """
        scores = check_rows(scores, dim)
        if dim not in (-1, scores.dim() - 1):
            raise ArgumentError(f"an alignment goes along the last axis, after that of queries; dim is {dim}")
        row = upcast(scores) if scores.dim() > 1 else upcast(scores)[None]
        hidden = hidden_pairs(row)
        parts = self.parts(row, hidden)
        queries, keys = row.shape[-2:]
        if not queries or not keys:
            return parts[0].expand(row.shape).view(scores.shape).to(scores.dtype)
        shape = (*row.shape[:-2], keys)
        if self.previous is None:
            before = F.pad(row.new_ones((*shape[:-1], 1)), (0, keys - 1))
        else:
            check_broadcast("previous", self.previous, shape, "[batch, heads, keys]")
            before = self.previous.to(row.dtype).expand(shape)
        empty = None if hidden is None else hidden.all(-1, keepdim=True)
        weights = []
        for query in range(queries):
            hidden_keys = None if hidden is None else hidden[..., query, :]
            weights.append(self.advance(before, hidden_keys, *(part[..., query, :] for part in parts)))
            before = weights[-1] if empty is None else torch.where(empty[..., query, :], before, weights[-1])
        alignments = torch.stack(weights, dim=-2)
        # Hidden pairs pass no gradient, even if the incoming gradient is NaN.
        alignments = alignments if hidden is None else alignments.masked_fill(hidden, 0.0)
        return alignments.view(scores.shape).to(scores.dtype)


def linear_recurrence(factor: Tensor, term: Tensor) -> Tensor:
    """Solves ``x_j = factor_j · x_{j−1} + term_j`` along the last axis, from ``x_{−1} = 0``, for all j at once.

    Hillis & Steele 1986, "Data parallel algorithms": log₂ steps, each of which doubles the number of terms that are
    summed.
    """
    step, length = 1, term.shape[-1]
    while step < length:
        term = term + factor * F.pad(term[..., :-step], (step, 0))
        if 2 * step < length:
            factor = factor * F.pad(factor[..., :-step], (step, 0))
        step *= 2
    return term


def shifted(row: Tensor) -> Tensor:
    """Moves the elements of ``row [..., keys]`` to the next key; the last one is lost."""
    return F.pad(row[..., :-1], (1, 0))


def on_visible_keys(weights: Tensor, hidden: Tensor | None) -> Tensor:
    """Moves the weights of hidden keys to the next visible one; behind the last one they are lost."""
    if hidden is None:
        return weights
    return linear_recurrence(shifted(hidden.to(weights.dtype)), weights).masked_fill(hidden, 0.0)
