"""The exponential of vectors: that of `regard.kernels.cpu.bodies.elementary`, for values in registers."""

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.

import math
from typing import Any

import numpy as np

from regard.kernels.cpu.bodies.parts import inlined
from regard.kernels.cpu.bodies.vectors import broadcast, nearest_of, power_of_two, where_less

_LOG2E = np.float32(1.0 / math.log(2.0))
# ln 2 in two parts; the first has few enough digits that its product with an exponent is exact.
_LN2 = np.float32(0.693359375)
_LN2_REST = np.float32(math.log(2.0) - 0.693359375)


@inlined
def exp_of(x: Any) -> Any:
    """e to the power of each float32 element, none above 0; 0 below the logarithm of the least normal number, NaN for
    NaN. Errors are within 2 units in the last place."""
    lowest, one = broadcast(np.float32(-126.0), x), broadcast(np.float32(1.0), x)
    n = nearest_of(x * broadcast(_LOG2E, x))
    n = where_less(n, lowest, lowest, n)
    r = x - n * broadcast(_LN2, x) - n * broadcast(_LN2_REST, x)
    # (e^r − 1) / r
    p = broadcast(np.float32(1.0 / 5040.0), x)
    p = p * r + broadcast(np.float32(1.0 / 720.0), x)
    p = p * r + broadcast(np.float32(1.0 / 120.0), x)
    p = p * r + broadcast(np.float32(1.0 / 24.0), x)
    p = p * r + broadcast(np.float32(1.0 / 6.0), x)
    p = p * r + broadcast(np.float32(0.5), x)
    p = p * r + one
    return where_less(x, broadcast(np.float32(-87.3), x), one - one, (p * r + one) * power_of_two(n))
