"""The record that the kernels of linear attention read, and the sizes of their memory. Nothing here imports PyTorch."""

import numpy as np

from regard.kernels.cpu.sizes import padded_length

CHUNK = 64
"""Tokens of a chunk. Products inside of a chunk take time proportional to it; the state is updated once a chunk."""

LINEAR_TENSORS = (
    "query", "key", "value", "log_decay", "beta", "output", "grad_output", "grad_query", "grad_key", "grad_value",
    "grad_log_decay", "grad_beta",
)  # fmt: skip
"""Tensors ``[batch, heads, length, n]`` with contiguous features."""

LINEAR_RECORD = np.dtype(
    [
        *((name, np.int64) for name in ("counter", "threads", "batch", "heads", "length", "dim", "value_dim", "gates")),
        *((name, np.int64) for name in ("multiply", "scratch", "scratch_bytes", "slots")),
        *((name + part, np.int64) for name in LINEAR_TENSORS for part in ("", "_batch", "_head", "_row")),
        *((name, np.int64) for name in ("begins", "begins_batch", "initial", "final", "states", "residuals")),
        *((name, np.int64) for name in ("grad_final", "grad_initial")),
    ]
)
"""Arguments of the kernels of linear attention: of each tensor its address and strides, 0 for one that is missing.

``begins`` are bytes ``[batch, length]``, 1 where the state is cleared before a token. ``initial``, ``final`` and their
gradients are states ``[batch, heads, dim, value_dim]``. The forward kernel writes, and the backward kernel reads,
``states``, before each chunk of `CHUNK` tokens ``[batch, heads, slots, padded dim, padded value_dim]``, and for the
delta rule ``residuals``, what is left of the values ``[batch, heads, length, padded value_dim]``.
"""

FEATURE_MATRICES, COLUMN_MATRICES, PAIR_MATRICES, STATE_MATRICES, VECTORS = 16, 6, 5, 4, 32
"""Matrices of a thread: tokens × features, tokens × columns, tokens × tokens, features × columns; and vectors."""


def vector_length(dim: int, value_dim: int) -> int:
    """Returns the elements of a vector of a thread's memory."""
    return max(CHUNK, padded_length(dim), padded_length(value_dim))


def scratch_elements(dim: int, value_dim: int) -> int:
    """Returns the float32 elements of a thread's memory."""
    features, columns = padded_length(dim), padded_length(value_dim)
    return (
        CHUNK * (FEATURE_MATRICES * features + COLUMN_MATRICES * columns + PAIR_MATRICES * CHUNK)
        + STATE_MATRICES * features * columns
        + VECTORS * vector_length(dim, value_dim)
    )
