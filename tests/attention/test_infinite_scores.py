"""Rows with a score of +∞ or NaN: every backend gives the output and the readings of the specification."""

import pytest
import torch

import regard
from backends import EVERY, READ_ALL, accepts, assert_same
from cases import NORMALIZERS, B, D, H, K, Q, problem
from regard import masks
from regard.attention.planner import BACKENDS, choose_reader
from regard.attention.problem import validate
from regard.attention.readings import Gatherer

INF, NAN = torch.inf, torch.nan
ROW = (0, 1, 3)
"""The batch row, head and query whose scores are not finite."""

everywhere = pytest.mark.parametrize("backend", EVERY)
normalized = pytest.mark.parametrize("normalizer", NORMALIZERS)
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


def bias_of(dtype, numbers):
    """Zeros, but for these numbers at some keys of the row."""
    bias = torch.zeros(B, H, Q, K, dtype=dtype)
    for key, number in numbers.items():
        bias[*ROW, key] = number
    return bias


BIASES = {
    "one": {2: INF},
    "two": {2: INF, 4: INF},
    "all": dict.fromkeys(range(K), INF),
    "with a hidden pair": {1: -INF, 2: INF},
    "alone": {**dict.fromkeys(range(K), -INF), 2: INF},
    "before nan": {2: INF, 4: NAN},
    "behind nan": {2: NAN, 4: INF},
    "nan": {1: -INF, 2: NAN},
}
OVERFLOWS = {"one": {2: 1.0}, "below": {2: -1.0}, "both": {1: -1.0, 2: 1.0}, "two": {2: 1.0, 4: 0.5}}
"""Keys, as multiples of the square root of the largest number. No two are equal: a rounding would
decide between them in other rows."""

INFINITIES = {"query": (INF, None), "negative query": (-INF, None), "key": (None, INF), "both": (INF, INF)}
SEEN = {
    "none": lambda: None,
    "causal": lambda: masks.causal(align="start"),
    "window": lambda: masks.window(1, 0, align="start"),
    "keep": lambda: masks.keep((torch.arange(Q)[:, None] + torch.arange(K)) % 5 != 4),
    "runs": lambda: masks.window(2, 0, align="start") | masks.prefix(1),
}


def cases(dtype):
    """Inputs and a bias, by name: infinite by the bias, by a product that overflows, by the inputs."""
    for name, numbers in BIASES.items():
        yield f"bias {name}", problem(dtype), bias_of(dtype, numbers)
    huge = torch.finfo(dtype).max ** 0.5
    for name, keys in OVERFLOWS.items():
        query, key, value = problem(dtype)
        query[ROW] = 2 * huge
        for place, number in keys.items():
            key[0, 1, place] = number * huge
        yield f"overflow {name}", (query, key, value), None
    for name, (of_query, of_key) in INFINITIES.items():
        query, key, value = problem(dtype)
        if of_query is not None:
            query[*ROW, 4] = of_query
        if of_key is not None:
            key[0, 1, 2, 4] = of_key
        yield f"infinite {name}", (query, key, value), None


def scores_of(inputs, bias, mask):
    """The scores of a problem, −∞ where they are hidden, in the dtype of the inputs."""
    query, key, _ = inputs
    scores = query @ key.mT * D**-0.5
    scores = scores if bias is None else scores + bias
    allowed = torch.ones(B, H, Q, K, dtype=torch.bool)
    return scores if mask is None else scores.masked_fill(~(mask.dense(validate(*inputs).grid) & allowed), -INF)


@everywhere
@normalized
@dtypes
@pytest.mark.parametrize("mask", SEEN)
def test_every_backend_reads_what_the_specification_reads(backend, normalizer, dtype, mask):
    for name, inputs, bias in cases(dtype):
        arguments = {"normalizer": NORMALIZERS[normalizer](), "mask": SEEN[mask](), "bias": bias}
        if not accepts(backend, inputs, **arguments):
            continue
        read = {}
        for chosen in (backend, "reference"):
            read[chosen] = regard.observe(*inputs, read=READ_ALL, backend=chosen, **arguments)._asdict()
            read[chosen] = {name: value for name, value in read[chosen].items() if value is not None}
            # Of equal weights any may be named first.
            del read[chosen]["top_indices"]
            read[chosen]["alone"] = regard.attend(*inputs, backend=chosen, **arguments)
            read[chosen]["with"], read[chosen]["kept"] = regard.attend_with_weights(
                *inputs, backend=chosen, **arguments
            )
        tolerance = 1e-4 if dtype == torch.float32 else 1e-9
        assert_same(read[backend], read["reference"], rtol=tolerance, atol=tolerance, context=name)


@everywhere
@normalized
@dtypes
@pytest.mark.parametrize("mask", SEEN)
def test_the_log_sum_exp_is_infinite_and_nan_only_where_a_score_is(backend, normalizer, dtype, mask):
    restriction = SEEN[mask]()
    for name, inputs, bias in cases(dtype):
        arguments = {"normalizer": NORMALIZERS[normalizer](), "mask": restriction, "bias": bias}
        if not accepts(backend, inputs, **arguments):
            continue
        scores = scores_of(inputs, bias, restriction)
        lse = regard.observe(*inputs, read=regard.Readings(), backend=backend, **arguments).lse
        nan = scores.isnan().any(-1)
        assert torch.equal(lse.isnan(), nan), name
        assert torch.equal(lse == INF, (scores == INF).any(-1) & ~nan), name


@everywhere
@normalized
@dtypes
def test_where_keys_compete_a_hidden_pair_has_weight_0_and_a_visible_one_nan(backend, normalizer, dtype):
    if normalizer in ("sigmoid", "hard"):
        return
    for name, inputs, bias in cases(dtype):
        arguments = {"normalizer": NORMALIZERS[normalizer](), "bias": bias}
        if not accepts(backend, inputs, **arguments):
            continue
        scores = scores_of(inputs, bias, None)
        spoilt = (scores.isnan() | (scores == INF)).any(-1, keepdim=True)
        _, weights = regard.attend_with_weights(*inputs, backend=backend, **arguments)
        observed = regard.observe(*inputs, read=READ_ALL, backend=backend, **arguments)
        for found in (weights, observed.weights):
            assert torch.equal(found.isnan(), spoilt & (scores != -INF)), name
            assert (found[scores == -INF] == 0).all(), name
        seen = (scores != -INF).sum(-1, keepdim=True) > torch.arange(READ_ALL.top_k)
        assert torch.equal(observed.top_weights.isnan(), spoilt & seen), name
        assert (observed.top_indices[observed.top_weights.isnan()] == -1).all(), name


@everywhere
@pytest.mark.parametrize("normalizer", ["sigmoid", "local_sigmoid"])
def test_nan_is_the_largest_of_weights(backend, normalizer):
    """Where keys do not compete, a row has weights beside NaN."""
    given = regard.normalizers.sigmoid
    if normalizer == "local_sigmoid":
        given = regard.normalizers.local_gaussian(given, torch.zeros(Q, dtype=torch.float64), 50.0)
    bias, inputs = bias_of(torch.float64, {0: NAN, 5: NAN}), problem()
    for top in (1, 2, 3, K):
        read = regard.Readings(top_k=top, peak=True, weights=True, pooled=(Q, 3))
        if not accepts(backend, inputs, bias=bias, normalizer=given):
            continue
        observed = regard.observe(*inputs, bias=bias, normalizer=given, read=read, backend=backend)
        found, finite = observed.top_weights[ROW], observed.weights[ROW][observed.weights[ROW].isfinite()]
        assert found[:2].isnan().all()
        torch.testing.assert_close(found[2:], finite.sort(descending=True).values[: max(top - 2, 0)])
        assert (observed.top_indices[ROW][:2] == -1).all()
        assert (observed.weights[ROW].nan_to_num(-1)[observed.top_indices[ROW][2:]] == found[2:]).all()
        assert observed.weights[ROW].isnan().nonzero().flatten().tolist() == [0, 5]
        assert observed.peak[ROW].isnan()
        assert observed.pooled_max[0, 1, 3].isnan().tolist() == [True, False, True]


@everywhere
@dtypes
@pytest.mark.parametrize("mask", SEEN)
def test_readings_alone_are_those_of_the_specification(backend, dtype, mask):
    """Readings that are taken without an output, as those of watched calls are."""
    read = regard.Readings(entropy=True, peak=True, received=True, distance=True)
    for name, inputs, bias in cases(dtype):
        query, key, value = inputs
        # So many rows that they are read side by side.
        query = torch.cat([query, query.flip(2)], dim=2)
        bias = None if bias is None else torch.cat([bias, bias.flip(2)], dim=2)
        restriction = SEEN[mask]() if mask != "keep" else None
        given = validate(query, key, value, mask=restriction, bias=bias)
        found = []
        for chosen in (backend, "reference"):
            gatherer = Gatherer(given, read)
            if chosen == "auto" or not BACKENDS[chosen].reads:
                choose_reader(given, BACKENDS["reference"]).read(given, gatherer)
            else:
                BACKENDS[chosen].read(given, gatherer)
            found.append({name: getattr(gatherer, name) for name in ("lse", "entropy", "peak", "received", "distance")})
        assert_same(*found, rtol=1e-4, atol=1e-4, context=name)


@everywhere
@normalized
@dtypes
@pytest.mark.parametrize("mask", SEEN)
def test_every_backend_has_the_gradients_of_the_specification(backend, normalizer, dtype, mask):
    """NaN reaches the gradients of a row's query and of the keys that the row sees, and no others."""
    for name, inputs, bias in cases(dtype):
        if bias is None and mask == "none":
            # Nothing is hidden. A pair with a score of −∞ in a row of NaN has a gradient of 0 or of NaN.
            continue
        for with_bias in (False, True) if bias is not None else (False,):
            given = [*inputs, bias] if with_bias else inputs
            arguments = {"normalizer": NORMALIZERS[normalizer](), "mask": SEEN[mask]()}
            found = {}
            for chosen in (backend, "reference"):
                leaves = [tensor.clone().requires_grad_() for tensor in given]
                added = leaves[3] if with_bias else bias
                if not accepts(chosen, leaves[:3], bias=added, **arguments):
                    break
                output = regard.attend(*leaves[:3], bias=added, backend=chosen, **arguments)
                gradient = torch.randn(output.shape, generator=torch.Generator().manual_seed(17), dtype=dtype)
                # Hard weights have no gradient.
                gradients = torch.autograd.grad(output, leaves, gradient, allow_unused=True, materialize_grads=True)
                found[chosen] = dict(zip(("query", "key", "value", "bias"), gradients, strict=False))
            else:
                tolerance = 1e-4 if dtype == torch.float32 else 1e-9
                # Sums of huge keys and queries are rounded as these are.
                scale = max(1.0, *(float(tensor.nan_to_num(0, 0, 0).abs().max()) for tensor in inputs))
                assert_same(found[backend], found["reference"], tolerance, tolerance * scale, name)


@everywhere
@normalized
def test_nan_reaches_the_gradients_of_all_that_a_row_sees(backend, normalizer):
    leaves = [tensor.clone() for tensor in problem(torch.float32)]
    leaves[1][0, 1, 2, 4] = NAN
    leaves = [tensor.requires_grad_() for tensor in leaves]
    if not accepts(backend, leaves, normalizer=NORMALIZERS[normalizer]()):
        return
    found = []
    for chosen in (backend, "reference"):
        output = regard.attend(*leaves, normalizer=NORMALIZERS[normalizer](), backend=chosen)
        gradients = torch.autograd.grad(output.sum(), leaves, allow_unused=True, materialize_grads=True)
        found.append([tensor.isnan() for tensor in (output, *gradients)])
    for name, got, wanted in zip(("output", "query", "key", "value"), *found, strict=True):
        assert torch.equal(got, wanted), name
