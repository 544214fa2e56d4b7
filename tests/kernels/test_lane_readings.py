"""Readings of rows with few keys, which stand side by side in vectors, are those of the whole matrix of weights."""

import pytest
import torch

pytest.importorskip("numba", reason="kernels are compiled by Numba")

import regard
from kernels.oracle import tensors
from regard import masks
from regard.kernels.cpu import kernel_arguments, operators
from regard.kernels.cpu.kernel_arguments import KernelInputs, ReadingOptions
from regard.scores import Dot

READ = regard.Readings(entropy=True, peak=True, received=True, distance=True)
NAMES = ("lse", "entropy", "peak", "received", "distance")
EPS = torch.finfo(torch.float32).eps


def masks_of(queries, keys):
    return {
        "none": None,
        "causal": masks.causal(),
        "from the start": masks.causal(align="start"),
        "window": masks.window(3, 1),
        "lengths": masks.lengths([keys, 0, min(5, keys)], queries=[queries, queries, queries - 3]),
        "documents": masks.documents(torch.arange(queries) // 4, torch.arange(keys) // 5),
    }


def assert_exact(query, key, read=READ, roundings=40, **options):
    """The readings in float32 are those of the specification in float64."""
    got = regard.observe(query, key, key, read=read, backend="cpu", **options)
    exact = regard.observe(query.double(), key.double(), key.double(), read=read, backend="reference", **options)
    for name in NAMES:
        one, other = getattr(got, name), getattr(exact, name)
        size = other[other.isfinite()].abs().max().item() if other.isfinite().any() else 1.0
        torch.testing.assert_close(
            one.double(), other, rtol=0, atol=roundings * EPS * max(1.0, size), msg=lambda m, name=name: f"{name}: {m}"
        )


@pytest.fixture
def launched(monkeypatch):
    """Names of the kernels that were launched."""
    names = []
    launch = operators.launch
    monkeypatch.setattr(
        operators, "launch", lambda kernel, *given: (names.append(kernel.name), launch(kernel, *given))[1]
    )
    return names


@pytest.mark.parametrize("mask", masks_of(9, 9))
@pytest.mark.parametrize(("queries", "keys"), [(8, 1), (16, 16), (17, 5), (31, 33), (13, 67), (101, 257)])
def test_readings_of_any_size(queries, keys, mask, launched):
    inputs = tensors(query=(3, 6, queries, 11), key=(3, 2, keys, 11))
    assert_exact(inputs["query"], inputs["key"], mask=masks_of(queries, keys)[mask])
    assert "lane_readings_float32" in launched


@pytest.mark.parametrize("dim", [1, 2, 16, 17, 33, 64])
def test_any_number_of_features_and_any_layout(dim):
    inputs = tensors(query=(2, 19, 3, dim), key=(2, 23, 3, dim + 2))
    assert_exact(inputs["query"].transpose(1, 2), inputs["key"][..., 1:-1].transpose(1, 2))


def test_the_most_keys_and_one_more(launched):
    for keys in (kernel_arguments.MAX_LANE_KEYS, kernel_arguments.MAX_LANE_KEYS + 1):
        inputs = tensors(query=(1, 2, 9, 8), key=(1, 2, keys, 8))
        assert_exact(inputs["query"], inputs["key"])
    assert launched.count("lane_readings_float32") == 1


@pytest.mark.parametrize("read", [{"top_k": 2}, {"pooled": (2, 2)}], ids=str)
def test_other_readings_are_those_of_the_other_kernel(read, launched):
    inputs = tensors(query=(1, 2, 16, 8), key=(1, 2, 16, 8))
    query, key = inputs["query"], inputs["key"]
    more = regard.observe(query, key, key, read=regard.Readings(entropy=True, received=True, **read), backend="cpu")
    assert "lane_readings_float32" not in launched[:1]
    few = regard.observe(query, key, key, read=regard.Readings(entropy=True, received=True), backend="cpu")
    torch.testing.assert_close(few.entropy, more.entropy)
    torch.testing.assert_close(few.received, more.received)


@pytest.mark.parametrize("gap", [1.0, 5.0, 10.0, 15.0, 25.0, 60.0, 200.0])
def test_entropy_of_peaked_rows_in_lanes_loses_no_digits(gap):
    query, key = torch.ones(1, 1, 9, 1), torch.tensor([gap, 0.0]).reshape(1, 1, 2, 1)
    observed = regard.observe(query, key, key, score=Dot(), read=READ, backend="cpu")
    small = torch.tensor(-gap, dtype=torch.float64).exp()
    exact = (small.log1p() + gap * small / (1 + small)).item()
    # Below float32's least normal number a weight is 0.
    bound = 1e3 * EPS * exact if gap < 80 else 1e-36
    assert (observed.entropy.double() - exact).abs().max() <= bound
    assert (observed.peak.double() - 1 / (1 + small)).abs().max() <= EPS


def test_equal_scores_and_scores_that_are_all_large():
    for size in (0.0, 1e4, -3e37, 3e37):
        query, key = torch.ones(1, 2, 17, 1), torch.full((1, 2, 21, 1), size)
        observed = regard.observe(query, key, key, score=Dot(), read=READ, backend="cpu")
        log = torch.tensor(21.0).log()
        torch.testing.assert_close(observed.entropy, log.expand(1, 2, 17))
        torch.testing.assert_close(observed.lse, (size + log).expand(1, 2, 17))
        torch.testing.assert_close(observed.received, torch.full((1, 2, 21), 17 / 21))


@pytest.mark.parametrize("number", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("where", ["query", "key"])
def test_numbers_that_are_not_finite_reach_the_rows_that_see_them(where, number):
    inputs = tensors(query=(1, 2, 17, 3), key=(1, 2, 19, 3))
    inputs["query"].abs_(), inputs["key"].abs_()
    inputs[where][0, 1, 4] = number
    for mask in (None, masks.causal(align="start"), masks.window(2, 0, align="start")):
        got, expected = (
            regard.observe(inputs["query"], inputs["key"], inputs["key"], mask=mask, read=READ, backend=backend)
            for backend in ("cpu", "reference")
        )
        for name in NAMES:
            one, other = getattr(got, name), getattr(expected, name)
            torch.testing.assert_close(one, other, equal_nan=True, rtol=1e-4, atol=1e-5)


def test_rows_whose_scores_are_minus_infinity_see_nothing():
    query, key = torch.full((1, 1, 9, 1), 1e30), torch.full((1, 1, 5, 1), -1e30)
    observed = regard.observe(query, key, key, score=Dot(), read=READ, backend="cpu")
    assert (observed.lse == -torch.inf).all()
    for name in NAMES[1:]:
        assert (getattr(observed, name) == 0).all()


def test_numbers_of_hidden_keys_are_not_read():
    inputs = tensors(query=(1, 2, 21, 3), key=(1, 2, 21, 3))
    query, key = inputs["query"], inputs["key"]
    mask = masks.lengths([13])
    expected = regard.observe(query, key, key, mask=mask, read=READ, backend="cpu")
    key[:, :, 13:] = torch.nan
    got = regard.observe(query, key, key, mask=mask, read=READ, backend="cpu")
    for name in NAMES:
        assert torch.equal(getattr(got, name), getattr(expected, name))


def test_the_operator_reads_chunks_that_threads_share():
    inputs = tensors(query=(1, 1, 203, 16), key=(1, 1, 97, 16))
    call, asked = KernelInputs(**inputs, value=inputs["key"]), ReadingOptions(entropy=True, received=True, all_rows=203)
    assert operators.blocks_of_readings(call, asked)[1] > 1
    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(operators.read(*call, *asked))
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(one, two) for one, two in zip(found[0], other, strict=True))
