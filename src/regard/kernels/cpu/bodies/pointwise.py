"""Functions of single numbers for the functions of a row (`row_functions`): those of PyTorch, for all arguments.

They have no branches and vectorize, but for sine and cosine. `elementary` has the exponential and the logarithm of
kernels, whose arguments are within bounds.
"""

import math
from typing import Any

import numpy as np

from regard.kernels.cpu.bodies.elementary import exp, log
from regard.kernels.cpu.bodies.intrinsics import is_single, nearest
from regard.kernels.cpu.bodies.parts import embedded, exact

_LN2 = math.log(2.0)


@embedded
def exponential(x: Any) -> Any:
    """Returns e to the power x."""
    real = type(x)
    limit = real(88.72283) if is_single(x) else real(709.782712893384)
    return real(np.inf) if x > limit else exp(x)


@embedded
def logarithm(x: Any) -> Any:
    """Returns the natural logarithm: −∞ for 0, NaN for a negative number."""
    real = type(x)
    tiny = real(1.1754944e-38) if is_single(x) else real(2.2250738585072014e-308)
    is_tiny = x < tiny
    # A subnormal number is multiplied by 2⁵³ before.
    result = log(x * real(2.0**53) if is_tiny else x) - (real(53.0 * _LN2) if is_tiny else real(0))
    result = x if x == real(np.inf) else result
    result = real(-np.inf) if x == real(0) else result
    return real(np.nan) if x < real(0) else result


@embedded
def power(x: Any, y: Any) -> Any:
    """Returns x to the power y for x ≥ 0, and NaN for a negative x; computed in float64."""
    exponent = np.float64(y)
    result = exponential(exponent * logarithm(np.float64(x)))
    return type(x)(1.0 if exponent == 0.0 else result)


@exact
def floor(x: Any) -> Any:
    """Returns the largest integer that is not above x, as a real number."""
    rounded = nearest(x)
    return rounded - type(x)(1) if rounded > x else rounded


@exact
def truncated(x: Any) -> Any:
    """Returns x without its fraction, as a real number."""
    magnitude = floor(abs(x))
    return magnitude if x >= type(x)(0) else -magnitude
