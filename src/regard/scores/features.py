"""Scores by kernel features: products of queries and keys that a feature map maps one by one."""

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import KindError, ShapeError
from regard.fields import DeclaredModule
from regard.names.answered import answered
from regard.scores.inner_product import InnerProduct
from regard.scores.score import Prepared, Score
from regard.scores.weights import check_device, check_dim, in_dtype_of, register_weight
from regard.shapes.axes import Float
from regard.shapes.checks import check_arguments, check_same_dim, check_sizes, known_name
from regard.shapes.grid import upcast
from regard.shapes.layout import Keys, Queries


def _elu_plus_one(tensor: Tensor) -> Tensor:
    return F.elu(tensor) + 1.0


MAPS: dict[str, Callable[[Tensor], Tensor]] = {"elu": _elu_plus_one, "relu": torch.relu}
"""The feature maps that have a name."""

LEAST_EXPONENT = -40.0
"""The logarithm of the least sum of the random features of a query."""

FeatureMapName = Literal["elu", "relu"]
"""The names of feature maps without weights."""


@answered
class Features(Score, fields=("map",)):
    """Computes the inner product of features of query and key.

    .. math::

        score(q, k) = φ(q) · φ(k)

    Katharopoulos et al. 2020, "Transformers are RNNs", equation 4, with φ(x) = elu(x) + 1 (equation 7). With
    ``normalizer="ratio"`` it is their linear attention (equation 5), which the backend ``linear`` runs in linear time.

    Args:
        map: φ: ``"elu"`` for elu(x) + 1, ``"relu"``, or a function or module ``[..., dim] -> [..., features]`` that
            maps each vector by itself, such as `RandomFeatures`. With ``"ratio"`` features should not be negative.

    Raises:
        KindError: the map is neither a name nor callable.
        UnknownNameError: no map has this name.
        ShapeError: the features have other leading axes than the vectors.

    Numerics: half-precision inputs are mapped in float32, and a module computes in the dtype of its inputs.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import scores
        >>> x = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
        >>> regard.attend_with_weights(x, x, x, score=scores.Features("elu"), normalizer="ratio").weights
        tensor([[0.5000, 0.5000],
                [0.3333, 0.6667]])
    """

    def __init__(self, map: FeatureMapName | Callable[[Tensor], Tensor] = "elu"):
        super().__init__()
        if isinstance(map, str):
            known_name("map", map, MAPS)
        elif isinstance(map, type) or not callable(map):
            raise KindError(f"map must be a name or a callable [..., dim] -> [..., features]; it is {map!r}")
        else:
            check_arguments("map", map, 1)
        self.map = map

    def check(self, query: Tensor, key: Tensor) -> None:
        check_same_dim(query, key)
        if isinstance(self.map, RandomFeatures):
            check_device("projection", self.map.projection, query)
            check_dim("query", query, self.map.projection.shape[1], "as projection [features, dim] has it")

    def prepare(self, query: Queries, key: Keys) -> Prepared:
        query, key = upcast(query), upcast(key)
        of_query = self.map.of_queries(query) if isinstance(self.map, RandomFeatures) else self._features(query)
        return Prepared(of_query, self._features(key), InnerProduct())

    def _features(self, vectors: Tensor) -> Tensor:
        function = MAPS[self.map] if isinstance(self.map, str) else self.map
        if isinstance(function, nn.Module):
            function = in_dtype_of(vectors, function)
        features = function(vectors)
        if not isinstance(features, Tensor) or features.shape[:-1] != vectors.shape[:-1]:
            shape = list(features.shape) if isinstance(features, Tensor) else type(features).__name__
            raise ShapeError(f"map must return [..., features] for {list(vectors.shape)}; it returned {shape}")
        return features

    def extra_repr(self) -> str:
        if isinstance(self.map, nn.Module):
            return ""
        return repr(self.map) if isinstance(self.map, str) else getattr(self.map, "__name__", type(self.map).__name__)


class RandomFeatures(DeclaredModule, fields=("projection",)):
    """Maps a vector to positive random features, whose products estimate the exponential of a scaled dot product.

    .. math::

        \\phi(x)_i = \\frac{1}{\\sqrt m} \\exp\\!\\Big(\\omega_i^\\top x' - \\frac{\\|x'\\|^2}{2}\\Big),
        \\qquad x' = x \\, / \\, d^{1/4},
        \\qquad \\mathbb{E}\\,[\\phi(q)^\\top \\phi(k)] = e^{q^\\top k / \\sqrt d}

    Choromanski et al. 2021, "Rethinking Attention with Performers", lemma 1 (equation 7): the positive features of
    FAVOR+. ``Features(RandomFeatures.create(dim, m))`` with ``normalizer="ratio"`` estimates softmax attention by the
    scaled dot product.

    Args:
        projection: the random vectors ω, ``[features, dim]``; standard normal.

    Raises:
        KindError: the projection is not a floating-point tensor.
        ShapeError: it has another rank.

    Numerics: features are at most ``exp(‖ω‖² / 2) / √m``, and small for long vectors. Those of a query in `Features`
    are multiplied by one number where their sum would be below exp(−40), so that they do not all become 0;
    ``ratio`` cancels it. Those of keys cannot be, since keys share no number that a later call would know: a row has
    weights 0 where the norms of all its keys are above 9 or so after the scaling. Normalize such keys.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import scores
        >>> map = scores.RandomFeatures.create(4, 1024, generator=torch.Generator().manual_seed(0))
        >>> x = torch.eye(4)[:2]
        >>> regard.attend_with_weights(x, x, x, score=scores.Features(map), normalizer="ratio").weights
        tensor([[0.6086, 0.3914],
                [0.3640, 0.6360]])
        >>> regard.attend_with_weights(x, x, x).weights
        tensor([[0.6225, 0.3775],
                [0.3775, 0.6225]])
    """

    projection: Tensor

    def __init__(self, projection: Tensor):
        super().__init__()
        register_weight(self, "projection", projection, "[features, dim]")

    @classmethod
    def create(cls, dim: int, features: int, *, generator: torch.Generator | None = None) -> "RandomFeatures":
        """Draws orthogonal random vectors, whose estimates vary less (the paper's section 2.4).

        Args:
            dim: features of a query and of a key.
            features: number of random features; the paper takes about ``dim · log(dim)``.
            generator: draws the vectors; None is PyTorch's global one.
        """
        check_sizes(dim=dim, features=features)
        blocks = []
        for _ in range(-(-features // dim)):
            rotation, triangle = torch.linalg.qr(torch.randn(dim, dim, generator=generator))
            # The signs of the decomposition are a convention, which would prefer some directions.
            directions = rotation * triangle.diagonal().sign()
            norms = torch.randn(dim, dim, generator=generator).norm(dim=1, keepdim=True)
            blocks.append(directions.mT * norms)
        return cls(torch.cat(blocks)[:features])

    def forward(self, vectors: Float[Tensor, "*shape dim"]) -> Float[Tensor, "*shape features"]:
        return self._exponents(vectors).exp()

    def of_queries(self, vectors: Float[Tensor, "*shape dim"]) -> Float[Tensor, "*shape features"]:
        """Returns the features of each vector, times one number where all of them would be near 0."""
        exponents = self._exponents(vectors)
        largest = exponents.detach().logsumexp(-1, keepdim=True)
        return (exponents - (largest - LEAST_EXPONENT).clamp(torch.finfo(largest.dtype).min, 0.0)).exp()

    def _exponents(self, vectors: Tensor) -> Tensor:
        features, dim = self.projection.shape
        scaled = vectors * dim**-0.25
        exponents = scaled @ self.projection.to(vectors.dtype).mT - 0.5 * scaled.square().sum(-1, keepdim=True)
        return exponents - 0.5 * math.log(features)
