"""Rows with a score of +∞ or NaN: every backend gives the output and the readings of the specification."""

import pytest
import torch

import regard
from backends import EVERY, READ_ALL, accepts, assert_same
from cases import NORMALIZERS, B, D, H, K, Q, problem
from covering import covering
from regard import masks
from regard.attention.execution import BACKENDS, choose_reader
from regard.attention.problem import validate
from regard.attention.readings import Gatherer

INF, NAN = torch.inf, torch.nan
ROW = (0, 1, 3)
"""The batch row, head and query whose scores are not finite."""

everywhere = pytest.mark.parametrize("backend", EVERY)
normalized = pytest.mark.parametrize("normalizer", NORMALIZERS)
DTYPES = (torch.float32, torch.float64)
APART = ("sigmoid", "hard", "squared_relu", "stick_breaking", "chunkwise", "identity")
COMPETING = [normalizer for normalizer in NORMALIZERS if normalizer not in APART]
OTHERS = [backend for backend in EVERY if backend != "reference"]


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


CASES = [
    *(f"bias {name}" for name in BIASES),
    *(f"overflow {name}" for name in OVERFLOWS),
    *(f"infinite {name}" for name in INFINITIES),
]


FEW_NORMALIZERS = ("softmax", "sparsemax", "sigmoid", "hard")
"""One of each kind. What made a score infinite does not concern a normalizer: a bias meets all of them."""


def meet(name, normalizer, **_):
    """Whether this case and this normalizer meet without ``--full``."""
    return name.startswith("bias ") or normalizer in FEW_NORMALIZERS


def case(name, dtype):
    """Inputs and a bias: infinite by the bias, by a product that overflows, by the inputs."""
    kind, _, name = name.partition(" ")
    query, key, value = problem(dtype)
    if kind == "bias":
        return (query, key, value), bias_of(dtype, BIASES[name])
    if kind == "overflow":
        huge = torch.finfo(dtype).max ** 0.5
        query[ROW] = 2 * huge
        for place, number in OVERFLOWS[name].items():
            key[0, 1, place] = number * huge
    else:
        of_query, of_key = INFINITIES[name]
        if of_query is not None:
            query[*ROW, 4] = of_query
        if of_key is not None:
            key[0, 1, 2, 4] = of_key
    return (query, key, value), None


def scores_of(inputs, bias, mask):
    """The scores of a problem, −∞ where they are hidden, in the dtype of the inputs."""
    query, key, _ = inputs
    scores = query @ key.mT * D**-0.5
    scores = scores if bias is None else scores + bias
    allowed = torch.ones(B, H, Q, K, dtype=torch.bool)
    return scores if mask is None else scores.masked_fill(~(mask.dense(validate(*inputs).grid) & allowed), -INF)


def everything(inputs, backend, **arguments):
    """What the verbs give on a backend, by name."""
    observed = regard.observe(*inputs, read=READ_ALL, backend=backend, **arguments)._asdict()
    found = {name: value for name, value in observed.items() if value is not None}
    # Of equal weights any may be named first.
    del found["top_indices"]
    found["alone"] = regard.attend(*inputs, backend=backend, **arguments)
    found["with"], found["kept"] = regard.attend_with_weights(*inputs, backend=backend, **arguments)
    return found


@covering(name=CASES, normalizer=NORMALIZERS, dtype=DTYPES, mask=SEEN, sample_where=meet)
def test_every_backend_reads_what_the_specification_reads(name, normalizer, dtype, mask):
    """Log-sum-exps are infinite or NaN only where a score is."""
    tolerance = 1e-4 if dtype == torch.float32 else 1e-9
    restriction = SEEN[mask]()
    inputs, bias = case(name, dtype)
    arguments = {"normalizer": NORMALIZERS[normalizer](), "mask": restriction, "bias": bias}
    expected = everything(inputs, "reference", **arguments)
    scores = scores_of(inputs, bias, restriction)
    nan = scores.isnan().any(-1)
    assert torch.equal(expected["lse"].isnan(), nan)
    assert torch.equal(expected["lse"] == INF, (scores == INF).any(-1) & ~nan)
    for backend in OTHERS:
        if accepts(backend, inputs, **arguments):
            found = everything(inputs, backend, **arguments)
            assert_same(found, expected, rtol=tolerance, atol=tolerance, context=backend)


@covering(name=CASES, normalizer=COMPETING, dtype=DTYPES, sample_where=meet)
def test_where_keys_compete_a_hidden_pair_has_weight_0_and_a_visible_one_nan(name, normalizer, dtype):
    inputs, bias = case(name, dtype)
    arguments = {"normalizer": NORMALIZERS[normalizer](), "bias": bias}
    scores = scores_of(inputs, bias, None)
    spoilt = (scores.isnan() | (scores == INF)).any(-1, keepdim=True)
    seen = (scores != -INF).sum(-1, keepdim=True) > torch.arange(READ_ALL.top_k)
    for backend in EVERY:
        if not accepts(backend, inputs, **arguments):
            continue
        _, weights = regard.attend_with_weights(*inputs, backend=backend, **arguments)
        observed = regard.observe(*inputs, read=READ_ALL, backend=backend, **arguments)
        for found in (weights, observed.weights):
            assert torch.equal(found.isnan(), spoilt & (scores != -INF)), backend
            assert (found[scores == -INF] == 0).all(), backend
        assert torch.equal(observed.top_weights.isnan(), spoilt & seen), backend
        assert (observed.top_indices[observed.top_weights.isnan()] == -1).all(), backend


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


@covering(name=CASES, dtype=DTYPES, mask=SEEN)
def test_readings_alone_are_those_of_the_specification(name, dtype, mask):
    """Readings that are taken without an output, as those of watched calls are."""
    read = regard.Readings(entropy=True, peak=True, received=True, distance=True)
    (query, key, value), bias = case(name, dtype)
    # So many rows that they are read side by side.
    query = torch.cat([query, query.flip(2)], dim=2)
    bias = None if bias is None else torch.cat([bias, bias.flip(2)], dim=2)
    restriction = SEEN[mask]() if mask != "keep" else None
    given = validate(query, key, value, mask=restriction, bias=bias)

    def readings(backend):
        gatherer = Gatherer(given, read)
        if backend == "auto" or not BACKENDS[backend].reads:
            choose_reader(given).read(given, gatherer)
        else:
            BACKENDS[backend].read(given, gatherer)
        return {name: getattr(gatherer, name) for name in ("lse", "entropy", "peak", "received", "distance")}

    expected = readings("reference")
    for backend in OTHERS:
        assert_same(readings(backend), expected, rtol=1e-4, atol=1e-4, context=backend)


def gradients(inputs, bias, backend, by_bias, **arguments):
    """The gradients of a call by name, those of the bias too if wanted."""
    leaves = [tensor.clone().requires_grad_() for tensor in ([*inputs, bias] if by_bias else inputs)]
    added = leaves[3] if by_bias else bias
    output = regard.attend(*leaves[:3], bias=added, backend=backend, **arguments)
    grad_output = torch.randn(output.shape, generator=torch.Generator().manual_seed(17), dtype=output.dtype)
    # Hard weights have no gradient.
    found = torch.autograd.grad(output, leaves, grad_output, allow_unused=True, materialize_grads=True)
    return dict(zip(("query", "key", "value", "bias"), found, strict=False))


@covering(name=CASES, normalizer=NORMALIZERS, dtype=DTYPES, mask=SEEN, sample_where=meet)
def test_every_backend_has_the_gradients_of_the_specification(name, normalizer, dtype, mask):
    """NaN reaches the gradients of a row's query and of the keys that the row sees, and no others."""
    inputs, bias = case(name, dtype)
    if bias is None and mask == "none":
        # Nothing is hidden. A pair with a score of −∞ in a row of NaN has a gradient of 0 or of NaN.
        mask = "causal"
    arguments = {"normalizer": NORMALIZERS[normalizer](), "mask": SEEN[mask]()}
    tolerance = 1e-4 if dtype == torch.float32 else 1e-9
    # Sums of huge keys and queries are rounded as these are.
    scale = max(1.0, *(float(tensor.nan_to_num(0, 0, 0).abs().max()) for tensor in inputs))
    for by_bias in (False, True) if bias is not None else (False,):
        expected = gradients(inputs, bias, "reference", by_bias, **arguments)
        for backend in OTHERS:
            leaves = [tensor.clone().requires_grad_() for tensor in inputs]
            added = bias.clone().requires_grad_() if by_bias else bias
            if accepts(backend, leaves, bias=added, **arguments):
                found = gradients(inputs, bias, backend, by_bias, **arguments)
                assert_same(found, expected, tolerance, tolerance * scale, backend)


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
