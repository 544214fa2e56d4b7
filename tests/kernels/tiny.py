"""A kernel that is compiled in a moment."""

import ctypes

import numpy as np

from regard.kernels.cpu.kernel import Kernel

SIZE = 1031


def tiny(step=7):
    """A kernel that adds ``step`` to the number at its address."""
    return Kernel(__name__, "tiny_kernel", str(step))


def tiny_kernel(word):
    """Its body: the machine code has constants, a loop, and a call of C's to fill memory."""
    from regard.kernels.cpu.bodies.intrinsics import array_at

    zero, step = np.int64(0), int(word)

    def body(address):
        scratch = array_at(address, SIZE, zero)
        numbers = scratch[1:]
        numbers[:] = zero
        for j in range(numbers.size):
            numbers[j] += step
        scratch[0] += numbers[numbers.size - 1]

    return body


def call(kernel):
    """What the kernel makes of 0."""
    numbers = (ctypes.c_int64 * SIZE)()
    ctypes.CFUNCTYPE(None, ctypes.c_int64)(kernel.address)(ctypes.addressof(numbers))
    return numbers[0]


def broken():
    """A kernel that no compiler takes."""
    return Kernel(__name__, "broken_kernel", "1")


def broken_kernel(word):
    def body(address):
        return address.nothing + word

    return body
