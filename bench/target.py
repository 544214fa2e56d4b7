"""Where tasks are measured: on the CPU, or on an accelerator, whose calls return before their work is done."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch

from bench.columns import ACCELERATOR_COLUMNS, CPU_COLUMNS
from bench.task import Inputs
from regard.errors import ArgumentError, BackendError


@dataclass(frozen=True)
class Target:
    """The device and the dtype of a measurement.

    Attributes:
        device: type of the device: ``cpu``, or that of the machine's accelerator.
        dtype: dtype of the inputs: ``float32``, ``bfloat16`` or ``float16``.
    """

    device: str = "cpu"
    dtype: str = "float32"

    @property
    def is_cpu(self) -> bool:
        """Whether it is the CPU."""
        return self.device == "cpu"

    @property
    def item_bytes(self) -> int:
        """Bytes of a number of this dtype."""
        return getattr(torch, self.dtype).itemsize

    def check(self) -> None:
        """Raises an error if PyTorch has no such accelerator here, or the CPU is asked for another dtype."""
        if self.is_cpu:
            if self.dtype != "float32":
                raise ArgumentError("the CPU is measured in float32; leave out --dtype, or add --device cuda")
            return
        if self.device not in ("cuda", "xpu"):
            raise ArgumentError(f"device must be cpu, cuda or xpu; it is {self.device!r}")
        found = torch.accelerator.current_accelerator()
        if found is None or found.type != self.device:
            has = "none" if found is None else found.type
            raise BackendError(f"PyTorch has no device {self.device!r} on this machine; its accelerator is {has}")

    def lacks(self, column: str) -> bool:
        """Whether this implementation does not exist here."""
        return column in (ACCELERATOR_COLUMNS if self.is_cpu else CPU_COLUMNS)

    def inputs(self, inputs: Inputs) -> Inputs:
        """The inputs here, floating-point ones in this dtype."""
        if self == Target():
            return inputs
        dtype = getattr(torch, self.dtype)
        return {
            name: tensor.to(self.device, dtype if tensor.is_floating_point() else None)
            for name, tensor in inputs.items()
        }

    def created(self) -> AbstractContextManager[Any]:
        """A context in which new tensors are created here."""
        return torch.device(self.device)

    def wait(self) -> None:
        """Waits until all work is done."""
        if not self.is_cpu:
            torch.accelerator.synchronize()

    def finished(self, call: Callable[[], Any]) -> Callable[[], Any]:
        """The call, which then waits until its work is done."""
        if self.is_cpu:
            return call

        def run() -> Any:
            result = call()
            self.wait()
            return result

        return run

    def peak(self, call: Callable[[], Any]) -> int:
        """The bytes of an accelerator's memory that a call needs at most, beside what was there before."""
        memory = torch.get_device_module(self.device)
        self.wait()
        memory.reset_peak_memory_stats()
        before = memory.memory_allocated()
        call()
        self.wait()
        return memory.max_memory_allocated() - before

    def name(self) -> str:
        """The name of the accelerator; empty for the CPU."""
        return "" if self.is_cpu else torch.get_device_module(self.device).get_device_name()
