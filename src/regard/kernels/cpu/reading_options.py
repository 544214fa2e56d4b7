"""What the readings kernel is asked for."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from regard.kernels.cpu.kernel_inputs import KernelInputs

SUMMED = ("received", "pooled_sum", "pooled_max")
"""Readings over many rows, which each chunk of rows makes apart; chunks are their axis 2."""


class ReadingOptions(NamedTuple):
    """Which readings to take, as the operator's schema names them.

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
    pooled: Sequence[int] = ()
    row_slots: Tensor | None = None
    stored_rows: int = 0
    first_stored_key: int = 0
    stored_keys: int = 0
    only_stored: bool = False
    key_offset: int = 0
    first_row: int = 0
    all_rows: int = 1

    def tensors(self, call: KernelInputs, chunks: int) -> dict[str, Tensor]:
        """Unfilled tensors for all readings, in the operator's order; empty ones for those that are not wanted."""
        B, H, Q, _ = call.query.shape
        K = call.key.shape[2]
        rows, columns = self.pooled or (0, 0)

        def tensor(wanted: bool, *shape: int) -> Tensor:
            return call.query.new_empty(B, H, *(shape if wanted else (0,) * len(shape)))

        return {
            "lse": tensor(not self.only_stored, Q),
            "entropy": tensor(self.entropy, Q),
            "peak": tensor(self.peak, Q),
            "top_weights": tensor(self.top_k > 0, Q, self.top_k),
            "top_indices": tensor(self.top_k > 0, Q, self.top_k).to(torch.int64),
            "received": tensor(self.received, chunks, K),
            "distance": tensor(self.distance, Q),
            "pooled_sum": tensor(bool(self.pooled), chunks, rows, columns),
            "pooled_max": tensor(bool(self.pooled), chunks, rows, columns),
            "weights": tensor(self.row_slots is not None, self.stored_rows, self.stored_keys),
        }
