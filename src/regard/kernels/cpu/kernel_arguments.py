"""What an attention kernel is told: one record, filled in Python, read by every thread of a team.

Addresses and strides are in numbers, not bytes; a stride of 0 repeats, an address of 0 means "none".
"""

from typing import Any

import numpy as np
from numba import from_dtype, types
from numba.extending import intrinsic

_WHOLE = (
    # The next task, and how many there are.
    ("counter", "tasks"),
    # BLAS's gemm, and what keeps it to one thread; 0: products are our own loops. Whether products are made of wide
    # vectors instead; keys and values transposed for them, [batch, kv_heads, features, padded keys].
    ("gemm", "limit_threads", "wide", "key_transposed", "value_transposed"),
    # Sizes. Rows of a block are calculated together; the rows of one head are cut into chunks that share no sum.
    ("batch", "heads", "kv_heads", "queries", "keys", "dim", "value_dim", "block", "chunks"),
    # Inputs, [batch, heads, rows, features], features contiguous.
    ("query", "query_batch", "query_head", "query_row"),
    ("key", "key_batch", "key_head", "key_row"),
    ("value", "value_batch", "value_head", "value_row"),
    # Additive score: weights [heads or 1, dim]; e^{2 key} as [batch, kv_heads, dim, keys] with dim even and keys padded
    # to a multiple of LANES; the largest |2 key| of each tile of keys, [batch, kv_heads, tiles].
    ("additive", "weight", "weight_head", "exponentials", "extents"),
    # int32 first key and end of each row's visible keys; bool over pairs, keys contiguous.
    ("start", "stop", "span_batch", "span_head", "span_row"),
    ("mask", "mask_batch", "mask_head", "mask_row"),
    # Bias over pairs; or over diagonals [heads, queries + keys − 1], where bias_row and bias_key are unused.
    ("bias_kind", "bias", "bias_batch", "bias_head", "bias_row", "bias_key"),
    # The normalizer; for each head a sink's score, and sigmoid's bias; a Gaussian window for each row.
    ("normalizer", "sink", "sink_head", "shift", "shift_head", "center", "sigma", "window_batch", "window_head"),
    # Dropout: weights whose 32 random bits are below the threshold are dropped.
    ("seed", "threshold"),
    # Forward: [batch, heads, queries, value_dim], two statistics of each row [batch, heads, queries, 2], and if they
    # are wanted the weights before dropout, over pairs.
    ("output", "statistics", "returned_weights"),
    # Backward: what comes in, and what goes out. Sums over rows are made apart in each chunk.
    ("grad_output", "grad_query", "grad_key", "grad_value", "grad_weight"),
    ("grad_weights", "grad_bias", "grad_sink", "grad_shift", "grad_center", "grad_sigma"),
    # Steps over a memory: gradients of scores, and weights after dropout, [batch, queries, keys].
    ("grad_score", "mixed_weights"),
    # Readings, as `Gatherer` holds them.
    ("lse", "entropy", "peak", "top", "top_weights", "top_indices", "received", "distance", "key_offset"),
    # Of which problem these rows are a part: for the coarse map.
    ("first_row", "all_rows"),
    ("pooled_rows", "pooled_columns", "pooled_sum", "pooled_max"),
    # Rows of weights to store: the row that each query is stored in (int64, −1: none), how many rows, which keys.
    ("weights", "row_slots", "stored_rows", "first_stored_key", "stored_keys", "only_stored"),
    # int64: 1 is stored there if a result is not finite.
    ("nonfinite",),
)

_REAL = ("scale", "inverse_temperature", "cap", "alpha", "kept")
"""scale · product; (… + bias) / temperature; cap · tanh(… / cap) if above 0; entmax's alpha; 1 / (1 − dropout)."""

LAYOUT = np.dtype([(name, np.int64) for group in _WHOLE for name in group] + [(name, np.float64) for name in _REAL])

RECORD = from_dtype(LAYOUT)


@intrinsic
def arguments_at(typing: Any, address: Any) -> Any:
    """The record at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return RECORD(types.int64), generate
