"""The microkernel of a matrix product: register-tiled outer products.

Goto & van de Geijn 2008, "Anatomy of high-performance matrix multiplication"; Van Zee & van de Geijn 2015, "BLIS".

MKL, PyTorch's BLAS on x86, takes its 512-bit path on Intel's processors alone. On others with AVX-512 this tile runs at
nearly twice its speed; see docs/derivations/products.md.

A tile has up to ROWS × VECTORS registers of LANES float32 numbers; each step of the sum loads a
few vectors of ``b``, broadcasts a number of each row of ``a``, and multiplies and adds.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false

LANES = 16
"""Numbers of a vector."""


def prefetch(builder: Any, address: Any) -> None:
    """Ask for the cache line at an address, which may be one that must not be read."""
    number, place = ir.IntType(32), ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [place, number, number, number])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    # To be read, into the second cache, as data.
    builder.call(function, [builder.inttoptr(address, place), *(ir.Constant(number, flag) for flag in (0, 2, 1))])


def _multiply_add(builder: Any, number: Any, vector: Any, sums: Any) -> Any:
    """``number · vector + sums``, float32, rounded once."""
    kind = ir.FunctionType(sums.type, [sums.type] * 3)
    return builder.call(
        cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{LANES}f32"), [number, vector, sums]
    )


def tile(rows: int, vectors: int, ahead: int = 0) -> Any:
    """An intrinsic ``(a, b, c, depth, factor, keep) -> None``.

    ``c[i, j] = factor · Σ_k a[i, k] b[k, j] + keep · c[i, j]`` for ``rows`` rows and ``vectors · LANES`` columns of
    float32. Each matrix is its address in bytes, the numbers from a row to the next, and those from a column to the
    next, which is 1 for ``b`` and ``c``; ``keep`` is 0 or 1.
    """

    @intrinsic
    def run(typing, a, b, c, depth, factor, keep):  # type: ignore[no-untyped-def]
        return types.void(a, b, c, types.int64, types.float32, types.int64), _generator(rows, vectors, ahead)

    return run


def _generator(rows: int, vectors: int, ahead: int) -> Any:

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        left, right, result, depth, factor, keep = arguments
        a, a_row, a_step = (builder.extract_value(left, index) for index in range(3))
        b, b_step = (builder.extract_value(right, index) for index in range(2))
        c, c_row = (builder.extract_value(result, index) for index in range(2))
        word, vector = ir.IntType(64), ir.VectorType(ir.FloatType(), LANES)
        four = ir.Constant(word, 4)

        def at(base: Any, offset: Any, kind: Any) -> Any:
            return builder.inttoptr(builder.add(base, builder.mul(offset, four)), kind.as_pointer())

        def spread(number: Any) -> Any:
            undefined = ir.Constant(ir.VectorType(number.type, LANES), ir.Undefined)
            one = builder.insert_element(undefined, number, ir.Constant(ir.IntType(32), 0))
            return builder.shuffle_vector(one, undefined, ir.Constant(ir.VectorType(ir.IntType(32), LANES), None))

        starts = [builder.add(a, builder.mul(builder.mul(a_row, ir.Constant(word, i)), four)) for i in range(rows)]
        before, loop, after = builder.block, builder.append_basic_block("sum"), builder.append_basic_block("summed")
        zero = ir.Constant(vector, [0.0] * LANES)
        builder.cbranch(builder.icmp_signed(">", depth, ir.Constant(word, 0)), loop, after)

        builder.position_at_end(loop)
        k = builder.phi(word)
        k.add_incoming(ir.Constant(word, 0), before)
        sums = []
        for _ in range(rows * vectors):
            held = builder.phi(vector)
            held.add_incoming(zero, before)
            sums.append(held)
        b_offset, a_offset = builder.mul(k, b_step), builder.mul(k, a_step)
        loaded = []
        later = builder.add(b_offset, builder.mul(b_step, ir.Constant(word, ahead)))
        for v in range(vectors if ahead else 0):
            prefetch(builder, builder.add(b, builder.mul(builder.add(later, ir.Constant(word, v * LANES)), four)))
        for v in range(vectors):
            place = at(b, builder.add(b_offset, ir.Constant(word, v * LANES)), vector)
            loaded.append(builder.load(place, align=4))
        updated = []
        for i in range(rows):
            number = spread(builder.load(at(starts[i], a_offset, ir.FloatType()), align=4))
            row = sums[i * vectors : (i + 1) * vectors]
            updated += [_multiply_add(builder, number, one, held) for one, held in zip(loaded, row, strict=True)]
        following = builder.add(k, ir.Constant(word, 1))
        k.add_incoming(following, loop)
        for held, new in zip(sums, updated, strict=True):
            held.add_incoming(new, loop)
        builder.cbranch(builder.icmp_signed("<", following, depth), loop, after)

        builder.position_at_end(after)
        totals = []
        for new in updated:
            total = builder.phi(vector)
            total.add_incoming(zero, before)
            total.add_incoming(new, loop)
            totals.append(total)
        scale = spread(factor)
        kept = builder.icmp_signed("!=", keep, ir.Constant(word, 0))
        for i in range(rows):
            row = builder.add(c, builder.mul(builder.mul(c_row, ir.Constant(word, i)), four))
            for v in range(vectors):
                place = at(row, ir.Constant(word, v * LANES), vector)
                # What is not kept may be anything, NaN too.
                old = builder.select(kept, builder.load(place, align=4), zero)
                builder.store(_multiply_add(builder, scale, totals[i * vectors + v], old), place, align=4)
        return context.get_dummy_value()

    return generate
