"""Learned positions: one vector a position, which is added to the input."""

import torch
from torch import Tensor, nn

from regard.errors import ArgumentError
from regard.names.answered import answered
from regard.positions.index import check_features, positions_of
from regard.shapes.checks import whole_number
from regard.tracing.module_calls import Module


@answered
class Learned(Module):
    """Adds a learned vector for each position.

    .. math::

        output[pos] = input[pos] + weight[pos]

    Gehring et al. 2017, §3.1.

    Args:
        max_length: number of positions, >= 1; no input may exceed it.
        dim: features of a vector, >= 1.

    Attributes:
        weight: ``[max_length, dim]``, drawn from a normal distribution with standard deviation 0.02.

    Example:
        >>> import torch
        >>> from regard import positions
        >>> positions.Learned(max_length=16, dim=4)(torch.zeros(1, 3, 4)).shape
        torch.Size([1, 3, 4])
    """

    def __init__(self, max_length: int, dim: int):
        super().__init__()
        self.max_length = whole_number("max_length", max_length, low=1)
        self.dim = whole_number("dim", dim, low=1)
        self.weight = nn.Parameter(torch.empty(self.max_length, self.dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, input: Tensor, offset: int | Tensor = 0) -> Tensor:
        """Adds the vectors of the input's positions.

        Args:
            input: ``[..., length, dim]``.
            offset: the position of the first vector, >= 0; an integer, or integers ``[batch]`` with ``batch`` the
                input's first axis.

        Returns:
            A tensor of the shape and dtype of ``input``.

        Raises:
            ArgumentError: a position is not in ``0 .. max_length − 1``; on a device, where the call would wait for the
                positions, its result is NaN instead.
        """
        check_features(input, self.dim)
        positions = positions_of(input, offset)
        if isinstance(positions, Tensor):
            # The check precedes the lookup, since an index out of range ends the process on a GPU.
            if positions.is_cpu and type(positions) is Tensor and positions.numel():
                self._check_range(int(positions.min()), int(positions.max()))
            vectors = self._at(positions)
        else:
            first, stop = positions
            if input.shape[-2]:
                self._check_range(first, stop - 1)
            vectors = self.weight[first:stop] if input.shape[-2] else self.weight[:0]
        return input + vectors.to(input.dtype)

    def _at(self, positions: Tensor) -> Tensor:
        """Returns the vectors of these positions; on a device, where a check would wait for it, NaN out of range."""
        if positions.is_cpu or positions.is_meta:
            return self.weight[positions]
        nearest = positions.clamp(0, self.max_length - 1)
        return self.weight[nearest].masked_fill((positions != nearest)[..., None], torch.nan)

    def _check_range(self, first: int, last: int) -> None:
        if first < 0 or last >= self.max_length:
            raise ArgumentError(
                f"positions must be in 0..{self.max_length - 1} (max_length={self.max_length}); "
                f"the input reaches from {first} to {last}"
            )

    def extra_repr(self) -> str:
        return f"{self.max_length}, {self.dim}"
