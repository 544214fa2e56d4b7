"""The peak rates of the machine, measured with PyTorch and compiled loops, and the least time of a task."""

import os
import platform
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from bench.target import Target
from bench.task import Work
from regard.kernels.availability import why_missing

if TYPE_CHECKING:
    from regard.kernels.cpu.kernel import Kernel

CACHE_BLOCK = 32_768
"""Elements of each thread's buffer when a peak is measured: two such float32 buffers fit into the core's cache."""

REPEATED = 64
"""Operations on each number in a loop of an accelerator."""


@dataclass(frozen=True)
class Peaks:
    """The peak rates of this machine per second, with the benchmark's number of threads.

    Attributes:
        multiply_adds: float32 multiply-adds, the largest rate of a matrix product, a convolution and a register tile.
        reciprocals: float32 reciprocals of numbers in the cache.
        exponentials: float32 exponentials of numbers in the cache.
        bytes: bytes read and written by a large copy.
    """

    multiply_adds: float
    reciprocals: float
    exponentials: float
    bytes: float

    def limit(self, work: Work) -> float:
        """The least seconds for the work: the largest of the times of the four resources.

        Multiplication, division and memory access can run at the same time.
        """
        return max(
            work.multiply_adds / self.multiply_adds,
            work.reciprocals / self.reciprocals,
            work.exponentials / self.exponentials,
            work.bytes / self.bytes,
        )


def measure_peaks(*, quick: bool = False) -> Peaks:
    """Measure the peak rates; takes one or two seconds, less with ``quick``."""
    seconds = 0.05 if quick else 0.4
    size = 512 if quick else 2048
    left, right = torch.rand(size, size), torch.rand(size, size)
    product = torch.empty(size, size)
    image, kernel = torch.rand(torch.get_num_threads(), 256, 28, 28), torch.rand(256, 256, 3, 3)
    elements = CACHE_BLOCK * torch.get_num_threads()
    block, result = torch.rand(elements) + 0.5, torch.empty(elements)
    numbers = 1 << (22 if quick else 26)
    source, target = torch.ones(numbers), torch.empty(numbers)
    own = own_peaks(seconds) if why_missing() is None else (0.0, 0.0, 0.0)
    with torch.no_grad():
        return Peaks(
            max(
                own[0],
                size**3 / _best(lambda: torch.mm(left, right, out=product), seconds),
                # On some CPUs the library for convolutions uses wider vectors than the library for matrix products.
                _convolved(image, kernel) / _best(lambda: torch.conv2d(image, kernel), seconds),
            ),
            max(own[1], elements / _best(lambda: torch.reciprocal(block, out=result), seconds)),
            # Both bases count as one exponential; PyTorch's functions differ in speed by a factor of four.
            max(
                own[2],
                elements / _best(lambda: torch.exp(block, out=result), seconds),
                elements / _best(lambda: torch.exp2(block, out=result), seconds),
            ),
            2 * source.nbytes / _best(lambda: target.copy_(source), seconds),
        )


def accelerator_peaks(target: Target, *, quick: bool = False) -> Peaks:
    """The same of an accelerator, whose compiled loops keep their numbers in registers; multiply-adds in its dtype."""
    seconds, size, numbers = (0.05, 512, 1 << 18) if quick else (0.3, 8192, 1 << 24)
    dtype = getattr(torch, target.dtype)
    left, right = (torch.rand(size, size, device=target.device, dtype=dtype) for _ in range(2))
    block = torch.rand(numbers, device=target.device)
    source = torch.ones(4 * numbers, device=target.device)
    copied = torch.empty_like(source)
    reciprocals, exponentials = torch.compile(_reciprocals), torch.compile(_exponentials)

    def rate(amount: float, call: Callable[[], Any]) -> float:
        return amount / _best(target.finished(call), seconds)

    with torch.no_grad():
        return Peaks(
            rate(size**3, lambda: torch.mm(left, right)),
            rate(numbers * REPEATED, lambda: reciprocals(block)),
            rate(numbers * REPEATED, lambda: exponentials(block)),
            rate(2 * source.nbytes, lambda: copied.copy_(source)),
        )


def _reciprocals(numbers: torch.Tensor) -> torch.Tensor:
    for _ in range(REPEATED):
        numbers = torch.reciprocal(numbers + 1)
    return numbers


def _exponentials(numbers: torch.Tensor) -> torch.Tensor:
    for _ in range(REPEATED):
        numbers = torch.exp2(-numbers)
    return numbers


def own_peaks(seconds: float) -> tuple[float, float, float]:
    """Multiply-adds, reciprocals and exponentials per second of all threads, in compiled loops in the L1 cache."""
    from bench import loops
    from regard.kernels.cpu.kernel_arguments import address_of
    from regard.kernels.cpu.launch import function_at, named_arguments, packed

    threads = torch.get_num_threads()
    numbers = torch.rand(loops.NUMBERS) + 0.5
    results = [torch.empty(loops.NUMBERS) for _ in range(threads)]
    records = [
        packed(named_arguments(query=address_of(numbers), output=address_of(result), queries=loops.ROUNDS))
        for result in results
    ]

    def rate(loop: "Kernel", amount: int) -> float:
        run = function_at(loop.address)

        def turn(thread: int) -> None:
            run(records[thread].buffer_info()[0])

        turn(0)
        with ThreadPoolExecutor(threads) as pool:
            return threads * loops.ROUNDS * amount / _best(lambda: list(pool.map(turn, range(threads))), seconds)

    return (
        rate(loops.multiply_add, loops.MULTIPLY_ADDS),
        rate(loops.divide, loops.NUMBERS),
        rate(loops.exponentiate, loops.NUMBERS),
    )


def _convolved(image: torch.Tensor, kernel: torch.Tensor) -> int:
    """Multiply-adds of an unpadded convolution."""
    places = (image.shape[2] - kernel.shape[2] + 1) * (image.shape[3] - kernel.shape[3] + 1)
    return image.shape[0] * kernel.numel() * places


def _best(call: Callable[[], Any], seconds: float) -> float:
    """The shortest time of a call, of as many calls as fit into ``seconds``, at least ten."""
    call()
    best, runs, until = float("inf"), 0, time.perf_counter() + seconds
    while runs < 10 or time.perf_counter() < until:
        began = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - began)
        runs += 1
    return best


def cpu_name() -> str:
    """The model name of the CPU."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def available_bytes(device: str = "cpu") -> int:
    """Memory available without swapping; if the system does not report it, half of the memory, else 4 GiB.

    Args:
        device: the CPU, or an accelerator, which has its own memory.
    """
    if device != "cpu":
        return torch.get_device_module(device).mem_get_info()[0]
    try:
        for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("MemAvailable"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (AttributeError, ValueError, OSError):
        return 4 << 30
