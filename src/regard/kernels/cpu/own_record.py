"""Launching a kernel that has a record of its own instead of the one that kernels of attention share."""

import ctypes
import struct

import numpy as np

from regard.kernels.cpu.kernel import Kernel
from regard.kernels.cpu.threads import run


class OwnRecord:
    """The record of a few kernels.

    Args:
        layout: of integers and float64 numbers; the first one is the counter of tasks.
    """

    def __init__(self, layout: np.dtype):
        assert layout.fields is not None
        self._names = tuple(layout.fields)
        self._format = struct.Struct("".join("d" if kind == np.float64 else "q" for kind, *_ in layout.fields.values()))

    def launch(self, kernel: Kernel, tasks: int, work: float, **numbers: float) -> None:
        """Run a kernel.

        Args:
            kernel: what runs.
            tasks: how many there are.
            work: a rough number of elementary operations.
            numbers: of the record, by name; all but the counter.
        """
        packed = self._format.pack(0, *(numbers[name] for name in self._names[1:]))
        record = ctypes.create_string_buffer(packed, len(packed))
        run(kernel, ctypes.addressof(record), tasks, work)
