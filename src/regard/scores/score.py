"""What a score is, and what it lowers to.

A score compares every query with every key. It is a module; `prepare` *lowers* it to one of few primitives, so that a
backend implements primitives and not names:

    scores = modifiers(scale · primitive(query', key'))

with ``query'`` and ``key'`` prepared once, in time linear in their number.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from regard.axes import Float
from regard.errors import ShapeError
from regard.shapes import Grid, accurate, spread_heads
from regard.summaries import record_summary


class Primitive(ABC):
    """Pairs of prepared queries and keys → scores, each pair by itself (so that any tile can be computed alone)."""

    @abstractmethod
    def __call__(
        self, query: Float[Tensor, "batch heads queries query_dim"], key: Float[Tensor, "#batch kv_heads keys key_dim"]
    ) -> Float[Tensor, "batch heads queries keys"]:
        """Score one tile.

        Args:
            query: ``[batch, heads, queries, dim]``, prepared.
            key: ``[batch, kv_heads, keys, dim]``, prepared.

        Returns:
            ``[batch, heads, queries, keys]``, in float32 for half-precision input (contract 6).
        """

    @abstractmethod
    def elements_per_pair(self, query: Tensor, key: Tensor) -> int:
        """How many numbers this primitive holds at once for each pair: what decides the size of a tile."""


@dataclass(eq=False)
class InnerProduct(Primitive):
    """``query · key``."""

    def __call__(
        self, query: Float[Tensor, "batch heads queries dim"], key: Float[Tensor, "#batch kv_heads keys dim"]
    ) -> Float[Tensor, "batch heads queries keys"]:
        key = spread_heads(key, query.shape[1])
        return accurate(query) @ accurate(key).transpose(-1, -2)

    def elements_per_pair(self, query: Tensor, key: Tensor) -> int:
        return 1


@dataclass(eq=False)
class UnitSum(Primitive):
    """``weight · activation(query + key)``: a layer of units of prepared projections.

    Attributes:
        weight: ``[dim]`` or ``[heads, dim]``.
    """

    weight: Tensor

    @staticmethod
    @abstractmethod
    def activation(hidden: Tensor) -> Tensor:
        """What a unit makes of its sum."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self.weight.shape)})"

    def __call__(
        self, query: Float[Tensor, "batch heads queries dim"], key: Float[Tensor, "#batch kv_heads keys dim"]
    ) -> Float[Tensor, "batch heads queries keys"]:
        key = spread_heads(key, query.shape[1])
        hidden = self.activation(accurate(query)[..., :, None, :] + accurate(key)[..., None, :, :])  # B H Q K D
        weight = accurate(self.weight)
        if weight.dim() == 1:
            return hidden @ weight
        return (hidden @ weight[:, None, :, None]).squeeze(-1)

    def elements_per_pair(self, query: Tensor, key: Tensor) -> int:
        return query.shape[-1]


class TanhSum(UnitSum):
    """``weight · tanh(query + key)``: the additive score."""

    @staticmethod
    def activation(hidden: Tensor) -> Tensor:
        return torch.tanh(hidden)


class ReluSum(UnitSum):
    """``weight · max(query + key, 0)``: rectified units."""

    @staticmethod
    def activation(hidden: Tensor) -> Tensor:
        return torch.relu(hidden)


@dataclass(eq=False)
class Pairwise(Primitive):
    """Any function of a tile of queries and keys.

    Attributes:
        function: ``(query, key) -> scores``, of ``[batch, heads, queries, dim]`` and ``[batch, heads, keys, dim]``;
            must score each pair by itself.
        width: numbers it holds at once for each pair.
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
            got = list(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
            raise ShapeError(f"score must return [batch, heads, queries, keys] = {list(expected)}; it returned {got}")
        return accurate(scores)

    def elements_per_pair(self, query: Tensor, key: Tensor) -> int:
        return self.width


Modifier = Callable[[Tensor, Grid], Tensor]
"""``(scaled scores of a tile, the tile) -> scores``: what `SoftCap` and `Modified` lower to."""


# Not frozen: compilers of older PyTorch lose the fields of such an object that is made in what they compile.
@dataclass
class Cap:
    """The modifier ``cap · tanh(scores / cap)``.

    Attributes:
        cap: above 0.
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
        primitive: what compares them.
        scale: a number, or a tensor that broadcasts to ``[batch, heads, queries, keys]`` with queries = keys = 1.
        modifiers: applied in this order.
    """

    query: Float[Tensor, "batch heads queries query_dim"]
    key: Float[Tensor, "#batch kv_heads keys key_dim"]
    primitive: Primitive
    scale: float | Float[Tensor, "*#batch_and_heads 1 1"] = 1.0
    modifiers: tuple[Modifier, ...] = ()

    def __repr__(self) -> str:
        return record_summary("Prepared", vars(self).items())

    def modified_by(self, modifier: Modifier) -> "Prepared":
        """This, with one more modifier after the others."""
        return replace(self, modifiers=(*self.modifiers, modifier))


class Score(nn.Module, ABC):
    """Compares queries with keys. Subclasses give `prepare`; those with own projections give these too."""

    def check(self, query: Tensor, key: Tensor) -> None:
        """Raise ShapeError or KindError unless these inputs (four axes each) suit this score."""
        check_same_dim(query, key)

    def project_query(self, query: Tensor) -> Tensor:
        """The query as this score's own weights see it (Bahdanau's ``W s``, Luong's ``W h``); else itself."""
        return query

    def project_key(self, key: Tensor) -> Tensor:
        """The key as this score's own weights see it (Bahdanau's ``U h``); else itself."""
        return key

    def projected(self) -> "Score":
        """The same score for queries and keys that went through `project_query` and `project_key` already.

        A decoder projects its memory's keys once for a sentence, and then asks this score at each step.
        """
        return self

    @abstractmethod
    def prepare(
        self, query: Float[Tensor, "batch heads queries query_dim"], key: Float[Tensor, "batch kv_heads keys key_dim"]
    ) -> Prepared:
        """Lower this score for one problem.

        Args:
            query: ``[batch, heads, queries, dim]``, as given by the user.
            key: ``[batch, kv_heads, keys, dim]``, as given by the user.
        """

    # The module's call gives the scores themselves.
    def forward(
        self, query: Float[Tensor, "batch heads queries query_dim"], key: Float[Tensor, "batch kv_heads keys key_dim"]
    ) -> Float[Tensor, "batch heads queries keys"]:
        """All scores ``[batch, heads, queries, keys]``, scaled and modified, before bias and mask."""
        self.check(query, key)
        prepared = self.prepare(query, key)
        grid = Grid.whole(query.shape[0], query.shape[1], query.shape[2], key.shape[2], query.device)
        scores = prepared.primitive(prepared.query, prepared.key) * prepared.scale
        for modifier in prepared.modifiers:
            scores = modifier(scores, grid)
        return scores


def check_same_dim(query: Tensor, key: Tensor) -> None:
    """Raise ShapeError unless queries and keys have the same number of features."""
    if query.shape[-1] != key.shape[-1]:
        raise ShapeError(f"query and key must have the same dim; query has {query.shape[-1]}, key has {key.shape[-1]}")
