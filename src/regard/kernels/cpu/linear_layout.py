"""The memory of a thread that computes linear attention: its matrices and vectors by number, and its size."""

from regard.kernels.cpu.sizes import LANES, ceil_div, padded_length

CHUNK = 64
"""Tokens of a chunk. Products inside of a chunk take time proportional to it; the state is updated once a chunk."""

BLOCK = LANES
"""Tokens of a block of a chunk: products of pairs skip blocks above the diagonal."""

BLOCKS = CHUNK // BLOCK
assert CHUNK == BLOCKS * BLOCK, "a chunk is whole blocks"

# Queries read a state, and with the delta rule keys recall from it: the two sides of one calculation, 0 and 1. What a
# side has, the other one has in the next matrix.

# Matrices of tokens × features: inputs, the same decayed since the chunk began or until it ends, and with a decay for
# each feature, decays of tokens, those since the block began and until it ends, and inputs decayed by these. Then the
# gradients of queries, and of keys as rows and as columns of pairs, and a product.
QUERY, KEY, ENTERED_QUERY, ENTERED_KEY, LEAVING_KEY = range(5)
TOKEN_DECAY, SINCE_BLOCK, UNTIL_BLOCK, BLOCK_QUERY, BLOCK_KEY, LATER_KEY, TRANSPOSED_KEY = range(5, 12)
GRAD_QUERY, GRAD_ROW, GRAD_COLUMN, PRODUCT, FEATURE_MATRICES = range(12, 17)

# Matrices of tokens × columns; residuals and gradients of outputs take the place of values and outputs.
VALUE, UPDATE, OUTPUT, GRAD_UPDATE, GRAD_VALUE, TRANSPOSED_UPDATE, COLUMN_MATRICES = range(7)
RESIDUAL, GRAD_OUTPUT = VALUE, OUTPUT

# Matrices of tokens × tokens: products of queries and of keys with keys, decays, and gradients of the products.
READS, RECALLS, DECAYS, GRAD_READS, GRAD_RECALLS, PAIR_MATRICES = range(6)

# Matrices of features × columns.
STATE, GRAD_STATE, TRANSPOSED_STATE, STATE_MATRICES = range(4)

# Vectors of a thread: positions; for each token its strength, the two parts of its sum, and what is left since the
# chunk began and until it ends; for each feature what is left of a state. Then, for each feature, a vector for each
# block of what is left before it and after it, and sums in float64 before each block and after all, two vectors each.
# Then partial sums, the gradient of each token's product with itself, and for each feature that of the sum of a chunk's
# log-decays.
POSITIONS, BETA, HIGH, LOW, SINCE, UNTIL, KEPT_SHARE, BEFORE_BLOCK = range(8)
AFTER_BLOCK = BEFORE_BLOCK + BLOCKS
SUMS = AFTER_BLOCK + BLOCKS
PARTIAL = SUMS + 2 * (BLOCKS + 1)
OWN_GRADIENT = PARTIAL + ceil_div(BLOCK * LANES, CHUNK)
SUM_GRADIENT = OWN_GRADIENT + 1
VECTORS = SUM_GRADIENT + 1


def vector_length(dim: int, value_dim: int) -> int:
    """Returns the elements of a vector of a thread's memory."""
    return max(CHUNK, padded_length(dim), padded_length(value_dim))


def scratch_elements(dim: int, value_dim: int) -> int:
    """Returns the float32 elements of a thread's memory."""
    features, columns = padded_length(dim), padded_length(value_dim)
    return (
        CHUNK * (FEATURE_MATRICES * features + COLUMN_MATRICES * columns + PAIR_MATRICES * CHUNK)
        + STATE_MATRICES * features * columns
        + VECTORS * vector_length(dim, value_dim)
    )
