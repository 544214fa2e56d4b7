"""Products of matrices rounded to bfloat16, from panels of pairs: see `stored_numbers`."""

from typing import Any

import numpy as np

from regard.kernels.cpu.bodies.intrinsics import array_at, stack_memory
from regard.kernels.cpu.bodies.microkernel import tile
from regard.kernels.cpu.bodies.parts import inlined
from regard.kernels.cpu.bodies.stored_numbers import PAIRS, multiplies_pairs, store_pairs, store_rounded
from regard.kernels.cpu.bodies.wide_product import (
    DEPTH,
    Matrix,
    Size,
    columns_from,
    over_rows,
    plain_product,
    rows_from,
)
from regard.kernels.cpu.sizes import LANES, ceil_div

_SIDE = DEPTH // 2
"""Rows, columns and pairs of the largest panels: 16 KiB, of which two fit into a first-level cache."""

_PANEL_BYTES, _VECTOR_BYTES = 4 * _SIDE * _SIDE, 4 * LANES

_ROWS = (6, 4, 2, 1) if multiplies_pairs() else (1,)
"""Rows of the tiles; other processors run them in tests only, for which they are compiled sooner."""

_four_vectors, _one_vector = (
    over_rows(lambda rows, vectors=vectors: tile(rows, vectors, stored=PAIRS), _ROWS) for vectors in (4, 1)
)


@inlined
def _pack_columns(source: Matrix, terms: int, columns: int, target: Matrix, exact: Any) -> None:
    """Packs pairs of rows, whose columns are contiguous: as the pairs ``target [terms / 2, columns]``."""
    for k in range(0, terms, 2):
        first = source.address + k * source.row * 4
        second = first + source.row * 4 if k + 1 < terms else 0
        for j in range(0, columns, LANES):
            later = second + 4 * j if second != 0 else 0
            pairs = target.address + (k // 2 * target.row + j) * 4
            # The flag must be a literal.
            if exact:
                store_pairs(first + 4 * j, later, pairs, 1)
            else:
                store_pairs(first + 4 * j, later, pairs, 0)


@inlined
def _pack_rows(source: Matrix, rows: int, terms: int, target: Matrix) -> None:
    """Packs pairs of columns, whose rows are contiguous: as the pairs ``target [rows, terms / 2]``."""
    whole, padded = terms - terms % LANES, terms + terms % 2
    memory = stack_memory(_VECTOR_BYTES)
    last = array_at(memory, LANES, np.float32(0))
    for i in range(rows):
        row, pairs = source.address + i * source.row * 4, target.address + i * target.row * 4
        for k in range(0, whole, LANES):
            store_rounded(row + 4 * k, pairs + 2 * k)
        if whole < padded:
            numbers = array_at(row + 4 * whole, terms - whole, np.float32(0))
            for k in range(LANES):
                last[k] = numbers[k] if k < numbers.size else np.float32(0)
            store_rounded(memory, pairs + 2 * whole)


@inlined
def paired_product(size: Size, factor: Any, a: Matrix, b: Matrix, c: Matrix, beta: int) -> None:
    """Computes ``c = factor · a b + beta · c`` with ``a`` rounded to bfloat16; ``b`` holds numbers of bfloat16 already.

    All matrices are float32 in memory. Rows of ``b`` and ``c`` are contiguous, and rows or columns of ``a``. Columns of
    ``a`` can be read up to a multiple of LANES.
    """
    left, right = stack_memory(_PANEL_BYTES), stack_memory(_PANEL_BYTES)
    vector_end, is_transposed = size.columns - size.columns % LANES, a.column != 1
    rows = Matrix(left, 1, _SIDE) if is_transposed else Matrix(left, _SIDE, 1)
    for k in range(0, max(size.depth, 1), DEPTH):
        terms, part_beta = min(DEPTH, size.depth - k), beta if k == 0 else 1
        pairs = ceil_div(terms, 2)
        for first in range(0, vector_end, _SIDE):
            columns, packed = min(_SIDE, vector_end - first), Matrix(right, _SIDE, 1)
            _pack_columns(columns_from(rows_from(b, k), first), terms, columns, packed, True)
            for i in range(0, size.rows, _SIDE):
                count = min(_SIDE, size.rows - i)
                # A single panel of rows serves all columns.
                if first == 0 or size.rows > _SIDE:
                    part = columns_from(rows_from(a, i), k)
                    if is_transposed:
                        source, target = Matrix(part.address, a.column, 1), Matrix(left, _SIDE, 1)
                        _pack_columns(source, terms, ceil_div(count, LANES) * LANES, target, False)
                    else:
                        _pack_rows(part, count, terms, rows)
                result, j = columns_from(rows_from(c, i), first), 0
                while j + 4 * LANES <= columns:
                    _four_vectors(
                        count, rows, columns_from(packed, j), columns_from(result, j), pairs, factor, part_beta
                    )
                    j += 4 * LANES
                while j < columns:
                    _one_vector(count, rows, columns_from(packed, j), columns_from(result, j), pairs, factor, part_beta)
                    j += LANES
    if vector_end < size.columns:
        plain_product(vector_end, size, factor, a, b, c, beta)
