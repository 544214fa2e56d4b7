"""Kernels are put together from parts that have no machine code of their own."""

import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("numba", reason="kernels are compiled by Numba")

import numba
import torch

from regard.kernels.cpu import cache, kernels
from regard.kernels.cpu.bodies.intrinsics import array_at
from regard.kernels.cpu.bodies.parts import inlined
from regard.kernels.kinds import SOFTMAX


@inlined
def first_of(address: int) -> float:
    return array_at(address, 1, np.float32(0))[0]


def test_a_part_has_no_machine_code():
    first_of.compile((numba.types.int64,))
    (compiled,) = first_of.overloads.values()
    assert compiled.library.get_pointer_to_function(compiled.fndesc.mangled_name) == 0


def test_only_kernels_call_parts():
    """Numba's own functions would be given a part without the parts that it calls."""

    @numba.njit
    def outside(address):
        return first_of(address)

    with pytest.raises(Exception, match="only kernels can call 'first_of', which is a part of kernels"):
        outside.compile((numba.types.int64,))


def test_a_kernel_holds_all_its_parts():
    """A process that cannot resolve what a kernel calls ends; one without Numba cannot resolve what Numba has."""
    paths = []
    for units in ("product", "tanh", "relu"):
        for kernel in kernels.for_calls(torch.float32, units, SOFTMAX, gradient=True):
            kernel.load()
            paths.append(kernel.source.path(cache.cache_folder()))
    program = (
        "import sys; from pathlib import Path\n"
        "from regard.kernels.cpu import cache; from regard.kernels.cpu.machine_code import MachineCode\n"
        "from regard.kernels.cpu.target import target\n"
        "for path in map(Path, sys.argv[1:]):\n"
        "    assert MachineCode.from_content(cache.load(path, target())).link(), path\n"
        "assert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program, *paths], check=True)


def test_a_first_call_does_not_load_the_compiler_of_pytorch():
    """It takes longer to load than all else in that call."""
    program = (
        "import sys, torch, regard; q = torch.randn(1, 2, 40, 8, requires_grad=True)\n"
        "regard.attend(q, q, q, normalizer='entmax15', backend='cpu').sum().backward()\n"
        "regard.normalizers.Entmax(1.5)(q).sum().backward()\n"
        "assert 'torch._dynamo' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
