"""Products of a few rows with many keys or values, as in a decoder's step: each element is read once, in order.

BLAS packs both matrices before it multiplies, which takes longer than the multiplication if one of them has few rows.
Scores are dot products of contiguous rows, a few keys at a time; mixtures are sums of values, in tiles of the
microkernel.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from regard.kernels.cpu.bodies.microkernel import tile
from regard.kernels.cpu.bodies.parts import inlined
from regard.kernels.cpu.bodies.vectors import prefetch, splat
from regard.kernels.cpu.bodies.wide_product import Matrix, Size, columns_from, over_rows, rows_from
from regard.kernels.cpu.sizes import LANES

KEYS = 4
"""Keys of a tile of scores."""

TILES = (4, 2, 1)
"""Rows of the tiles."""

PREFETCHED_ELEMENTS = 2048
"""Elements that are prefetched, since memory is slower than these products: a sixth of a first-level cache."""


def dot_tile(rows: int, keys: int) -> Any:
    """Returns an intrinsic ``(a, b, c, depth, factor, prefetch_rows) -> None``.

    ``c[i, j] = factor · Σ_d a[i, d] b[j, d]`` for ``rows`` rows and ``keys`` keys of float32, d below ``depth``. The
    keys ``prefetch_rows`` rows further on are prefetched.
    """

    @intrinsic
    def run(typing, a, b, c, depth, factor, prefetch_rows):  # type: ignore[no-untyped-def]
        return types.void(a, b, c, types.int64, types.float32, types.int64), _generator(rows, keys)

    return run


def _generator(rows: int, keys: int) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        left, right, result, depth, factor, prefetch_rows = arguments
        int64, float32, bit = ir.IntType(64), ir.FloatType(), ir.IntType(1)
        vector, int32 = ir.VectorType(float32, LANES), ir.IntType(32)
        zero = ir.Constant(vector, [0.0] * LANES)

        def function(name: str, return_type: Any, *argument_types: Any) -> Any:
            return cgutils.get_or_insert_function(builder.module, ir.FunctionType(return_type, argument_types), name)

        fma = function(f"llvm.fma.v{LANES}f32", vector, vector, vector, vector)
        add = function(f"llvm.vector.reduce.fadd.v{LANES}f32", float32, float32, vector)
        bits = ir.VectorType(bit, LANES)
        masked_load = function(f"llvm.masked.load.v{LANES}f32.p0", vector, vector.as_pointer(), int32, bits, vector)

        def starts(matrix: Any, count: int) -> list[Any]:
            address, row = (builder.extract_value(matrix, index) for index in range(2))
            step = builder.mul(row, ir.Constant(int64, 4))
            return [builder.add(address, builder.mul(step, ir.Constant(int64, i))) for i in range(count)]

        def add_products(load: Any, totals: list[Any]) -> list[Any]:
            """Adds the products of one vector of features to the sums."""
            query_vectors, key_vectors = [load(start) for start in row_starts], [load(start) for start in key_starts]
            pairs = [(query, key) for query in query_vectors for key in key_vectors]
            return [builder.call(fma, [*pair, total]) for pair, total in zip(pairs, totals, strict=True)]

        def phis(*sources: tuple[list[Any], Any]) -> list[Any]:
            new_phis = [builder.phi(vector) for _ in range(rows * keys)]
            for values, block in sources:
                for phi, value in zip(new_phis, values, strict=True):
                    phi.add_incoming(value, block)
            return new_phis

        row_starts, key_starts, result_starts = starts(left, rows), starts(right, keys), starts(result, rows)
        prefetch_offset = builder.mul(
            builder.mul(builder.extract_value(right, 1), ir.Constant(int64, 4)), prefetch_rows
        )
        remainder = builder.and_(depth, ir.Constant(int64, LANES - 1))
        size = builder.mul(builder.sub(depth, remainder), ir.Constant(int64, 4))
        zeros = [zero] * (rows * keys)
        before, loop, after, last, done = (
            builder.block, *(builder.append_basic_block(name) for name in ("sum", "summed", "last", "done")),
        )  # fmt: skip
        builder.cbranch(builder.icmp_signed(">", size, ir.Constant(int64, 0)), loop, after)

        builder.position_at_end(loop)
        offset = builder.phi(int64)
        sums = phis((zeros, before))
        for start in key_starts:
            prefetch(builder, builder.add(builder.add(start, offset), prefetch_offset))
        new = add_products(
            lambda start: builder.load(builder.inttoptr(builder.add(start, offset), vector.as_pointer()), align=4), sums
        )
        following = builder.add(offset, ir.Constant(int64, 4 * LANES))
        offset.add_incoming(ir.Constant(int64, 0), before)
        offset.add_incoming(following, loop)
        for phi, value in zip(sums, new, strict=True):
            phi.add_incoming(value, loop)
        builder.cbranch(builder.icmp_signed("<", following, size), loop, after)

        builder.position_at_end(after)
        sums = phis((zeros, before), (new, loop))
        builder.cbranch(builder.icmp_signed(">", remainder, ir.Constant(int64, 0)), last, done)

        builder.position_at_end(last)
        lanes = ir.VectorType(int64, LANES)
        active = builder.icmp_signed("<", ir.Constant(lanes, list(range(LANES))), splat(builder, remainder, LANES))
        new = add_products(
            lambda start: builder.call(
                masked_load,
                [
                    builder.inttoptr(builder.add(start, size), vector.as_pointer()),
                    ir.Constant(int32, 4), active, zero,
                ],
            ),
            sums,
        )  # fmt: skip
        builder.branch(done)

        builder.position_at_end(done)
        sums = phis((sums, after), (new, last))
        for index, total in enumerate(sums):
            summed = builder.call(add, [ir.Constant(float32, -0.0), total], fastmath=("reassoc",))
            address = builder.add(result_starts[index // keys], ir.Constant(int64, 4 * (index % keys)))
            builder.store(builder.fmul(summed, factor), builder.inttoptr(address, float32.as_pointer()), align=4)
        return context.get_dummy_value()

    return generate


_few_keys, _one_key = (over_rows(lambda rows, keys=keys: dot_tile(rows, keys), TILES) for keys in (KEYS, 1))


@inlined
def scores_of_few_rows(size: Size, factor: Any, a: Matrix, b: Matrix, c: Matrix) -> None:
    """Computes ``c = factor · a bᵀ`` in float32, for a few rows of ``a``; the features of ``a`` and ``b`` are
    contiguous."""
    prefetch_rows, j = PREFETCHED_ELEMENTS // size.depth, 0
    while j + KEYS <= size.columns:
        _few_keys(size.rows, a, rows_from(b, j), columns_from(c, j), size.depth, factor, prefetch_rows)
        j += KEYS
    while j < size.columns:
        _one_key(size.rows, a, rows_from(b, j), columns_from(c, j), size.depth, factor, prefetch_rows)
        j += 1


_four_vectors, _one_vector = (
    over_rows(lambda rows, vectors=vectors: tile(rows, vectors, PREFETCHED_ELEMENTS // (vectors * LANES)), TILES)
    for vectors in (4, 1)
)


@inlined
def mixtures_of_few_rows(size: Size, factor: Any, a: Matrix, b: Matrix, c: Matrix, beta: int) -> None:
    """Computes ``c = factor · a b + beta · c`` in float32, for a few rows of ``a``.

    Rows of ``b`` and ``c`` are contiguous, and a multiple of LANES long. Values are read once for all rows of a tile:
    the sum is not split into passes.
    """
    j = 0
    while j + 4 * LANES <= size.columns:
        _four_vectors(size.rows, a, columns_from(b, j), columns_from(c, j), size.depth, factor, beta)
        j += 4 * LANES
    while j < size.columns:
        _one_vector(size.rows, a, columns_from(b, j), columns_from(c, j), size.depth, factor, beta)
        j += LANES
