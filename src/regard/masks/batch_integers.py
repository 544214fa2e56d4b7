"""An integer that may differ between batch rows: an offset, a length, a prefix."""

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from regard.errors import ArgumentError, KindError, ShapeError
from regard.shapes import Grid, check_device, whole_number

Integers = int | Sequence[int] | Tensor
"""One integer for all batch rows, or one for each: a list, or an integer tensor ``[batch]``."""


class BatchInteger:
    """One integer for all batch rows, or one for each.

    A tensor is copied, so that a mask stays the value it was when it was made. Its numbers are read back to the host
    once, when they are first asked for: bounds of tiles cost no synchronization with the device.

    Args:
        name: the argument that it came from, for messages.
        value: an integer, a sequence of integers, or an integer tensor ``[batch]``.
    """

    def __init__(self, name: str, value: Integers):
        self.name = name
        self._single: int | None = None
        self._tensor: Tensor | None = None
        if isinstance(value, Tensor):
            if value.dtype == torch.bool or value.is_floating_point() or value.is_complex():
                raise KindError(f"{name} must hold integers; it holds {value.dtype}")
            if value.dim() != 1:
                raise ShapeError(f"{name} must be an integer or a tensor [batch]; it has shape {list(value.shape)}")
            self._tensor = value.detach().to(torch.int64, copy=True)
        elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
            self._values = tuple(whole_number(f"{name}[{row}]", item) for row, item in enumerate(value))
        else:
            self._single = whole_number(name, value)

    @cached_property
    def _values(self) -> tuple[int, ...]:
        return () if self._tensor is None else tuple(self._tensor.tolist())

    def check(self, grid: Grid, low: int | None = None, high: int | None = None) -> None:
        """Raise unless there is one for each batch row, on the grid's device, and each lies in ``low..high``."""
        if self._single is None and len(self) != grid.batch:
            raise ShapeError(f"{self.name} must be an integer or [batch] = [{grid.batch}]; it has shape [{len(self)}]")
        if self._tensor is not None:
            check_device(self.name, self._tensor, grid)
        for value in self._values if self._single is None else (self._single,):
            if (low is not None and value < low) or (high is not None and value > high):
                limit = f"at least {low}" if high is None else f"in {low}..{high}"
                raise ArgumentError(f"{self.name} must be {limit}; it is {value}")

    def on(self, grid: Grid) -> int | Tensor:
        """The integer, or ``int64 [batch, 1, 1, 1]`` of the tile's batch rows on its device."""
        if self._single is not None:
            return self._single
        rows = slice(grid.batch_span.start, grid.batch_span.stop)
        if self._tensor is not None:
            return self._tensor[rows][:, None, None, None]
        return torch.tensor(self._values[rows], dtype=torch.int64, device=grid.device)[:, None, None, None]

    def on_host(self, grid: Grid) -> int | Tensor:
        """The integer, or ``int64 [batch, 1, 1]`` of the tile's batch rows on the CPU."""
        if self._single is not None:
            return self._single
        rows = self._values[grid.batch_span.start : grid.batch_span.stop]
        return torch.tensor(rows, dtype=torch.int64)[:, None, None]

    def bounds(self, grid: Grid) -> tuple[int, int]:
        """The least and the greatest among the tile's batch rows, of which there must be one."""
        if self._single is not None:
            return self._single, self._single
        values = self._values[grid.batch_span.start : grid.batch_span.stop]
        return min(values), max(values)

    def __len__(self) -> int:
        return len(self._values) if self._tensor is None else self._tensor.shape[0]

    def __repr__(self) -> str:
        if self._single is not None:
            return str(self._single)
        return str(list(self._values)) if len(self) <= 8 else f"<{len(self)} integers>"
