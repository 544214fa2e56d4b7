"""Rotary positions over several axes: which pairs of features the position on which axis rotates."""

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from regard.errors import ArgumentError
from regard.names.answered import answered
from regard.shapes.checks import flag, whole_number


@answered
@dataclass(frozen=True)
class Axial:
    r"""Images and video: each axis rotates its own part of the features, with frequencies as for that part alone.

    .. math:: a(i) = \text{the axis of pair } i, \qquad \theta_i = base^{-2j / size_a}, \; j = 0, 1, \ldots

    Heo et al. 2024, "Rotary position embedding for vision transformer", section 3.2; the vision towers of Qwen2-VL and,
    with ``interleaved=True``, of Llama 4, whose positions begin with 1.

    Args:
        sizes: features of each axis, even.
        grid: positions of each axis, for sequences that are a grid, row by row; None: calls pass ``positions``.

    Example:
        >>> import torch
        >>> from regard import positions
        >>> rotary, patches = positions.Rotary(8, axes=positions.Axial((4, 4), grid=(3, 5))), torch.randn(2, 15, 8)
        >>> rows_and_columns = torch.cartesian_prod(torch.arange(3), torch.arange(5)).T
        >>> torch.equal(rotary(patches), rotary(patches, positions=rows_and_columns))
        True
    """

    sizes: tuple[int, ...]
    grid: tuple[int, ...] | None = None

    def parts(self, dim: int) -> tuple[int, ...]:
        """Returns the parts of ``dim`` features with the frequencies of a whole `Rotary`; raises unless they fit."""
        if sum(self.sizes) != dim or any(whole_number("each of sizes", size, low=1) % 2 for size in self.sizes):
            raise ArgumentError(f"sizes of Axial must be even, with the sum dim, {dim}; they are {self.sizes}")
        if self.grid is not None and len(self.grid) != len(self.sizes):
            raise ArgumentError(f"grid must have {len(self.sizes)} axes, as sizes; it is {self.grid}")
        return tuple(self.sizes)

    def axis_of_pairs(self) -> list[int]:
        """Returns the axis of each pair."""
        return [axis for axis, size in enumerate(self.sizes) for _ in range(size // 2)]

    def along(self, index: Tensor) -> Tensor:
        """Returns the positions ``[axes, ...]`` of the vectors with these numbers ``[...]`` in a sequence."""
        if self.grid is None:
            raise ArgumentError("Axial needs positions=, [axes, length] or [axes, batch, length], or a grid")
        steps = [prod(self.grid[axis + 1 :]) for axis in range(len(self.grid))]
        rest = [index // step % size for step, size in zip(steps[1:], self.grid[1:], strict=True)]
        return torch.stack([index // steps[0], *rest])


@answered
@dataclass(frozen=True)
class Sections:
    r"""Texts with images and video (M-RoPE): the axes time, height and width share the pairs of one rotary position.

    .. math:: \theta_i = base^{-2i / dim}, \qquad a(i) = \text{section of } i, \;\text{ or interleaved }\; i \bmod axes

    Wang et al. 2024 (Qwen2-VL), section 2.1: consecutive sections of ``sizes`` pairs. Interleaved as in Qwen3-VL
    (2025), each axis but the first has every third pair up to its size, and the first one the rest. Without
    ``positions=`` all axes have the same, as texts do, and the rotation is that of a plain `Rotary`.

    Example:
        >>> from regard import positions
        >>> positions.Sections((2, 1, 1)).axis_of_pairs(), positions.Sections((2, 1, 1), True).axis_of_pairs()
        ([0, 0, 1, 2], [0, 1, 2, 0])
    """

    sizes: tuple[int, ...]
    interleaved: bool = False

    def parts(self, dim: int) -> tuple[int, ...]:
        pairs = self.axis_of_pairs()
        if 2 * sum(self.sizes) != dim or any(pairs.count(axis) != size for axis, size in enumerate(self.sizes)):
            rule = f"have the sum dim / 2, {dim // 2}, and be nearly equal if interleaved"
            raise ArgumentError(f"sizes of Sections must {rule}; they are {self.sizes}")
        return (dim,)

    def axis_of_pairs(self) -> list[int]:
        axes = len(self.sizes)
        if not flag("interleaved", self.interleaved):
            return [axis for axis, size in enumerate(self.sizes) for _ in range(whole_number("each of sizes", size))]
        return [i % axes if i < axes * self.sizes[i % axes] else 0 for i in range(sum(self.sizes))]

    def along(self, index: Tensor) -> Tensor:
        return index.expand(len(self.sizes), *index.shape)
