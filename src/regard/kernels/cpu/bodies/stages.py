"""A launch of several kernels, one after the other, that all threads enter once."""

from collections.abc import Callable

import numpy as np

from regard.kernels.cpu.bodies.arguments import arguments_at, stage_at
from regard.kernels.cpu.bodies.intrinsics import array_at, call_int32, call_kernel, fetch_add, load_shared
from regard.kernels.cpu.kernel_arguments import STAGE_RECORD

_POLLS = 64
"""How often a thread looks whether the others are done before it lets another one run on its core."""

_STAGE_SIZE = STAGE_RECORD.itemsize
_ENTERED, _LEFT = (STAGE_RECORD.fields[name][1] for name in ("entered", "left"))  # type: ignore[index]


def run_stages() -> Callable[[int], None]:
    """Returns the body that runs the stages of a launch: no task begins before all tasks of the stage before are done.

    A thread that finds no task left waits for those that are in the stage, and not for those that have not come yet: on
    a busy machine, these may wait for a core. A thread that comes late finds no task and goes on. Where tasks are left,
    no thread that was there got memory: it ends, and the stage belongs to those that come later.
    """

    def body(address: int) -> None:
        numbers = array_at(address, 2, np.int64(0))
        stages, give_way = numbers[0], numbers[1]
        for index in range(stages):
            record = address + numbers.nbytes + index * _STAGE_SIZE
            stage = stage_at(record)
            fetch_add(record + _ENTERED)
            call_kernel(stage.kernel, stage.arguments)
            fetch_add(record + _LEFT)
            polls = 0
            # In this order: threads that had entered when the second number was read had left when the first one was.
            while index < stages - 1 and load_shared(record + _LEFT) != load_shared(record + _ENTERED):
                polls += 1
                if polls % _POLLS == 0 and give_way != 0:
                    call_int32(give_way, np.int32(0))
            # Kernels count their next task in the first field of their arguments.
            if load_shared(stage.arguments) < arguments_at(stage.arguments).tasks:
                return

    return body
