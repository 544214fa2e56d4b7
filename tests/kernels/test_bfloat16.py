"""Numbers of bfloat16 in kernels: rounding to them, their products, and where there are none."""

import ctypes
import sys

import numpy as np
import pytest
import torch

pytest.importorskip("numba", reason="kernels are compiled by Numba")

from regard.errors import BackendError
from regard.kernels import availability
from regard.kernels.cpu import kernels, target
from regard.kernels.cpu.bodies import multiply
from regard.kernels.cpu.bodies.compiler import compiled
from regard.kernels.cpu.bodies.elementary import bfloat16_of
from regard.kernels.cpu.bodies.intrinsics import array_at
from regard.kernels.cpu.record import PRODUCT, WIDE
from regard.kernels.cpu.threads import function_at


def rounded(numbers):
    """Numbers in bfloat16, rounded by a kernel."""
    count = len(numbers)

    def body(address):
        given = array_at(address, count, np.float32(0))
        found = array_at(address + 4 * count, count, np.int16(0))
        for j in range(count):
            found[j] = bfloat16_of(given[j])

    memory = np.concatenate([numbers, np.zeros(count // 2, np.float32)])
    code = compiled(body, "rounded")
    ctypes.CFUNCTYPE(None, ctypes.c_int64)(code.address)(memory.ctypes.data)
    return torch.from_numpy(memory[count:].view(np.int16)).view(torch.bfloat16)


def test_rounding_is_that_of_pytorch():
    bits = np.random.default_rng(4).integers(0, 1 << 32, 1 << 16, dtype=np.uint64).astype(np.uint32)
    # Halfway between two, a little beside it, and at both ends of what there is.
    ties = (bits & 0xFFFF0000) | 0x8000
    ends = np.array([0, 1, 0x7F7FFFFF, 0x7F7F8000, 0x7F7F7FFF, 0x7F800000, 0x7F800001, 0x7FFFFFFF], np.uint32)
    bits = np.concatenate([bits, ties, ties + 1, ties - 1, ends, ends | 0x80000000])
    numbers = bits.view(np.float32)
    expected = torch.from_numpy(numbers).bfloat16()
    torch.testing.assert_close(rounded(numbers), expected, atol=0, rtol=0, equal_nan=True)
    signs = rounded(np.array([0.0, -0.0], np.float32)).signbit().tolist()
    assert signs == [False, True]


@pytest.fixture
def multiply_pairs():
    """The kernel that multiplies bfloat16, called with ``a [rows, depth]``, ``b [depth, columns]`` and what to keep."""
    if not availability.multiplies_bfloat16():
        pytest.skip("this processor does not multiply bfloat16")
    run = function_at(kernels.multiply(torch.bfloat16).address)

    def product(a, b, c, keep):
        pairs = b.view(len(b) // 2, 2, -1).transpose(1, 2).contiguous()
        record = np.zeros((), PRODUCT)
        told = {
            "way": WIDE, "keep": keep, "factor": 1, "rows": len(a), "columns": b.shape[1], "depth": len(b) // 2,
            "a": a.data_ptr(), "a_row": a.stride(0) // 2, "a_column": 1, "b": pairs.data_ptr(), "b_row": b.shape[1],
            "c": c.data_ptr(), "c_row": c.stride(0),
        }  # fmt: skip
        for name, number in told.items():
            record[name] = number
        run(record.ctypes.data)

    return product


@pytest.mark.parametrize("rows", [1, 2, 5, 6, 8, 13])
@pytest.mark.parametrize("columns", [16, 48, 80, 256])
@pytest.mark.parametrize("depth", [2, 30, 256, 258, 1024])
@pytest.mark.parametrize("keep", [0, 1])
def test_products_are_exact_to_float32(multiply_pairs, rows, columns, depth, keep):
    torch.manual_seed(rows * columns * depth)
    # Rows of ``a`` and ``c`` lie apart; what lies between them is never touched.
    a = torch.full((rows, depth + 4), torch.nan, dtype=torch.bfloat16)
    a[:, :depth] = torch.randn(rows, depth)
    b = torch.randn(depth, columns).bfloat16()
    c = torch.full((rows, columns + 7), 3.0)
    c[:, :columns] = torch.randn(rows, columns) if keep else torch.nan
    exact = a[:, :depth].double() @ b.double() + (c[:, :columns].double() if keep else 0.0)
    size = a[:, :depth].double().abs() @ b.double().abs() + 1
    multiply_pairs(a, b, c, keep)
    assert ((c[:, :columns] - exact).abs() <= 1e-6 * size).all()
    assert (c[:, columns:] == 3.0).all()


def test_no_kernel_multiplies_them_for_a_processor_that_does_not(monkeypatch):
    monkeypatch.setattr(multiply, "has_feature", lambda name: name != "avx512bf16")
    with pytest.raises(BackendError, match="does not multiply bfloat16"):
        multiply.multiply("bfloat16")


@pytest.fixture
def _compiles_for_this_processor(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("CPU_NAME", "CPU_FEATURES", "ENABLE_AVX"):
        monkeypatch.delenv(f"NUMBA_{name}", raising=False)


@pytest.mark.usefixtures("_compiles_for_this_processor")
@pytest.mark.parametrize(
    ("description", "expected"),
    [
        (("vendor_id: AuthenticAMD", "flags: fpu avx512f avx512_bf16 clzero"), True),
        (("vendor_id: GenuineIntel", "flags: fpu avx512f avx512_vnni"), False),
        (("znver4", "+avx512f,+avx512bf16,-amx-bf16"), True),
        (("icelake-server", "+avx512f,-avx512bf16"), False),
        (("Features: fp asimd bf16 i8mm",), False),
        ((), False),
    ],
)
def test_processors_that_multiply_them(monkeypatch, description, expected):
    monkeypatch.setattr(target, "processor", lambda: description)
    assert target.multiplies_bfloat16() is expected


@pytest.mark.usefixtures("_compiles_for_this_processor")
@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize(
    ("name", "value"), [("CPU_NAME", "generic"), ("CPU_FEATURES", "+avx2"), ("ENABLE_AVX", 0), ("a file", None)]
)
def test_a_compiler_that_is_told_of_another_processor_multiplies_none(monkeypatch, tmp_path, loaded, name, value):
    monkeypatch.setattr(target, "processor", lambda: ("flags: avx512_bf16",))
    numba = sys.modules["numba"]
    for setting, usual in (("CPU_NAME", None), ("CPU_FEATURES", None), ("ENABLE_AVX", True)):
        monkeypatch.setattr(numba.config, setting, usual)
    if not loaded:
        monkeypatch.delitem(sys.modules, "numba")
    assert target.multiplies_bfloat16()
    if name == "a file":
        # It says something only to a compiler that is not loaded yet.
        (tmp_path / ".numba_config.yaml").write_text("cpu_name: generic\n")
        assert target.multiplies_bfloat16() is loaded
        return
    if loaded:
        monkeypatch.setattr(numba.config, name, value)
    else:
        monkeypatch.setenv(f"NUMBA_{name}", str(value))
    assert not target.multiplies_bfloat16()


def test_no_kernel_multiplies_them_where_there_are_no_kernels(monkeypatch):
    monkeypatch.setattr(availability, "_NUMBA", False)
    assert not availability.multiplies_bfloat16()
