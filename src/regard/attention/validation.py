"""Validation: the arguments of a verb are checked here, once, and become a `Problem`. Inner code trusts them."""

from numbers import Real

import torch
from torch import Tensor

from regard.attention.problem import Problem
from regard.biases import as_bias
from regard.errors import ArgumentError, KindError, ShapeError
from regard.masks import Mask, as_mask
from regard.normalizers import as_normalizer
from regard.scores import Scoring, as_score
from regard.shapes import check_floating, kind_of


def validate(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    score: Scoring = "scaled_dot",
    normalizer: object = "softmax",
    mask: object = None,
    bias: object = None,
    dropout: float = 0.0,
) -> Problem:
    """Check the arguments of a verb and name their axes.

    Raises:
        KindError: wrong types, mixed dtypes or devices.
        ShapeError: wrong ranks, or axes that don't agree.
        ArgumentError: values out of range, unknown names.
    """
    query, key, value = _one_dtype(query, key, value)
    rank = query.dim()
    if not 2 <= rank <= 4:
        raise ShapeError(
            f"query must have 2 to 4 axes, [batch, heads, queries, dim] with leading axes missing at will; "
            f"it has shape {list(query.shape)}"
        )
    if not key.dim() == rank == value.dim():
        name, tensor = ("key", key) if key.dim() != rank else ("value", value)
        raise ShapeError(
            f"{name} must have as many axes as query, {rank}; it has shape {list(tensor.shape)} "
            f"and query has {list(query.shape)}"
        )
    if rank < 4:
        new_axes = (None,) * (4 - rank)
        query, key, value = query[new_axes], key[new_axes], value[new_axes]
    B, H, _, _ = query.shape
    Bk, Hk, K, _ = key.shape
    Bv, Hv, Kv, _ = value.shape
    if Bv != Bk or Hv != Hk or Kv != K:
        raise ShapeError(
            f"value must have key's batch, heads and keys, {list(key.shape[:3])}; it has {list(value.shape[:3])}"
        )
    if Bk != B:
        raise ShapeError(f"key must have query's batch, {B}; it has {Bk}")
    if Hk != H and (Hk == 0 or H % Hk):
        raise ShapeError(f"key's heads must divide query's heads, {H}; key has {Hk}")

    checked_score = as_score(score)
    checked_score.check(query, key)
    checked_normalizer = as_normalizer(normalizer)
    checked_mask = mask if mask is None or isinstance(mask, Mask) else as_mask(mask)
    checked_bias = None if bias is None else as_bias(bias)
    parts = checked_mask, checked_bias, check_dropout(dropout)
    problem = Problem(query, key, value, checked_score, checked_normalizer, *parts, rank)
    if problem.mask is not None:
        problem.mask.check(problem.grid)
    if problem.bias is not None:
        problem.bias.check(query, problem.grid)
    return problem


def check_dropout(dropout: object) -> float:
    """``dropout`` as a float, if it is a probability in [0, 1)."""
    if type(dropout) is float and 0.0 <= dropout < 1.0:
        return dropout
    if isinstance(dropout, bool) or not isinstance(dropout, Real):
        raise KindError(f"dropout must be a number; it is {kind_of(dropout)}")
    rate = float(dropout)
    if not 0.0 <= rate < 1.0:  # NaN too
        raise ArgumentError(f"dropout must be in [0, 1); it is {rate}")
    return rate


def _one_dtype(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The three inputs, if they agree in dtype and device; autocast's dtype settles a disagreement."""
    check_floating("query", query)
    check_floating("key", key)
    check_floating("value", value)
    on_cpu = query.is_cpu and key.is_cpu and value.is_cpu
    if on_cpu and query.dtype is key.dtype is value.dtype:
        return query, key, value
    if not on_cpu and not key.device == query.device == value.device:
        name, tensor = ("key", key) if key.device != query.device else ("value", value)
        raise KindError(f"{name} must be on query's device, {query.device}; it is on {tensor.device}")
    if not query.dtype == key.dtype == value.dtype:
        device = query.device.type
        # PyTorch refuses to be asked about devices without autocast, such as meta.
        if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
            return query.to(dtype), key.to(dtype), value.to(dtype)
        raise KindError(
            f"query, key and value must have one dtype; they have {query.dtype}, {key.dtype} and {value.dtype}"
        )
    return query, key, value
