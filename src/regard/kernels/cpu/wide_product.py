"""Matrix products of any size from tiles of registers, and from plain loops."""

from regard.kernels.cpu.compiled import inlined
from regard.kernels.cpu.intrinsics import array_at, is_single, size_of
from regard.kernels.cpu.microkernel import LANES, tile

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.

DEPTH = 128
"""Terms that are added before the next rows are taken: so many rows of ``b``, 64 wide, stay in a first cache."""


@inlined
def plain_product(start, rows, columns, depth, factor, a, a_row, a_step, b, b_row, keep, c, c_row):
    """The product in loops, from column ``start`` on."""
    size = size_of(factor)
    left = array_at(a, (rows - 1) * a_row + (depth - 1) * a_step + 1 if depth > 0 else 0, factor)
    for i in range(rows):
        result = array_at(c + i * c_row * size, columns, factor)[start:]
        for j in range(result.size):
            result[j] = result[j] if keep != 0 else type(factor)(0)
        for k in range(depth):
            number = factor * left[i * a_row + k * a_step]
            right = array_at(b + k * b_row * size, columns, factor)[start:]
            for j in range(result.size):
                result[j] += number * right[j]


def _columns_of(vectors):  # type: ignore[no-untyped-def]
    """The product for so many vectors of columns and any number of rows."""
    six, four, two, one = (tile(rows, vectors) for rows in (6, 4, 2, 1))

    @inlined
    def columns(rows, a, a_row, a_step, b, b_row, c, c_row, depth, factor, keep):
        i = 0
        while i + 6 <= rows:
            six(a + i * a_row * 4, a_row, a_step, b, b_row, c + i * c_row * 4, c_row, depth, factor, keep)
            i += 6
        if i + 4 <= rows:
            four(a + i * a_row * 4, a_row, a_step, b, b_row, c + i * c_row * 4, c_row, depth, factor, keep)
            i += 4
        if i + 2 <= rows:
            two(a + i * a_row * 4, a_row, a_step, b, b_row, c + i * c_row * 4, c_row, depth, factor, keep)
            i += 2
        if i < rows:
            one(a + i * a_row * 4, a_row, a_step, b, b_row, c + i * c_row * 4, c_row, depth, factor, keep)

    return columns


_four_vectors, _two_vectors, _one_vector = (_columns_of(vectors) for vectors in (4, 2, 1))


@inlined
def wide_product(rows, columns, depth, factor, a, a_row, a_step, b, b_row, keep, c, c_row):
    """``c = factor · a b + keep · c`` with ``a[i, k]`` at ``i · a_row + k · a_step``; float32 in vectors."""
    if not is_single(factor):
        return
    whole = columns - columns % LANES
    for k in range(0, max(depth, 1), DEPTH):
        terms = min(DEPTH, depth - k)
        kept = keep if k == 0 else 1
        left, right = a + k * a_step * 4, b + k * b_row * 4
        j = 0
        while j + 4 * LANES <= whole:
            _four_vectors(rows, left, a_row, a_step, right + j * 4, b_row, c + j * 4, c_row, terms, factor, kept)
            j += 4 * LANES
        while j + 2 * LANES <= whole:
            _two_vectors(rows, left, a_row, a_step, right + j * 4, b_row, c + j * 4, c_row, terms, factor, kept)
            j += 2 * LANES
        while j < whole:
            _one_vector(rows, left, a_row, a_step, right + j * 4, b_row, c + j * 4, c_row, terms, factor, kept)
            j += LANES
    if whole < columns:
        plain_product(whole, rows, columns, depth, factor, a, a_row, a_step, b, b_row, keep, c, c_row)
