"""Sizes that Python and compiled code share: lengths rounded up to whole tiles, vectors and pairs."""

LANES = 16
"""Transposed keys are padded to a multiple of so many."""

CACHE_LINE = 64
"""Bytes of a cache line; aligned vectors are read and written fastest."""

REGISTER = 64
"""Bytes of the widest vector register."""

TILE = 128
"""Keys of a tile; each tile has one bound on its exponents."""

PACKED_LENGTH = 64
"""Maximum rows of a sequence in attention on packed rows."""

PACKED_FEATURES = 128
"""Maximum features of a head in attention on packed rows."""


def ceil_div(number: int, size: int) -> int:
    """Returns ``number / size``, rounded up."""
    return -(-number // size)


def padded_length(keys: int) -> int:
    """Returns the length of a row of transposed keys: the number of keys rounded up to whole vectors."""
    return -(-keys // LANES) * LANES


def even_length(dim: int) -> int:
    """Returns the number of features, rounded up to whole pairs."""
    return dim + dim % 2
