"""The record of attention to listed keys, in a file of its own: see `regard.kernels.cpu.column_attention`."""

import numpy as np

from regard.kernels.cpu.linear_arguments import TENSOR_RECORD

COLUMN_MATRICES = ("query", "key", "value", "output", "grad_output", "grad_query", "grad_key", "grad_value")
"""Names of the matrices, each a tensor of heads."""

COLUMN_RECORD = np.dtype(
    [
        *((name, np.int64) for name in ("counter", "started", "threads", "chunks", "memory", "memory_size")),
        *((name, np.int64) for name in ("batch", "heads", "kv_heads", "lists", "queries", "keys", "dim", "value_dim")),
        ("index", TENSOR_RECORD),
        *((name, np.int64) for name in ("index_heads", "listed", "rows", "size", "query_size", "block", "listed_keys")),
        ("start", TENSOR_RECORD),
        *((name, np.int64) for name in ("stop", "lse")),
        *((name, TENSOR_RECORD) for name in COLUMN_MATRICES),
        ("scale", np.float64),
    ]
)
"""Arguments of the kernels of attention to listed keys. ``stop`` has the strides of ``start``.

``started`` counts the threads, each of which takes a piece of ``memory``, of which there are ``threads``. ``lists`` is
the number of groups of heads that share keys and lists. A list, one of ``rows``, holds ``listed`` blocks of ``size``
keys, at most ``listed_keys`` keys, for ``query_size`` queries, of which ``block`` are computed together."""
