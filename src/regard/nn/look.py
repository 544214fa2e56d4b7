"""Attention with or without its weights, for the layers that may return them."""

from typing import NamedTuple

from torch import Tensor

from regard.attention import Readings, attend, observe, weigh
from regard.attention.verbs import BackendName
from regard.biases import Bias
from regard.masks import Mask
from regard.normalizers import Normalizer
from regard.scores import Score


class Looked(NamedTuple):
    """Output, and weights if they were asked for.

    Attributes:
        output: ``[batch, heads, queries, value_dim]``.
        weights: before dropout, ``[batch, heads, queries, keys]``; float32 for half-precision input.
    """

    output: Tensor
    weights: Tensor | None


def look(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    score: Score,
    normalizer: Normalizer,
    mask: Mask | None,
    bias: Bias | None,
    dropout: float,
    backend: BackendName,
    need_weights: bool,
) -> Looked:
    """The output that `attend` gives for these arguments, bit for bit, whether weights are asked for or not.

    The weights are differentiable, and those that were used up to rounding; but where the normalizer draws them, they
    are the very ones that were drawn, and carry no gradient (on `reference` they are and do both).

    Args:
        query, key, value, score, normalizer, mask, bias, dropout, backend: as for `attend`, with four axes.
        need_weights: whether to give the weights; their memory is quadratic.
    """
    if need_weights and backend == "reference":
        weighed = weigh(
            query,
            key,
            value,
            score=score,
            normalizer=normalizer,
            mask=mask,
            bias=bias,
            dropout=dropout,
            backend=backend,
        )
        return Looked(weighed.output, weighed.weights)
    if need_weights and normalizer.random:
        observed = observe(
            query,
            key,
            value,
            read=Readings(weights=True),
            score=score,
            normalizer=normalizer,
            mask=mask,
            bias=bias,
            dropout=dropout,
            backend=backend,
        )
        return Looked(observed.output, observed.weights)
    output = attend(
        query, key, value, score=score, normalizer=normalizer, mask=mask, bias=bias, dropout=dropout, backend=backend
    )
    if not need_weights:
        return Looked(output, None)
    return Looked(output, weigh(query, key, value, score=score, normalizer=normalizer, mask=mask, bias=bias).weights)
