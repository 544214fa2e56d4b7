"""Matrix products by BLAS, by wide vectors, and by plain loops: every way gives the same results."""

import itertools

import pytest
import torch

pytest.importorskip("numba", reason="kernels are compiled by Numba")

from kernels.oracle import assert_as_exact, outcome, tensors
from regard import attend, masks, observe
from regard.kernels import availability
from regard.kernels.cpu import kernels, launch, libraries, target


@pytest.fixture(params=["blas", "wide", "plain"])
def _way(request, monkeypatch):
    """The way products are made; wide vectors are right on every processor, if only fast on some."""
    if request.param == "blas" and not libraries.gemm_address(torch.float32):
        pytest.skip("PyTorch's library shows no BLAS")
    wide = request.param == "wide"
    monkeypatch.setattr(kernels, "is_wide", lambda inputs: wide and inputs.query.dtype == torch.float32)
    if request.param != "blas":
        monkeypatch.setattr(kernels, "gemm_address", lambda dtype: 0)


def inputs_of(dtype, additive, dim=7, value_dim=5, queries=67, keys=131):
    shapes = {"query": (2, 4, queries, dim), "key": (2, 2, keys, dim), "value": (2, 2, keys, value_dim)}
    return tensors(dtype=dtype, **shapes, **({"weight": (4, dim)} if additive else {}))


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("additive", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("sizes", [(7, 5), (1, 1), (16, 64), (64, 65), (130, 33)])
def test_every_way_is_exact(dtype, additive, sizes):
    for mask in (None, masks.causal(), masks.window(20, 3), masks.lengths([67, 0])):
        assert_as_exact(inputs_of(dtype, additive, *sizes), roundings=300, mask=mask)


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("queries", [1, 2, 5, 6, 7, 63, 64, 65])
@pytest.mark.parametrize("keys", [1, 15, 16, 17, 128, 257])
def test_every_way_ends_where_rows_end(queries, keys):
    """Rows and columns that fill no tile of registers; memory behind them is NaN and must not come in."""
    assert_as_exact(inputs_of(torch.float32, False, 17, 19, queries, keys), roundings=300)


def test_a_call_that_is_told_two_things_of_products_is_exact(monkeypatch):
    """As if the choice changed within a call."""
    for first in (False, True):
        answers = itertools.cycle((first, not first))
        monkeypatch.setattr(kernels, "is_wide", lambda inputs, answers=answers: next(answers))
        assert_as_exact(inputs_of(torch.float32, False, 16, 16), roundings=300)


@pytest.mark.parametrize("read", [False, True])
def test_keys_are_transposed_for_a_few_heads_at_a_time_with_the_same_bits(monkeypatch, read):
    monkeypatch.setattr(kernels, "is_wide", lambda inputs: True)
    query, key, value = (torch.randn(3, heads, length, 32) for heads, length in ((6, 70), (2, 300), (2, 300)))
    found = []
    for numbers in (1, 1 << 20):
        monkeypatch.setattr(launch, "TRANSPOSED_ELEMENTS", numbers)
        monkeypatch.setattr(launch, "THREAD_TASKS", 1)
        given = {"mask": masks.lengths([300, 7, 211]), "normalizer": "entmax15", "backend": "cpu"}
        found.append(observe(query, key, value, **given) if read else (attend(query, key, value, **given),))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True) if one is not None)


def test_a_matrix_that_was_never_written_is_not_read(monkeypatch):
    """Products that replace what was there must not add to it, be it NaN."""
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    for queries in (3, 131):
        results = outcome("cpu", inputs_of(torch.float32, False, 64, 64, queries, 257))
        assert all(torch.isfinite(tensor).all() for tensor in results.values())


@pytest.mark.parametrize(
    ("capability", "vendor", "mkl", "blas_shown", "expected"),
    [
        ("AVX512", "AuthenticAMD", True, True, True),
        ("AVX512", "AuthenticAMD", False, True, False),
        ("AVX512", "AuthenticAMD", False, False, True),
        ("AVX512", "GenuineIntel", True, True, False),
        ("AVX512", "GenuineIntel", False, False, True),
        ("AVX2", "AuthenticAMD", True, True, False),
        ("DEFAULT", "", False, False, False),
    ],
)
def test_the_routine_follows_from_the_processor_and_the_library(
    monkeypatch, capability, vendor, mkl, blas_shown, expected
):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: mkl)
    monkeypatch.setattr(target, "processor", lambda: (f"vendor_id: {vendor}", "flags: fpu avx512f"))
    monkeypatch.setattr(libraries, "gemm_address", lambda dtype: 1 if blas_shown else 0)
    monkeypatch.setattr(availability, "is_slow_for_mkl", availability.is_slow_for_mkl.__wrapped__)
    assert availability.microkernel_is_faster.__wrapped__() is expected
