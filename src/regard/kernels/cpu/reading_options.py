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
        top: how many of the largest weights of each row.
        cells: rows and columns of a coarse map, or empty.
        slots: int64 ``[queries]``: where in ``weights`` each row goes, −1 for nowhere; None: no weights are kept.
        kept_rows, kept_first, kept_width: how many rows are kept, and which keys of them.
        nothing_else: whether rows that are not kept need no reading at all.
        key_offset: what to add to a query's index to get the key it stands at.
        first_row, all_rows: the first of these rows in the whole problem, and how many that one has.
    """

    entropy: bool = False
    peak: bool = False
    top: int = 0
    received: bool = False
    distance: bool = False
    cells: Sequence[int] = ()
    slots: Tensor | None = None
    kept_rows: int = 0
    kept_first: int = 0
    kept_width: int = 0
    nothing_else: bool = False
    key_offset: int = 0
    first_row: int = 0
    all_rows: int = 1

    def tensors(self, call: KernelInputs, chunks: int) -> dict[str, Tensor]:
        """Unfilled tensors for all readings, in the operator's order; empty ones for those that are not wanted."""
        B, H, Q, _ = call.query.shape
        K = call.key.shape[2]
        rows, columns = self.cells or (0, 0)

        def tensor(wanted: bool, *shape: int) -> Tensor:
            return call.query.new_empty(B, H, *(shape if wanted else (0,) * len(shape)))

        return {
            "lse": tensor(not self.nothing_else, Q),
            "entropy": tensor(self.entropy, Q),
            "peak": tensor(self.peak, Q),
            "top_weights": tensor(self.top > 0, Q, self.top),
            "top_indices": tensor(self.top > 0, Q, self.top).to(torch.int64),
            "received": tensor(self.received, chunks, K),
            "distance": tensor(self.distance, Q),
            "pooled_sum": tensor(bool(self.cells), chunks, rows, columns),
            "pooled_max": tensor(bool(self.cells), chunks, rows, columns),
            "weights": tensor(self.slots is not None, self.kept_rows, self.kept_width),
        }
