"""The attention of the steps of recurrent decoders, by the name of its kind."""

from typing import Any

import torch
from torch import nn

from regard.nn import Attention, ForwardAttention, MonotonicAttention
from regard.normalizers import Normalizing, Stepwise


def step_attention(
    kind: str,
    score: Any,
    query_dim: int,
    key_dim: int,
    dim: int | None = None,
    *,
    normalizer: Normalizing = "softmax",
    width: int = 1,
    **sizes: Any,
) -> Any:
    """Creates the attention of a decoder: a `MonotonicAttention` for ``monotonic``, ``chunkwise`` (whose chunks have
    ``width`` annotations), ``stepwise`` or ``forward``, else an `Attention` with ``normalizer``. Other arguments are as
    in `regard.scores.create`."""
    if kind in ("monotonic", "chunkwise"):
        width = width if kind == "chunkwise" else 1
        return MonotonicAttention.create(score, query_dim, key_dim, dim, width=width)
    if kind == "forward":
        return ForwardAttention.create(score, query_dim, key_dim, dim, **sizes)
    if kind == "stepwise":
        normalizer = Stepwise(bias=nn.Parameter(torch.tensor(0.0)), noise=1.0)
    return Attention.create(score, query_dim, key_dim, dim, normalizer=normalizer, **sizes)
