"""The record of attention to listed keys, in a file of its own: see `regard.kernels.cpu.column_attention`."""

import numpy as np

COLUMN_POINTERS = tuple(
    name + part
    for name in ("query", "key", "value", "output", "grad_output", "grad_query", "grad_key", "grad_value")
    for part in ("", "_batch", "_head", "_row")
)
"""Names of the addresses of matrices, and of their strides."""

COLUMN_RECORD = np.dtype(
    [
        *((name, np.int64) for name in ("counter", "started", "threads", "chunks", "memory", "memory_size")),
        *((name, np.int64) for name in ("batch", "heads", "kv_heads", "lists", "queries", "keys", "dim", "value_dim")),
        *(
            (name, np.int64)
            for name in ("index", "index_heads", "index_batch", "index_head", "index_row", "listed", "rows")
        ),
        *((name, np.int64) for name in ("size", "query_size", "block", "listed_keys")),
        *((name, np.int64) for name in ("start", "stop", "span_batch", "span_head", "span_row", "lse")),
        *((name, np.int64) for name in COLUMN_POINTERS),
        ("scale", np.float64),
    ]
)
"""Arguments of the kernels of attention to listed keys. Strides are in elements, and 0 where an axis broadcasts.

``started`` counts the threads, each of which takes a piece of ``memory``, of which there are ``threads``. ``lists`` is
the number of groups of heads that share keys and lists. A list, one of ``rows``, holds ``listed`` blocks of ``size``
keys, at most ``listed_keys`` keys, for ``query_size`` queries, of which ``block`` are computed together."""
