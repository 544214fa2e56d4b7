"""The base class of scores, and the primitives that they lower to.

A score is a module that compares every query with every key. Its `prepare` *lowers* it to one of a few primitives, so
that a backend implements primitives and not every score:

    scores = modifiers(scale · primitive(query', key'))

where ``query'`` and ``key'`` are computed once, in linear time.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from regard.axes import Float
from regard.errors import ShapeError
from regard.shapes import Grid, spread_heads, upcast
from regard.summaries import record_summary


class Primitive(ABC):
    """Scores each pair of a prepared query and key independently, so that any tile can be computed alone."""

    @abstractmethod
    def __call__(
        self, query: Float[Tensor, "batch heads queries query_dim"], key: Float[Tensor, "#batch kv_heads keys key_dim"]
    ) -> Float[Tensor, "batch heads queries keys"]:
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


@dataclass(eq=False)
class InnerProduct(Primitive):
    """Computes ``query · key``."""

    def __call__(
        self, query: Float[Tensor, "batch heads queries dim"], key: Float[Tensor, "#batch kv_heads keys dim"]
    ) -> Float[Tensor, "batch heads queries keys"]:
        key = spread_heads(key, query.shape[1])
        return upcast(query) @ upcast(key).transpose(-1, -2)

    def elements_per_pair(self, query: Tensor, key: Tensor) -> int:
        return 1


@dataclass(eq=False)
class UnitSum(Primitive):
    """Computes ``weight · activation(query + key)``: a layer of units on prepared projections.

    Attributes:
        weight: ``[dim]`` or ``[heads, dim]``.
    """

    weight: Tensor

    @staticmethod
    @abstractmethod
    def activation(hidden: Tensor) -> Tensor:
        """Computes the output of a unit from its sum."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self.weight.shape)})"

    def __call__(
        self, query: Float[Tensor, "batch heads queries dim"], key: Float[Tensor, "#batch kv_heads keys dim"]
    ) -> Float[Tensor, "batch heads queries keys"]:
        key = spread_heads(key, query.shape[1])
        hidden = self.activation(upcast(query)[..., :, None, :] + upcast(key)[..., None, :, :])  # B H Q K D
        weight = upcast(self.weight)
        if weight.dim() == 1:
            return hidden @ weight
        return (hidden @ weight[:, None, :, None]).squeeze(-1)

    def elements_per_pair(self, query: Tensor, key: Tensor) -> int:
        return query.shape[-1]


class TanhSum(UnitSum):
    """Computes ``weight · tanh(query + key)``: the additive score."""

    @staticmethod
    def activation(hidden: Tensor) -> Tensor:
        return torch.tanh(hidden)


class ReluSum(UnitSum):
    """Computes ``weight · max(query + key, 0)``: rectified units."""

    @staticmethod
    def activation(hidden: Tensor) -> Tensor:
        return torch.relu(hidden)


@dataclass(eq=False)
class Pairwise(Primitive):
    """Applies any function to a tile of queries and keys.

    Attributes:
        function: ``(query, key) -> scores``, for ``[batch, heads, queries, dim]`` and ``[batch, heads, keys, dim]``;
            must score each pair independently.
        width: elements that the function has in memory at once for each pair.
    """

    function: Callable[[Tensor, Tensor], Tensor]
    width: int = 1

    def __call__(
        self, query: Float[Tensor, "batch heads queries query_dim"], key: Float[Tensor, "#batch kv_heads keys key_dim"]
    ) -> Float[Tensor, "batch heads queries keys"]:
        heads = query.shape[1]
        scores = self.function(query, spread_heads(key, heads))
        expected = (*query.shape[:-1], key.shape[-2])
        if not isinstance(scores, Tensor) or scores.shape != expected:
            shape = list(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
            raise ShapeError(f"score must return [batch, heads, queries, keys] = {list(expected)}; it returned {shape}")
        return upcast(scores)

    def elements_per_pair(self, query: Tensor, key: Tensor) -> int:
        return self.width


Modifier = Callable[[Tensor, Grid], Tensor]
"""``(scaled scores of a tile, the tile) -> scores``: `SoftCap` and `Modified` lower to modifiers."""


# Not frozen: compilers of older PyTorch lose the fields of a frozen object that is created in compiled code.
@dataclass
class Cap:
    """Modifies scores to ``cap · tanh(scores / cap)``.

    Attributes:
        cap: the bound of the scores' magnitude, above 0.
    """

    cap: float

    def __call__(
        self, scores: Float[Tensor, "batch heads queries keys"], grid: Grid
    ) -> Float[Tensor, "batch heads queries keys"]:
        return self.cap * torch.tanh(scores / self.cap)


@dataclass(eq=False)
class Prepared:
    """A score lowered for one problem: ``modifiers(scale · primitive(query, key))``.

    Attributes:
        query: ``[batch, heads, queries, dim']``.
        key: ``[batch or 1, kv_heads or 1, keys, dim']``.
        primitive: compares the two.
        scale: a number, or a tensor that broadcasts to ``[batch, heads, 1, 1]``.
        modifiers: functions of the scaled scores, applied in this order.
    """

    query: Float[Tensor, "batch heads queries query_dim"]
    key: Float[Tensor, "#batch kv_heads keys key_dim"]
    primitive: Primitive
    scale: float | Float[Tensor, "*#batch_and_heads 1 1"] = 1.0
    modifiers: tuple[Modifier, ...] = ()

    def __repr__(self) -> str:
        return record_summary("Prepared", vars(self).items())

    def modified_by(self, modifier: Modifier) -> "Prepared":
        """Returns this prepared score with one more modifier after the others."""
        return replace(self, modifiers=(*self.modifiers, modifier))


class Score(nn.Module, ABC):
    """Compares queries with keys. Subclasses define `prepare` and, if they have projections, the methods for these."""

    def check(self, query: Tensor, key: Tensor) -> None:
        """Raises ShapeError or KindError unless the score accepts these inputs, which have four axes each."""
        check_same_dim(query, key)

    def project_query(self, query: Tensor) -> Tensor:
        """Applies the score's projection of queries, if it has one (Bahdanau's ``W s``, Luong's ``W h``)."""
        return query

    def project_key(self, key: Tensor) -> Tensor:
        """Applies the score's projection of keys, if it has one (Bahdanau's ``U h``)."""
        return key

    def projected(self) -> "Score":
        """Returns the same score for queries and keys that `project_query` and `project_key` have projected already.

        A decoder projects the keys of its memory once for a sentence, and uses the returned score at each step.
        """
        return self

    @abstractmethod
    def prepare(
        self, query: Float[Tensor, "batch heads queries query_dim"], key: Float[Tensor, "batch kv_heads keys key_dim"]
    ) -> Prepared:
        """Lowers this score for one problem.

        Args:
            query: the user's queries, ``[batch, heads, queries, dim]``.
            key: the user's keys, ``[batch, kv_heads, keys, dim]``.
        """

    def forward(
        self, query: Float[Tensor, "batch heads queries query_dim"], key: Float[Tensor, "batch kv_heads keys key_dim"]
    ) -> Float[Tensor, "batch heads queries keys"]:
        """Returns all scores ``[batch, heads, queries, keys]``, scaled and modified, before bias and mask."""
        self.check(query, key)
        prepared = self.prepare(query, key)
        grid = Grid.whole(query.shape[0], query.shape[1], query.shape[2], key.shape[2], query.device)
        scores = prepared.primitive(prepared.query, prepared.key) * prepared.scale
        for modifier in prepared.modifiers:
            scores = modifier(scores, grid)
        return scores


def check_same_dim(query: Tensor, key: Tensor) -> None:
    """Raises ShapeError unless queries and keys have the same number of features."""
    if query.shape[-1] != key.shape[-1]:
        raise ShapeError(f"query and key must have the same dim; query has {query.shape[-1]}, key has {key.shape[-1]}")
