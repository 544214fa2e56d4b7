"""Without a BLAS to call, the kernels' own loops give the same results."""

import pytest
import torch

pytest.importorskip("numba", reason="kernels are compiled by Numba")

from kernels.oracle import assert_as_exact, outcome, tensors
from regard import masks
from regard.kernels import products, record


@pytest.fixture
def _no_blas(monkeypatch):
    monkeypatch.setattr(record, "gemm_address", lambda dtype: 0)
    monkeypatch.setattr(record, "limit_address", lambda: 0)


def inputs_of(dtype, additive, dim=7, value_dim=5):
    shapes = {"query": (2, 4, 67, dim), "key": (2, 2, 131, dim), "value": (2, 2, 131, value_dim)}
    return tensors(dtype=dtype, **shapes, **({"weight": (4, dim)} if additive else {}))


@pytest.mark.usefixtures("_no_blas")
@pytest.mark.parametrize("additive", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("sizes", [(7, 5), (1, 1), (64, 65)])
def test_own_loops_are_exact(dtype, additive, sizes):
    for mask in (None, masks.causal(), masks.lengths([67, 0])):
        assert_as_exact(inputs_of(dtype, additive, *sizes), roundings=300, mask=mask)


@pytest.mark.parametrize("additive", [False, True])
def test_own_loops_give_what_blas_gives(additive, monkeypatch):
    if not products.gemm_address(torch.float32):
        pytest.skip("PyTorch's library shows no BLAS")
    inputs = inputs_of(torch.float32, additive)
    blas = outcome("cpu", inputs, mask=masks.causal())
    called = []
    monkeypatch.setattr(record, "gemm_address", lambda dtype: called.append(dtype) or 0)
    loops = outcome("cpu", inputs, mask=masks.causal())
    assert called
    for name, expected in blas.items():
        torch.testing.assert_close(loops[name], expected, rtol=1e-5, atol=1e-5)
