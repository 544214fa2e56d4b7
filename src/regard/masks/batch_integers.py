"""Integers that may differ between batch rows, such as offsets, lengths and prefixes."""

from collections.abc import Hashable, Sequence
from functools import cached_property

import torch
from torch import Tensor

from regard.errors import ArgumentError, ShapeError
from regard.fields import FIELDS
from regard.shapes.checks import check_device, check_integers, whole_number
from regard.shapes.grid import POSITION_LIMIT, Grid
from regard.tracing.transforms import has_host_data

Integers = int | Sequence[int] | Tensor
"""One integer for all batch rows, or one a row: a list, or an integer tensor ``[batch]``."""


class BatchInteger:
    """One integer for all batch rows, or one a row, with a magnitude of at most `POSITION_LIMIT`.

    A tensor is copied, so that later changes do not affect the mask. Elements on a device are never read, since the
    call would wait for it: they are like those of a tensor without data. Their range is not checked; the device clamps
    them to `POSITION_LIMIT`, and masks only compare them with positions, so that nothing is read out of bounds.

    Args:
        name: the argument's name, for messages.
        value: an integer, a sequence of integers, or an integer tensor ``[batch]``.

    Raises:
        KindError: the value is none of these.
        ShapeError: the tensor does not have one axis.
        ArgumentError: an integer is too large. `check` tests those of a tensor.
    """

    def __init__(self, name: str, value: Integers):
        self.name = name
        self._single: int | None = None
        self._tensor: Tensor | None = None
        if isinstance(value, Tensor):
            check_integers(name, value)
            if value.dim() != 1:
                raise ShapeError(f"{name} must be an integer or a tensor [batch]; it has shape {list(value.shape)}")
            if value.is_cpu:
                self._tensor = value.detach().to(torch.int64, copy=True)
            else:
                self._tensor = value.detach().to(torch.int64).clamp(-POSITION_LIMIT, POSITION_LIMIT)
        elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
            self._values = tuple(_position(f"{name}[{row}]", item) for row, item in enumerate(value))
        else:
            self._single = _position(name, value)

    @property
    def value(self) -> Integers:
        """The integer, one integer a batch row, or an integer tensor ``[batch]``."""
        if self._tensor is not None:
            return self._tensor
        return self._values if self._single is None else self._single

    @property
    def is_known(self) -> bool:
        """Whether the integers can be read now, which fails for a tensor without data or on a device."""
        return self._tensor is None or has_host_data(self._tensor)

    @property
    def identity(self) -> Hashable:
        """A value that is equal for equal integers; a tensor, which may be on a device, equals only itself."""
        if self._tensor is not None:
            return id(self._tensor)
        return self._values if self._single is None else self._single

    @property
    def kind(self) -> Hashable:
        """A value that is equal for integers that serve as many batch rows and lie on the same device."""
        if self._tensor is not None:
            return self._tensor.shape[0], self._tensor.device
        return len(self._values) if self._single is None else ("all", self._single)

    @cached_property
    def _values(self) -> tuple[int, ...]:
        return () if self._tensor is None else tuple(self._tensor.tolist())

    def check(self, grid: Grid, low: int = -POSITION_LIMIT, high: int = POSITION_LIMIT) -> None:
        """Raises an error unless there is one integer a batch row, on the grid's device, and each is in ``low..high``.

        The limits are not checked for integers that are not known.
        """
        if self._single is None and self.count != grid.batch:
            raise ShapeError(f"{self.name} must be an integer or [batch] = [{grid.batch}]; it has shape [{self.count}]")
        if self._tensor is not None:
            check_device(self.name, self._tensor, grid)
        if not self.is_known:
            return
        for row, value in enumerate(self._values if self._single is None else (self._single,)):
            if not low <= value <= high:
                limit = f"at least {low}" if high == POSITION_LIMIT and value < low else f"in {low}..{high}"
                item = f"[{row}]" if self._single is None else ""
                raise ArgumentError(f"{self.name}{item} must be {limit}; it is {value}")

    def on(self, grid: Grid) -> int | Tensor:
        """Returns the integer, or ``int64 [batch, 1, 1, 1]`` for the tile's batch rows on its device."""
        if self._single is not None:
            return grid.number(self._single)
        if self._tensor is not None:
            return grid.of_batch(self._tensor)
        return grid.of_batch(grid.numbers(self._values))

    def on_host(self, grid: Grid) -> int | Tensor:
        """Returns the integer, or ``int64 [batch, 1, 1]`` for the tile's batch rows on the CPU; requires `is_known`."""
        if self._single is not None:
            return self._single
        rows = self._values[grid.batch_span.start : grid.batch_span.stop]
        return torch.tensor(rows, dtype=torch.int64, device="cpu")[:, None, None]

    def bounds(self, grid: Grid) -> tuple[int, int]:
        """Returns the minimum and maximum over the tile's batch rows, of which there is at least one; requires
        `is_known`."""
        if self._single is not None:
            return self._single, self._single
        values = self._values[grid.batch_span.start : grid.batch_span.stop]
        return min(values), max(values)

    @property
    def count(self) -> int:
        """The number of integers, that is, of batch rows, which an exporter may leave symbolic."""
        return len(self._values) if self._tensor is None else self._tensor.shape[0]

    def __repr__(self) -> str:
        if self._single is not None:
            return str(self._single)
        return str(list(self._values)) if self.count <= 8 and self.is_known else f"<{self.count} integers>"


FIELDS[BatchInteger] = ("value",)


def _position(name: str, value: object) -> int:
    return whole_number(name, value, low=-POSITION_LIMIT, high=POSITION_LIMIT)
