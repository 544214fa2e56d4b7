"""The base classes of scores and of the primitives that they lower to.

A score is a module that compares every query with every key. Its `prepare` *lowers* it to one of a few primitives, so
that a backend implements primitives and not every score:

::

    scores = modifiers(scale · primitive(query', key'))

where ``query'`` and ``key'`` are computed once, in linear time. A primitive is defined next to the score that needs it
most: `InnerProduct` to the inner products, `TanhSum` and `ReluSum` to the additive score, `Pairwise` to `Custom`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from regard.fields import DeclaredModule
from regard.shapes.axes import Float
from regard.shapes.checks import check_same_dim
from regard.shapes.grid import Grid
from regard.shapes.layout import Keys, Pairs, Queries
from regard.summaries import summarized


class Primitive(ABC):
    """Scores the pairs of prepared queries and keys, so that any tile can be computed alone.

    The score of a pair depends on this query and this key; with the delta rule, on the keys before it as well.

    Example:
        >>> from regard import scores
        >>> isinstance(scores.InnerProduct(), scores.Primitive)
        True
    """

    @abstractmethod
    def __call__(self, query: Queries, key: Float[Tensor, "#batch kv_heads keys key_dim"]) -> Pairs:
        """Computes the scores of one tile.

        Args:
            query: ``[batch, heads, queries, dim]``, prepared.
            key: ``[batch, kv_heads, keys, dim]``, prepared.

        Returns:
            ``[batch, heads, queries, keys]``, in float32 for half-precision input (contract 6).
        """

    @abstractmethod
    def elements_per_pair(self, query: Tensor, key: Tensor) -> int:
        """Returns the number of elements that are in memory at once for each pair, which decides the size of a tile."""


Modifier = Callable[[Tensor, Grid], Tensor]
"""``(scaled scores of a tile, the tile) -> scores``: `SoftCap` and `Modified` lower to modifiers."""


@summarized
@dataclass(eq=False)
class Prepared:
    """A score lowered for one problem: ``modifiers(scale · primitive(query, key))``.

    Attributes:
        query: ``[batch, heads, queries, dim']``.
        key: ``[batch or 1, kv_heads or 1, keys, dim']``.
        primitive: compares the two.
        scale: a number, or a tensor that broadcasts to ``[batch, heads, 1, 1]``.
        modifiers: functions of the scaled scores, applied in this order.

    Example:
        >>> import torch
        >>> from regard import scores
        >>> x = torch.ones(1, 1, 2, 4)
        >>> scores.ScaledDot().prepare(x, x).scale
        0.5
    """

    query: Queries
    key: Float[Tensor, "#batch kv_heads keys key_dim"]
    primitive: Primitive
    scale: float | Float[Tensor, "*#batch_and_heads 1 1"] = 1.0
    modifiers: tuple[Modifier, ...] = ()

    def modified_by(self, modifier: Modifier) -> "Prepared":
        """Returns this prepared score with one more modifier after the others."""
        return replace(self, modifiers=(*self.modifiers, modifier))


def _own(constant: Tensor) -> Tensor:
    return constant


class Places(NamedTuple):
    """Where some queries and keys are in the whole sequences of a call, of which a process may hold a part.

    Attributes:
        queries, keys: lengths of the whole sequences.
        query_index: positions of the queries, int64 ``[queries]``.
        key_index: positions of the keys, int64 ``[keys]``.
        batch: the batch rows, as a slice of all of them.
        common: returns the first process's value of a constant that all must share.

    Example:
        >>> import torch
        >>> from regard import scores
        >>> scores.Places.whole(torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 3, 4)).key_index
        tensor([0, 1, 2])
    """

    queries: int
    keys: int
    query_index: Tensor
    key_index: Tensor
    batch: slice = slice(None)
    common: Callable[[Tensor], Tensor] = _own

    @classmethod
    def whole(cls, query: Tensor, key: Tensor) -> "Places":
        """Returns the places of whole sequences ``[batch, heads, length, dim]``."""
        queries, keys = query.shape[2], key.shape[2]
        of_queries, of_keys = (torch.arange(length, device=query.device) for length in (queries, keys))
        return cls(queries, keys, of_queries, of_keys)

    def of_batch(self, tensor: Tensor) -> Tensor:
        """Returns the part of a tensor ``[batch or 1, ...]`` that belongs to these batch rows."""
        return tensor if tensor.shape[0] == 1 else tensor[self.batch]


class PairStep(NamedTuple):
    """One step of a score that computes several numbers for each pair.

    Attributes:
        values: ``[batch, heads, queries, keys, units]``; the axes of batch and heads may be missing.
    """

    name: str
    note: str
    values: Float[Tensor, "*batch_and_heads queries keys units"]


@dataclass(frozen=True, eq=False)
class PairUnits:
    """The layers of units that a score has for each pair: ``score = weight · last step + bias``.

    Attributes:
        weight: ``[units]`` or ``[heads, units]``; None if the scores are no weighted sum of the last step.
    """

    steps: tuple[PairStep, ...]
    weight: Tensor | None = None
    bias: Tensor | None = None


class Score(DeclaredModule, ABC):
    """Compares queries with keys. Subclasses define `prepare` and, if they have projections, the methods for these.

    Attributes:
        is_causal: whether the score of a pair depends on all keys up to the query, so that a call takes no other mask
            than the causal one whose ends align.

    Example:
        >>> import torch
        >>> from regard import scores
        >>> class Doubled(scores.Score):
        ...     def prepare(self, query, key):
        ...         return scores.Prepared(query, key, scores.InnerProduct(), scale=2.0)
        ...
        >>> x = torch.ones(1, 1, 2, 3)
        >>> Doubled()(x, x)
        tensor([[[[6., 6.],
                  [6., 6.]]]])
    """

    is_causal: bool = False

    def check(self, query: Tensor, key: Tensor) -> None:
        """Raises ShapeError or KindError unless the score accepts these inputs, which have four axes each."""
        check_same_dim(query, key)

    def project_query(self, query: Tensor) -> Tensor:
        """Applies the score's projection of queries, if it has one (Bahdanau's ``W s``, Luong's ``W h``)."""
        return query

    def project_key(self, key: Tensor) -> Tensor:
        """Applies the score's projection of keys, if it has one (Bahdanau's ``U h``)."""
        return key

    def pair_units(self, query: Tensor, key: Tensor) -> PairUnits | None:
        """Computes what lies between the inputs of `prepare` and the scores, to be shown; None: a score is one step."""
        return None

    def projected(self) -> "Score":
        """Returns the same score for queries and keys that `project_query` and `project_key` have projected already.

        A decoder projects the keys of its memory once for a sentence, and uses the returned score at each step.
        """
        return self

    @abstractmethod
    def prepare(self, query: Queries, key: Keys) -> Prepared:
        """Lowers this score for one problem.

        Args:
            query: the user's queries, ``[batch, heads, queries, dim]``.
            key: the user's keys, ``[batch, kv_heads, keys, dim]``.
        """

    def prepare_at(self, query: Queries, key: Keys, places: Places) -> Prepared:
        """Lowers this score for a part of sequences that lie on several processes.

        A score whose prepared queries or keys depend on more than themselves, such as their positions, overrides it. A
        score of another package that does not override it is prepared from whole sequences.

        Args:
            query: queries of the part, ``[batch, heads, queries, dim]``.
            key: keys of the part, ``[batch, kv_heads, keys, dim]``.
            places: where they are in the whole sequences.
        """
        return self.prepare(query, key)

    def forward(self, query: Queries, key: Keys) -> Pairs:
        """Returns all scores ``[batch, heads, queries, keys]``, scaled and modified, before bias and mask."""
        self.check(query, key)
        prepared = self.prepare(query, key)
        grid = Grid.whole(query.shape[0], query.shape[1], query.shape[2], key.shape[2], query.device)
        scores = prepared.primitive(prepared.query, prepared.key) * prepared.scale
        for modifier in prepared.modifiers:
            scores = modifier(scores, grid)
        return scores
