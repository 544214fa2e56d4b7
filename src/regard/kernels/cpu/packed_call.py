"""What kernels of attention of packed rows are told, in Python's terms. Importing it does not import Numba."""

from typing import NamedTuple

from torch import Tensor

from regard.kernels.availability import microkernel_is_faster
from regard.kernels.cpu.sizes import PACKED_FEATURES, PACKED_LENGTH


class Sequences(NamedTuple):
    """Where the rows of each sequence of a batch lie.

    Attributes:
        starts: the first packed row of each, ``int64 [batch]``.
        counts: rows of each, likewise.
        longest: the largest of the counts, or more.
    """

    starts: Tensor
    counts: Tensor
    longest: int


class PackedCall(NamedTuple):
    """What is computed of packed rows.

    Attributes:
        queries, keys: where they lie.
        heads: of the queries.
        kv_heads: of keys and values, a divisor of ``heads``.
        scale: of the scores.
        before, after: how many keys before its own a query sees, and after it.
        dropout: probability of dropping a weight, in [0, 1).
        seed: of dropout.
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
    """Whether the kernels are there for sequences of these lengths and heads of so many features, and faster than
    other ways."""
    longest = max(call.queries.longest, call.keys.longest)
    return longest <= PACKED_LENGTH and 0 < features <= PACKED_FEATURES and microkernel_is_faster()
