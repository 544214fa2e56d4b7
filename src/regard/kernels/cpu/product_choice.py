"""Which routine makes float32 products: BLAS or the microkernel, whichever is faster on a product of a block's size.

It is measured once and kept beside the compiled kernels: where both take nearly the same time, every process would
choose by chance otherwise, and the last bits of results with it.
"""

import ctypes
import hashlib
import logging
import time
from contextlib import suppress
from functools import cache

import numpy as np
import torch

from regard.kernels.cpu.cache import DamagedFileError, load, store
from regard.kernels.cpu.compiled import Kernel, cache_folder, target
from regard.kernels.cpu.intrinsics import fetch_add
from regard.kernels.cpu.kernel_arguments import arguments_at, named_kernel
from regard.kernels.cpu.products import Blas, Microkernel, gemm_address, limit_address, limit_threads, product
from regard.kernels.cpu.wide_product import Matrix, Size

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.

LOG = logging.getLogger("regard")

ROWS, DEPTH, COLUMNS = 64, 64, 256
"""A block's product of queries and some keys: two million multiplications and additions."""

ROUNDS = 15
"""How often each routine runs; the fastest of them counts."""

MARGIN = 1.25
"""How much faster than BLAS the microkernel has to be."""


def microkernel_is_chosen() -> bool:
    """Whether the microkernel makes float32 products; as kept by an earlier process, else measured now, and kept."""
    folder = cache_folder()
    if folder is None:
        return _microkernel_wins()
    # BLAS is a part of PyTorch.
    library = hashlib.sha256(f"{torch.__version__}\n{torch.__config__.show()}".encode()).hexdigest()[:16]
    path = folder / f"products-{library}.choice"
    try:
        kept = load(path, target())
        if kept is not None:
            return kept == Microkernel.__name__.encode()
    except DamagedFileError as error:
        LOG.warning("the kept measurement %s is damaged (%s): measuring again ...", path, error)
    chosen = Microkernel if _microkernel_wins() else Blas
    with suppress(OSError):
        store(path, target(), chosen.__name__.encode())
    return chosen is Microkernel


def _microkernel_wins() -> bool:
    by_blas, by_microkernel = measure()
    return by_microkernel * MARGIN < by_blas


@cache
def _kernel(wide: bool) -> Kernel:
    """``output = query · key`` for ``query [queries, dim]`` and ``key [dim, keys]``."""
    Routine = Microkernel if wide else Blas

    def measured_product(address: int) -> None:
        p = arguments_at(address)
        fetch_add(address)
        threads = limit_threads(p.limit_threads, 1)
        a, b = Matrix(p.query, p.dim, 1), Matrix(p.key, p.keys, 1)
        product(Routine(p.gemm), Size(p.queries, p.keys, p.dim), np.float32(1), a, b, Matrix(p.output, p.keys, 1), 0)
        limit_threads(p.limit_threads, threads)

    return named_kernel(measured_product, torch.float32, Routine.__name__)


def measure() -> tuple[float, float]:
    """Seconds of one product on one thread, by BLAS (plain loops where there is none) and by the microkernel."""
    from regard.kernels.cpu.launch import named_arguments, packed

    a, b, c = torch.ones(ROWS, DEPTH), torch.ones(DEPTH, COLUMNS), torch.empty(ROWS, COLUMNS)
    numbers = named_arguments(
        gemm=gemm_address(torch.float32), limit_threads=limit_address(), queries=ROWS, dim=DEPTH, keys=COLUMNS,
        query=a.data_ptr(), key=b.data_ptr(), output=c.data_ptr(),
    )  # fmt: skip
    ways = [ctypes.CFUNCTYPE(None, ctypes.c_int64)(_kernel(wide).address) for wide in (False, True)]
    best = [float("inf"), float("inf")]
    for _ in range(ROUNDS):
        for way, run in enumerate(ways):
            record = packed(numbers)
            started = time.perf_counter()
            run(ctypes.addressof(record))
            best[way] = min(best[way], time.perf_counter() - started)
    return best[0], best[1]
