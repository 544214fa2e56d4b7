"""Stores of the lanes of a vector that a mask selects, compressed to contiguous elements.

AVX-512 has an instruction for it; without `can_compress`, nothing is stored, and callers use all elements.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from regard.kernels.cpu.bodies.parts import has_feature
from regard.kernels.cpu.bodies.vectors import splat

_INDEX = ir.IntType(32)


def _nonzero_lanes(builder: Any, vector: Any, limit: Any) -> Any:
    """Returns the mask of the nonzero lanes, including NaN, among the first ``limit``."""
    kind = ir.VectorType(ir.IntType(64), vector.type.count)
    indices = ir.Constant(kind, list(range(vector.type.count)))
    below_limit = builder.icmp_signed("<", indices, splat(builder, limit, kind.count))
    return builder.and_(below_limit, builder.fcmp_unordered("!=", vector, ir.Constant(vector.type, None)))


def _count_of(builder: Any, mask: Any) -> Any:
    """Returns the number of lanes that a mask selects, an int64."""
    bits = builder.bitcast(mask, ir.IntType(mask.type.count))
    function = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(bits.type, [bits.type]), f"llvm.ctpop.i{mask.type.count}"
    )
    return builder.zext(builder.call(function, [bits]), ir.IntType(64))


@intrinsic
def count_nonzero(typing: Any, vector: Any, limit: Any) -> Any:
    """Returns the number of nonzero elements among the first ``limit``."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _count_of(builder, _nonzero_lanes(builder, *arguments))

    return types.int64(vector, types.int64), generate


def can_compress() -> bool:
    """Whether the processor can move selected lanes of a vector to its beginning."""
    return has_feature("avx512vbmi2")


def _store_compressed(builder: Any, vector: Any, mask: Any, number: str, address: Any) -> Any:
    """Stores the lanes of a mask, followed by arbitrary lanes up to the vector's length; returns their number."""
    kind = vector.type
    # Not LLVM's `masked.compressstore`: compressing directly to memory takes a hundred cycles on AMD's processors.
    function = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(kind, [kind, kind, mask.type]),
        f"llvm.x86.avx512.mask.compress.v{kind.count}{number}",
    )
    compressed = builder.call(function, [vector, ir.Constant(kind, None), mask])
    builder.store(compressed, builder.inttoptr(address, kind.as_pointer()), align=4)
    return _count_of(builder, mask)


@intrinsic
def store_nonzero(typing: Any, vector: Any, first: Any, limit: Any, address: Any) -> Any:
    """Stores the int32 indices, counted from ``first``, of nonzero elements among the first ``limit``; returns their
    number.

    A whole vector is always written. Without `can_compress`, nothing is written.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        elements, first, limit, address = arguments
        if not can_compress():
            return ir.Constant(ir.IntType(64), 0)
        mask = _nonzero_lanes(builder, elements, limit)
        kind = ir.VectorType(_INDEX, vector.lanes)
        start = splat(builder, builder.trunc(first, _INDEX), vector.lanes)
        indices = builder.add(start, ir.Constant(kind, list(range(vector.lanes))))
        return _store_compressed(builder, indices, mask, "i32", address)

    return types.int64(vector, types.int64, types.int64, types.int64), generate


@intrinsic
def store_above(typing: Any, vector: Any, bounds: Any, address: Any) -> Any:
    """Stores the elements that are above their bounds or NaN; returns their number.

    A whole vector is always written. Without `can_compress`, nothing is written.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        elements, bounds, address = arguments
        if not can_compress():
            return ir.Constant(ir.IntType(64), 0)
        mask = builder.fcmp_unordered(">", elements, bounds)
        return _store_compressed(builder, elements, mask, f"f{vector.number.bitwidth}", address)

    return types.int64(vector, vector, types.int64), generate
