"""A bias that is a function of distance: one number for each diagonal of the scores."""

from abc import abstractmethod

import torch
from torch import Tensor

from regard.biases.bias import Bias
from regard.biases.diagonals import dense_from_diagonals
from regard.shapes import Grid, upcast


class DiagonalBias(Bias):
    """A bias that depends on key − query alone.

    A subclass gives `diagonals`; `forward` makes them dense. Fused kernels take the diagonals as they are.
    """

    @property
    def is_diagonal(self) -> bool:
        return True

    @abstractmethod
    def diagonals(self, grid: Grid, dtype: torch.dtype) -> Tensor: ...

    def forward(self, query: Tensor, grid: Grid) -> Tensor:
        return dense_from_diagonals(self.diagonals(grid, upcast(query).dtype), grid)
