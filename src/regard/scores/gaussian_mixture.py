"""Gaussian windows over the positions of the keys, which the query places; the content of the keys has no effect."""

import torch
from torch import Tensor, nn

from regard.errors import ShapeError
from regard.scores.custom import Pairwise
from regard.scores.score import Places, Prepared, Score
from regard.scores.weights import check_dim, project
from regard.shapes.checks import check_module, check_sizes
from regard.shapes.grid import upcast
from regard.shapes.layout import Keys, Queries

PARAMETERS = 3
"""Numbers of a window: log α, log β and κ."""


class GaussianMixture(Score, fields=("query_projection",)):
    """Scores each key position by the logarithm of a mixture of Gaussian windows that the query places.

    .. math::

        score(q, k_j) = log Σ_m α_m exp(−β_m (κ_m − j)²),    [log α; log β; κ] = W q + b

    Graves 2013, "Generating Sequences with Recurrent Neural Networks", section 5.1, equations 46 to 51. With the
    normalizer ``torch.exp`` the weights are his φ(t, j), which have no fixed sum; softmax normalizes them. His
    character u is our position j, counted from 0. His κ moves on from step to step; `regard.nn.GaussianWindow` adds
    that.

    Args:
        query_projection: W and b, `nn.Linear` to 3 numbers for each of M windows, first all log α, then all log β, then
            all κ; None if the queries are these numbers already.

    Raises:
        KindError: the projection is not an `nn.Linear`.
        ShapeError: it has outputs that are no multiple of 3.

    Numerics: half-precision inputs are projected and scored in float32. The mixture is summed in logarithms, so that
    far positions have finite scores.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import scores
        >>> query = torch.tensor([[0.0, 0.0, 1.0]])  # one window of α = 1, β = 1 at position 1
        >>> memory = torch.zeros(4, 2)
        >>> window = scores.GaussianMixture()
        >>> regard.attend_with_weights(query, memory, memory, score=window, normalizer=torch.exp).weights
        tensor([[0.3679, 1.0000, 0.3679, 0.0183]])
    """

    def __init__(self, query_projection: nn.Linear | None = None):
        super().__init__()
        if query_projection is not None:
            check_module("query_projection", query_projection, nn.Linear)
            if (outputs := query_projection.out_features) % PARAMETERS:
                raise ShapeError(f"query_projection must have 3 outputs for each window; it has {outputs}")
        self.query_projection = query_projection

    @classmethod
    def create(cls, query_dim: int, windows: int) -> "GaussianMixture":
        """Creates a trainable score with so many windows."""
        check_sizes(query_dim=query_dim, windows=windows)
        return cls(nn.Linear(query_dim, PARAMETERS * windows))

    def check(self, query: Tensor, key: Tensor) -> None:
        if self.query_projection is not None:
            check_dim("query", query, self.query_projection.in_features, "as query_projection takes it")
        elif query.shape[-1] % PARAMETERS or not query.shape[-1]:
            raise ShapeError(
                "query must have 3 numbers for each window, [log α; log β; κ] (there is no query_projection); "
                f"it has dim {query.shape[-1]}"
            )

    def project_query(self, query: Tensor) -> Tensor:
        return project("query", self.query_projection, query)

    def projected(self) -> Score:
        return GaussianMixture()

    def prepare(self, query: Queries, key: Keys) -> Prepared:
        return self.prepare_at(query, key, Places.whole(query, key))

    def prepare_at(self, query: Queries, key: Keys, places: Places) -> Prepared:
        query = upcast(self.project_query(query))
        positions = places.key_index.to(query.dtype)
        return Prepared(query, positions[None, None, :, None], Pairwise(_log_mixture, width=query.shape[-1]))


def _log_mixture(query: Tensor, positions: Tensor) -> Tensor:
    log_weight, log_width, center = query[..., None, :].chunk(PARAMETERS, dim=-1)  # B H Q 1 M
    exponents = (positions[..., None, :, :] - center).square() * log_width.exp()
    return torch.logsumexp(log_weight - exponents, dim=-1)
