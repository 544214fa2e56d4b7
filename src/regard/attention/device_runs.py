"""The runs of visible keys of a mask on a device, where kernels need them.

Runs are found on the host (`regard.masks.Spans`) and copied without waiting. All layers of a model, and all steps of a
training at one length, ask for the same ones, so the last few are kept.
"""

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from regard.attention.problem import Problem
from regard.masks import Mask
from regard.shapes.grid import Grid
from regard.tracing.transforms import is_capturing, sent, stream_of

STORED_MASKS = 16
"""How many masks of different calls are kept."""


class DeviceRuns(NamedTuple):
    """The runs of visible keys of each query.

    Attributes:
        start, stop: the first key of each run, and one more than the last: int32 ``[batch or 1, heads or 1, queries,
            runs]``, on the device.
    """

    start: Tensor
    stop: Tensor


def device_runs(problem: Problem) -> DeviceRuns | None:
    """Returns the runs of a problem's mask on its device; None if the host does not know them."""
    mask, device = problem.hiding_mask, problem.query.device
    if mask is None:
        return None
    misses = _kept.cache_info().misses if is_capturing(device) else None
    runs = _kept(mask, problem.grid, stream_of(device))
    if misses is not None and _kept.cache_info().misses > misses:
        # The memory belongs to the graph, which writes it when it is replayed.
        _kept.cache_clear()
    return runs


@lru_cache(STORED_MASKS)
def _kept(mask: Mask, grid: Grid, stream: int) -> DeviceRuns | None:
    """Returns the runs for the calls of one stream, whose order the copies have.

    They are kept for trainings as well, which save them for the backward pass, so they are made in no inference mode.
    """
    with torch.inference_mode(False):
        spans = mask.spans(grid)
        if spans is None:
            return None
        start, stop = (sent(end, grid.device) for end in spans)
    return DeviceRuns(start, stop)
