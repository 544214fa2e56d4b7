"""Scores by location: from the query alone, or from the attention weights of the previous step."""

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import ArgumentError, KindError, ShapeError
from regard.fields import replaced
from regard.scores.additive_scores import Additive, create_projections, create_weight
from regard.scores.inner_product import InnerProduct
from regard.scores.score import Places, Prepared, Score
from regard.scores.weights import check_device, check_dim, in_dtype_of, project, register_weight
from regard.shapes.checks import SIZE_LIMIT, check_floating, check_sizes, size
from regard.shapes.grid import spread_heads, upcast
from regard.shapes.layout import Keys, Queries
from regard.tracing.module_calls import is_observed, runs


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
    fields=(
        "weight", "convolution", "location_projection", "query_projection", "key_projection", "previous_weights",
    ),
):  # fmt: skip
    """Computes the additive score with one more input: the attention weights of the previous step.

    .. math::

        score(q_i, k_j) = w · tanh(W q_i + V k_j + U f_{i,j} + b),    f_i = F ∗ α_{i−1}

    Chorowski et al. 2015, "Attention-Based Models for Speech Recognition", equations 8 and 9, with the paper's letters;
    q is the state s_{i−1} and k the annotation h_j. α_{i−1} are the weights of the previous step, bound by `given`::

        output, weights = weigh(state, keys, values, score=score.given(weights))

    All queries of one call use the same α. Without `given`, as at the first step, α is 0 everywhere.

    Args:
        weight: w, ``[dim]`` or ``[heads, dim]``.
        convolution: F, `nn.Conv1d` from 1 channel to any number, with an odd kernel and zero padding that keeps the
            length.
        location_projection: U, `nn.Linear` from these channels to ``dim``.
        query_projection: W, as in `Additive`.
        key_projection: V and b, as in `Additive`.
        previous_weights: α, as in `given`.

    Raises:
        KindError: a part has the wrong type.
        ShapeError, ArgumentError: the parts do not fit together.

    Numerics: half-precision inputs are projected, convolved and scored in float32.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> attention = nn.Attention.create("location_aware", 4, 4, channels=2, kernel_size=3)
        >>> state, annotations = torch.zeros(1, 4), torch.zeros(1, 5, 4)
        >>> weights = attention(state, annotations).weights
        >>> attention(state, annotations, previous_weights=weights).weights.shape
        torch.Size([1, 5])
    """

    sum_note = "query + key + U f, unit by unit"

    previous_weights: Tensor | None

    def __init__(
        self,
        weight: Tensor,
        convolution: nn.Conv1d,
        location_projection: nn.Linear,
        query_projection: nn.Linear | None = None,
        key_projection: nn.Linear | None = None,
        previous_weights: Tensor | None = None,
    ):
        super().__init__(weight, query_projection, key_projection)
        _check_convolution(convolution)
        if not isinstance(location_projection, nn.Linear):
            raise KindError(f"location_projection must be an nn.Linear; it is a {type(location_projection).__name__}")
        sizes = location_projection.in_features, location_projection.out_features
        expected = convolution.out_channels, weight.shape[-1]
        if sizes != expected:
            raise ShapeError(
                f"location_projection must map the {expected[0]} channels of convolution to the {expected[1]} units "
                f"of weight; it maps {sizes[0]} to {sizes[1]}"
            )
        self.convolution = convolution
        self.location_projection = location_projection
        if previous_weights is not None:
            check_floating("previous_weights", previous_weights)
            if previous_weights.dim() not in (2, 3):
                raise ShapeError(
                    "previous_weights must be [batch, keys] or [batch, heads, keys]; "
                    f"it has shape {list(previous_weights.shape)}"
                )
        # torch.compile cannot trace an assignment.
        self.register_buffer("previous_weights", previous_weights, persistent=False)

    @classmethod
    def create(  # type: ignore[override]
        cls, query_dim: int, key_dim: int, dim: int, heads: int | None = None, *, channels: int, kernel_size: int
    ) -> "LocationAware":
        """Creates a trainable score.

        Args:
            query_dim: features of a query.
            key_dim: features of a key.
            dim: number of tanh units.
            heads: the number of heads with separate weight vectors; None is one vector for all.
            channels: number of filters over the previous weights.
            kernel_size: number of keys that each filter covers; odd.
        """
        check_sizes(query_dim=query_dim, key_dim=key_dim, dim=dim, channels=channels)
        size("kernel_size", kernel_size, low=-SIZE_LIMIT)
        if kernel_size < 1 or kernel_size % 2 == 0:
            raise ArgumentError(f"kernel_size must be odd and above 0; it is {kernel_size}")
        convolution = nn.Conv1d(1, channels, kernel_size, padding="same", bias=False)
        location_projection = nn.Linear(channels, dim, bias=False)
        for part in (convolution, location_projection):
            nn.init.xavier_uniform_(part.weight)
        projections = create_projections(query_dim, key_dim, dim)
        return cls(create_weight(dim, heads), convolution, location_projection, *projections)

    def given(self, previous_weights: Tensor) -> "LocationAware":
        """Returns this score, with the same parameters, for the step after the one with these weights.

        Args:
            previous_weights: ``[batch, keys]``, or ``[batch, heads, keys]`` with separate weights a head. A gradient
                flows through them to the previous step.

        Raises:
            KindError: the weights are not a floating-point tensor.
            ShapeError: the weights have another rank.
        """
        check_floating("previous_weights", previous_weights)
        return replaced(self, previous_weights=previous_weights).train(self.training)

    def check(self, query: Tensor, key: Tensor) -> None:
        super().check(query, key)
        if self.previous_weights is None:
            return
        check_device("previous_weights", self.previous_weights, query)
        shape = list(self.previous_weights.shape)
        B, H, K = query.shape[0], query.shape[1], key.shape[2]
        if shape not in ([B, K], [B, H, K], [B, 1, K]):
            raise ShapeError(
                f"previous_weights must be [batch, keys] = {[B, K]} or [batch, heads, keys] = {[B, H, K]}; "
                f"it has shape {shape}"
            )

    def prepare(self, query: Queries, key: Keys) -> Prepared:
        prepared = super().prepare(query, key)
        return self._located(prepared, self._location(prepared.key))

    def prepare_at(self, query: Queries, key: Keys, places: Places) -> Prepared:
        prepared = super().prepare(query, key)
        whole = prepared.key.new_empty(()).expand(self._batch(places, key), 1, places.keys, prepared.key.shape[3])
        location = places.of_batch(self._location(whole)).index_select(2, places.key_index)
        return self._located(prepared, location)

    def _batch(self, places: Places, key: Tensor) -> int:
        """Returns the batch rows of the previous weights, which every process has whole."""
        return key.shape[0] if self.previous_weights is None else self.previous_weights.shape[0]

    def _located(self, prepared: Prepared, location: Tensor) -> Prepared:
        # Separate weights a query head need separate keys a query head; shared weights keep the groups of key heads.
        key = prepared.key if location.shape[1] == 1 else spread_heads(prepared.key, location.shape[1])
        return replace(prepared, key=key + location)

    def _location(self, key: Tensor) -> Tensor:
        """Returns U f for each key, ``[batch, heads or 1, keys, dim]``."""
        B, _, K, D = key.shape
        if K == 0:
            # A convolution does not accept length 0, but its weights still need a gradient of zero.
            parts = *self.convolution.parameters(), *self.location_projection.parameters()
            return key.new_zeros(B, 1, 0, D) + sum(part.flatten()[:0].sum().to(key.dtype) for part in parts)
        previous = self.previous_weights
        if previous is None:
            previous = key.new_zeros(B, K)
        if previous.dim() == 2:
            previous = previous[:, None]
        previous = previous.to(key.dtype)
        H = previous.shape[1]
        convolution = self.convolution
        rows = previous.reshape(B * H, 1, K)
        if not runs(convolution, nn.Conv1d.forward) or is_observed(convolution):
            features = in_dtype_of(key, convolution)(rows)
            return project("location", self.location_projection, features.transpose(1, 2)).unflatten(0, (B, H))
        features = F.conv1d(
            rows,
            convolution.weight.to(key.dtype),
            None if convolution.bias is None else convolution.bias.to(key.dtype),
            padding="same",
            dilation=convolution.dilation,
        )
        return project("location", self.location_projection, features.transpose(1, 2)).unflatten(0, (B, H))


def _check_convolution(convolution: object) -> None:
    if not isinstance(convolution, nn.Conv1d):
        raise KindError(f"convolution must be an nn.Conv1d; it is a {type(convolution).__name__}")
    if convolution.in_channels != 1:
        raise ShapeError(f"convolution must take 1 channel, the previous weights; it takes {convolution.in_channels}")
    width, dilation = convolution.kernel_size[0], convolution.dilation[0]
    if width % 2 == 0:
        raise ArgumentError(f"convolution must have an odd kernel, to be centered on a key; it has {width}")
    keeps = convolution.padding == "same" or convolution.padding == (dilation * (width - 1) // 2,)
    if not keeps or convolution.stride[0] != 1 or convolution.padding_mode != "zeros":
        raise ArgumentError(
            "convolution must keep the number of keys: stride 1 and zero padding 'same'; it has stride "
            f"{convolution.stride[0]}, padding {convolution.padding!r}, mode {convolution.padding_mode!r}"
        )
