"""The record that the kernels of linear attention read. Nothing here imports PyTorch."""

import numpy as np

LEAST_LOG_DECAY = -104.0
"""A log-decay below it is taken for it: the exponentials of both are 0 in float32, and sums stay finite."""

LINEAR_TENSORS = (
    "query", "key", "value", "log_decay", "beta", "output", "grad_output", "grad_query", "grad_key", "grad_value",
    "grad_log_decay", "grad_beta",
)  # fmt: skip
"""Tensors ``[batch, heads, length, n]`` with contiguous features."""

TENSOR_RECORD = np.dtype([(name, np.int64) for name in ("address", "batch", "head", "row")])
"""A tensor of heads: its address and the strides of three axes, in elements; all 0 for one that is missing."""

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
