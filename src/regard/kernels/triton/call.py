"""One call of the kernels, the sizes of their tiles, and how its scores are scaled."""

from typing import NamedTuple

import torch
from torch import Tensor

CODES = {"softmax": 0, "entmax15": 1, "sparsemax": 2, "entmax": 3, "sigmoid": 4}
"""The normalizers by name, as `regard.kernels.triton.tiles` numbers them."""


class Call(NamedTuple):
    """One call of the kernels.

    Attributes:
        query: ``[batch, heads, queries, dim]``.
        key: ``[batch, kv_heads, keys, dim]`` of the same dtype.
        value: ``[batch, kv_heads, keys, value_dim]``.
        weight: weights ``[heads or 1, dim]`` of an additive score, with its scale; None for an inner product.
        bias: float32 ``[batch or 1, heads or 1, queries or 1, keys or 1]``, or diagonals ``[heads or 1, queries + keys
            − 1]``; None for no bias.
        sink: float32 ``[heads or 1]``, or None.
        start, stop: int32 ``[batch or 1, heads or 1, queries, runs]`` of a mask's runs, or None.
        mask: bool, broadcastable to all pairs, in place of runs; or None.
        normalizer: a name in `CODES`.
        scale: factor of an inner product.
        cap: the soft cap of the scores; 0 for none.
        temperature: of softmax.
        shift: what sigmoid adds to a score.
        alpha: of entmax.
        dropout: probability of dropping a weight.
        seed: of dropout.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    weight: Tensor | None = None
    bias: Tensor | None = None
    sink: Tensor | None = None
    start: Tensor | None = None
    stop: Tensor | None = None
    mask: Tensor | None = None
    normalizer: str = "softmax"
    scale: float = 1.0
    cap: float = 0.0
    temperature: float = 1.0
    shift: float = 0.0
    alpha: float = 1.5
    dropout: float = 0.0
    seed: int = 0

    @property
    def is_entmax(self) -> bool:
        return self.normalizer in ("entmax15", "sparsemax", "entmax")


class Tile(NamedTuple):
    """Rows and columns of a tile, and how a program runs it.

    A limit on the registers of a thread lets more programs run at once.
    """

    rows: int
    columns: int
    warps: int
    stages: int
    registers: int | None = None


UNIT_TILES = {
    "forward": Tile(16, 64, 4, 1, 128),
    "forward of float32": Tile(32, 64, 4, 1),
    "rows": Tile(32, 16, 1, 1, 168),
    "columns": Tile(16, 32, 1, 1),
}
"""Tiles of additive scores, by what is computed. In both parts of the backward pass one warp sums without others."""

FLOAT_TILES = {
    64: {"forward": Tile(64, 32, 4, 2), "rows": Tile(64, 32, 4, 1), "columns": Tile(32, 64, 4, 1)},
    128: {"forward": Tile(64, 32, 4, 1), "rows": Tile(64, 32, 4, 1), "columns": Tile(32, 64, 4, 1)},
}
"""Tiles of products of float32, by the largest width and by what is computed."""

HALF_TILES = {
    64: {"forward": Tile(128, 64, 8, 3), "rows": Tile(64, 64, 4, 2), "columns": Tile(32, 128, 8, 2)},
    128: {"forward": Tile(128, 64, 8, 3), "rows": Tile(128, 64, 8, 2), "columns": Tile(32, 128, 8, 2)},
    256: {"forward": Tile(64, 32, 4, 1), "rows": Tile(64, 32, 4, 1), "columns": Tile(32, 64, 4, 1)},
}
"""The same of half precision."""


def tile_of(call: Call, part: str) -> Tile:
    """Returns the tile of a kernel.

    A warp computes 16 rows of a product. If there were fewer rows than that, warps would compute the same ones, each
    with all of the other matrix in its registers; such a kernel accessed memory illegally on an H100.
    """
    is_float = torch.float32 in (call.query.dtype, call.value.dtype)
    if call.weight is not None:
        return UNIT_TILES["forward of float32" if is_float and part == "forward" else part]
    width = max(call.query.shape[3], call.value.shape[3])
    tiles = FLOAT_TILES if is_float else HALF_TILES
    return tiles[next(widest for widest in tiles if width <= widest)][part]


class Scaling(NamedTuple):
    """How scores become what the normalizer sees: times ``scale`` if a bias or a cap comes next, then times ``factor``.

    Attributes:
        scale: of the product.
        factor: positive, so that the largest score stays the largest one.
        is_separate: whether the scale has to be applied first; otherwise it is part of the factor.
    """

    scale: float
    factor: float
    is_separate: bool


def scaling(call: Call) -> Scaling:
    """Returns how a call's scores are scaled."""
    factor = 1.0 / call.temperature
    if call.cap or call.bias is not None or call.scale <= 0.0:
        return Scaling(call.scale, factor, True)
    return Scaling(call.scale, factor * call.scale, False)
