"""The memory of a thread that computes linear attention, and operations on its rows, which are padded with zeros."""

from typing import Any, NamedTuple

import numpy as np

from regard.kernels.cpu import linear_layout as at
from regard.kernels.cpu.bodies.intrinsics import array_at
from regard.kernels.cpu.bodies.parts import inlined
from regard.kernels.cpu.bodies.products import Routine, product
from regard.kernels.cpu.bodies.vectors import broadcast, load, padded_zeros, store
from regard.kernels.cpu.bodies.wide_product import Matrix, Size
from regard.kernels.cpu.kernel_arguments import WIDE
from regard.kernels.cpu.linear_layout import BLOCK, CHUNK
from regard.kernels.cpu.sizes import LANES, ceil_div, padded_length


class MatrixGroup(NamedTuple):
    """Several matrices of one size, and the address of the first one."""

    address: int
    rows: int
    columns: int


class HeadMemory(NamedTuple):
    """The sizes of a head, and the addresses of a thread's matrices.

    Attributes:
        dim, value_dim: features of a key, and of a value.
        features, columns: the same, padded.
        gates: log-decays of a token: 0, 1 or ``dim``.
        is_delta: 1 for the delta rule, else 0.
        of_features, of_columns, of_pairs, of_states: the matrices ``[chunk, features]``, ``[chunk, columns]``,
            ``[chunk, chunk]`` and ``[features, columns]``.
        vectors: the first vector.
        vector: elements of a vector.
    """

    dim: int
    value_dim: int
    features: int
    columns: int
    gates: int
    is_delta: int
    of_features: MatrixGroup
    of_columns: MatrixGroup
    of_pairs: MatrixGroup
    of_states: MatrixGroup
    vectors: int
    vector: int


@inlined
def memory_of(p: Any, thread: int) -> HeadMemory:
    """Returns the memory of a thread."""
    features, columns = padded_length(p.dim), padded_length(p.value_dim)
    of_features = p.scratch + thread * p.scratch_bytes
    of_columns = of_features + at.FEATURE_MATRICES * CHUNK * features * 4
    of_pairs = of_columns + at.COLUMN_MATRICES * CHUNK * columns * 4
    of_states = of_pairs + at.PAIR_MATRICES * CHUNK * CHUNK * 4
    vectors = of_states + at.STATE_MATRICES * features * columns * 4
    is_delta = 1 if p.beta.address != 0 else 0
    vector = max(CHUNK, max(features, columns))
    return HeadMemory(
        p.dim, p.value_dim, features, columns, p.gates, is_delta,
        MatrixGroup(of_features, CHUNK, features), MatrixGroup(of_columns, CHUNK, columns),
        MatrixGroup(of_pairs, CHUNK, CHUNK), MatrixGroup(of_states, features, columns), vectors, vector,
    )  # fmt: skip


@inlined
def matrix(matrices: MatrixGroup, index: int) -> Matrix:
    """Returns one of several matrices."""
    return Matrix(matrices.address + index * matrices.rows * matrices.columns * 4, matrices.columns, 1)


@inlined
def transposed(matrices: MatrixGroup, index: int) -> Matrix:
    """Returns a transposed matrix in the place of one of several."""
    return Matrix(matrices.address + index * matrices.rows * matrices.columns * 4, matrices.rows, 1)


@inlined
def features_at(m: HeadMemory, index: int) -> int:
    """Returns the address of a matrix of tokens × features."""
    return matrix(m.of_features, index).address


@inlined
def vector_at(m: HeadMemory, index: int) -> int:
    """Returns the address of a vector."""
    return m.vectors + index * m.vector * 4


@inlined
def multiply(p: Any, size: Size, factor: float, a: Matrix, b: Matrix, c: Matrix, beta: int) -> None:
    """Computes ``c = factor · a b + beta · c``."""
    product(Routine(WIDE, 0, p.multiply), size, np.float32(factor), a, b, c, beta)


@inlined
def read_rows(source: Matrix, rows: int, width: int, target: Matrix, zero: Any) -> None:
    """Copies rows and pads them with zeros; rows up to the next whole block become 0."""
    copy_rows(source, rows, width, target, zero)
    for i in range(ceil_div(rows, BLOCK) * BLOCK):
        row = array_at(target.address + i * target.row * 4, target.row, zero)
        for j in range(width if i < rows else 0, target.row):
            row[j] = zero


@inlined
def copy_rows(source: Matrix, rows: int, width: int, target: Matrix, zero: Any) -> None:
    """Copies rows without their padding."""
    zeros, whole = padded_zeros(zero), width - width % LANES
    for i in range(rows):
        start, copied = source.address + i * source.row * 4, target.address + i * target.row * 4
        for j in range(0, whole * 4, LANES * 4):
            store(load(start + j, zeros), copied + j)
        rest = array_at(copied, width, zero)
        for j in range(whole, width):
            rest[j] = array_at(start, width, zero)[j]


@inlined
def clear(address: int, count: int, zero: Any) -> None:
    """Sets numbers to 0."""
    numbers = array_at(address, count, zero)
    for j in range(count):
        numbers[j] = zero


@inlined
def multiply_rows(a: int, b: int, c: int, count: int, zero: Any) -> None:
    """Computes ``c = a · b``, element by element; ``count`` is a multiple of LANES."""
    zeros = padded_zeros(zero)
    for j in range(0, count * 4, LANES * 4):
        store(load(a + j, zeros) * load(b + j, zeros), c + j)


@inlined
def scale_row(source: int, factor: Any, target: int, count: int, zero: Any) -> None:
    """Computes ``target = factor · source``; ``count`` is a multiple of LANES."""
    zeros = padded_zeros(zero)
    factors = broadcast(factor, zeros)
    for j in range(0, count * 4, LANES * 4):
        store(factors * load(source + j, zeros), target + j)


@inlined
def scale_rows(source: Matrix, factors: Any, target: Matrix, rows: int, count: int, zero: Any) -> None:
    """Computes rows of the target: those of the source, each times its factor."""
    for i in range(rows):
        scale_row(source.address + i * source.row * 4, factors[i], target.address + i * target.row * 4, count, zero)
