"""The exponentials of the units of additive scores, and how large the units are."""

# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
import triton
import triton.language as tl

from regard.kernels.triton.tiles import LOG2E


@triton.jit(do_not_specialize=("L", "LP"))
def unit_powers(
    units, powers, extent, L, LP, D: tl.constexpr, UNITS: tl.constexpr, BLOCK: tl.constexpr, BLOCK_D: tl.constexpr
):
    """Stores e^{2a} of each unit ``[UNITS, LP]``, the positions of a unit next to each other, and max |a| ``[LP]``.

    Beyond the last position and the last unit, a is 0.
    """
    pair = tl.program_id(1).to(tl.int64)
    positions = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    features = tl.arange(0, BLOCK_D)
    largest = tl.zeros((BLOCK,), tl.float32)
    for begin in range(0, UNITS, BLOCK_D):
        unit = begin + features
        inside = (positions[:, None] < L) & (unit[None, :] < D)
        elements = (pair * L + positions)[:, None] * D + unit[None, :]
        block = tl.load(units + elements, mask=inside, other=0.0).to(tl.float32)
        # Not a number counts as large.
        sizes = tl.where(block == block, tl.abs(block), float("inf"))
        largest = tl.maximum(largest, tl.max(sizes, 1))
        spots = (pair * UNITS + unit)[None, :] * LP + positions[:, None]
        tl.store(
            powers + spots, tl.exp2(block * (2.0 * LOG2E)), mask=(unit[None, :] < UNITS) & (positions[:, None] < LP)
        )
    tl.store(extent + pair * LP + positions, largest, mask=positions < LP)
