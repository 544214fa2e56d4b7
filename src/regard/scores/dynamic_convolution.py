"""Dynamic convolution attention: where the weights of the step before were, filtered as the query says."""

import math
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import ShapeError
from regard.scores.additive_scores import check_projection, create_weight
from regard.scores.alignment_score import AlignmentScore, check_convolution, convolved, create_convolution
from regard.scores.custom import Pairwise
from regard.scores.score import PairStep, PairUnits, Places, Prepared
from regard.scores.weights import check_device, check_dim, project, register_weight
from regard.shapes.checks import check_module, check_sizes
from regard.shapes.grid import upcast
from regard.shapes.layout import Keys, Queries

LEAST_PRIOR = 1e-6
"""The least probability of a key in the prior, before its logarithm."""


class DynamicConvolution(
    AlignmentScore,
    fields=(
        "weight", "convolution", "location_projection", "hidden_projection", "filter_projection",
        "dynamic_projection", "prior", "earlier",
    ),
):  # fmt: skip
    """Scores each key by filters over the weights of the previous step; the content of the keys has no effect.

    .. math::

        score(q_i, k_j) = w · tanh(U f_{ij} + T g_{ij} + b) + log p_{ij}
        f_i = F ∗ α_{i−1},    g_i = G(q_i) ∗ α_{i−1},    G(q) = V tanh(W q + b'),    p_i = max(P ∗ α_{i−1}, 10⁻⁶)

    Battenberg et al. 2020, "Location-Relative Attention Mechanisms for Robust Long-Form Speech Synthesis", whose
    letters these are, but for w, their v, and q, their s. F are static filters; those of G depend on the query; P
    is a causal prior, beta-binomial, by which the weights move on. As no key is read, the attention goes on beyond the
    lengths that it was trained with. At the first step all of α is on the first key.

    Args:
        weight: w, ``[dim]``.
        convolution: F, as in `LocationAware`.
        location_projection: U and b, `nn.Linear` from the channels of F to ``dim``.
        hidden_projection: W and b', `nn.Linear` from the queries' dim to any number of units.
        filter_projection: V, `nn.Linear` from these units to the elements of G, those of one filter after another.
        dynamic_projection: T, `nn.Linear` without a bias from the number of filters of G, of odd length, to ``dim``.
        prior: P, ``[length]``: the probability to move on by 0, 1, … keys.
        earlier: α, as `given` binds it.

    Raises:
        KindError, ShapeError, ArgumentError: the parts do not fit together.

    Numerics: half-precision inputs are projected, convolved and scored in float32.

    Example:
        >>> import torch
        >>> from regard import scores
        >>> score = scores.create("dynamic_convolution", query_dim=4, key_dim=6, channels=2, kernel_size=3)
        >>> weights = score(torch.zeros(1, 1, 1, 4), torch.zeros(1, 1, 5, 6)).softmax(-1).squeeze()
        >>> score.given(weights[None])(torch.zeros(1, 1, 1, 4), torch.zeros(1, 1, 5, 6)).shape
        torch.Size([1, 1, 1, 5])
    """

    weight: Tensor
    prior: Tensor
    location_projection: nn.Linear
    hidden_projection: nn.Linear
    filter_projection: nn.Linear
    dynamic_projection: nn.Linear
    begins = True

    def __init__(
        self,
        weight: Tensor,
        convolution: nn.Conv1d,
        location_projection: nn.Linear,
        hidden_projection: nn.Linear,
        filter_projection: nn.Linear,
        dynamic_projection: nn.Linear,
        prior: Tensor,
        earlier: Tensor | None = None,
    ):
        super().__init__()
        self.bind("previous", earlier)
        register_weight(self, "weight", weight, "[dim]")
        register_weight(self, "prior", prior, "[length]")
        check_convolution(convolution, 1)
        self.convolution = convolution
        linear = {
            "location_projection": (location_projection, convolution.out_channels),
            "hidden_projection": (hidden_projection, None),
            "dynamic_projection": (dynamic_projection, None),
            "filter_projection": (filter_projection, getattr(hidden_projection, "out_features", None)),
        }
        for name, (part, inputs) in linear.items():
            check_module(name, part, nn.Linear)
            if inputs not in (None, part.in_features):
                raise ShapeError(f"{name} must take {inputs} features; it takes {part.in_features}")
            if name in ("location_projection", "dynamic_projection"):
                check_projection(name, part, weight)
            setattr(self, name, part)
        width, rest = divmod(filter_projection.out_features, dynamic_projection.in_features)
        if rest or width % 2 == 0:
            raise ShapeError(
                f"filter_projection must have {dynamic_projection.in_features} filters of an odd number of keys, as "
                f"dynamic_projection takes them; it has {filter_projection.out_features} outputs"
            )
        self.width = width

    @classmethod
    def create(
        cls, query_dim: int, dim: int, *, channels: int, kernel_size: int, prior_length: int = 11
    ) -> "DynamicConvolution":
        """Creates a trainable score with the prior of the paper, whose mean is one key a step.

        Args:
            query_dim: features of a query.
            dim: number of tanh units.
            channels: number of static filters, and of dynamic ones.
            kernel_size: number of keys that each filter covers; odd.
            prior_length: number of keys of the prior.
        """
        check_sizes(query_dim=query_dim, dim=dim, channels=channels, prior_length=prior_length)
        parts = (
            create_convolution(1, channels, kernel_size),
            nn.Linear(channels, dim),
            nn.Linear(query_dim, dim),
            nn.Linear(dim, channels * kernel_size, bias=False),
            nn.Linear(channels, dim, bias=False),
        )
        return cls(create_weight(dim), *parts, beta_binomial(prior_length, 0.1, 0.9))

    def check(self, query: Tensor, key: Tensor) -> None:
        check_device("weight", self.weight, query)
        check_dim("query", query, self.hidden_projection.in_features, "as hidden_projection takes it")
        self.check_earlier(query, key)

    def prepare(self, query: Queries, key: Keys) -> Prepared:
        return self.prepare_at(query, key, Places.whole(query, key))

    def prepare_at(self, query: Queries, key: Keys, places: Places) -> Prepared:
        query = upcast(query)
        batch = key.shape[0] if self.earlier is None else self.earlier.shape[0]
        rows = self.rows(query.new_empty(()).expand(batch, 1, places.keys, 1))
        before, reach = rows[:, :, 0], self.width // 2
        prior = _windows(before, len(self.prior), len(self.prior) - 1) @ self.prior.flip(0).to(rows.dtype)
        parts = (
            project("location", self.location_projection, convolved(self.convolution, rows)),
            _windows(before, self.width, reach),
            prior.clamp(min=LEAST_PRIOR).log()[..., None],
        )
        key = places.of_batch(torch.cat(parts, -1)).index_select(2, places.key_index)
        filters = project("filter", self.filter_projection, project("hidden", self.hidden_projection, query).tanh())
        filters = filters.unflatten(-1, (self.dynamic_projection.in_features, self.width)).transpose(-1, -2)
        units = project("dynamic", self.dynamic_projection, filters).flatten(-2)
        units = torch.cat([units, self.weight.to(query.dtype).expand(*units.shape[:-1], -1)], -1)
        return Prepared(units, key, Pairwise(partial(_energies, dim=len(self.weight)), width=len(self.weight)))

    def pair_units(self, query: Tensor, key: Tensor) -> PairUnits:
        prepared = self.prepare(query, key)
        sums = _sums(prepared.query, prepared.key, len(self.weight))
        return PairUnits(
            (PairStep("sum", "U f + T g, unit by unit", sums), PairStep("tanh", "of each sum", sums.tanh()))
        )


def beta_binomial(length: int, alpha: float, beta: float) -> Tensor:
    """Returns the probabilities of 0 to ``length − 1`` successes under a beta-binomial distribution."""

    def log_beta(a: float, b: float) -> float:
        return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)

    n = length - 1
    odds = [
        math.comb(n, k) * math.exp(log_beta(k + alpha, n - k + beta) - log_beta(alpha, beta)) for k in range(length)
    ]
    return torch.tensor(odds)


def _windows(weights: Tensor, width: int, back: int) -> Tensor:
    """Returns the weights around each key, of which the first is ``back`` keys before it, ``[..., keys, width]``."""
    keys = weights.shape[-1]
    return F.pad(weights, (back, width - back)).unfold(-1, width, 1)[..., :keys, :]


def _sums(query: Tensor, key: Tensor, dim: int) -> Tensor:
    """Returns U f + T g of each pair, ``[batch, heads, queries, keys, dim]``."""
    location, windows = key[..., :dim], key[..., dim:-1]
    filters = query[..., :-dim].unflatten(-1, (windows.shape[-1], dim))
    return location[..., None, :, :] + torch.einsum(
        "bhqwd,bhkw->bhqkd", filters, windows.expand(*query.shape[:2], -1, -1)
    )


def _energies(query: Tensor, key: Tensor, dim: int) -> Tensor:
    """Returns the scores ``[batch, heads, queries, keys]``; behind its filters, each query has the weight."""
    hidden = _sums(query, key, dim).tanh()
    return (hidden @ query[..., -dim:, None]).squeeze(-1) + key[..., None, :, -1]
