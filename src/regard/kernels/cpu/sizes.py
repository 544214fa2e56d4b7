"""Sizes that Python and compiled code calculate alike: numbers rounded up to whole tiles, vectors and pairs."""

LANES = 16
"""Keys are padded to a multiple of so many."""

CACHE_LINE = 64
"""Bytes at whose multiples vectors are read and written fastest."""

REGISTER = 64
"""Bytes of the largest vector register."""

TILE = 128
"""Keys whose largest exponent is known together."""

PACKED_LENGTH = 64
"""Rows of a sequence that attention of packed rows takes at most."""

PACKED_FEATURES = 128
"""Features of a head likewise."""


def ceil_div(number: int, size: int) -> int:
    """How many parts of a size hold a number of things: number / size, rounded up."""
    return -(-number // size)


def padded_length(keys: int) -> int:
    """Length of a row of transposed keys: rounded up to whole vectors."""
    return -(-keys // LANES) * LANES


def even_length(dim: int) -> int:
    """Features with the one that makes pairs of them."""
    return dim + dim % 2
