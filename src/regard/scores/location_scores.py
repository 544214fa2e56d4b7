"""Scores by location: from the query alone, or from the attention weights of earlier steps."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from regard.errors import ShapeError
from regard.scores.additive_scores import Additive, create_projections, create_weight
from regard.scores.alignment_score import AlignmentScore, Seen, check_convolution, convolved, create_convolution
from regard.scores.inner_product import InnerProduct
from regard.scores.score import Places, Prepared, Score
from regard.scores.weights import check_device, check_dim, project, register_weight
from regard.shapes.checks import check_module, check_sizes
from regard.shapes.grid import spread_heads, upcast
from regard.shapes.layout import Keys, Queries


class Location(Score, fields=("weight",)):
    """Scores each key position from the query alone; the content of the keys has no effect.

    .. math::

        score(q, k_j) = w_j · q

    Luong et al. 2015, section 3.1, equation 8, *location*: a_t = softmax(W_a h_t). Row j of ``weight`` scores
    position j, counted from the first key.

    Args:
        weight: W_a, ``[max_keys, query_dim]``.

    Raises:
        KindError: the weight is not a floating-point tensor.
        ShapeError: the weight has another rank.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import scores
        >>> x = torch.zeros(3, 4)
        >>> regard.attend(x, x, x, score=scores.Location(torch.zeros(3, 4))).shape
        torch.Size([3, 4])
    """

    weight: Tensor

    def __init__(self, weight: Tensor):
        super().__init__()
        register_weight(self, "weight", weight, "[max_keys, query_dim]")

    @classmethod
    def create(cls, query_dim: int, max_keys: int) -> "Location":
        """Creates a trainable score for up to ``max_keys`` keys."""
        check_sizes(query_dim=query_dim, max_keys=max_keys)
        return cls(nn.Parameter(nn.init.xavier_uniform_(torch.empty(max_keys, query_dim))))

    def check(self, query: Tensor, key: Tensor) -> None:
        check_device("weight", self.weight, query)
        check_dim("query", query, self.weight.shape[1], "as weight [max_keys, query_dim] has it")
        if key.shape[2] > self.weight.shape[0]:
            raise ShapeError(
                f"key must have at most {self.weight.shape[0]} keys, the rows of weight [max_keys, query_dim]; "
                f"it has {key.shape[2]}"
            )

    def prepare(self, query: Queries, key: Keys) -> Prepared:
        query = upcast(query)
        rows = self.weight[: key.shape[2]].to(query.dtype)
        return Prepared(query, rows[None, None], InnerProduct())

    def prepare_at(self, query: Queries, key: Keys, places: Places) -> Prepared:
        query = upcast(query)
        return Prepared(query, self.weight[places.key_index].to(query.dtype)[None, None], InnerProduct())


class LocationAware(
    Additive,
    AlignmentScore,
    fields=(
        "weight", "convolution", "location_projection", "query_projection", "key_projection", "sees", "earlier",
    ),
):  # fmt: skip
    """Computes the additive score with one more input: the attention weights of earlier steps.

    .. math::

        score(q_i, k_j) = w · tanh(W q_i + V k_j + U f_{i,j} + b),    f_i = F ∗ α_{i−1}

    Chorowski et al. 2015, "Attention-Based Models for Speech Recognition", equations 8 and 9, with the paper's letters;
    q is the state s_{i−1} and k the annotation h_j. α_{i−1} are the weights of the previous step, bound by `given`::

        output, weights = weigh(state, keys, values, score=score.given(weights))

    All queries of one call use the same α. Without `given`, as at the first step, α is 0 everywhere.

    With ``sees="total"`` F reads Σ_{l<i} α_l in place of α_{i−1}: the coverage of the keys (Tu et al. 2016, "Modeling
    Coverage for Neural Machine Translation"). If F has one filter of one key, U F is the vector w_c of See et al. 2017,
    "Get To The Point", equations 10 and 11; their loss is `regard.models.coverage_loss`. With ``sees="both"`` F has two
    channels, which is the attention of Tacotron 2 as it is implemented (Shen et al. 2018).

    Args:
        weight: w, ``[dim]`` or ``[heads, dim]``.
        convolution: F, `nn.Conv1d` from 1 channel, or 2 with ``sees="both"``, to any number, with an odd kernel and
            zero padding that keeps the length.
        location_projection: U, `nn.Linear` from these channels to ``dim``.
        query_projection: W, as in `Additive`.
        key_projection: V and b, as in `Additive`.
        sees: which weights F reads: those of the ``"previous"`` step, the ``"total"`` of all earlier steps, or
            ``"both"``, in this order.
        earlier: these weights, as `given` binds them.

    Raises:
        KindError: a part has the wrong type.
        UnknownNameError: ``sees`` has another value.
        ShapeError, ArgumentError: the parts do not fit together.

    Numerics: half-precision inputs are projected, convolved and scored in float32.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> attention = nn.Attention.create("location_aware", 4, 4, channels=2, kernel_size=3)
        >>> state, annotations = torch.zeros(1, 4), torch.zeros(1, 5, 4)
        >>> weights = attention(state, annotations).weights
        >>> attention(state, annotations, earlier=nn.EarlierWeights(weights)).weights.shape
        torch.Size([1, 5])
    """

    sum_note = "query + key + U f, unit by unit"

    def __init__(
        self,
        weight: Tensor,
        convolution: nn.Conv1d,
        location_projection: nn.Linear,
        query_projection: nn.Linear | None = None,
        key_projection: nn.Linear | None = None,
        sees: Seen = "previous",
        earlier: Tensor | None = None,
    ):
        super().__init__(weight, query_projection, key_projection)
        self.bind(sees, earlier)
        check_convolution(convolution, self.seen)
        check_module("location_projection", location_projection, nn.Linear)
        sizes = location_projection.in_features, location_projection.out_features
        expected = convolution.out_channels, weight.shape[-1]
        if sizes != expected:
            raise ShapeError(
                f"location_projection must map the {expected[0]} channels of convolution to the {expected[1]} units "
                f"of weight; it maps {sizes[0]} to {sizes[1]}"
            )
        self.convolution = convolution
        self.location_projection = location_projection

    @classmethod
    def create(  # type: ignore[override]
        cls,
        query_dim: int,
        key_dim: int,
        dim: int,
        heads: int | None = None,
        *,
        channels: int,
        kernel_size: int,
        sees: Seen = "previous",
    ) -> "LocationAware":
        """Creates a trainable score.

        Args:
            query_dim: features of a query.
            key_dim: features of a key.
            dim: number of tanh units.
            heads: the number of heads with separate weight vectors; None is one vector for all.
            channels: number of filters over the earlier weights.
            kernel_size: number of keys that each filter covers; odd.
            sees: as in the constructor.
        """
        check_sizes(query_dim=query_dim, key_dim=key_dim, dim=dim, channels=channels)
        convolution = create_convolution(2 if sees == "both" else 1, channels, kernel_size)
        location_projection = nn.Linear(channels, dim, bias=False)
        for part in (convolution, location_projection):
            nn.init.xavier_uniform_(part.weight)
        projections = create_projections(query_dim, key_dim, dim)
        return cls(create_weight(dim, heads), convolution, location_projection, *projections, sees)

    def check(self, query: Tensor, key: Tensor) -> None:
        super().check(query, key)
        self.check_earlier(query, key)

    def prepare(self, query: Queries, key: Keys) -> Prepared:
        prepared = super().prepare(query, key)
        return self._located(prepared, self._location(prepared.key))

    def prepare_at(self, query: Queries, key: Keys, places: Places) -> Prepared:
        prepared = super().prepare(query, key)
        # Every process has the earlier weights whole.
        batch = key.shape[0] if self.earlier is None else self.earlier.shape[0]
        whole = prepared.key.new_empty(()).expand(batch, 1, places.keys, prepared.key.shape[3])
        location = places.of_batch(self._location(whole)).index_select(2, places.key_index)
        return self._located(prepared, location)

    def _located(self, prepared: Prepared, location: Tensor) -> Prepared:
        # Separate weights a query head need separate keys a query head; shared weights keep the groups of key heads.
        key = prepared.key if location.shape[1] == 1 else spread_heads(prepared.key, location.shape[1])
        return replace(prepared, key=key + location)

    def _location(self, key: Tensor) -> Tensor:
        """Returns U f for each key, ``[batch, heads or 1, keys, dim]``."""
        return project("location", self.location_projection, convolved(self.convolution, self.rows(key)))
