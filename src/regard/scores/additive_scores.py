"""Sums of units on query and key, and the additive score, also known as concat, which lowers to one."""

import math
from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.errors import ShapeError
from regard.fields import replaced
from regard.scores.score import PairStep, PairUnits, Prepared, Primitive, Score
from regard.scores.weights import check_device, check_dim, check_heads, project, register_weight
from regard.shapes.axes import Float
from regard.shapes.checks import check_module, check_sizes
from regard.shapes.grid import spread_heads, upcast
from regard.shapes.layout import Keys, Pairs, Queries


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
    ) -> Pairs:
        hidden = self.activation(self.sums(query, key))
        weight = upcast(self.weight)
        if weight.dim() == 1:
            return hidden @ weight
        return (hidden @ weight[:, None, :, None]).squeeze(-1)

    @staticmethod
    def sums(query: Tensor, key: Tensor) -> Float[Tensor, "batch heads queries keys dim"]:
        """Computes the sums of the units of each pair."""
        key = spread_heads(key, query.shape[1])
        return upcast(query)[..., :, None, :] + upcast(key)[..., None, :, :]

    def elements_per_pair(self, query: Tensor, key: Tensor) -> int:
        return query.shape[-1]


class TanhSum(UnitSum):
    """Computes ``weight · tanh(query + key)``: the additive score.

    Example:
        >>> import torch
        >>> from regard import scores
        >>> query, key = torch.tensor([[[[1.0, 2.0]]]]), torch.tensor([[[[3.0, 4.0], [0.0, 1.0]]]])
        >>> scores.TanhSum(torch.tensor([1.0, -1.0]))(query, key)
        tensor([[[[-0.0007, -0.2335]]]])
    """

    @staticmethod
    def activation(hidden: Tensor) -> Tensor:
        return torch.tanh(hidden)


class ReluSum(UnitSum):
    """Computes ``weight · max(query + key, 0)``: rectified units.

    Example:
        >>> import torch
        >>> from regard import scores
        >>> query, key = torch.tensor([[[[1.0, 2.0]]]]), torch.tensor([[[[3.0, 4.0], [0.0, 1.0]]]])
        >>> scores.ReluSum(torch.tensor([1.0, -1.0]))(query, key)
        tensor([[[[-2., -2.]]]])
    """

    @staticmethod
    def activation(hidden: Tensor) -> Tensor:
        return torch.relu(hidden)


class Additive(Score, fields=("weight", "query_projection", "key_projection")):
    """Scores a pair by a layer of tanh units on query and key, with a weight for each unit.

    .. math::

        score(q, k) = w · tanh(W q + U k + b)

    Bahdanau et al. 2015, "Neural Machine Translation by Jointly Learning to Align and Translate", appendix A.1.2:
    w is their v_a, q the state s_{i−1}, k the annotation h_j. Luong et al. 2015, section 3.1, *concat*, is the same
    family: v · tanh(W_a [q; k]) with W_a = [W, U] (see `concat`). It lowers to w · tanh(query' + key'), where
    query' = W q and key' = U k + b are computed once for each query and each key.

    Args:
        weight: w, ``[dim]``, or ``[heads, dim]`` with one vector a head.
        query_projection: W, `nn.Linear` from the queries' dim to ``dim``; None if the queries are projected already.
        key_projection: U and b, `nn.Linear` from the keys' dim to ``dim``; None if the keys are projected already.

    Raises:
        KindError: the weight is not a floating-point tensor, or a projection is not an `nn.Linear`.
        ShapeError: the weight has another rank, or a projection does not have ``dim`` outputs.

    Numerics: half-precision inputs are projected and scored in float32.

    Example:
        >>> import torch
        >>> from regard import scores
        >>> query, key = torch.tensor([[[[1.0, 2.0]]]]), torch.tensor([[[[3.0, 4.0], [0.0, 1.0]]]])
        >>> scores.Additive(torch.tensor([1.0, -1.0]))(query, key).detach()
        tensor([[[[-0.0007, -0.2335]]]])
    """

    sum_note = "query + key, unit by unit"

    weight: Tensor
    query_projection: nn.Linear | None
    key_projection: nn.Linear | None

    def __init__(
        self, weight: Tensor, query_projection: nn.Linear | None = None, key_projection: nn.Linear | None = None
    ):
        super().__init__()
        register_weight(self, "weight", weight, "[dim]", "[heads, dim]")
        self.query_projection = check_projection("query_projection", query_projection, weight)
        self.key_projection = check_projection("key_projection", key_projection, weight)

    @classmethod
    def create(cls, query_dim: int, key_dim: int, dim: int, heads: int | None = None) -> "Additive":
        """Creates a trainable score with both projections.

        Args:
            query_dim: features of a query.
            key_dim: features of a key.
            dim: number of tanh units.
            heads: the number of heads with separate weight vectors; None is one vector for all.
        """
        return cls(create_weight(dim, heads), *create_projections(query_dim, key_dim, dim))

    @classmethod
    def concat(cls, query_dim: int, key_dim: int, dim: int, heads: int | None = None) -> "Additive":
        """Creates Luong's *concat* score: its projections are the two parts of one matrix, without a bias.

        The arguments are those of `create`. The matrix ``[dim, query_dim + key_dim]`` is initialized as a whole.
        """
        check_sizes(query_dim=query_dim, key_dim=key_dim, dim=dim)
        matrix = nn.init.xavier_uniform_(torch.empty(dim, query_dim + key_dim))
        projections = []
        for half in matrix.split([query_dim, key_dim], dim=1):
            projection = nn.Linear(half.shape[1], dim, bias=False)
            projection.weight = nn.Parameter(half.clone())
            projections.append(projection)
        return cls(create_weight(dim, heads), *projections)

    def check(self, query: Tensor, key: Tensor) -> None:
        check_device("weight", self.weight, query)
        if self.weight.dim() == 2:
            check_heads("weight", self.weight.shape[0], query)
        for name, tensor, projection in (("query", query, self.query_projection), ("key", key, self.key_projection)):
            if projection is None:
                check_dim(name, tensor, self.weight.shape[-1], f"as weight has it (there is no {name}_projection)")
            else:
                check_dim(name, tensor, projection.in_features, f"as {name}_projection takes it")

    def project_query(self, query: Tensor) -> Tensor:
        return project("query", self.query_projection, query)

    def project_key(self, key: Tensor) -> Tensor:
        return project("key", self.key_projection, key)

    def pair_units(self, query: Tensor, key: Tensor) -> PairUnits:
        prepared = self.prepare(query, key)
        sums = TanhSum.sums(prepared.query, prepared.key)
        steps = PairStep("sum", self.sum_note, sums), PairStep("tanh", "tanh of each sum", TanhSum.activation(sums))
        return PairUnits(steps, upcast(self.weight))

    def projected(self) -> Score:
        return replaced(self, query_projection=None, key_projection=None).train(self.training)

    def prepare(self, query: Queries, key: Keys) -> Prepared:
        query, key = upcast(self.project_query(query)), upcast(self.project_key(key))
        return Prepared(query, key, TanhSum(self.weight.to(query.dtype)))


def check_projection(name: str, projection: object, weight: Tensor) -> nn.Linear | None:
    """Returns the projection if it is None or a linear map to as many units as ``weight`` has; raises otherwise."""
    if projection is None:
        return None
    check_module(name, projection, nn.Linear)
    assert isinstance(projection, nn.Linear)
    if projection.out_features != weight.shape[-1]:
        raise ShapeError(
            f"{name} must have as many outputs as weight has units, {weight.shape[-1]}; "
            f"it has {projection.out_features}"
        )
    return projection


def create_weight(dim: int, heads: int | None = None) -> nn.Parameter:
    """Creates a weight vector of tanh units, uniform in ±1/√dim, or one a head."""
    check_sizes(dim=dim, heads=1 if heads is None else heads)
    bound = 1.0 / math.sqrt(dim)
    return nn.Parameter(torch.empty((dim,) if heads is None else (heads, dim)).uniform_(-bound, bound))


def create_projections(query_dim: int, key_dim: int, dim: int) -> tuple[nn.Linear, nn.Linear]:
    """Creates projections of queries and keys; only the keys' projection has a bias, since one is enough for a sum."""
    check_sizes(query_dim=query_dim, key_dim=key_dim, dim=dim)
    query_projection, key_projection = nn.Linear(query_dim, dim, bias=False), nn.Linear(key_dim, dim)
    for projection in (query_projection, key_projection):
        nn.init.xavier_uniform_(projection.weight)
    nn.init.zeros_(key_projection.bias)
    return query_projection, key_projection
