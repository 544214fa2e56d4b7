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
from regard.kernels.cpu.bodies.stored_numbers import STORED_BYTES, load_stored
from regard.kernels.cpu.bodies.vectors import has_many_registers, prefetch, splat
from regard.kernels.cpu.bodies.wide_product import DEPTH, Matrix, Size, columns_from, over_rows
from regard.kernels.cpu.sizes import LANES

KEYS, VECTORS, TILES = (4, 4, (4, 2, 1)) if has_many_registers() else (2, 2, (2, 1))
"""Keys of a tile of scores, vectors of a tile of mixtures, and rows of both. Their sums fit into the registers."""

PREFETCHED_BYTES = 8192
"""Bytes that are prefetched, since memory is slower than these products: a sixth of a first-level cache."""


def dot_tile(rows: int, keys: int, stored: str) -> Any:
    """Returns an intrinsic ``(a, b, c, depth, factor, prefetch_rows) -> None``.

    ``c[i, j] = factor · Σ_d a[i, d] b[j, d]`` for ``rows`` rows and ``keys`` keys of float32, d below ``depth``. The
    keys ``prefetch_rows`` rows further on are prefetched. If they are ``stored`` in half precision, the depth is a
    multiple of LANES.
    """

    @intrinsic
    def run(typing, a, b, c, depth, factor, prefetch_rows):  # type: ignore[no-untyped-def]
        return types.void(a, b, c, types.int64, types.float32, types.int64), _generator(rows, keys, stored)

    return run


def _generator(rows: int, keys: int, stored: str) -> Any:
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

        def starts(matrix: Any, count: int, size: int = 4) -> list[Any]:
            address, row = (builder.extract_value(matrix, index) for index in range(2))
            step = builder.mul(row, ir.Constant(int64, size))
            return [builder.add(address, builder.mul(step, ir.Constant(int64, i))) for i in range(count)]

        def add_products(load_query: Any, load_key: Any, totals: list[Any]) -> list[Any]:
            """Adds the products of one vector of features to the sums."""
            query_vectors, key_vectors = list(map(load_query, row_starts)), list(map(load_key, key_starts))
            pairs = [(query, key) for query in query_vectors for key in key_vectors]
            return [builder.call(fma, [*pair, total]) for pair, total in zip(pairs, totals, strict=True)]

        def phis(*sources: tuple[list[Any], Any]) -> list[Any]:
            new_phis = [builder.phi(vector) for _ in range(rows * keys)]
            for values, block in sources:
                for phi, value in zip(new_phis, values, strict=True):
                    phi.add_incoming(value, block)
            return new_phis

        key_size = STORED_BYTES[stored]
        row_starts, key_starts, result_starts = starts(left, rows), starts(right, keys, key_size), starts(result, rows)
        prefetch_offset = builder.mul(
            builder.mul(builder.extract_value(right, 1), ir.Constant(int64, key_size)), prefetch_rows
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
        key_offset = builder.udiv(offset, ir.Constant(int64, 4 // key_size))
        for start in key_starts:
            prefetch(builder, builder.add(builder.add(start, key_offset), prefetch_offset))
        new = add_products(
            lambda start: load_stored(builder, builder.add(start, offset), "float32"),
            lambda start: load_stored(builder, builder.add(start, key_offset), stored),
            sums,
        )
        following = builder.add(offset, ir.Constant(int64, 4 * LANES))
        offset.add_incoming(ir.Constant(int64, 0), before)
        offset.add_incoming(following, loop)
        for phi, value in zip(sums, new, strict=True):
            phi.add_incoming(value, loop)
        builder.cbranch(builder.icmp_signed("<", following, size), loop, after)

        builder.position_at_end(after)
        sums = phis((zeros, before), (new, loop))
        if stored == "float32":
            builder.cbranch(builder.icmp_signed(">", remainder, ir.Constant(int64, 0)), last, done)
        else:
            builder.branch(done)

        builder.position_at_end(last)
        lanes = ir.VectorType(int64, LANES)
        active = builder.icmp_signed("<", ir.Constant(lanes, list(range(LANES))), splat(builder, remainder, LANES))

        def load_first(start: Any) -> Any:
            pointer = builder.inttoptr(builder.add(start, size), vector.as_pointer())
            return builder.call(masked_load, [pointer, ir.Constant(int32, 4), active, zero])

        new = add_products(load_first, load_first, sums)
        builder.branch(done)

        builder.position_at_end(done)
        sums = phis((sums, after), (new, last))
        for index, total in enumerate(sums):
            summed = builder.call(add, [ir.Constant(float32, -0.0), total], fastmath=("reassoc",))
            address = builder.add(result_starts[index // keys], ir.Constant(int64, 4 * (index % keys)))
            builder.store(builder.fmul(summed, factor), builder.inttoptr(address, float32.as_pointer()), align=4)
        return context.get_dummy_value()

    return generate


def products_of_few_rows(stored: str) -> tuple[Any, Any]:
    """Returns two parts for keys and values of a dtype: ``(size, factor, a, b, c)`` computes ``c = factor · a bᵀ``, and
    ``(size, factor, a, b, c, beta)`` computes ``c = factor · a b + beta · c``, both for a few rows of ``a``.

    All but ``b`` is float32. Rows of ``b`` are contiguous. In half precision, and in the second part, they are a
    multiple of LANES long.
    """
    key_size = STORED_BYTES[stored]
    prefetched = PREFETCHED_BYTES // key_size
    few_keys, one_key = (over_rows(lambda rows, keys=keys: dot_tile(rows, keys, stored), TILES) for keys in (KEYS, 1))
    several_vectors, one_vector = (
        over_rows(lambda rows, vectors=vectors: tile(rows, vectors, prefetched // (vectors * LANES), stored), TILES)
        for vectors in (VECTORS, 1)
    )

    @inlined
    def scores(size: Size, factor: Any, a: Matrix, b: Matrix, c: Matrix) -> None:
        prefetch_rows, j = prefetched // size.depth, 0
        while j + KEYS <= size.columns:
            keys = Matrix(b.address + j * b.row * key_size, b.row, 1)
            few_keys(size.rows, a, keys, columns_from(c, j), size.depth, factor, prefetch_rows)
            j += KEYS
        while j < size.columns:
            keys = Matrix(b.address + j * b.row * key_size, b.row, 1)
            one_key(size.rows, a, keys, columns_from(c, j), size.depth, factor, prefetch_rows)
            j += 1

    @inlined
    def mixtures(size: Size, factor: Any, a: Matrix, b: Matrix, c: Matrix, beta: int) -> None:
        """Reads the values from memory once: more rows than those of a tile are multiplied with a few values at a
        time."""
        step = size.depth if size.rows <= TILES[0] else DEPTH
        for k in range(0, size.depth, step):
            terms, part_beta, j = min(step, size.depth - k), beta if k == 0 else 1, 0
            weights, values = columns_from(a, k), Matrix(b.address + k * b.row * key_size, b.row, 1)
            while j + VECTORS * LANES <= size.columns:
                several_vectors(size.rows, weights, values, columns_from(c, j), terms, factor, part_beta)
                values = Matrix(values.address + VECTORS * LANES * key_size, b.row, 1)
                j += VECTORS * LANES
            while j < size.columns:
                one_vector(size.rows, weights, values, columns_from(c, j), terms, factor, part_beta)
                values = Matrix(values.address + LANES * key_size, b.row, 1)
                j += LANES

    return scores, mixtures
