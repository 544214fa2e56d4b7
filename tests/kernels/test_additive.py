"""The additive kernel is exact over all of its range: both of its paths, odd sizes, prime lengths, nothing visible."""

import pytest
import torch

pytest.importorskip("numba", reason="kernels are compiled by Numba")

import regard
from kernels.oracle import assert_as_exact, outcome, tensors
from regard import masks
from regard.scores import Additive

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


def problem(queries, keys, dim, dtype=torch.float32, scale=1.0, heads=1):
    """An additive problem whose projections are ``scale`` times normally distributed."""
    inputs = tensors(
        dtype=dtype,
        query=(1, heads, queries, dim),
        key=(1, heads, keys, dim),
        value=(1, heads, keys, 5),
        weight=(heads, dim),
    )
    inputs["weight"] /= dim**0.5
    inputs["query"] *= scale
    inputs["key"] *= scale
    return inputs


def scores_of(query, key, weight):
    """Scores ``[queries, keys]`` alone: the log-sum-exp of a row that has one key is its score."""
    keys, dim = key.shape
    rows = query.expand(keys, 1, *query.shape)
    values = key.new_zeros(keys, 1, 1, 1)
    return regard.observe(rows, key.reshape(keys, 1, 1, dim), values, score=Additive(weight), backend="cpu").lse[:, 0].T


@DTYPES
@pytest.mark.parametrize("scale", [0.01, 1, 5, 20, 100, 500])
def test_scores_err_by_a_few_roundings_of_the_weights_sum(scale, dtype):
    inputs = problem(131, 257, 65, dtype, scale)
    query, key, weight = inputs["query"][0, 0], inputs["key"][0, 0], inputs["weight"][0]
    exact = ((query.double()[:, None] + key.double()).tanh() * weight.double()).sum(-1)
    # tanh of the rounded sum is what float64 itself can promise.
    bound = 3 * torch.finfo(dtype).eps * weight.abs().sum().item()
    torch.testing.assert_close(scores_of(query, key, weight).double(), exact, rtol=0, atol=bound)


@DTYPES
@pytest.mark.parametrize("size", [21.4, 21.6, 43.0, 99.0, 174.9, 175.1, 354.0, 1e4, 1e30])
@pytest.mark.parametrize("sign", [1, -1])
def test_large_projections_that_cancel(size, sign, dtype):
    query = torch.tensor([[sign * size, sign * size, 0.3]], dtype=dtype)
    offsets = torch.tensor([-1.0, -0.25, 0.0, 0.25, 1.0], dtype=dtype)
    key = torch.stack([offsets - sign * size, torch.full_like(offsets, sign * size), offsets], dim=-1)
    weight = torch.tensor([1.0, -0.5, 2.0], dtype=dtype)
    exact = ((query.double()[:, None] + key.double()).tanh() * weight.double()).sum(-1)
    bound = 4 * torch.finfo(dtype).eps * weight.abs().sum().item()
    torch.testing.assert_close(scores_of(query, key, weight).double(), exact, rtol=0, atol=bound)


@DTYPES
@pytest.mark.parametrize("scale", [1, 5, 20, 100, 500])
def test_output_and_gradients_for_any_range(scale, dtype):
    assert_as_exact(problem(67, 257, 7, dtype, scale, heads=2), roundings=300)


@pytest.mark.parametrize("dim", [1, 2, 7, 64, 65])
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 131), (131, 1), (131, 257), (65, 127), (64, 128)])
def test_odd_and_prime_sizes(queries, keys, dim):
    assert_as_exact(problem(queries, keys, dim), roundings=200)


def test_tiles_of_small_and_of_large_keys_in_one_row():
    inputs = problem(131, 390, 7)
    inputs["key"][..., 128:256, :] *= 100
    inputs["query"][..., ::3, :] *= 50
    assert_as_exact(inputs, roundings=300)
    assert_as_exact(inputs, roundings=300, mask=masks.window(100, 30))


@DTYPES
@pytest.mark.parametrize("band", [None, (700, 400)], ids=["all", "band"])
def test_more_keys_than_sums_stay_in_lanes(band, dtype):
    """Queries' sums are added up after 512 keys; segments begin and end in the midst of tiles and of those."""
    inputs = problem(67, 1171, 7, dtype, heads=2)
    inputs["key"][..., 600:700, :] *= 100
    inputs["query"][..., ::3, :] *= 50
    mask = None
    if band is not None:
        place, center = torch.arange(1171), 17 * torch.arange(67)[:, None]
        mask = masks.keep((place > center - band[0]) & (place < center + band[1]))
    assert_as_exact(inputs, roundings=500, mask=mask)


@DTYPES
def test_a_key_that_is_not_a_number_hides_no_larger_one(dtype):
    """Which exponents a tile has is known together; a key of NaN changes nothing for who does not see it."""
    inputs = problem(2, 5, 3, dtype)
    inputs["key"][0, 0, 0] = 50.0 if dtype == torch.float32 else 400.0
    inputs["query"][0, 0, 0] = 10.0
    seen = masks.keep(torch.tensor([[True, False, True, True, True], [True] * 5]))
    clean = outcome("reference", inputs, torch.float64, mask=seen)["output"]
    inputs["key"][0, 0, 1] = torch.nan
    output = outcome("cpu", inputs, mask=seen)["output"]
    torch.testing.assert_close(output[0, 0, 0].double(), clean[0, 0, 0], rtol=0, atol=50 * torch.finfo(dtype).eps)
    assert output[0, 0, 1].isnan().all()


@DTYPES
def test_equal_rows_get_equal_weights(dtype):
    inputs = problem(67, 257, 7, dtype)
    inputs["key"] = inputs["key"][:, :, :1].expand(-1, -1, 257, -1)
    output = outcome("cpu", inputs)["output"]
    mean = inputs["value"].double().mean(2, keepdim=True).expand_as(output)
    torch.testing.assert_close(output.double(), mean, rtol=0, atol=8 * torch.finfo(dtype).eps)
    assert_as_exact(inputs, roundings=100)


def test_whoever_sees_nothing_gets_nothing_and_passes_nothing():
    inputs = problem(67, 257, 7, heads=2)
    nobody = outcome("cpu", inputs, mask=masks.lengths([0]))
    assert not any(tensor.any() for tensor in nobody.values())
    rows = torch.arange(67)[:, None] % 5 > 0
    some = outcome("cpu", inputs, mask=masks.keep(rows.expand(67, 257)))
    assert not some["output"][:, :, ::5].any()
    assert not some["query"][:, :, ::5].any()
    assert some["query"][:, :, 1::5].any()


def test_one_key_passes_nothing_to_its_score():
    inputs = problem(131, 1, 65)
    results = outcome("cpu", inputs)
    torch.testing.assert_close(results["output"], inputs["value"].expand_as(results["output"]))
    assert max(float(results[name].abs().max()) for name in ("query", "key", "weight")) < 1e-5


def test_decoder_steps_over_ragged_memories():
    lengths = torch.tensor([50, 1, 0, 37, 129])
    inputs = tensors(query=(5, 1, 1, 65), key=(5, 1, 129, 65), value=(5, 1, 129, 7), weight=(65,))
    inputs["weight"] /= 8
    assert_as_exact(inputs, roundings=100, mask=masks.lengths(lengths))


@DTYPES
def test_nan_in_a_query_stays_in_its_additive_row(dtype):
    inputs = problem(3, 131, 7, dtype)
    inputs["query"][0, 0, 1, 2] = torch.nan
    output = outcome("cpu", inputs)["output"]
    assert output[0, 0, 1].isnan().all()
    assert not output[0, 0, [0, 2]].isnan().any()
