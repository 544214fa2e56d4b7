"""Exponential and logarithm in a form that vectorizes: without branches or calls.

Each function reduces its argument to a short interval and sums a series there; float32 takes fewer terms of the same
series. Errors are within 2 units in the last place.
"""

import math
from typing import Any

import numpy as np
from numba import types

from regard.kernels.cpu.bodies.intrinsics import bits_of, nearest, real_of
from regard.kernels.cpu.bodies.parts import chosen_for, exact, inlined
from regard.kernels.cpu.bodies.vectors import broadcast, nearest_of, power_of_two, where_less

_LOG2E = 1.0 / math.log(2.0)
# ln 2 in two parts; the first has few enough digits that its product with an exponent is exact.
_LN2_32 = (float(np.float32(0.693359375)), math.log(2.0) - 0.693359375)
_LN2_64 = (0.6931471803691238, 1.9082149292705877e-10)


def exp(x):  # type: ignore[no-untyped-def]
    """Returns e to the power x; 0 below the logarithm of the least normal number, finite up to the greatest's, NaN for
    NaN."""
    raise NotImplementedError("only in kernels")


def log(x):  # type: ignore[no-untyped-def]
    """Returns the natural logarithm of a positive normal number; for 0, a number below −87 (float32) or −700
    (float64)."""
    raise NotImplementedError("only in kernels")


@exact
def _remainder32(x, n):
    r = x - n * np.float32(_LN2_32[0])
    return r - n * np.float32(_LN2_32[1])


@exact
def _quotient32(r):
    # (e^r − 1) / r
    p = np.float32(1.0 / 5040.0)
    p = p * r + np.float32(1.0 / 720.0)
    p = p * r + np.float32(1.0 / 120.0)
    p = p * r + np.float32(1.0 / 24.0)
    p = p * r + np.float32(1.0 / 6.0)
    p = p * r + np.float32(0.5)
    return p * r + np.float32(1.0)


@exact
def _power32(n):
    return real_of(np.int32((np.int32(n) + np.int32(127)) << np.int32(23)))


@exact
def _exp32(x):
    n = nearest(x * np.float32(_LOG2E))
    # Exponents of subnormal and infinite results are clamped; the last line corrects the former.
    n = np.float32(-126.0) if n < np.float32(-126.0) else n
    n = np.float32(127.0) if n > np.float32(127.0) else n
    r = _remainder32(x, n)
    return np.float32(0.0) if x < np.float32(-87.3) else (_quotient32(r) * r + np.float32(1.0)) * _power32(n)


@exact
def _remainder64(x, n):
    r = x - n * _LN2_64[0]
    return r - n * _LN2_64[1]


@exact
def _quotient64(r):
    # (e^r − 1) / r
    p = 1.0 / 6227020800.0
    p = p * r + 1.0 / 479001600.0
    p = p * r + 1.0 / 39916800.0
    p = p * r + 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    return p * r + 1.0


@exact
def _power64(n):
    return real_of((np.int64(n) + np.int64(1023)) << np.int64(52))


@exact
def _exp64(x):
    n = nearest(x * _LOG2E)
    n = -1022.0 if n < -1022.0 else n
    n = 1023.0 if n > 1023.0 else n
    r = _remainder64(x, n)
    return 0.0 if x < -708.0 else (_quotient64(r) * r + 1.0) * _power64(n)


@exact
def _log32(x):
    # x = 2ⁿ m with m in [√½, √2); log m = 2 artanh f with f = (m − 1) / (m + 1).
    bits = bits_of(x)
    n = np.int32(np.int32(bits - np.int32(0x3F3504F3)) >> np.int32(23))
    m = real_of(np.int32(bits - np.int32(n << np.int32(23))))
    f = (m - np.float32(1.0)) / (m + np.float32(1.0))
    g = f * f
    p = np.float32(2.0 / 11.0)
    p = p * g + np.float32(2.0 / 9.0)
    p = p * g + np.float32(2.0 / 7.0)
    p = p * g + np.float32(2.0 / 5.0)
    p = p * g + np.float32(2.0 / 3.0)
    p = p * g
    exponent = np.float32(n)
    result = exponent * np.float32(_LN2_32[0]) + (f * np.float32(2.0) + (f * p + exponent * np.float32(_LN2_32[1])))
    return x if x != x else result


@exact
def _log64(x):
    bits = bits_of(x)
    n = (bits - np.int64(0x3FE6A09E667F3BCD)) >> np.int64(52)
    m = real_of(bits - (n << np.int64(52)))
    f = (m - 1.0) / (m + 1.0)
    g = f * f
    p = 2.0 / 23.0
    p = p * g + 2.0 / 21.0
    p = p * g + 2.0 / 19.0
    p = p * g + 2.0 / 17.0
    p = p * g + 2.0 / 15.0
    p = p * g + 2.0 / 13.0
    p = p * g + 2.0 / 11.0
    p = p * g + 2.0 / 9.0
    p = p * g + 2.0 / 7.0
    p = p * g + 2.0 / 5.0
    p = p * g + 2.0 / 3.0
    p = p * g
    exponent = np.float64(n)
    result = exponent * _LN2_64[0] + (f * 2.0 + (f * p + exponent * _LN2_64[1]))
    return x if x != x else result


@chosen_for(exp)
def _(x):  # type: ignore[no-untyped-def]
    return {types.float32: lambda x: _exp32(x), types.float64: lambda x: _exp64(x)}.get(x)


@chosen_for(log)
def _(x):  # type: ignore[no-untyped-def]
    return {types.float32: lambda x: _log32(x), types.float64: lambda x: _log64(x)}.get(x)


@inlined
def exp_of(x: Any) -> Any:
    """Returns e to the power of each float32 element, none above 0; 0 below the logarithm of the least normal number,
    NaN for NaN. Errors are within 2 units in the last place."""
    lowest, one = broadcast(np.float32(-126.0), x), broadcast(np.float32(1.0), x)
    n = nearest_of(x * broadcast(np.float32(_LOG2E), x))
    n = where_less(n, lowest, lowest, n)
    r = x - n * broadcast(np.float32(_LN2_32[0]), x) - n * broadcast(np.float32(_LN2_32[1]), x)
    # (e^r − 1) / r
    p = broadcast(np.float32(1.0 / 5040.0), x)
    p = p * r + broadcast(np.float32(1.0 / 720.0), x)
    p = p * r + broadcast(np.float32(1.0 / 120.0), x)
    p = p * r + broadcast(np.float32(1.0 / 24.0), x)
    p = p * r + broadcast(np.float32(1.0 / 6.0), x)
    p = p * r + broadcast(np.float32(0.5), x)
    p = p * r + one
    return where_less(x, broadcast(np.float32(-87.3), x), one - one, (p * r + one) * power_of_two(n))
