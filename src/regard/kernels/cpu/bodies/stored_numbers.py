"""Numbers as they are stored in memory, read as vectors of float32: bfloat16 and float16 are converted in registers."""

import platform
from typing import Any

from llvmlite import ir

from regard.kernels.cpu.bodies.parts import has_feature
from regard.kernels.cpu.sizes import LANES

STORED_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of a stored number, by its dtype."""

_SINGLES, _INTEGERS = ir.VectorType(ir.FloatType(), LANES), ir.VectorType(ir.IntType(32), LANES)


def load_stored(builder: Any, address: Any, dtype: str) -> Any:
    """Builds the load of LANES numbers of a dtype at an address, as a vector of float32; the conversion is exact."""
    is_converted = dtype == "float16" and has_half_conversion()
    number = ir.FloatType() if dtype == "float32" else ir.HalfType() if is_converted else ir.IntType(16)
    pointer = builder.inttoptr(address, ir.VectorType(number, LANES).as_pointer())
    vector = builder.load(pointer, align=STORED_BYTES[dtype])
    if dtype == "float32":
        return vector
    if dtype == "bfloat16":
        return builder.bitcast(builder.shl(builder.zext(vector, _INTEGERS), _all(16)), _SINGLES)
    return builder.fpext(vector, _SINGLES) if is_converted else single_of_half_bits(builder, vector)


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


def _all(number: int) -> Any:
    return ir.Constant(_INTEGERS, [number] * LANES)
