"""Numbers in half precision as vectors: read from memory as float32, or rounded to bfloat16 and multiplied in pairs.

A pair is two neighbouring terms of a sum in a 32-bit integer, the first one in its lower half. Processors with
AVX512_BF16 add the products of two vectors of pairs to float32 sums in one instruction.
"""

import platform
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from regard.kernels.cpu.bodies.parts import has_feature
from regard.kernels.cpu.sizes import LANES

PAIRS = "pairs"
"""The dtype of pairs of bfloat16."""

STORED_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, PAIRS: 4}
"""Bytes of a stored number, by its dtype."""

_SINGLES, _INTEGERS = ir.VectorType(ir.FloatType(), LANES), ir.VectorType(ir.IntType(32), LANES)


def load_stored(builder: Any, address: Any, dtype: str) -> Any:
    """Builds the load of LANES numbers of a dtype at an address, as a vector of float32; pairs stay 32-bit integers."""
    is_converted = dtype == "float16" and has_half_conversion()
    numbers = {"float32": ir.FloatType(), PAIRS: ir.IntType(32)}
    number = numbers.get(dtype, ir.HalfType() if is_converted else ir.IntType(16))
    vector = builder.load(_pointer(builder, address, number), align=STORED_BYTES[dtype])
    if dtype in numbers:
        return vector
    if dtype == "bfloat16":
        return builder.bitcast(builder.shl(builder.zext(vector, _INTEGERS), _all(16)), _SINGLES)
    return builder.fpext(vector, _SINGLES) if is_converted else single_of_half_bits(builder, vector)


def _pointer(builder: Any, address: Any, number: Any) -> Any:
    return builder.inttoptr(address, ir.VectorType(number, LANES).as_pointer())


def has_half_conversion() -> bool:
    """Whether the target processor converts float16 to float32; for others, LLVM would call a function."""
    return has_feature("f16c") or platform.machine() in ("aarch64", "arm64")


def single_of_half_bits(builder: Any, bits: Any) -> Any:
    """Builds the conversion of float16 to float32 by integer operations, for processors without an instruction for it.

    The magnitude's bits, shifted to the place of float32's, are the number divided by 2^112, the difference of the
    exponents' biases. Infinities and NaN, which have the largest exponent, get that of float32.
    """
    wide = builder.zext(bits, _INTEGERS)
    magnitude = builder.shl(builder.and_(wide, _all(0x7FFF)), _all(13))
    finite = builder.bitcast(
        builder.fmul(builder.bitcast(magnitude, _SINGLES), ir.Constant(_SINGLES, [2.0**112] * LANES)), _INTEGERS
    )
    is_finite = builder.icmp_unsigned("<", magnitude, _all(0x7C00 << 13))
    number = builder.select(is_finite, finite, builder.or_(magnitude, _all(0x7F800000)))
    return builder.bitcast(builder.or_(number, builder.shl(builder.and_(wide, _all(0x8000)), _all(16))), _SINGLES)


def multiplies_pairs() -> bool:
    """Whether the target processor multiplies pairs; for others, the same is done by several instructions."""
    return has_feature("avx512bf16")


def dot_pairs(builder: Any, pairs: Any, others: Any, sums: Any, hardware: bool) -> Any:
    """Builds ``sums`` plus the products of the first and of the second numbers of two vectors of pairs, in float32."""
    if hardware:
        kind = ir.FunctionType(_SINGLES, [_SINGLES, _INTEGERS, _INTEGERS])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512bf16.dpbf16ps.512")
        return builder.call(function, [sums, pairs, others])
    fma = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(_SINGLES, [_SINGLES] * 3), f"llvm.fma.v{LANES}f32"
    )
    for part in (lambda one: builder.and_(one, _all(0xFFFF0000)), lambda one: builder.shl(one, _all(16))):
        numbers = [builder.bitcast(part(one), _SINGLES) for one in (pairs, others)]
        sums = builder.call(fma, [*numbers, sums])
    return sums


def rounded_bits(builder: Any, bits: Any, hardware: bool) -> Any:
    """Builds the rounding of float32 to bfloat16, to nearest, ties to even: of bits to bits whose upper half counts.

    NaN stays NaN: adding to its bits could carry into the sign.
    """
    if hardware:
        halves = ir.VectorType(ir.IntType(16), LANES)
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(halves, [_SINGLES]), "llvm.x86.avx512bf16.cvtneps2bf16.512"
        )
        rounded = builder.call(function, [builder.bitcast(bits, _SINGLES)])
        return builder.shl(builder.zext(rounded, _INTEGERS), _all(16))
    is_odd = builder.and_(builder.lshr(bits, _all(16)), _all(1))
    rounded = builder.add(bits, builder.add(is_odd, _all(0x7FFF)))
    is_nan = builder.icmp_unsigned(">", builder.and_(bits, _all(0x7FFFFFFF)), _all(0x7F800000))
    return builder.select(is_nan, builder.or_(bits, _all(0x400000)), rounded)


@intrinsic
def store_pairs(typing: Any, first: Any, second: Any, target: Any, exact: Any) -> Any:
    """Writes LANES pairs of the float32 numbers at two addresses, rounded to bfloat16.

    Args:
        second: the address of the second numbers; 0: they are 0.
        exact: a literal: 1 if all numbers are bfloat16 numbers already, so that nothing is rounded.
    """
    if not isinstance(exact, types.IntegerLiteral):
        return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        first, second, target, _ = arguments
        is_there = builder.icmp_signed("!=", second, ir.Constant(second.type, 0))
        low = load_stored(builder, first, PAIRS)
        high = load_stored(builder, builder.select(is_there, second, first), PAIRS)
        if not exact.literal_value:
            low, high = (rounded_bits(builder, one, multiplies_pairs()) for one in (low, high))
        high = builder.select(is_there, builder.and_(high, _all(0xFFFF0000)), _all(0))
        pairs = builder.or_(builder.lshr(low, _all(16)), high)
        builder.store(pairs, _pointer(builder, target, ir.IntType(32)), align=4)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, exact), generate


@intrinsic
def store_rounded(typing: Any, source: Any, target: Any) -> Any:
    """Writes the LANES float32 numbers at an address, rounded to bfloat16, to another."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rounded = rounded_bits(builder, load_stored(builder, arguments[0], PAIRS), multiplies_pairs())
        halves = builder.trunc(builder.lshr(rounded, _all(16)), ir.VectorType(ir.IntType(16), LANES))
        builder.store(halves, _pointer(builder, arguments[1], ir.IntType(16)), align=2)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


def _all(number: int) -> Any:
    return ir.Constant(_INTEGERS, [number] * LANES)
