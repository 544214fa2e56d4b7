"""The arguments of attention on packed rows. Nothing here imports Numba."""

from typing import NamedTuple

from torch import Tensor

from regard.kernels.availability import microkernel_is_faster
from regard.kernels.cpu.sizes import PACKED_FEATURES, PACKED_LENGTH


class Sequences(NamedTuple):
    """The packed rows of each sequence of a batch.

    Attributes:
        starts: index of the first row of each sequence, ``int64 [batch]``.
        counts: number of rows of each sequence, ``int64 [batch]``.
        longest: the maximum of the counts, or an upper bound of it.
    """

    starts: Tensor
    counts: Tensor
    longest: int


class PackedCall(NamedTuple):
    """A call of attention on packed rows.

    Attributes:
        queries, keys: the rows of each sequence.
        before, after: how many keys before and after its own key a query sees.
        dropout: probability of dropping a weight, in [0, 1).
    """

    queries: Sequences
    keys: Sequences
    heads: int
    kv_heads: int
    scale: float
    before: int
    after: int
    dropout: float = 0.0
    seed: int = 0


def runs(call: PackedCall, features: int) -> bool:
    """Whether the kernels support sequences of these lengths and heads of so many features, and are the fastest way."""
    longest = max(call.queries.longest, call.keys.longest)
    return longest <= PACKED_LENGTH and 0 < features <= PACKED_FEATURES and microkernel_is_faster()
