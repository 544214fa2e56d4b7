"""What the readings kernel is asked for."""

import math
from collections.abc import Callable, Sequence
from typing import Annotated, NamedTuple

from regard.kernels.cpu.fields import Items, Tensor
from regard.kernels.cpu.kernel_inputs import KernelInputs
from regard.kernels.kinds import SOFTMAX

LEAST_QUERIES = 8
"""Queries from which on vectors hold numbers of different rows: with fewer, half of their lanes are empty."""

MOST_KEYS = 1024
"""Keys up to which rows are read side by side; with more, each row fills vectors by itself."""


class ReadingOptions(NamedTuple):
    """Which readings to take. The operator's schema and the kernel's record follow from it.

    Attributes:
        entropy, peak, received, distance: whether to.
        top_k: how many of the largest weights of each row.
        pooled: rows and columns of a coarse map, or empty.
        row_slots: int64 ``[queries]``: the row of ``weights`` that each query's weights are stored in, −1 for none;
            None: no weights are stored.
        stored_rows: how many rows ``weights`` has.
        first_stored_key, stored_keys: which keys it has: the first, and how many.
        only_stored: whether rows that are not stored need no reading at all.
        key_offset: what to add to a query's index to get the key it stands at.
        first_row, all_rows: the first of these rows in the whole problem, and how many that one has.
    """

    entropy: bool = False
    peak: bool = False
    top_k: int = 0
    received: bool = False
    distance: bool = False
    pooled: Annotated[Sequence[int], Items(("rows", "columns"))] = ()
    row_slots: Tensor | None = None
    stored_rows: int = 0
    first_stored_key: int = 0
    stored_keys: int = 0
    only_stored: bool = False
    key_offset: int = 0
    first_row: int = 0
    all_rows: int = 1

    def fit_lanes(self, inputs: KernelInputs) -> bool:
        """Whether these are readings of rows with few keys, which are read side by side.

        That is so for the statistics of inner products with softmax, where at most one run of keys is seen.
        """
        from torch import float32

        queries = inputs.query.shape[2]
        plain = inputs.query.dtype == float32 and inputs.weight is None and inputs.normalizer == SOFTMAX
        others = (inputs.sink, inputs.bias, inputs.mask, inputs.center, self.row_slots)
        return (
            plain
            and queries >= LEAST_QUERIES
            and inputs.key.shape[2] <= MOST_KEYS
            and inputs.runs == 1
            and inputs.cap == 0
            and inputs.temperature == 1
            and not self.top_k
            and not self.pooled
            and not self.only_stored
            and all(tensor is None for tensor in others)
        )

    def sizes(self, inputs: KernelInputs) -> dict[str, int]:
        """Lengths of the axes that readings have."""
        rows, columns = self.pooled or (0, 0)
        return {
            "queries": inputs.query.shape[2],
            "keys": inputs.key.shape[2],
            "top_k": self.top_k,
            "pooled_rows": rows,
            "pooled_columns": columns,
            "stored_rows": self.stored_rows,
            "stored_keys": self.stored_keys,
        }

    def tensors(self, inputs: KernelInputs, chunks: int) -> dict[str, Tensor]:
        """Unfilled tensors for all readings, in the operator's order; empty ones for those that are not wanted."""
        from torch import int64

        batch, heads = inputs.query.shape[:2]
        sizes = self.sizes(inputs)
        tensors = {}
        for reading in READINGS:
            shape = [sizes[axis] for axis in reading.axes]
            if reading.over_rows is not None:
                shape = [chunks, *shape]
            if not reading.wanted(self):
                shape = [0] * len(shape)
            dtype = int64 if reading.integer else inputs.query.dtype
            tensors[reading.name] = inputs.query.new_empty(batch, heads, *shape, dtype=dtype)
        return tensors


class Reading(NamedTuple):
    """One tensor that the readings operator returns.

    Attributes:
        name: its own; in the kernel, that of its address.
        wanted: whether it is asked for.
        axes: after batch and heads; lengths are those of `ReadingOptions.sizes`.
        over_rows: for a reading over many rows, which each chunk of rows makes apart: how chunks are put together.
        initial: what it holds where a kernel writes nothing.
        integer: whether its numbers are integers; else they have the inputs' dtype.
    """

    name: str
    wanted: Callable[[ReadingOptions], bool]
    axes: tuple[str, ...]
    over_rows: Callable[[Tensor], Tensor] | None = None
    initial: float = 0.0
    integer: bool = False


def sum_of_chunks(chunks: Tensor) -> Tensor:
    """The sum over chunks, axis 2."""
    return chunks[:, :, 0].contiguous() if chunks.shape[2] == 1 else chunks.sum(2)


READINGS = (
    Reading("lse", lambda asked: not asked.only_stored, ("queries",), initial=-math.inf),
    Reading("entropy", lambda asked: asked.entropy, ("queries",)),
    Reading("peak", lambda asked: asked.peak, ("queries",)),
    Reading("top_weights", lambda asked: asked.top_k > 0, ("queries", "top_k")),
    Reading("top_indices", lambda asked: asked.top_k > 0, ("queries", "top_k"), initial=-1, integer=True),
    Reading("received", lambda asked: asked.received, ("keys",), over_rows=sum_of_chunks),
    Reading("distance", lambda asked: asked.distance, ("queries",)),
    Reading("pooled_sum", lambda asked: bool(asked.pooled), ("pooled_rows", "pooled_columns"), sum_of_chunks),
    Reading(
        "pooled_max", lambda asked: bool(asked.pooled), ("pooled_rows", "pooled_columns"), lambda chunks: chunks.amax(2)
    ),
    Reading("weights", lambda asked: asked.row_slots is not None, ("stored_rows", "stored_keys")),
)
"""All readings, in the operator's order."""
