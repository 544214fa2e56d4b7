"""Rotary positions over several axes: which pairs of features the position on which axis rotates."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from regard.errors import ArgumentError
from regard.names.answered import answered
from regard.shapes.checks import flag, whole_number


@dataclass(frozen=True)
class Axes(ABC):
    r"""The axes of a `Rotary`, whose pair :math:`i` rotates by :math:`p_{a(i)} \theta_i`: the base of all."""

    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        sizes = tuple(whole_number(f"sizes[{i}]", size, low=1) for i, size in enumerate(self.sizes))
        object.__setattr__(self, "sizes", sizes)

    @abstractmethod
    def parts(self, dim: int) -> tuple[int, ...]:
        """Returns the parts of ``dim`` features with the frequencies of a whole `Rotary`; raises unless they fit."""

    @abstractmethod
    def axis_of_pairs(self) -> list[int]:
        """Returns the axis of each pair."""

    @abstractmethod
    def along(self, index: Tensor) -> Tensor:
        """Returns the positions ``[axes, ...]`` of the vectors with these numbers ``[...]`` in a sequence."""

    def by_pair(self, positions: Tensor) -> Tensor:
        """Returns positions ``[axes, ...]`` as ``[..., pairs]``."""
        return torch.stack([positions[axis] for axis in self.axis_of_pairs()], dim=-1)


@answered
@dataclass(frozen=True)
class Axial(Axes):
    r"""Images and video: each axis rotates its own part of the features, with frequencies as for that part alone.

    .. math:: a(i) = \text{the axis of pair } i, \qquad \theta_i = base^{-2j / size_a}, \; j = 0, 1, \ldots

    Heo et al. 2024, "Rotary position embedding for vision transformer", section 3.2 (axial); the vision towers of
    Qwen2-VL and, with ``interleaved=True``, of Llama 4, whose positions begin with 1.

    Args:
        sizes: features of each axis, even.
        grid: positions of each axis, for sequences that are a grid, row by row; None: calls pass ``positions``.

    Example:
        >>> import torch
        >>> from regard import positions
        >>> rotary = positions.Rotary(8, axes=positions.Axial((4, 4), grid=(3, 5)))
        >>> patches = torch.randn(2, 15, 8)
        >>> rows_and_columns = torch.tensor([[row, column] for row in range(3) for column in range(5)]).T
        >>> torch.equal(rotary(patches), rotary(patches, positions=rows_and_columns))
        True
    """

    grid: tuple[int, ...] | None = None

    def parts(self, dim: int) -> tuple[int, ...]:
        if sum(self.sizes) != dim or any(size % 2 for size in self.sizes):
            raise ArgumentError(f"sizes of Axial must be even, with the sum dim, {dim}; they are {self.sizes}")
        if self.grid is not None and len(self.grid) != len(self.sizes):
            raise ArgumentError(f"grid must have {len(self.sizes)} axes, as sizes; it is {self.grid}")
        return self.sizes

    def axis_of_pairs(self) -> list[int]:
        return [axis for axis, size in enumerate(self.sizes) for _ in range(size // 2)]

    def along(self, index: Tensor) -> Tensor:
        if self.grid is None:
            raise ArgumentError("Axial needs positions=, [axes, length] or [axes, batch, length], or a grid")
        steps = [prod(self.grid[axis + 1 :]) for axis in range(len(self.grid))]
        columns = [index // step % size for step, size in zip(steps[1:], self.grid[1:], strict=True)]
        return torch.stack([index // steps[0], *columns])


@answered
@dataclass(frozen=True)
class Sections(Axes):
    r"""Texts with images and video (M-RoPE): the axes time, height and width share the pairs of one rotary position.

    .. math:: \theta_i = base^{-2i / dim}, \qquad a(i) = \text{section of } i, \;\text{ or interleaved }\; i \bmod axes

    Wang et al. 2024 (Qwen2-VL), section 2.1: consecutive sections. Interleaved as in Qwen3-VL (2025), each axis but
    the first has every third pair up to its size, and the first one has the rest. Without ``positions=`` all axes have
    the same, as texts do, and the rotation is that of a plain `Rotary`.

    Args:
        sizes: pairs of each axis.
        interleaved: whether pairs of the axes alternate.

    Example:
        >>> from regard import positions
        >>> positions.Sections((2, 1, 1)).axis_of_pairs(), positions.Sections((2, 1, 1), True).axis_of_pairs()
        ([0, 0, 1, 2], [0, 1, 2, 0])
    """

    interleaved: bool = False

    def parts(self, dim: int) -> tuple[int, ...]:
        flag("interleaved", self.interleaved)
        pairs = self.axis_of_pairs()
        if 2 * sum(self.sizes) != dim or any(pairs.count(axis) != size for axis, size in enumerate(self.sizes)):
            raise ArgumentError(
                f"sizes of Sections must have the sum dim / 2, {dim // 2}, and interleaved ones be nearly equal; "
                f"they are {self.sizes}"
            )
        return (dim,)

    def axis_of_pairs(self) -> list[int]:
        axes = len(self.sizes)
        if not self.interleaved:
            return [axis for axis, size in enumerate(self.sizes) for _ in range(size)]
        return [i % axes if i < axes * self.sizes[i % axes] else 0 for i in range(sum(self.sizes))]

    def along(self, index: Tensor) -> Tensor:
        return index.expand(len(self.sizes), *index.shape)
