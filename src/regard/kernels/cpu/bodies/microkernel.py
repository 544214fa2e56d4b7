"""The microkernel of a matrix product: register-tiled outer products.

Goto & van de Geijn 2008, "Anatomy of high-performance matrix multiplication"; Van Zee & van de Geijn 2015, "BLIS".

MKL, PyTorch's BLAS on x86, uses 512-bit vectors on Intel's processors only. On others with AVX-512, this tile runs at
nearly twice its speed; see docs/en/understand/derivations/products.md.

A tile is a few rows times a few vectors of LANES float32 elements, all in registers; each step of the sum loads a few
vectors of ``b``, broadcasts an element of each row of ``a``, and multiplies and adds.
"""

from functools import partial
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from regard.kernels.cpu.bodies.stored_numbers import PAIRS, STORED_BYTES, dot_pairs, load_stored, multiplies_pairs
from regard.kernels.cpu.bodies.vectors import prefetch, splat
from regard.kernels.cpu.sizes import LANES


def _multiply_add(builder: Any, number: Any, vector: Any, sums: Any) -> Any:
    """Returns ``number · vector + sums``, float32, rounded once."""
    kind = ir.FunctionType(sums.type, [sums.type] * 3)
    return builder.call(
        cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{LANES}f32"), [number, vector, sums]
    )


def tile(rows: int, vectors: int, prefetch_rows: int = 0, stored: str = "float32") -> Any:
    """Returns an intrinsic ``(a, b, c, depth, factor, beta) -> None``.

    ``c[i, j] = factor · Σ_k a[i, k] b[k, j] + beta · c[i, j]`` for ``rows`` rows and ``vectors · LANES`` columns of
    float32. Each matrix is a tuple of its address in bytes and its row and column strides in elements; the column
    stride of ``b`` and ``c`` is 1. ``beta`` is 0 or 1. ``b`` is prefetched ``prefetch_rows`` rows ahead, and may be
    ``stored`` in half precision. If ``a`` and ``b`` are pairs of bfloat16, they are the elements, and k counts them.
    """

    @intrinsic
    def run(typing, a, b, c, depth, factor, beta):  # type: ignore[no-untyped-def]
        return types.void(a, b, c, types.int64, types.float32, types.int64), _generator(
            rows, vectors, prefetch_rows, stored
        )

    return run


def _generator(rows: int, vectors: int, prefetch_rows: int, stored: str) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        left, right, result, depth, factor, beta = arguments
        a, a_row, a_step = (builder.extract_value(left, index) for index in range(3))
        b, b_step = (builder.extract_value(right, index) for index in range(2))
        c, c_row = (builder.extract_value(result, index) for index in range(2))
        int64, vector = ir.IntType(64), ir.VectorType(ir.FloatType(), LANES)
        number_type, multiply_add = ir.FloatType(), _multiply_add
        if stored == PAIRS:
            number_type, multiply_add = ir.IntType(32), partial(dot_pairs, hardware=multiplies_pairs())
        four, size = ir.Constant(int64, 4), ir.Constant(int64, STORED_BYTES[stored])

        def pointer(base: Any, offset: Any, kind: Any) -> Any:
            return builder.inttoptr(builder.add(base, builder.mul(offset, four)), kind.as_pointer())

        starts = [builder.add(a, builder.mul(builder.mul(a_row, ir.Constant(int64, i)), four)) for i in range(rows)]
        before, loop, after = builder.block, builder.append_basic_block("sum"), builder.append_basic_block("summed")
        zero = ir.Constant(vector, [0.0] * LANES)
        builder.cbranch(builder.icmp_signed(">", depth, ir.Constant(int64, 0)), loop, after)

        builder.position_at_end(loop)
        k = builder.phi(int64)
        k.add_incoming(ir.Constant(int64, 0), before)
        sums = []
        for _ in range(rows * vectors):
            accumulator = builder.phi(vector)
            accumulator.add_incoming(zero, before)
            sums.append(accumulator)
        b_offset, a_offset = builder.mul(k, b_step), builder.mul(k, a_step)
        loaded = []
        later = builder.add(b_offset, builder.mul(b_step, ir.Constant(int64, prefetch_rows)))
        for v in range(vectors if prefetch_rows else 0):
            prefetch(builder, builder.add(b, builder.mul(builder.add(later, ir.Constant(int64, v * LANES)), size)))
        for v in range(vectors):
            offset = builder.mul(builder.add(b_offset, ir.Constant(int64, v * LANES)), size)
            loaded.append(load_stored(builder, builder.add(b, offset), stored))
        updated = []
        for i in range(rows):
            number = splat(builder, builder.load(pointer(starts[i], a_offset, number_type), align=4), LANES)
            row = sums[i * vectors : (i + 1) * vectors]
            updated += [
                multiply_add(builder, number, one, accumulator) for one, accumulator in zip(loaded, row, strict=True)
            ]
        following = builder.add(k, ir.Constant(int64, 1))
        k.add_incoming(following, loop)
        for accumulator, new in zip(sums, updated, strict=True):
            accumulator.add_incoming(new, loop)
        builder.cbranch(builder.icmp_signed("<", following, depth), loop, after)

        builder.position_at_end(after)
        totals = []
        for new in updated:
            total = builder.phi(vector)
            total.add_incoming(zero, before)
            total.add_incoming(new, loop)
            totals.append(total)
        scale = splat(builder, factor, LANES)
        accumulates = builder.icmp_signed("!=", beta, ir.Constant(int64, 0))
        for i in range(rows):
            row = builder.add(c, builder.mul(builder.mul(c_row, ir.Constant(int64, i)), four))
            for v in range(vectors):
                address = pointer(row, ir.Constant(int64, v * LANES), vector)
                # Elements that are not accumulated may be anything, even NaN.
                old = builder.select(accumulates, builder.load(address, align=4), zero)
                builder.store(_multiply_add(builder, scale, totals[i * vectors + v], old), address, align=4)
        return context.get_dummy_value()

    return generate
