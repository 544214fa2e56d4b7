"""All the weight of a row on its largest score."""

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.

from typing import Any

import numpy as np

from regard.kernels.cpu.bodies.parts import inlined


@inlined
def recompute_hard(normalizer: Any, row: Any, first: Any, second: Any) -> None:
    """The weights of a row whose key is known."""
    real = row.dtype.type
    row[:] = real(0)
    place = np.int64(second)
    if place < 0:
        row[-1 - place] = real(np.nan)
    else:
        row[place] = real(1)


@inlined
def hard_row(normalizer: Any, row: Any, top: Any) -> tuple[Any, Any]:
    """1 on the first of the largest scores, or NaN on the first NaN; the maximum, and the place, −1 − it for NaN."""
    real = row.dtype.type
    unknown = real(0)
    for j in range(row.size):
        unknown += real(0) if row[j] == row[j] else real(1)
    place = np.int64(0)
    if unknown > real(0):
        while row[place] == row[place]:
            place += 1
        place = -1 - place
    else:
        while row[place] != top:
            place += 1
    recompute_hard(normalizer, row, top, real(place))
    return top, real(place)
