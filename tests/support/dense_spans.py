"""Spans as bools, and how many runs bools have."""

from torch import Tensor
from torch.nn import functional as F

from regard.masks import Spans
from regard.shapes.grid import Grid


def dense_spans(spans: Spans, grid: Grid) -> Tensor:
    """Which pairs of a tile lie in a run, bool ``[batch, heads, queries, keys]``."""
    key = grid.key_index
    in_run = (key >= spans.start[..., None]) & (key < spans.stop[..., None])
    return in_run.any(-2).expand(grid.shape)


def runs_of(allowed: Tensor) -> int:
    """How many runs of True a row has at most, of which there must be one."""
    before = F.pad(allowed, (1, 0))[..., :-1]
    return int((allowed & ~before).sum(-1).max())
