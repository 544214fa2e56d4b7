"""A shortcut for common calls of `attend`, because validating and planning them would take as long as running them.

The output is that of the backend that would be chosen, bit for bit. All other calls, and invalid arguments, are
validated and planned.
"""

from math import sqrt

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.backends.cpu.backend import Fused
from regard.attention.backends.cpu.prepared_launches import CACHE, SEEN, PreparedCall, keep
from regard.attention.backends.sdpa.backend import SHORT
from regard.attention.execution import BACKENDS, LISTENERS, choose, has_own_backends, recording
from regard.attention.planner import FUSED_ELEMENTS, WIDE_PAIRS, are_few_rows
from regard.attention.problem import validate
from regard.errors import RegardError
from regard.kernels.availability import microkernel_is_faster
from regard.kernels.cpu.kernel_arguments import FEW_ROWS
from regard.masks import Band, Lengths
from regard.scores import Additive, Scoring
from regard.transforms import has_plain_memory, is_finite, reverse_mode_only


def attend_shortly(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: object = None,
    score: Scoring = "scaled_dot",
    normalizer: object = "softmax",
) -> Tensor | None:
    """Returns the output of a common call; None for any other.

    Common calls have plain float32 tensors of four axes on a CPU, need no gradient, and compute one of these:

    - softmax of scaled dot products, as many heads and one width, of a size for which the planner chooses `sdpa`,
      without a mask or with a causal one for the last query alone;
    - the same, of a size for which it chooses `reference`, with the lengths of the keys, none of them 0;
    - the same without a mask, of a few queries with so many keys that it chooses `cpu`: from the second call on;
    - a score by its name or an additive one without projections, and a normalizer by its name, without a mask, if the
      planner chooses `cpu`: from the third call of the same sizes on.
    """
    if type(normalizer) is not str or not (type(score) is str or type(score) is Additive):
        return None
    if not (type(query) is type(key) is type(value) is Tensor and reverse_mode_only(query)):
        return None
    if not (query.dim() == key.dim() == value.dim() == 4 and query.is_cpu and key.is_cpu and value.is_cpu):
        return None
    if not query.dtype is key.dtype is value.dtype is torch.float32:
        return None
    # Strides are compared only if the quicker test fails.
    for tensor in (query, key, value):
        if tensor.is_nested or not (tensor.is_contiguous() or tensor.stride(3) == 1) or not has_plain_memory(tensor):
            return None
    if (query.requires_grad or key.requires_grad or value.requires_grad) and torch.is_grad_enabled():
        return None
    if LISTENERS or recording() is not None or torch.is_autocast_enabled("cpu"):
        return None
    if not has_own_backends():
        return None
    queries = query.shape[2]
    shows_all = mask is None or (queries == 1 and _is_causal(mask))
    if score == "scaled_dot" and normalizer == "softmax":
        if queries <= FEW_ROWS and shows_all and are_few_rows(queries, key.numel() + value.numel(), False):
            return _few_rows(query, key, value)
        output = _scaled_dot(query, key, value, mask, shows_all)
        if output is not None:
            return output
    return _same_sizes(query, key, value, score, normalizer) if shows_all else None


def _scaled_dot(query: Tensor, key: Tensor, value: Tensor, mask: object, shows_all: bool) -> Tensor | None:
    batch, heads, queries, dim = query.shape
    shape = key.shape
    keys = shape[2]
    pairs = batch * heads * queries * keys
    if shape != value.shape or shape != (batch, heads, keys, dim) or pairs == 0 or dim == 0:
        return None
    if pairs >= WIDE_PAIRS and microkernel_is_faster():
        return None
    if shows_all:
        if keys < SHORT and not is_finite(query):
            return None
        return F.scaled_dot_product_attention(query, key, value, scale=1.0 / sqrt(dim))
    if type(mask) is not Lengths or pairs >= FUSED_ELEMENTS or are_few_rows(queries, 2 * pairs * dim, True):
        return None
    added = mask.added_keys(batch, keys)
    return None if added is None else _masked(query, key, value, added)


def _masked(query: Tensor, key: Tensor, value: Tensor, added: Tensor) -> Tensor | None:
    """Computes the specification (`regard.attention.backends.reference`) in fewer operations; None if it is not finite.

    Adding 0 does not change how scaled scores are rounded, and ``@`` runs a batched product as well.
    """
    scores = torch.bmm(query.flatten(0, 1), key.transpose(-1, -2).flatten(0, 1)).unflatten(0, (-1, query.shape[1]))
    masked = torch.add(added, scores, alpha=1.0 / sqrt(query.shape[3]))
    output = torch.bmm(torch.softmax(masked, -1).flatten(0, 1), value.flatten(0, 1)).view(query.shape)
    return output if is_finite(output) else None


def _is_causal(mask: object) -> bool:
    """Whether this is ``causal()``, with the last query at the last key."""
    return type(mask) is Band and (mask.before, mask.after, mask.offset, mask.align) == (None, 0, None, "end")


def _few_rows(query: Tensor, key: Tensor, value: Tensor) -> Tensor | None:
    """Computes softmax of scaled dot products of a few queries with many keys; the next call may have more keys."""
    sizes = key.shape[:2], key.shape[3], value.shape[3]
    # Kernels need adjacent features, and rows that do not overlap.
    if value.shape[:3] != key.shape[:3] or key.stride(2) < sizes[1] or value.stride(2) < sizes[2]:
        return None
    return _prepared((query.shape, query.stride(), *sizes), query, key, value, any_keys=True)


def _same_sizes(query: Tensor, key: Tensor, value: Tensor, score: Scoring, normalizer: object) -> Tensor | None:
    """Runs a call of the fused kernels with the sizes and strides of earlier ones."""
    kind = score
    if isinstance(score, Additive):
        if not _is_plain(score):
            return None
        kind = score.weight.shape, score.weight.stride()
    sizes = query.shape, query.stride(), key.shape, key.stride(), value.shape, value.stride()
    return _prepared((kind, normalizer, *sizes), query, key, value, score, normalizer)


def _prepared(
    identity: object,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score: Scoring = "scaled_dot",
    normalizer: object = "softmax",
    any_keys: bool = False,
) -> Tensor | None:
    """Runs a call whose launches an earlier call prepared; returns None if there are none.

    A kind of calls is prepared when it comes for the second time; with any number of keys, at once.
    """
    if identity not in CACHE.calls and not any_keys:
        keep(CACHE.calls, identity, SEEN)
        return None
    prepared = CACHE.calls.get(identity, SEEN)
    if prepared is SEEN:
        try:
            problem = validate(query, key, value, score=score, normalizer=normalizer)
        except RegardError:
            return None  # `attend` validates the arguments again, and raises
        if type(choose(problem, "auto")) is Fused:
            keep(CACHE.calls, identity, PreparedCall.of(problem, any_keys))
        elif BACKENDS["cpu"].declines(problem) is not None or BACKENDS["cpu"].delay(problem) is None:
            keep(CACHE.calls, identity, None)  # else the kernels are being compiled
    elif prepared is not None:
        return prepared.run(query, key, value, score.weight if isinstance(score, Additive) else None)
    return None


def _is_plain(score: Additive) -> bool:
    """Whether an additive score has no projections, and a float32 weight on a CPU that needs no gradient."""
    weight = score.weight
    if score.query_projection is not None or score.key_projection is not None:
        return False
    if type(weight) not in (Tensor, torch.nn.Parameter) or (weight.requires_grad and torch.is_grad_enabled()):
        return False
    return weight.dtype is torch.float32 and weight.is_cpu and weight.stride(-1) == 1 and has_plain_memory(weight)
