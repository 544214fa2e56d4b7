"""A few queries with many keys, as a decoder's step has them; heads that share keys are rows of one."""

import ctypes
import mmap
import sys

import numpy as np
import pytest
import torch

pytest.importorskip("numba", reason="kernels are compiled by Numba")

import regard
from kernels.oracle import assert_as_exact, tensors
from regard import masks
from regard.attention.backends.cpu.inputs import kernel_inputs, with_heads_as_rows
from regard.attention.problem import validate
from regard.biases import alibi
from regard.kernels.cpu.kernel_arguments import FEW_ROWS
from regard.normalizers import local_gaussian, softmax_with_sink, sparsemax


def inputs_of(queries=1, keys=70, dim=24, value_dim=16, heads=6, kv_heads=2, batch=2, dtype=torch.float32, **more):
    return tensors(
        query=(batch, heads, queries, dim), key=(batch, kv_heads, keys, dim), value=(batch, kv_heads, keys, value_dim),
        dtype=dtype, **more,
    )  # fmt: skip


@pytest.mark.parametrize("queries", [1, 2, 3, 4, 5, 7, FEW_ROWS, FEW_ROWS + 1])
@pytest.mark.parametrize("dim", [1, 15, 16, 17, 40, 64, 130])
def test_any_number_of_rows_and_features(queries, dim):
    for value_dim in (dim, 16, 48, 64, 80):
        assert_as_exact(inputs_of(queries, 70, dim, value_dim, 2, 2), roundings=100)


@pytest.mark.parametrize("keys", [1, 2, 3, 4, 5, 63, 64, 65, 1001])
def test_any_number_of_keys(keys):
    assert_as_exact(inputs_of(keys=keys), roundings=100)


@pytest.mark.parametrize("queries", [1, 3, FEW_ROWS])
@pytest.mark.parametrize(
    "mask",
    [
        masks.causal(),
        masks.window(5, 2),
        masks.window(9) | masks.prefix(4),
        masks.lengths([0, 33]),
        masks.keep(torch.arange(70) % 3 == 0),
        masks.keep(torch.arange(6)[:, None, None] * 9 > torch.arange(70)),
    ],
    ids=repr,
)
def test_masks_of_grouped_heads(queries, mask):
    assert_as_exact(inputs_of(queries), roundings=100, mask=mask)


@pytest.mark.parametrize(
    "normalizer",
    [
        softmax_with_sink(torch.linspace(-1, 1, 6)),
        softmax_with_sink(0.5),
        sparsemax,
        local_gaussian("softmax", torch.tensor(40.0), 9.0),
    ],
    ids=repr,
)
def test_normalizers_of_grouped_heads(normalizer):
    assert_as_exact(inputs_of(), roundings=200, normalizer=normalizer)
    if normalizer is not sparsemax:  # its kernel of additive scores is compiled in float64 only (support/backends.py)
        assert_as_exact(inputs_of(weight=(24,)), roundings=200, normalizer=normalizer)
        assert_as_exact(inputs_of(weight=(6, 24)), roundings=200, normalizer=normalizer)


def test_biases_of_grouped_heads():
    given = inputs_of(queries=2)
    query, key, value = given.values()
    for bias in (alibi(6), torch.randn(6, 2, 70)):
        got = regard.attend(query, key, value, bias=bias, backend="cpu")
        exact = regard.attend(query.double(), key.double(), value.double(), bias=bias, backend="reference")
        torch.testing.assert_close(got.double(), exact, rtol=0, atol=1e-5)


def test_heads_become_rows_only_where_each_has_few():
    query, key, value = inputs_of().values()
    assert with_heads_as_rows(kernel_inputs(validate(query, key, value))).query.shape == (2, 2, 3, 24)
    many = query.expand(2, 6, FEW_ROWS + 1, 24)
    assert with_heads_as_rows(kernel_inputs(validate(many, key, value))).query.shape == many.shape


@pytest.mark.parametrize("queries", [1, 4])
def test_dropout_is_that_of_single_heads(queries):
    query, key, value = inputs_of(queries).values()
    spread = key.repeat_interleave(3, 1), value.repeat_interleave(3, 1)
    outputs = []
    for keys, values in ((key, value), spread):
        torch.manual_seed(5)
        outputs.append(regard.attend(query, keys, values, dropout=0.5, backend="cpu"))
    torch.testing.assert_close(*outputs, rtol=0, atol=1e-5)


def test_weights_and_readings_are_those_of_heads():
    query, key, value = inputs_of(2).values()
    attended = regard.attend_with_weights(query, key, value, backend="cpu")
    exact = regard.attend_with_weights(query, key, value, backend="reference")
    torch.testing.assert_close(attended.weights, exact.weights, rtol=0, atol=1e-6)
    observed = regard.observe(query, key, value, backend="cpu")
    assert torch.equal(observed.output, attended.output)
    torch.testing.assert_close(observed.received, exact.weights.sum(2), rtol=0, atol=1e-5)


def test_masked_keys_never_affect_few_rows():
    query, key, value = inputs_of().values()
    clean = regard.attend(query, key, value, mask=masks.lengths([50, 60]), backend="cpu")
    key[0, :, 50:], value[1, :, 60:] = torch.nan, torch.inf
    torch.testing.assert_close(regard.attend(query, key, value, mask=masks.lengths([50, 60]), backend="cpu"), clean)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="protects memory by a function of Linux's")
@pytest.mark.parametrize("dim", [1, 7, 16, 24])
def test_nothing_is_read_behind_the_last_number(dim):
    """Keys, which are values too, end where a page of memory ends; whoever reads the next page is killed."""
    pages, keys = mmap.mmap(-1, 2 * mmap.PAGESIZE), 5
    numbers = np.frombuffer(pages, np.float32)
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    behind = ctypes.c_void_p(numbers.ctypes.data + mmap.PAGESIZE)
    try:
        key = torch.from_numpy(numbers[: mmap.PAGESIZE // 4])[-keys * dim :].view(1, 1, keys, dim).normal_()
        query = torch.randn(1, 1, 1, dim)
        expected = regard.attend(query, key, key, backend="reference")
        assert protect(behind, mmap.PAGESIZE, 0) == 0
        got = regard.attend(query, key, key, backend="cpu")
    finally:
        protect(behind, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-5)
