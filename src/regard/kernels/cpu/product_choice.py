"""Which routine makes float32 products: BLAS or the microkernel, whichever is faster on a product of a block's size.

Intel's MKL is known: on processors that AMD did not make it was the faster one wherever it was measured. On AMD's it
uses vectors of 256 bits; on a Zen 4, attention took 0.83 to 0.98 of the time with the microkernel. Any other BLAS is
measured once, and the choice is kept beside the compiled kernels: where both take nearly the same time, every
process would choose by chance otherwise, and the last bits of results with it.
"""

import ctypes
import hashlib
import logging
import math
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import numpy as np
import torch
from torch import Tensor

from regard.kernels.availability import is_slow_for_mkl
from regard.kernels.cpu.blas import MKL_LIMIT, gemm_address, limit_address
from regard.kernels.cpu.cache import DamagedFileError, cache_folder, load, store
from regard.kernels.cpu.fields import address_of
from regard.kernels.cpu.target import target
from regard.kernels.cpu.threads import function_at, symbol

LOG = logging.getLogger("regard")

ROWS, DEPTH, COLUMNS = 64, 64, 1024
"""A block's product of queries and some keys: four million multiplications and additions each, next to which a call
from Python takes no time."""

MICROKERNEL, BLAS = b"microkernel", b"blas"
"""What a file of a choice holds."""

ROUNDS = 15
"""How often each routine runs; the fastest of them counts."""

MARGIN = 1.25
"""How much faster than BLAS the microkernel has to be."""


def microkernel_is_chosen() -> bool:
    """Whether the microkernel makes float32 products; as kept by an earlier process, else measured now, and kept."""
    if symbol(MKL_LIMIT) is not None:
        return is_slow_for_mkl()
    folder = cache_folder()
    if folder is None:
        return _microkernel_wins()
    # BLAS is a part of PyTorch.
    library = hashlib.sha256(f"{torch.__version__}\n{torch.__config__.show()}".encode()).hexdigest()[:16]
    path = folder / f"products-{library}.choice"
    try:
        kept = load(path, target())
        if kept is not None:
            return kept == MICROKERNEL
    except DamagedFileError as error:
        LOG.warning("the kept measurement %s is damaged (%s): measuring again ...", path, error)
    chosen = MICROKERNEL if _microkernel_wins() else BLAS
    with suppress(OSError):
        store(path, target(), chosen)
    return chosen == MICROKERNEL


def _microkernel_wins() -> bool:
    by_blas, by_microkernel = measure()
    return by_microkernel * MARGIN < by_blas


def measure() -> tuple[float, float]:
    """Seconds of one product on one thread, by BLAS (infinite where there is none) and by the microkernel."""
    from regard.kernels.cpu.kernels import multiply
    from regard.kernels.cpu.record import PRODUCT, WIDE

    a, b, c = torch.ones(ROWS, DEPTH), torch.ones(DEPTH, COLUMNS), torch.empty(ROWS, COLUMNS)
    record = np.zeros((), PRODUCT)
    told = {
        "way": WIDE, "factor": 1, "rows": ROWS, "columns": COLUMNS, "depth": DEPTH,
        "a": address_of(a), "a_row": DEPTH, "a_column": 1, "b": address_of(b), "b_row": COLUMNS,
        "c": address_of(c), "c_row": COLUMNS,
    }  # fmt: skip
    for name, number in told.items():
        record[name] = number
    by_microkernel = partial(function_at(multiply(torch.float32).address), record.ctypes.data)
    if not gemm_address(torch.float32):
        return math.inf, _fastest(by_microkernel)[0]
    limit = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(limit_address())
    before = limit(1)
    try:
        of_blas, of_microkernel = _fastest(_product_by_blas(a, b, c), by_microkernel)
    finally:
        limit(before)
    return of_blas, of_microkernel


def _product_by_blas(a: Tensor, b: Tensor, c: Tensor) -> Callable[[], object]:
    """``c = a b``; BLAS counts by columns, so it is told ``cᵀ = bᵀ aᵀ``."""
    rows, depth, columns = (ctypes.byref(ctypes.c_int(length)) for length in (*a.shape, b.shape[1]))
    factor, keep, plain = ctypes.byref(ctypes.c_float(1)), ctypes.byref(ctypes.c_float(0)), ctypes.c_char_p(b"N")
    pointer = [ctypes.c_void_p(address_of(matrix)) for matrix in (a, b, c)]
    gemm = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 13)(gemm_address(torch.float32))
    return partial(
        gemm, plain, plain, columns, rows, depth, factor, pointer[1], columns, pointer[0], depth, keep, pointer[2],
        columns,
    )  # fmt: skip


def _fastest(*ways: Callable[[], object]) -> list[float]:
    """The shortest time of each way; they run in turn, so that a change of the machine's speed meets all of them."""
    best = [math.inf] * len(ways)
    for _ in range(ROUNDS):
        for place, way in enumerate(ways):
            started = time.perf_counter()
            way()
            best[place] = min(best[place], time.perf_counter() - started)
    return best
