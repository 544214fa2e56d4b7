"""The usual call by the shortest way: validating and planning it would take as long as a tenth of the calculation."""

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
from regard.attention.rules import FEW_ROWS_NUMBERS, WIDE_PAIRS
from regard.kernels.cpu.kernel_inputs import FEW_ROWS
from regard.masks import Band
from regard.transforms import reverse_mode_only


def are_usual(score: object, normalizer: object, dropout: object, backend: object) -> bool:
    """Whether these options of `attend` are its defaults."""
    if type(score) is not str or type(normalizer) is not str or type(dropout) is not float:
        return False
    return score == "scaled_dot" and normalizer == "softmax" and dropout == 0.0 and backend == "auto"


def usual_call(query: Tensor, key: Tensor, value: Tensor, mask: object = None) -> Tensor | None:
    """Softmax of scaled dot products, as `sdpa` gives it, bit for bit; None for what is not the usual call.

    Usual are plain float32 tensors of one batch, as many heads and one width on a CPU, of a size for which the planner
    chooses `sdpa`, without a gradient, and without a mask or with a causal one for the last query alone. All else, what
    is wrong with it included, is left to the longer way.
    """
    if not (type(query) is type(key) is type(value) is Tensor and reverse_mode_only(query)):
        return None
    if not (query.dim() == 4 and key.shape == value.shape):
        return None
    batch, heads, queries, dim = query.shape
    if mask is not None and not (queries == 1 and _is_causal(mask)):
        return None
    keys = key.shape[2]
    if key.shape != (batch, heads, keys, dim) or not 0 < batch * heads * queries * keys < WIDE_PAIRS:
        return None
    if dim == 0 or (queries <= FEW_ROWS and 2 * key.numel() >= FEW_ROWS_NUMBERS):
        return None
    for tensor in (query, key, value):
        if tensor.dtype is not torch.float32 or not tensor.is_cpu or tensor.stride(3) != 1:
            return None
        if tensor.requires_grad and torch.is_grad_enabled():
            return None
    if LISTENERS or recording() is not None or autocasts(query):
        return None
    if next(iter(BACKENDS)) != "sdpa" or (keys < SHORT and not is_finite(query)):
        return None
    return F.scaled_dot_product_attention(query, key, value, scale=1.0 / sqrt(dim))


def _is_causal(mask: object) -> bool:
    """Whether this is ``causal()``, with the last query at the last key."""
    return type(mask) is Band and (mask.before, mask.after, mask.offset, mask.align) == (None, 0, None, "end")
