"""Monotonic attention: each query goes on from where the query before it stopped.

Raffel et al. 2017, Chiu & Raffel 2018, and He et al. 2019.
"""

from typing import Literal, get_args

import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.nn import functional as F

from regard.errors import ArgumentError, UnknownNameError
from regard.normalizers.alignment_normalizer import AlignmentNormalizer, linear_recurrence, on_visible_keys, shifted
from regard.normalizers.normalizer import Normalizer, check_rows, hidden_pairs, safe_softmax
from regard.normalizers.parameter import along_heads, check_range, set_parameter
from regard.shapes.axes import Float
from regard.shapes.checks import check_broadcast, check_floating, size
from regard.shapes.grid import Grid, upcast
from regard.shapes.layout import Pairs
from regard.summaries import parameter_summary

MonotonicMode = Literal["expected", "hard"]


class Monotonic(AlignmentNormalizer):
    """Lets each query go over the keys from where the query before it stopped, and stop at one of them.

    .. math:: p_{ij} = \\sigma(s_{ij} + r) \\qquad
        \\alpha_{ij} = p_{ij} \\sum_{k \\le j} \\alpha_{i-1,k} \\prod_{l=k}^{j-1} (1 - p_{il})

    Raffel et al. 2017, "Online and Linear-Time Attention by Enforcing Monotonic Alignments", equations 6 to 10: the
    weights are the probabilities to stop at a key. The first query begins at the first key. What passes the last key
    stops nowhere, so a row sums to at most 1.

    ============  =====================================  ==========================================================
    mode          the weights                            gradient to the scores
    ============  =====================================  ==========================================================
    ``expected``  the probabilities of the equation      exact
    ``hard``      1 at the first key with p > 1/2        none
    ============  =====================================  ==========================================================

    A model trains with ``expected`` and decodes with ``hard``, to which noise teaches it (section 2.5): it drives p to
    0 or 1. Hidden keys are passed over. A query that sees no key leaves the place to the next one as it is.

    The weights of a query depend on the scores of all earlier queries, so only backends that compute whole grids run
    it. A decoder calls it step by step: `given` takes the weights of the step before.

    Args:
        mode: ``expected`` or ``hard``.
        bias: :math:`r`, a number, or a tensor ``[]`` or ``[heads]`` that may be learned; default 0. With long inputs it
            should begin well below 0, so that the first queries see more than the first keys (section 2.4).
        noise: standard deviation of the normal noise that is added to the scores while the module is in training mode
            and ``mode`` is ``expected``; default 0.
        generator: the generator of the noise; default PyTorch's global one.

    Raises:
        UnknownNameError: the mode is unknown.
        ArgumentError: the bias is not finite, or the noise is negative.

    Numerics: the recurrence :math:`q_{ij} = (1 - p_{i,j-1}) q_{i,j-1} + \\alpha_{i-1,j}`, whose :math:`p_{ij} q_{ij}`
    are the weights, is computed for all keys at once in log₂ keys steps of sums and products of numbers from 0 to 1
    (Hillis & Steele 1986). It divides by nothing, unlike the paper's cumulative products, and so is exact for rows of
    any length. Half precision is computed in float32.

    Example:
        >>> import torch
        >>> from regard import normalizers
        >>> scores = torch.tensor([[0.0, 0.0, 99.0], [-99.0, 0.0, 0.0]])
        >>> normalizers.Monotonic()(scores)
        tensor([[0.5000, 0.2500, 0.2500],
                [0.0000, 0.3750, 0.3125]])
        >>> normalizers.Monotonic("hard")(scores)
        tensor([[0., 0., 1.],
                [0., 0., 0.]])
    """

    bias: float | Tensor

    def __init__(
        self,
        mode: MonotonicMode = "expected",
        bias: float | Tensor = 0.0,
        noise: float = 0.0,
        generator: torch.Generator | None = None,
    ):
        super().__init__()
        if mode not in get_args(MonotonicMode):
            raise UnknownNameError("mode of monotonic attention", mode, get_args(MonotonicMode))
        set_parameter(self, "bias", bias)
        check_range("noise", noise)
        if noise < 0:
            raise ArgumentError(f"noise must be 0 or more; it is {noise}")
        self.mode: MonotonicMode = mode
        self.noise, self.generator = float(noise), generator
        self.random = self.noise > 0.0
        self.bind(None)

    def given(self, previous: Tensor | None, mode: MonotonicMode | None = None) -> "Monotonic":
        """Returns this normalizer for the queries after those with these weights, as `AlignmentNormalizer.given`.

        Args:
            previous: weights of the last query before, broadcastable to ``[batch, heads, keys]``; None: there is none.
            mode: another mode; None: the same.
        """
        bound = type(self)(self.mode if mode is None else mode, self.bias, self.noise, self.generator)
        bound.bind(previous)
        return bound.train(self.training)

    def parts(self, row: Tensor, hidden: Tensor | None) -> tuple[Tensor, ...]:
        """Returns p and 1 − p; a hidden key stops nothing."""
        biased = row + along_heads("bias", self.bias, row, -1) if not _is_zero(self.bias) else row
        visible = biased if hidden is None else biased.masked_fill(hidden, 0.0)
        if self.mode == "hard":
            stop = torch.where(visible.isnan(), visible, (visible > 0).to(row.dtype)).detach()
            go = 1.0 - stop
        else:
            if self.noise and self.training:
                normal = torch.empty_like(visible, requires_grad=False).normal_(generator=self.generator)
                visible = visible + self.noise * normal
            stop, go = visible.sigmoid(), (-visible).sigmoid()
        if hidden is not None:
            stop, go = stop.masked_fill(hidden, 0.0), go.masked_fill(hidden, 1.0)
        return stop, go

    def advance(self, before: Tensor, hidden: Tensor | None, *parts: Tensor) -> Tensor:
        stop, go = parts
        return stop * linear_recurrence(shifted(go), before)

    def extra_repr(self) -> str:
        parts = [f"mode={self.mode!r}"]
        if not _is_zero(self.bias):
            parts.append(f"bias={parameter_summary(self.bias)}")
        return ", ".join([*parts, *([f"noise={self.noise}"] if self.noise else [])])


class Stepwise(Monotonic):
    """Lets each query stay at the key of the query before it, or move on by one key.

    .. math:: p_{ij} = \\sigma(s_{ij} + r) \\qquad
        \\alpha_{ij} = \\alpha_{i-1,j} \\, p_{ij} + \\alpha_{i-1,j-1} \\, (1 - p_{i,j-1})

    He, Deng & He 2019, "Robust Sequence-to-Sequence Acoustic Modeling with Stepwise Monotonic Attention for Neural
    TTS". As `Monotonic`, but :math:`p` is the probability to stay at a key, and no key is passed over: in
    mode ``hard`` a query has weight 1 at the same key, if p > 1/2 there, or at the next one. What moves on from the
    last key is lost, so a row sums to at most 1. In mode ``expected`` each query mixes the keys that it may have
    reached; the paper decodes with it as well. Hidden keys do not count: the next key is the next visible one.

    Args:
        mode, bias, noise, generator: as in `Monotonic`.

    Raises:
        UnknownNameError, ArgumentError: as `Monotonic`.

    Numerics: half precision is computed in float32.

    Example:
        >>> import torch
        >>> from regard import normalizers
        >>> scores = torch.tensor([[0.0, 9.0, 9.0], [-99.0, 0.0, 9.0]])
        >>> normalizers.Stepwise()(scores)
        tensor([[0.5000, 0.5000, 0.0000],
                [0.0000, 0.7500, 0.2500]])
        >>> normalizers.Stepwise("hard")(scores)
        tensor([[0., 1., 0.],
                [0., 0., 1.]])
    """

    def advance(self, before: Tensor, hidden: Tensor | None, *parts: Tensor) -> Tensor:
        stay, go = parts
        before = on_visible_keys(before, hidden)
        return before * stay + on_visible_keys(shifted(before * go), hidden)


class Chunkwise(Normalizer, fields=("stops", "width")):
    """Spreads each probability to stop at a key over the chunk of keys that ends there, by softmax.

    .. math:: \\beta_{ij} = \\sum_{k=j}^{j+w-1} \\alpha_{ik} \\,
        \\exp(s_{ij}) \\,/\\, \\sum_{l=k-w+1}^{k} \\exp(s_{il})

    Chiu & Raffel 2018, "Monotonic Chunkwise Attention", equation 17: :math:`\\alpha` are the weights of `Monotonic`,
    from scores of their own, and :math:`s` their chunk energies u. If :math:`\\alpha` is 1 at one key it is their
    hard decoding, equations 14 to 16::

        stops = regard.attend_with_weights(query, key, value, score=first, normalizer=normalizers.Monotonic()).weights
        regard.attend(query, key, value, score=second, normalizer=normalizers.Chunkwise(stops, width=4))

    Args:
        stops: :math:`\\alpha`, broadcastable to ``[batch, heads, queries, keys]``; differentiable.
        width: :math:`w`, keys of a chunk, at least 1; those that the mask hides count, and get weight 0. With 1 the
            weights are the stops.

    Raises:
        KindError: the stops are not a floating-point tensor.
        ArgumentError: the width is below 1.

    Stops at hidden keys count as 0, so a row sums to what its stops sum to at visible keys.

    Numerics: the softmax of each chunk subtracts its own maximum;
    memory is ``width`` numbers a pair. Half precision is computed in float32.

    Example:
        >>> import torch
        >>> from regard import normalizers
        >>> normalizers.Chunkwise(torch.tensor([0.0, 0.0, 1.0, 0.0]), width=2)(torch.tensor([9.0, 0.0, 1.0, 9.0]))
        tensor([0.0000, 0.2689, 0.7311, 0.0000])
    """

    stops: Tensor

    def __init__(self, stops: Tensor, width: int):
        super().__init__()
        check_floating("stops", stops)
        self.width = size("width", width)
        self.register_buffer("stops", stops, persistent=False)

    def forward(self, scores: Float[Tensor, "*shape"] | ArrayLike, dim: int = -1) -> Float[Tensor, "*shape"]:
        """Returns weights of the shape of ``scores``, to which the stops broadcast."""
        scores = check_rows(scores, dim)
        check_broadcast("stops", self.stops, tuple(scores.shape), "the shape of scores")
        row, stops = upcast(scores).movedim(dim, -1), self.stops.expand(scores.shape).movedim(dim, -1)
        return _spread(row, stops, self.width).movedim(-1, dim).to(scores.dtype)

    def weigh(self, scores: Pairs, grid: Grid) -> Pairs:
        shape = grid.batch, grid.heads, grid.queries, grid.keys
        check_broadcast("stops", self.stops, shape, "[batch, heads, queries, keys]")
        return _spread(upcast(scores), grid.cut(self.stops), self.width).to(scores.dtype)


def _spread(scores: Tensor, stops: Tensor, width: int) -> Tensor:
    """Returns the chunkwise weights ``[..., keys]``."""
    keys, hidden = scores.shape[-1], hidden_pairs(scores)
    width = max(1, min(width, keys))
    # Position d of the chunk that ends at key k is key k − d.
    chunks = torch.stack(
        [F.pad(scores[..., : keys - back], (back, 0), value=-torch.inf) for back in range(width)], dim=-1
    )
    stops = stops.to(scores.dtype)
    stops = stops if hidden is None else stops.masked_fill(hidden, 0.0)
    parts = stops[..., None] * safe_softmax(chunks, -1)
    weights = parts[..., 0]
    for back in range(1, width):
        weights = weights + F.pad(parts[..., back:, back], (0, back))
    # Hidden pairs pass no gradient, even if the incoming gradient is NaN.
    return weights if hidden is None else weights.masked_fill(hidden, 0.0)


def _is_zero(bias: float | Tensor) -> bool:
    return not isinstance(bias, Tensor) and bias == 0.0
