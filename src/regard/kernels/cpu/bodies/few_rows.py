"""Products of a few rows with many keys or values, as a decoder's step has them: each number is read once, in order.

BLAS packs both matrices before it multiplies, which takes longer than multiplying where one of them has a few rows.
Scores are dot products of rows that lie side by side in memory, a few keys at a time; mixtures are sums of values, in
tiles of the microkernel.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from regard.kernels.cpu.bodies.microkernel import LANES, prefetch, tile
from regard.kernels.cpu.bodies.parts import inlined
from regard.kernels.cpu.bodies.wide_product import Matrix, Size, columns_from, over_rows, rows_from

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.

KEYS = 4
"""Keys that are multiplied together."""

TILES = (4, 2, 1)
"""Rows of the tiles."""

AHEAD = 2048
"""Numbers that are asked for before they are needed: memory is slower than these products. A sixth of a first cache."""


def dot_tile(rows: int, keys: int) -> Any:
    """An intrinsic ``(a, b, c, depth, factor, ahead) -> None``.

    ``c[i, j] = factor · Σ_d a[i, d] b[j, d]`` for ``rows`` rows and ``keys`` keys of float32, d below ``depth``. The
    keys that stand ``ahead`` rows further are asked for.
    """

    @intrinsic
    def run(typing, a, b, c, depth, factor, ahead):  # type: ignore[no-untyped-def]
        return types.void(a, b, c, types.int64, types.float32, types.int64), _generator(rows, keys)

    return run


def _generator(rows: int, keys: int) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        left, right, result, depth, factor, ahead = arguments
        word, real, bit = ir.IntType(64), ir.FloatType(), ir.IntType(1)
        vector, number = ir.VectorType(real, LANES), ir.IntType(32)
        zero = ir.Constant(vector, [0.0] * LANES)

        def function(name: str, returned: Any, *taken: Any) -> Any:
            return cgutils.get_or_insert_function(builder.module, ir.FunctionType(returned, taken), name)

        fma = function(f"llvm.fma.v{LANES}f32", vector, vector, vector, vector)
        add = function(f"llvm.vector.reduce.fadd.v{LANES}f32", real, real, vector)
        some = ir.VectorType(bit, LANES)
        load_some = function(f"llvm.masked.load.v{LANES}f32.p0", vector, vector.as_pointer(), number, some, vector)

        def starts(matrix: Any, count: int) -> list[Any]:
            address, row = (builder.extract_value(matrix, index) for index in range(2))
            step = builder.mul(row, ir.Constant(word, 4))
            return [builder.add(address, builder.mul(step, ir.Constant(word, i))) for i in range(count)]

        def added(load: Any, held: list[Any]) -> list[Any]:
            """The sums with the products of one vector of features."""
            queries, others = [load(start) for start in row_starts], [load(start) for start in key_starts]
            pairs = [(query, key) for query in queries for key in others]
            return [builder.call(fma, [*pair, total]) for pair, total in zip(pairs, held, strict=True)]

        def phis(*sources: tuple[list[Any], Any]) -> list[Any]:
            made = [builder.phi(vector) for _ in range(rows * keys)]
            for values, block in sources:
                for phi, value in zip(made, values, strict=True):
                    phi.add_incoming(value, block)
            return made

        row_starts, key_starts, result_starts = starts(left, rows), starts(right, keys), starts(result, rows)
        far = builder.mul(builder.mul(builder.extract_value(right, 1), ir.Constant(word, 4)), ahead)
        rest = builder.and_(depth, ir.Constant(word, LANES - 1))
        size = builder.mul(builder.sub(depth, rest), ir.Constant(word, 4))
        zeros = [zero] * (rows * keys)
        before, loop, after, last, done = (
            builder.block, *(builder.append_basic_block(name) for name in ("sum", "summed", "last", "done")),
        )  # fmt: skip
        builder.cbranch(builder.icmp_signed(">", size, ir.Constant(word, 0)), loop, after)

        builder.position_at_end(loop)
        offset = builder.phi(word)
        sums = phis((zeros, before))
        for start in key_starts:
            prefetch(builder, builder.add(builder.add(start, offset), far))
        new = added(
            lambda start: builder.load(builder.inttoptr(builder.add(start, offset), vector.as_pointer()), align=4), sums
        )
        following = builder.add(offset, ir.Constant(word, 4 * LANES))
        offset.add_incoming(ir.Constant(word, 0), before)
        offset.add_incoming(following, loop)
        for phi, value in zip(sums, new, strict=True):
            phi.add_incoming(value, loop)
        builder.cbranch(builder.icmp_signed("<", following, size), loop, after)

        builder.position_at_end(after)
        sums = phis((zeros, before), (new, loop))
        builder.cbranch(builder.icmp_signed(">", rest, ir.Constant(word, 0)), last, done)

        builder.position_at_end(last)
        lanes = ir.VectorType(word, LANES)
        one = builder.insert_element(ir.Constant(lanes, ir.Undefined), rest, ir.Constant(number, 0))
        spread = builder.shuffle_vector(
            one, ir.Constant(lanes, ir.Undefined), ir.Constant(ir.VectorType(number, LANES), None)
        )
        there = builder.icmp_signed("<", ir.Constant(lanes, list(range(LANES))), spread)
        new = added(
            lambda start: builder.call(
                load_some,
                [
                    builder.inttoptr(builder.add(start, size), vector.as_pointer()),
                    ir.Constant(number, 4), there, zero,
                ],
            ),
            sums,
        )  # fmt: skip
        builder.branch(done)

        builder.position_at_end(done)
        sums = phis((sums, after), (new, last))
        for place, total in enumerate(sums):
            summed = builder.call(add, [ir.Constant(real, -0.0), total], fastmath=("reassoc",))
            address = builder.add(result_starts[place // keys], ir.Constant(word, 4 * (place % keys)))
            builder.store(builder.fmul(summed, factor), builder.inttoptr(address, real.as_pointer()), align=4)
        return context.get_dummy_value()

    return generate


_few_keys, _one_key = (over_rows(lambda rows, keys=keys: dot_tile(rows, keys), TILES) for keys in (KEYS, 1))


@inlined
def scores_of_few_rows(size: Size, factor: Any, a: Matrix, b: Matrix, c: Matrix) -> None:
    """``c = factor · a bᵀ`` in float32, for a few rows of ``a``; the features of ``a`` and ``b`` lie side by side."""
    ahead, j = AHEAD // size.depth, 0
    while j + KEYS <= size.columns:
        _few_keys(size.rows, a, rows_from(b, j), columns_from(c, j), size.depth, factor, ahead)
        j += KEYS
    while j < size.columns:
        _one_key(size.rows, a, rows_from(b, j), columns_from(c, j), size.depth, factor, ahead)
        j += 1


_four_vectors, _one_vector = (
    over_rows(lambda rows, vectors=vectors: tile(rows, vectors, AHEAD // (vectors * LANES)), TILES)
    for vectors in (4, 1)
)


@inlined
def mixtures_of_few_rows(size: Size, factor: Any, a: Matrix, b: Matrix, c: Matrix, keep: int) -> None:
    """``c = factor · a b + keep · c`` in float32, for a few rows of ``a``.

    Columns of ``b`` and ``c`` lie side by side, and are a multiple of LANES.
    Values are read once for all rows of a tile: there is no part of the sum after which they are read again.
    """
    j = 0
    while j + 4 * LANES <= size.columns:
        _four_vectors(size.rows, a, columns_from(b, j), columns_from(c, j), size.depth, factor, keep)
        j += 4 * LANES
    while j < size.columns:
        _one_vector(size.rows, a, columns_from(b, j), columns_from(c, j), size.depth, factor, keep)
        j += LANES
