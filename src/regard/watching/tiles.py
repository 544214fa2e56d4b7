"""Exact tiles of the weights of a call, computed from its queries and keys on request."""

from dataclasses import replace
from functools import reduce
from operator import and_

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.attention.planner import BACKENDS, choose_reader
from regard.attention.problem import Problem
from regard.attention.readings import Gatherer, Readings
from regard.attention.steps import Inputs, weigh
from regard.biases import TensorBias
from regard.errors import ArgumentError
from regard.masks import And, Band, Mask, keep
from regard.records import DenseTiles, TileSource
from regard.watching.intercepted import Intercepted

ROW_ELEMENTS = 1 << 22
"""How many weights, in whole rows, are computed at once for a tile."""


class ProblemTiles:
    """A `regard.records.TileSource` of one batch row of a problem.

    It keeps queries, keys, mask and bias on the CPU: memory is linear in queries and keys, unless the model itself made
    a dense mask.

    Args:
        problem: of one batch row, on the CPU, with detached tensors.
        chosen: the heads.
    """

    def __init__(self, problem: Problem, chosen: tuple[int, ...]):
        self._problem, self._chosen = problem, list(chosen)

    @classmethod
    def of_batch(cls, call: Intercepted, chosen: tuple[int, ...]) -> tuple[TileSource, ...]:
        """One source for each batch row of a call."""
        if call.problem is None:
            assert call.weights is not None
            return tuple(DenseTiles(row[list(chosen)].float().cpu().numpy()) for row in call.weights)
        return tuple(cls(_row(call.problem, row), chosen) for row in range(call.grid.batch))

    @property
    def heads(self) -> int:
        return len(self._chosen)

    @property
    def queries(self) -> int:
        return self._problem.grid.queries

    @property
    def keys(self) -> int:
        return self._problem.grid.keys

    @torch.no_grad()
    def pooled(self, rows: int, columns: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        problem = self._problem
        gatherer = Gatherer(problem, Readings(pooled=(rows, columns)))
        choose_reader(problem, BACKENDS["reference"]).read(problem, gatherer)
        observed = gatherer.observed(problem.query.new_empty(0), problem)
        assert observed.pooled_mean is not None
        assert observed.pooled_max is not None
        return self._array(observed.pooled_mean), self._array(observed.pooled_max)

    @torch.no_grad()
    def tile(self, queries: tuple[int, int], keys: tuple[int, int]) -> NDArray[np.float32]:
        for name, (first, end), length in (("queries", queries, self.queries), ("keys", keys, self.keys)):
            if not 0 <= first < end <= length:
                raise ArgumentError(f"{name} must be (first, end) with 0 ≤ first < end ≤ {length}; got {first, end}")
        problem = self._problem
        step = max(1, ROW_ELEMENTS // max(problem.grid.heads * self.keys, 1))
        parts = []
        for first in range(queries[0], queries[1], step):
            rows = range(first, min(first + step, queries[1]))
            inside = slice(rows.start, rows.stop)
            prepared = replace(problem.prepared, query=problem.prepared.query[:, :, inside])
            grid = problem.grid.tile(queries=rows)
            inputs = Inputs(prepared, problem.query[:, :, inside], problem.value, grid)
            parts.append(weigh(problem, inputs).weights[..., keys[0] : keys[1]])
        return self._array(torch.cat(parts, dim=2))

    def _array(self, tensor: Tensor) -> NDArray[np.float32]:
        return tensor[0, self._chosen].float().numpy()


def _row(problem: Problem, row: int) -> Problem:
    """One batch row of a problem as a problem of its own, on the CPU."""

    def cut(tensor: Tensor) -> Tensor:
        return tensor[row : row + 1].detach().cpu().clone()

    mask, bias = problem.mask, problem.bias
    if problem.grid.batch > 1 or problem.query.device.type != "cpu":
        tile = problem.grid.tile(batch=range(row, row + 1))
        mask = None if mask is None else _row_of_mask(mask, problem, row)
        if bias is not None:
            bias = TensorBias(bias(problem.query[row : row + 1], tile).detach().cpu())
    # Weights do not depend on values: an empty tensor has the right sizes.
    value = problem.value[row : row + 1, :, :, :0].detach().cpu().clone()
    return replace(problem, query=cut(problem.query), key=cut(problem.key), value=value, mask=mask, bias=bias)


def _row_of_mask(mask: Mask, problem: Problem, row: int) -> Mask:
    """The mask of one batch row: parts that are the same for all rows unchanged, others as tensors that broadcast."""
    tile = problem.grid.tile(batch=range(row, row + 1))
    parts = [
        part
        if isinstance(part, Band) and isinstance(part.offset_on(problem.grid), int)
        else keep(part.allows(tile).detach().cpu())
        for part in (mask.parts if isinstance(mask, And) else (mask,))
    ]
    return reduce(and_, parts)
