"""An integer that may differ between batch rows: an offset, a length, a prefix."""

from collections.abc import Hashable, Sequence
from functools import cached_property

import torch
from torch import Tensor

from regard.errors import ArgumentError, ShapeError
from regard.shapes import POSITION_LIMIT, Grid, check_device, check_integers, whole_number
from regard.transforms import has_data

Integers = int | Sequence[int] | Tensor
"""One integer for all batch rows, or one for each: a list, or an integer tensor ``[batch]``."""


class BatchInteger:
    """One integer for all batch rows, or one for each, of a magnitude up to `POSITION_LIMIT`.

    A tensor is copied, so that a mask stays the value it was when it was made. Its numbers are read back to the host
    once, when they are first asked for: bounds of tiles cost no synchronization with the device.

    Args:
        name: the argument that it came from, for messages.
        value: an integer, a sequence of integers, or an integer tensor ``[batch]``.

    Raises:
        KindError: if the value is none of these.
        ShapeError: if a tensor has not one axis.
        ArgumentError: if an integer is too large. Those of a tensor are looked at by `check`.
    """

    def __init__(self, name: str, value: Integers):
        self.name = name
        self._single: int | None = None
        self._tensor: Tensor | None = None
        if isinstance(value, Tensor):
            check_integers(name, value)
            if value.dim() != 1:
                raise ShapeError(f"{name} must be an integer or a tensor [batch]; it has shape {list(value.shape)}")
            self._tensor = value.detach().to(torch.int64, copy=True)
        elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
            self._values = tuple(_position(f"{name}[{row}]", item) for row, item in enumerate(value))
        else:
            self._single = _position(name, value)

    @property
    def value(self) -> Integers:
        """What it was made of: an integer, one integer for each batch row, or an integer tensor ``[batch]``."""
        if self._tensor is not None:
            return self._tensor
        return self._values if self._single is None else self._single

    @property
    def is_known(self) -> bool:
        """Whether the integers can be read now; those of a tensor without data (`has_data`) cannot."""
        return self._tensor is None or has_data(self._tensor)

    @property
    def identity(self) -> Hashable:
        """Equal for equal integers; a tensor, which may lie on a device, equals itself only."""
        if self._tensor is not None:
            return id(self._tensor)
        return self._values if self._single is None else self._single

    @cached_property
    def _values(self) -> tuple[int, ...]:
        return () if self._tensor is None else tuple(self._tensor.tolist())

    def check(self, grid: Grid, low: int = -POSITION_LIMIT, high: int = POSITION_LIMIT) -> None:
        """Raise unless there is one for each batch row, on the grid's device, and each lies in ``low..high``.

        Integers of a tensor without data are not compared with the limits.
        """
        if self._single is None and self.count != grid.batch:
            raise ShapeError(f"{self.name} must be an integer or [batch] = [{grid.batch}]; it has shape [{self.count}]")
        if self._tensor is not None:
            check_device(self.name, self._tensor, grid)
        if not self.is_known:
            return
        for value in self._values if self._single is None else (self._single,):
            if not low <= value <= high:
                limit = f"at least {low}" if high == POSITION_LIMIT and value < low else f"in {low}..{high}"
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
        """The integer, or ``int64 [batch, 1, 1]`` of the tile's batch rows on the CPU; asked only if they are known."""
        if self._single is not None:
            return self._single
        rows = self._values[grid.batch_span.start : grid.batch_span.stop]
        return torch.tensor(rows, dtype=torch.int64)[:, None, None]

    def bounds(self, grid: Grid) -> tuple[int, int]:
        """The least and the greatest of the tile's batch rows, of which there must be one; asked only if known."""
        if self._single is not None:
            return self._single, self._single
        values = self._values[grid.batch_span.start : grid.batch_span.stop]
        return min(values), max(values)

    @property
    def count(self) -> int:
        """How many integers there are: the batch rows, which an exporter may leave open."""
        return len(self._values) if self._tensor is None else self._tensor.shape[0]

    def __repr__(self) -> str:
        if self._single is not None:
            return str(self._single)
        return str(list(self._values)) if self.count <= 8 and self.is_known else f"<{self.count} integers>"


def _position(name: str, value: object) -> int:
    return whole_number(name, value, low=-POSITION_LIMIT, high=POSITION_LIMIT)
