"""Vectors as values of kernels: every operation, on every width, and the same kernels for other processors."""

import ctypes
import os
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("numba", reason="kernels are compiled by Numba")

from covering import covering
from regard.kernels.cpu.bodies.compiler import compiled
from regard.kernels.cpu.bodies.intrinsics import address_of, array_at, size_of
from regard.kernels.cpu.bodies.max_reduce import row_max_abs, row_maximum
from regard.kernels.cpu.bodies.parts import has_feature, inlined
from regard.kernels.cpu.bodies.transposing import transpose
from regard.kernels.cpu.bodies.vectors import (
    broadcast,
    broadcast_at,
    folded,
    four_registers,
    has_many_registers,
    lane_max,
    lanes_of,
    load,
    max_of,
    one_register,
    register_bytes,
    store,
    store_transposed,
    sum_of,
    two_registers,
)
from regard.kernels.cpu.bodies.wide_product import Matrix

LENGTH = 256
"""Numbers of each of the rows that a kernel of these tests is given; more than any vector has."""

DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])
WIDTHS = pytest.mark.parametrize(
    ("width", "registers"), [(one_register, (1, 1)), (two_registers, (2, 1)), (four_registers, (4, 2))]
)
"""With how many registers each takes where there are many, and where there are few."""


def run(body, *several):
    """Compile a body, and call it with the address of each of these arrays of rows of LENGTH, which it may change."""
    code, _ = compiled(body, "tried")
    function = ctypes.CFUNCTYPE(None, ctypes.c_int64)(code.link())
    for rows in several:
        assert rows.flags.c_contiguous
        assert rows.shape[1] == LENGTH
        function(rows.ctypes.data)


@DTYPES
@WIDTHS
def test_operators_and_memory(dtype, width, registers):
    zero = dtype(0)

    def body(address):
        zeros = width(zero)
        row, step = LENGTH * size_of(zero), lanes_of(zeros) * size_of(zero)
        for at in range(address, address + row, step):
            left, right = load(at, zeros), load(at + row, zeros)
            store((left * right + broadcast(type(zero)(3), zeros) - right) / right, at + 2 * row)
            store(broadcast_at(at + size_of(zero), zeros), at + 3 * row)

    rows = np.random.default_rng(0).standard_normal((4, LENGTH)).astype(dtype)
    run(body, rows)
    lanes = int(np.flatnonzero(rows[3] != rows[3, 0])[0])
    assert lanes * rows.itemsize == registers[0 if has_many_registers() else 1] * register_bytes()
    exact = (rows[0] * rows[1] + 3 - rows[1]) / rows[1]
    np.testing.assert_allclose(rows[2], exact, rtol=0, atol=8 * np.finfo(dtype).eps * np.abs(1 + 4 / rows[1]).max())
    np.testing.assert_array_equal(rows[3], np.repeat(rows[0, 1::lanes], lanes))


@DTYPES
@WIDTHS
def test_sums_of_lanes(dtype, width, registers):
    zero = dtype(0)

    def body(address):
        zeros, few = width(zero), one_register(zero)
        row = LENGTH * size_of(zero)
        total = zeros
        for at in range(address, address + row, lanes_of(zeros) * size_of(zero)):
            total = total + load(at, zeros)
        result = array_at(address + row, 2, zero)
        result[0], result[1] = sum_of(total), sum_of(folded(total, few))

    rows = np.random.default_rng(0).standard_normal((2, LENGTH)).astype(dtype)
    run(body, rows)
    np.testing.assert_allclose(rows[1, :2], rows[0].sum(dtype=np.float64), rtol=0, atol=100 * np.finfo(dtype).eps)


@DTYPES
@WIDTHS
def test_the_largest_number_of_each_lane_and_of_all(dtype, width, registers):
    zero = dtype(0)

    def body(address):
        zeros, lowest = width(zero), type(zero)(-np.inf)
        row, result = LENGTH * size_of(zero), array_at(address + 3 * LENGTH * size_of(zero), 1, zero)
        tops = broadcast(lowest, zeros)
        for at in range(address, address + row, lanes_of(zeros) * size_of(zero)):
            store(lane_max(load(at, zeros), load(at + row, zeros)), at + 2 * row)
            tops = lane_max(load(at, zeros), tops)
        result[0] = max_of(tops)

    rows = np.random.default_rng(0).standard_normal((4, LENGTH)).astype(dtype)
    rows[0, ::7] = np.nan
    rows[0, 5], rows[1, 6] = np.inf, np.inf
    run(body, rows)
    np.testing.assert_array_equal(rows[2], np.fmax(rows[0], rows[1]))
    assert rows[3, 0] == np.inf


@DTYPES
def test_a_square_transposed(dtype):
    zero = dtype(0)

    def body(address):
        square, size = one_register(zero), size_of(zero)
        middle = address + LENGTH * LENGTH // 2 * size
        store_transposed(address + size, LENGTH * size, middle + 2 * size, LENGTH * size, square)

    rows = np.arange(LENGTH * LENGTH, dtype=dtype).reshape(LENGTH, LENGTH)
    before = rows.copy()
    run(body, rows)
    lanes = register_bytes() // rows.itemsize
    expected = before.copy()
    expected[LENGTH // 2 : LENGTH // 2 + lanes, 2 : 2 + lanes] = before[:lanes, 1 : 1 + lanes].T
    np.testing.assert_array_equal(rows, expected)


@DTYPES
def test_matrices_of_any_size_transposed(dtype):
    """Nothing beside the matrix is read into it or written over. Its size is known to the call, not to the compiler."""
    zero = dtype(0)

    def body(address):
        size = size_of(zero)
        counts = array_at(address + (LENGTH * LENGTH - 2) * size, 2, zero)
        target = Matrix(address + LENGTH * LENGTH // 2 * size, 128, 1)
        transpose(Matrix(address + 3 * size, LENGTH, 1), int(counts[0]), int(counts[1]), target, zero)

    several = []
    for sizes in ((1, 1), (3, 200), (16, 64), (33, 5), (40, 37), (100, 50)):
        rows = np.arange(LENGTH * LENGTH, dtype=dtype).reshape(LENGTH, LENGTH)
        rows[-1, -2:] = sizes
        several.append((sizes, rows, rows.copy()))
    run(body, *(rows for _, rows, _ in several))
    for (count, columns), rows, expected in several:
        part = expected[:count, 3 : 3 + columns].T.copy()
        expected[LENGTH // 2 :].reshape(-1, 128)[:columns, :count] = part
        np.testing.assert_array_equal(rows, expected, err_msg=f"{count} {columns}")


@DTYPES
def test_the_largest_of_rows_of_any_length(dtype):
    zero = dtype(0)

    def body(address):
        result = array_at(address + LENGTH * size_of(zero), 3, zero)
        row = array_at(address, int(result[2]), zero)
        result[0], result[1] = row_maximum(row), row_max_abs(row)

    several = []
    for count in (0, 1, 15, 64, 130, 250):
        for place in {0, count // 2, max(count - 1, 0)}:
            for outlier in (50.0, -50.0, -np.inf):
                rows = np.random.default_rng(0).standard_normal((2, LENGTH)).astype(dtype)
                rows[0, 2::5] = np.nan
                rows[0, place] = outlier
                rows[1, 2] = count
                several.append((count, rows))
    run(body, *(rows for _, rows in several))
    for count, rows in several:
        seen = rows[0, :count][~np.isnan(rows[0, :count])]
        assert rows[1, 0] == seen.max(initial=-np.inf), count
        assert rows[1, 1] == np.abs(seen).max(initial=0), count


@inlined
def _address_of_the_third(array):
    return address_of(array[2:])


def test_addresses_are_whole_numbers():
    """Numba's are unsigned: a signed number added to one makes a real number of 53 bits."""

    def body(address):
        numbers = array_at(address, 4, np.int64(0))
        # Real numbers have no such operation, and would not compile.
        numbers[0] = (_address_of_the_third(numbers) - 16 - address) | 0

    rows = np.full((1, LENGTH), -1)
    run(body, rows)
    assert rows[0, 0] == 0


_OTHER_PROCESSOR = """
import sys, torch, regard

torch.manual_seed(0)
for Q, K, D in ((37, 83, 7), (1, 150, 16), (20, 33, 5)):
    dtype = getattr(torch, sys.argv[1])
    query, key, value = (torch.randn(2, 2, n, D, dtype=dtype) for n in (Q, K, K))
    weight = torch.randn(D, dtype=dtype)
    found = []
    for backend in ("cpu", "reference"):
        leaves = [x.clone().requires_grad_() for x in (query, key, value, weight)]
        out = regard.attend(*leaves[:3], score=regard.scores.Additive(leaves[3]), backend=backend)
        out.square().sum().backward()
        found.append([out.detach(), *(leaf.grad for leaf in leaves)])
    for ours, exact in zip(*found):
        torch.testing.assert_close(ours, exact, rtol=0, atol=200 * torch.finfo(dtype).eps * max(1, exact.abs().max()))
from regard.kernels.cpu.bodies.vectors import has_many_registers, register_bytes
print(register_bytes(), has_many_registers())
"""


WIDER = ("avx", "fma", "f16c", "vaes", "vpclmul", "gfni", "xop", "amx")
"""How the names of what came to x86 with vectors of more than 16 bytes begin."""

OLDER = {"haswell": ("avx2", "avx", "fma", "f16c"), "nehalem": ()}
"""Processors of x86, and what they have of that."""

REGISTERS = {"haswell": 32, "nehalem": 16}
"""The bytes of a register of theirs."""


@pytest.mark.skipif(not has_feature("avx2"), reason="this processor is not one of x86 with AVX2")
@covering(
    name=OLDER,
    dtype=["float32", "float64"],
    # Compiling takes all of the time. This one has the fewest registers and the shortest vectors, of 2 numbers.
    sample_where=lambda name, dtype: (name, dtype) == ("nehalem", "float64"),
)
def test_kernels_for_older_processors(name, dtype, tmp_path):
    """Kernels are written for vectors of any size; what an older processor would run gives the same here."""
    from llvmlite import binding

    there = [feature for feature, found in binding.get_host_cpu_features().items() if found]
    kept = [feature for feature in there if feature in OLDER[name] or not feature.startswith(WIDER)]
    features = ",".join(("+" if feature in kept else "-") + feature for feature in there)
    settings = {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features, "REGARD_CACHE": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", _OTHER_PROCESSOR, dtype],
        env=os.environ | settings,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[-2] == f"{REGISTERS[name]} False"
