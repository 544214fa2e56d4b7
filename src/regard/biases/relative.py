"""Biases learned for relative positions: T5's buckets, and Shaw's vectors that the query is compared with.

Both see ``relative = j − (i + offset)`` with ``offset = keys − queries``: the ends are aligned when lengths differ.
"""

import torch
from torch import Tensor, nn

from regard.biases.bias import Bias, DiagonalBias, relative_positions
from regard.errors import ArgumentError, ShapeError
from regard.shapes import Grid, accurate, check_device, positive_number, whole_number


class RelativeBias(DiagonalBias):
    """A learned number for each head and each range of relative positions: near ones alone, far ones together.

        bias[h, i, j] = weight[bucket(j − i − offset), h]

    Raffel et al. 2020 (T5), §2.1; the buckets are those of the authors' released code. Of the n buckets of one
    direction, the first n/2 hold the distances ``0, 1, ..`` one by one, the others ranges that grow geometrically up to
    ``max_distance``; the last one holds whatever is farther.

    Args:
        heads: query heads.
        buckets: how many there are; even and at least 4, if ``bidirectional``, else at least 2.
        max_distance: from where all distances share a bucket.
        bidirectional: half of the buckets for keys after the query (encoders). If False, keys after the query share the
            bucket of distance 0 (decoders, which mask them).

    Attributes:
        weight: ``[buckets, heads]``, drawn from a normal distribution with standard deviation 0.02.

    Numerics: buckets are found by comparing integers, so no rounding of a logarithm moves their limits.
    """

    def __init__(self, heads: int, buckets: int = 32, max_distance: int = 128, bidirectional: bool = True):
        super().__init__()
        self.heads = whole_number("heads", heads, low=1)
        self.buckets = whole_number("buckets", buckets, low=4 if bidirectional else 2)
        if bidirectional and buckets % 2:
            raise ArgumentError(f"buckets must be even if bidirectional (half for each direction); it is {buckets}")
        self.bidirectional = bidirectional
        per_direction = self.buckets // 2 if bidirectional else self.buckets
        self.max_distance = whole_number("max_distance", max_distance, low=per_direction // 2 + 1)
        self._limits = _bucket_limits(per_direction, self.max_distance)
        self.weight = nn.Parameter(torch.empty(self.buckets, self.heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=0.02)

    def check(self, query: Tensor, grid: Grid) -> None:
        if grid.heads != self.heads:
            raise ShapeError(f"RelativeBias was made for {self.heads} heads; query has {grid.heads}")
        check_device("the weight of RelativeBias", self.weight, grid)

    def bucket(self, relative: Tensor) -> Tensor:
        """Which bucket each relative position (key − query, integers of any shape) falls into, int64."""
        limits = torch.tensor(self._limits, device=relative.device)
        if not self.bidirectional:
            return torch.bucketize((-relative).clamp(min=0), limits, right=True)
        return torch.bucketize(relative.abs(), limits, right=True) + (relative > 0) * (self.buckets // 2)

    def diagonals(self, grid: Grid, dtype: torch.dtype) -> Tensor:
        return self.weight.to(dtype).t()[:, self.bucket(relative_positions(grid))]

    def extra_repr(self) -> str:
        return f"{self.heads}, {self.buckets}, {self.max_distance}, bidirectional={self.bidirectional}"


class RelativePosition(Bias):
    """The query compared with a learned vector for each relative position, clipped at a distance.

        bias[i, j] = scale · query_i · weight[clip(j − i − offset, −max_distance, max_distance) + max_distance]

    The second term of Shaw et al. 2018, eq. 5 (their ``a^K`` is our ``weight``, their k our ``max_distance``; the first
    term, ``query · key``, is the score). Their vectors for values, ``a^V``, are not part of a bias.

    Args:
        dim: features of a query.
        max_distance: farther positions count as this far, >= 0.
        heads: None for vectors that all heads share, as in the paper; else own ones for each of so many query heads.
        scale: a positive number; None for the paper's ``1 / sqrt(dim)``, which suits ``scaled_dot``. The score's own
            scale does not touch a bias, so it has to be said here.

    Attributes:
        weight: ``[2 · max_distance + 1, dim]`` or ``[heads, 2 · max_distance + 1, dim]``, drawn from a normal
            distribution with standard deviation 0.02.

    Numerics: each query is compared with the ``2 · max_distance + 1`` vectors once, and the numbers are then spread
    over the keys: ``[queries, keys, dim]`` is never made. Half-precision queries are compared in float32.
    """

    def __init__(self, dim: int, max_distance: int, heads: int | None = None, scale: float | None = None):
        super().__init__()
        self.dim = whole_number("dim", dim, low=1)
        self.max_distance = whole_number("max_distance", max_distance, low=0)
        self.heads = None if heads is None else whole_number("heads", heads, low=1)
        self.scale = self.dim**-0.5 if scale is None else positive_number("scale", scale)
        own = () if self.heads is None else (self.heads,)
        self.weight = nn.Parameter(torch.empty(*own, 2 * self.max_distance + 1, self.dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=0.02)

    def check(self, query: Tensor, grid: Grid) -> None:
        if query.shape[-1] != self.dim:
            raise ShapeError(f"RelativePosition was made for dim {self.dim}; query has dim {query.shape[-1]}")
        if self.heads is not None and grid.heads != self.heads:
            raise ShapeError(f"RelativePosition was made for {self.heads} heads; query has {grid.heads}")
        check_device("the weight of RelativePosition", self.weight, grid)

    def needs_gradient(self, query: Tensor) -> bool:
        return query.requires_grad or super().needs_gradient(query)

    def forward(self, query: Tensor, grid: Grid) -> Tensor:
        query = accurate(query)
        weight = accurate(self.weight).to(query.dtype)
        compared = (query * self.scale) @ weight.transpose(-1, -2)  # B H Q 2m+1
        relative = grid.key_index - grid.query_index - grid.offset  # Q K
        index = relative.clamp(-self.max_distance, self.max_distance) + self.max_distance
        return compared.gather(-1, index.expand(*compared.shape[:-1], -1))

    def extra_repr(self) -> str:
        return f"{self.dim}, {self.max_distance}, heads={self.heads}, scale={self.scale:g}"


def _bucket_limits(buckets: int, max_distance: int) -> list[int]:
    """The least distance of each bucket of one direction but the first.

    Bucket ``exact + k`` begins at the least n with ``log(n / exact) / log(max_distance / exact) · wide >= k``, where
    ``wide = buckets − exact``: with ``(n / exact)^wide >= (max_distance / exact)^k``, a comparison of integers.
    """
    exact = buckets // 2
    wide = buckets - exact
    limits = list(range(1, exact + 1))
    for k in range(1, wide):
        reach = max_distance**k * exact ** (wide - k)
        low, high = exact, max_distance
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if middle**wide >= reach else (middle + 1, high)
        limits.append(low)
    return limits
