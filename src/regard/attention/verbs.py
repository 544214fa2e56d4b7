"""The verbs attend, observe and plan; and `weigh`, for models that feed weights on."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from regard.attention import steps
from regard.attention.planner import Plan, choose, make_plan, weigh_fused
from regard.attention.readings import Gatherer, Observed, Readings
from regard.attention.validation import validate
from regard.biases.bias import Bias
from regard.masks.mask import Mask
from regard.normalizers.normalizer import Normalizer
from regard.scores import Scoring

BackendName = Literal["auto", "reference", "tiled", "sdpa", "cpu"]
Normalizing = str | Normalizer | Callable[[Tensor], Tensor]


class Weighed(NamedTuple):
    """Output and weights, both differentiable.

    Attributes:
        output: ``[batch, heads, queries, value_dim]``.
        weights: before dropout, ``[batch, heads, queries, keys]``; float32 for half-precision input.
    """

    output: Tensor
    weights: Tensor


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    score: Scoring = "scaled_dot",
    normalizer: Normalizing = "softmax",
    mask: Mask | Tensor | None = None,
    bias: Bias | Tensor | None = None,
    dropout: float = 0.0,
    backend: BackendName = "auto",
) -> Tensor:
    """Score queries against keys, normalize, and mix the values.

    .. math:: output_i = \\sum_j normalize_j(score(query_i, key_j) + bias_{ij}) \\; value_j

    With the defaults this is Vaswani et al. 2017, eq. 1 (their Q, K, V are our query, key, value; their d_k our dim).

    Args:
        query: ``[batch, heads, queries, dim]``; leading axes may be missing, from all three alike.
        key: ``[batch, kv_heads, keys, dim]``; ``kv_heads`` divides ``heads``: each serves a group of query heads.
        value: ``[batch, kv_heads, keys, value_dim]``.
        score: a name (``dot``, ``scaled_dot``, ``cosine``, ``distance``), a `Score`, or any function of
            ``(query, key)`` tiles that scores each pair by itself.
        normalizer: a name (``softmax``, ``sparsemax``, ``entmax15``, ``sigmoid``, ``hard``), a `Normalizer`, or a
            function of scores that normalizes their last axis.
        mask: who may see whom, a `Mask` or a boolean tensor whose True means "may attend"; broadcastable to
            ``[batch, heads, queries, keys]``.
        bias: added to the scaled scores, a `Bias` or a tensor broadcastable to ``[batch, heads, queries, keys]``.
        dropout: probability of dropping a weight, in [0, 1). Always active when above 0: pass 0 in evaluation.
        backend: ``auto``, or one by name, which runs or raises.

    Returns:
        ``[batch, heads, queries, value_dim]`` in the inputs' dtype, with the leading axes that the inputs had. A query
        that may see no key gets 0, and gradient 0.

    Raises:
        ShapeError, KindError, ArgumentError: bad input; the message names the argument.
        UnknownNameError: no score, normalizer or backend of this name.
        BackendError: the named backend cannot run this.

    Half-precision inputs are scored, normalized and accumulated in float32.
    """
    problem = validate(query, key, value, score=score, normalizer=normalizer, mask=mask, bias=bias, dropout=dropout)
    with full_precision(problem.query):
        return problem.restore(choose(problem, backend).run(problem))


def observe(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    read: Readings | None = None,
    score: Scoring = "scaled_dot",
    normalizer: Normalizing = "softmax",
    mask: Mask | Tensor | None = None,
    bias: Bias | Tensor | None = None,
    dropout: float = 0.0,
    backend: BackendName = "auto",
) -> Observed:
    """Attend, and read what the weights were, tile by tile: no matrix of weights is held unless it is asked for.

    Args:
        read: which readings to take; entropy, the top 8 keys and the attention that each key received if not given.
        query, key, value, score, normalizer, mask, bias, dropout, backend: as for `attend`.

    Returns:
        `Observed`; its output is what `attend` gives, bit for bit (with dropout: from the same random state). Readings
        are of the weights before dropout and carry no gradient.

    Raises:
        As `attend`; ArgumentError for readings that the problem doesn't have.
    """
    problem = validate(query, key, value, score=score, normalizer=normalizer, mask=mask, bias=bias, dropout=dropout)
    gatherer = Gatherer(problem, Readings(entropy=True, top_k=8, received=True) if read is None else read)
    with full_precision(problem.query):
        output = choose(problem, backend).run(problem, gatherer)
    return gatherer.observed(problem.restore(output), problem)


def weigh(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    score: Scoring = "scaled_dot",
    normalizer: Normalizing = "softmax",
    mask: Mask | Tensor | None = None,
    bias: Bias | Tensor | None = None,
    dropout: float = 0.0,
    backend: Literal["auto", "reference"] = "auto",
) -> Weighed:
    """Attend, and give the weights as well, differentiable: for decoders that feed them on.

    Args:
        query, key, value, score, normalizer, mask, bias, dropout: as for `attend`.
        backend: ``reference``; or ``auto``: the fused kernels where they are faster and the mask need not be made
            dense, else the reference.

    Returns:
        `Weighed`. Memory is quadratic.

    Raises:
        As `attend`.
    """
    problem = validate(query, key, value, score=score, normalizer=normalizer, mask=mask, bias=bias, dropout=dropout)
    with full_precision(problem.query):
        fused = weigh_fused(problem) if backend == "auto" else None
        if fused is not None:
            return Weighed(*map(problem.restore, fused))
        inputs = steps.whole(problem)
        weights = steps.weigh(problem, inputs).weights
        output = steps.mix(problem, inputs, weights)
    return Weighed(problem.restore(output), problem.restore(weights))


def plan(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    score: Scoring = "scaled_dot",
    normalizer: Normalizing = "softmax",
    mask: Mask | Tensor | None = None,
    bias: Bias | Tensor | None = None,
    dropout: float = 0.0,
    backend: BackendName = "auto",
) -> Plan:
    """Say which backend `attend` would run for these arguments, and why each other one would not.

    Raises:
        As `attend`.
    """
    problem = validate(query, key, value, score=score, normalizer=normalizer, mask=mask, bias=bias, dropout=dropout)
    return make_plan(problem, backend)


def full_precision(query: Tensor) -> AbstractContextManager[object]:
    """Autocast switched off: it would score in half precision (contract 6)."""
    device = query.device.type
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()
