"""The lanes of a vector that a mask chooses, stored side by side.

AVX-512 has an instruction for it; where `can_compress` says no, nothing is stored, and callers take all numbers.
"""

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false, reportOptionalCall=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from regard.kernels.cpu.bodies.parts import has_feature
from regard.kernels.cpu.bodies.vectors import spread

_INDEX = ir.IntType(32)


def _lanes_with_numbers(builder: Any, vector: Any, limit: Any) -> Any:
    """A mask of those of the first ``limit`` lanes whose number is not 0; NaN is not."""
    kind = ir.VectorType(ir.IntType(64), vector.type.count)
    places = ir.Constant(kind, list(range(vector.type.count)))
    there = builder.icmp_signed("<", places, spread(builder, limit, kind.count))
    return builder.and_(there, builder.fcmp_unordered("!=", vector, ir.Constant(vector.type, None)))


def _count_of(builder: Any, mask: Any) -> Any:
    """How many lanes of a mask are set, an int64."""
    bits = builder.bitcast(mask, ir.IntType(mask.type.count))
    function = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(bits.type, [bits.type]), f"llvm.ctpop.i{mask.type.count}"
    )
    return builder.zext(builder.call(function, [bits]), ir.IntType(64))


@intrinsic
def count_nonzero(typing: Any, vector: Any, limit: Any) -> Any:
    """How many of the first ``limit`` numbers are not 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _count_of(builder, _lanes_with_numbers(builder, *arguments))

    return types.int64(vector, types.int64), generate


def can_compress() -> bool:
    """Whether the processor moves chosen lanes of a vector to its beginning."""
    return has_feature("avx512vbmi2")


def _store_compressed(builder: Any, vector: Any, mask: Any, number: str, address: Any) -> Any:
    """Write the lanes of a mask side by side, and anything behind them, to the length of the vector; how many."""
    kind = vector.type
    # Not LLVM's `masked.compressstore`: the instruction that compresses into memory takes AMD's processors a hundred
    # cycles.
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
    """Write which of the first ``limit`` numbers are not 0, counted from ``first``, as int32 side by side; how many.

    A whole vector is written, whatever there is to write. Only where `can_compress`; else nothing is written.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        numbers, first, limit, address = arguments
        if not can_compress():
            return ir.Constant(ir.IntType(64), 0)
        mask = _lanes_with_numbers(builder, numbers, limit)
        kind = ir.VectorType(_INDEX, vector.lanes)
        start = spread(builder, builder.trunc(first, _INDEX), vector.lanes)
        places = builder.add(start, ir.Constant(kind, list(range(vector.lanes))))
        return _store_compressed(builder, places, mask, "i32", address)

    return types.int64(vector, types.int64, types.int64, types.int64), generate


@intrinsic
def store_above(typing: Any, vector: Any, bounds: Any, address: Any) -> Any:
    """Write the numbers that are above their bounds, and NaN, side by side; how many.

    A whole vector is written, whatever there is to write. Only where `can_compress`; else nothing is written.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        numbers, bounds, address = arguments
        if not can_compress():
            return ir.Constant(ir.IntType(64), 0)
        mask = builder.fcmp_unordered(">", numbers, bounds)
        return _store_compressed(builder, numbers, mask, f"f{vector.number.bitwidth}", address)

    return types.int64(vector, vector, types.int64), generate
