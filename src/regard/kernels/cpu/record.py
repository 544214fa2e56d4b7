"""What a kernel is told: one record, filled in Python, read by every thread.

Addresses and strides are in numbers, not bytes; a stride of 0 repeats, an address of 0 means "none".
"""

import numpy as np

from regard.kernels.cpu.fields import layout_of
from regard.kernels.cpu.kernel_inputs import KernelInputs
from regard.kernels.cpu.reading_options import READINGS, ReadingOptions

SIZES = ("batch", "heads", "kv_heads", "queries", "keys", "dim", "value_dim", "block", "chunks", "runs")
"""Rows of a block are calculated together; the rows of one head are cut into chunks that share no sum; a row sees a few
runs of keys."""

_OF_A_LAUNCH = (
    # The next task, and how many there are: the counter is first, since tasks are counted at the record's own address.
    ("counter", "tasks"),
    # C's malloc and free.
    ("malloc", "free"),
    # BLAS's gemm, and what keeps it to one thread; 0: there is none. For the microkernel: keys and values transposed,
    # [batch, kv_heads, features, padded keys].
    ("gemm", "limit_threads", "key_transposed", "value_transposed"),
    # How products are made that need not be made in another way, and the kernel for all ways but BLAS; 0: not needed.
    ("products", "multiply"),
    SIZES,
    # Of `regard.kernels.kinds`.
    ("bias_kind",),
    # Dropout: weights whose 32 random bits are below the threshold are dropped.
    ("threshold",),
    # Forward: [batch, heads, queries, value_dim], two statistics of each row [batch, heads, queries, 2], and if they
    # are wanted the weights before dropout, over pairs.
    ("output", "statistics", "returned_weights"),
    # Backward: gradients of the output and of the weights that were returned. Sums over rows are made in each chunk.
    ("grad_output", "grad_weights"),
    # Steps over a memory: gradients of scores, and weights after dropout, [batch, queries, keys].
    ("grad_score", "mixed_weights"),
)

_DERIVED = ("inverse_temperature", "kept")
"""1 / temperature; 1 / (1 − dropout)."""

FORMATS: dict[str, str] = {
    **{name: "q" for group in _OF_A_LAUNCH for name in group},
    **layout_of(KernelInputs),
    **layout_of(ReadingOptions),
    **{reading.name: "q" for reading in READINGS},
    **dict.fromkeys(_DERIVED, "d"),
}
"""Names of the record's numbers, each with its format for `struct`: those of a launch, of its inputs and readings."""

POSITIONS = {name: position for position, name in enumerate(FORMATS)}

LAYOUT = np.dtype([(name, np.int64 if kind == "q" else np.float64) for name, kind in FORMATS.items()])

BLAS, WIDE, PLAIN, PLAIN_TRANSPOSED, FEW_SCORES, FEW_MIXTURES = range(6)
"""How products are made: by BLAS, by the microkernel, in plain loops (``a b``, or ``a bᵀ``), and where ``a`` has a few
rows, with keys (``a bᵀ``) or with values (``a b``)."""

PRODUCT = np.dtype(
    [
        *((name, np.int64) for name in ("way", "keep", "rows", "columns", "depth")),
        *((name, np.int64) for name in ("a", "a_row", "a_column", "b", "b_row", "c", "c_row")),
        ("factor", np.float64),
    ]
)
"""What the kernel is told that multiplies: ``c = factor · a b + keep · c``, as `bodies.wide_product` has it."""

PACKED_MATRICES = ("query", "key", "value", "output", "grad_output", "grad_query", "grad_key", "grad_value")

PACKED = np.dtype(
    [
        *((name, np.int64) for name in ("counter", "batch", "heads", "kv_heads", "dim", "value_dim")),
        *((name, np.int64) for name in ("query_starts", "query_counts", "key_starts", "key_counts")),
        *((name, np.int64) for name in ("before", "after", "threshold", "seed", "multiply")),
        *((name + part, np.int64) for name in PACKED_MATRICES for part in ("", "_row")),
        ("scale", np.float64),
        ("kept", np.float64),
    ]
)
"""What kernels of attention of packed rows are told, as `packed_attention` has it: of each matrix its address, and how
many numbers lie between its rows."""
