"""The usual calls by the shortest way: validating and planning them would take as long as the calculation."""

from math import sqrt

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.backends.sdpa.backend import SHORT
from regard.attention.execution import autocasts
from regard.attention.isolation import is_finite
from regard.attention.listeners import LISTENERS
from regard.attention.planner import BACKENDS
from regard.attention.recording import recording
from regard.attention.rules import FUSED_ELEMENTS, WIDE_PAIRS, are_few_rows
from regard.masks import Band, Lengths
from regard.normalizers.softmax import plain_softmax
from regard.transforms import reverse_mode_only


def are_usual(score: object, normalizer: object, dropout: object, backend: object) -> bool:
    """Whether these options of `attend` are its defaults."""
    if type(score) is not str or type(normalizer) is not str or type(dropout) is not float:
        return False
    return score == "scaled_dot" and normalizer == "softmax" and dropout == 0.0 and backend == "auto"


def usual_call(query: Tensor, key: Tensor, value: Tensor, mask: object = None) -> Tensor | None:
    """Softmax of scaled dot products, as the chosen backend gives it, bit for bit; None for what is not a usual call.

    Usual are plain float32 tensors of one batch, as many heads and one width on a CPU, without a gradient, of a size
    for which the planner chooses `sdpa`, without a mask or with a causal one for the last query alone; and, of a size
    for which it chooses `reference`, with the lengths of the keys. All else, what is wrong with it included, is left to
    the longer way.
    """
    if not (type(query) is type(key) is type(value) is Tensor and reverse_mode_only(query)):
        return None
    if not (query.dim() == 4 and key.shape == value.shape):
        return None
    batch, heads, queries, dim = query.shape
    keys = key.shape[2]
    pairs = batch * heads * queries * keys
    if key.shape != (batch, heads, keys, dim) or not 0 < pairs < WIDE_PAIRS or dim == 0:
        return None
    for tensor in (query, key, value):
        if tensor.dtype is not torch.float32 or not tensor.is_cpu or tensor.stride(3) != 1:
            return None
        if tensor.requires_grad and torch.is_grad_enabled():
            return None
    if LISTENERS or recording() is not None or autocasts(query) or [*BACKENDS][:2] != ["sdpa", "reference"]:
        return None
    if mask is None or (queries == 1 and _is_causal(mask)):
        if are_few_rows(queries, 2 * key.numel(), False) or (keys < SHORT and not is_finite(query)):
            return None
        return F.scaled_dot_product_attention(query, key, value, scale=1.0 / sqrt(dim))
    if type(mask) is not Lengths or pairs >= FUSED_ELEMENTS or are_few_rows(queries, 2 * pairs * dim, True):
        return None
    allowed = mask.dense_keys(batch, keys)
    return None if allowed is None else _masked(query, key, value, allowed)


def _masked(query: Tensor, key: Tensor, value: Tensor, allowed: Tensor) -> Tensor | None:
    """The lines of `regard.attention.steps`; None if a number is not finite, which may be a hidden one."""
    scores, scale = query @ key.transpose(-1, -2), 1.0 / sqrt(query.shape[3])
    masked = torch.where(allowed, scores * scale if scale != 1.0 else scores, -torch.inf)
    output = plain_softmax(masked, -1) @ value
    return output if is_finite(output) else None


def _is_causal(mask: object) -> bool:
    """Whether this is ``causal()``, with the last query at the last key."""
    return type(mask) is Band and (mask.before, mask.after, mask.offset, mask.align) == (None, 0, None, "end")
