"""The record that the kernels of linear attention read, and the sizes of their memory. Nothing here imports PyTorch."""

import numpy as np

from regard.kernels.cpu.sizes import LANES, ceil_div, padded_length

CHUNK = 64
"""Tokens of a chunk. Products inside of a chunk take time proportional to it; the state is updated once a chunk."""

LEAST_LOG_DECAY = -104.0
"""Kernels take a log-decay below it for it: the exponentials of both are 0 in float32, and sums stay finite."""

LINEAR_TENSORS = (
    "query", "key", "value", "log_decay", "beta", "output", "grad_output", "grad_query", "grad_key", "grad_value",
    "grad_log_decay", "grad_beta",
)  # fmt: skip
"""Tensors ``[batch, heads, length, n]`` with contiguous features."""

TENSOR_RECORD = np.dtype([(name, np.int64) for name in ("address", "batch", "head", "row")])
"""A tensor of heads: its address and the strides of three axes, all 0 for one that is missing."""

LINEAR_RECORD = np.dtype(
    [
        *((name, np.int64) for name in ("counter", "entered", "batch", "heads", "length", "dim", "value_dim", "gates")),
        *((name, np.int64) for name in ("multiply", "scratch", "scratch_bytes", "slots")),
        *((name, TENSOR_RECORD) for name in LINEAR_TENSORS),
        *((name, np.int64) for name in ("begins", "begins_batch", "initial", "final", "states", "residuals")),
        *((name, np.int64) for name in ("grad_final", "grad_initial")),
    ]
)
"""Arguments of the kernels of linear attention; an address is 0 for a tensor that is missing.

``entered`` counts the threads that have come, each of which takes the next memory. ``gates`` are log-decays of a token.
``begins`` are bytes ``[batch, length]``, 1 where the state is cleared before a token. ``initial``, ``final`` and their
gradients are states ``[batch, heads, dim, value_dim]``. The forward kernel writes, and the backward kernel reads,
``states``, before each chunk of `CHUNK` tokens ``[batch, heads, slots, padded dim, padded value_dim]``, and for the
delta rule ``residuals``, what is left of the values ``[batch, heads, length, padded value_dim]``.
"""

FEATURE_MATRICES, COLUMN_MATRICES, PAIR_MATRICES, STATE_MATRICES = 16, 6, 5, 4
"""Matrices of a thread: tokens × features, tokens × columns, tokens × tokens, features × columns."""

BLOCK = LANES
"""Tokens of a block of a chunk: products of pairs skip blocks above the diagonal."""

BLOCKS = CHUNK // BLOCK
assert CHUNK == BLOCKS * BLOCK, "a chunk is whole blocks"

# Vectors of a thread: positions; for each token its strength, the two parts of its sum, and what is left since the
# chunk began and until it ends; for each feature what is left of a state. Then, for each feature, a vector for each
# block of what is left before it and after it, and sums in float64, two vectors each. Then partial sums, the gradient
# of each token's product with itself, and for each feature that of the sum of a chunk's log-decays.
POSITIONS, BETA, HIGH, LOW, SINCE, UNTIL, KEPT_SHARE, BEFORE_BLOCK = range(8)
AFTER_BLOCK = BEFORE_BLOCK + BLOCKS
SUMS = AFTER_BLOCK + BLOCKS
PARTIAL = SUMS + 2 * BLOCKS
OWN_GRADIENT = PARTIAL + ceil_div(BLOCK * LANES, CHUNK)
SUM_GRADIENT = OWN_GRADIENT + 1
VECTORS = SUM_GRADIENT + 1


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
