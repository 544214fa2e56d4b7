"""T5's bias: one learned value for each head and each range of relative positions."""

import torch
from torch import Tensor, nn

from regard.biases.bias import register_weight
from regard.biases.distance import DistanceBias
from regard.errors import ArgumentError
from regard.names.answered import answered
from regard.shapes.checks import flag, whole_number
from regard.tracing.portable import vector
from regard.tracing.transforms import sent


@answered
class RelativeBias(DistanceBias, fields=("heads", "buckets", "max_distance", "bidirectional", "weight")):
    """Adds one learned value for each head and each range (bucket) of relative positions; ranges grow with distance.

    .. math::

        bias_{hij} = weight[bucket(j − i − offset), h]
        offset = keys − queries (the ends are aligned)

    Raffel et al. 2020 (T5), §2.1; the buckets are those of the authors' released code. In one direction with n buckets,
    each of the first n/2 buckets holds one of the distances ``0, 1, ..``; the others hold ranges that grow
    geometrically up to ``max_distance``; the last bucket also holds all larger distances.

    Args:
        heads: number of query heads.
        buckets: number of buckets, default 32; even and at least 4 if ``bidirectional``, otherwise at least 2.
        max_distance: distance in keys from which on all share one bucket; default 128.
        bidirectional: whether half of the buckets are for keys after the query (encoders). If False, keys after the
            query share the bucket of distance 0 (decoders, which mask them).
        weight: the values, ``[buckets, heads]``; None draws them from a normal distribution with standard deviation
            0.02.

    Raises:
        ArgumentError: an argument is out of range.
        KindError, ShapeError: the weight holds no floating-point numbers, or has another shape.

    Numerics: buckets follow from comparisons of integers, so the rounding of a logarithm cannot move their limits.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import biases
        >>> bias = biases.RelativeBias(heads=2, buckets=8, max_distance=16)
        >>> x = torch.zeros(1, 2, 3, 4)
        >>> regard.attend(x, x, x, bias=bias).shape
        torch.Size([1, 2, 3, 4])
    """

    weight: Tensor

    def __init__(
        self,
        heads: int,
        buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = True,
        weight: Tensor | None = None,
    ):
        super().__init__()
        flag("bidirectional", bidirectional)
        self.heads = whole_number("heads", heads, low=1)
        self.buckets = whole_number("buckets", buckets, low=4 if bidirectional else 2)
        if bidirectional and buckets % 2:
            raise ArgumentError(f"buckets must be even if bidirectional (half for each direction); it is {buckets}")
        self.bidirectional = bidirectional
        per_direction = self.buckets // 2 if bidirectional else self.buckets
        self.max_distance = whole_number("max_distance", max_distance, low=per_direction // 2 + 1)
        self._limits = _bucket_limits(per_direction, self.max_distance)
        register_weight(self, weight, self.buckets, self.heads)
        if weight is None:
            self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=0.02)

    def bucket(self, relative: Tensor) -> Tensor:
        """Returns the int64 bucket of each relative position (key − query, integers of any shape)."""
        limits = sent(vector(self._limits, torch.int64), relative.device)
        if not self.bidirectional:
            return torch.bucketize((-relative).clamp(min=0), limits, right=True)
        return torch.bucketize(relative.abs(), limits, right=True) + (relative > 0) * (self.buckets // 2)

    def values(self, relative: Tensor, dtype: torch.dtype) -> Tensor:
        return self.weight.to(dtype).t()[:, self.bucket(relative)]


def _bucket_limits(buckets: int, max_distance: int) -> list[int]:
    """Returns the smallest distance of each bucket of one direction except the first.

    Bucket ``exact + k`` begins at the smallest n with ``log(n / exact) / log(max_distance / exact) · geometric >= k``,
    where ``geometric = buckets − exact``; that is ``(n / exact)^geometric >= (max_distance / exact)^k``, a comparison
    of integers.
    """
    exact = buckets // 2
    geometric = buckets - exact
    limits = list(range(1, exact + 1))
    for k in range(1, geometric):
        reach = max_distance**k * exact ** (geometric - k)
        low, high = exact, max_distance
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if middle**geometric >= reach else (middle + 1, high)
        limits.append(low)
    return limits
