"""Contract 10: what the mask hides from a query cannot reach it, whatever it holds; what a query sees does."""

import pytest
import torch

import regard
from backends import EVERY, READ_ALL, ROW_READINGS, accepts, assert_same, measure
from cases import BIASES, MASKS, NORMALIZERS, SCORES, B, D, H, K, Q, V, problem
from covering import covering
from regard import masks, nn, normalizers
from regard.attention.isolation import cleaned
from regard.attention.problem import validate
from regard.shapes.grid import Grid
from regard.tracing.transforms import SERIAL_SUM, is_finite

everywhere = pytest.mark.parametrize("backend", EVERY)
DTYPES = (torch.float32, torch.bfloat16)
dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=str)

SIZES = {"tiny": (B, H, Q, K), "blocks": (1, 2, 199, 211)}
POISONS = {"nan": (torch.nan,), "inf": (torch.inf, -torch.inf), "huge": (0.3, -0.3)}
"""Numbers that nothing may see; huge ones are parts of the dtype's largest."""

TOLERANCES = {
    torch.float64: {"rtol": 1e-9, "atol": 1e-9},
    torch.float32: {"rtol": 1e-4, "atol": 1e-5},
    torch.bfloat16: {"rtol": 2e-2, "atol": 2e-2},
}


def masks_of(batch, queries, keys):
    """Masks of every kind, nearly each of which hides some keys from all queries or all keys from some queries."""
    generator = torch.Generator().manual_seed(5)
    kept = torch.rand(batch, 1, queries, keys, generator=generator) < 0.6
    kept[..., 1] = kept[..., -2:] = False
    query_ids, key_ids = torch.arange(queries) // 3, torch.arange(keys) // 4
    query_ids[-1], key_ids[-2:] = -1, -1
    return {
        "causal": masks.causal(align="start"),
        "window": masks.window(2, 0, align="start"),
        "lengths": masks.lengths(torch.tensor([keys - 3, 0])[:batch]),
        "lengths_both": masks.lengths(
            torch.tensor([keys - 2, 3])[:batch], torch.tensor([queries - 1, queries])[:batch]
        ),
        "documents": masks.documents(query_ids, key_ids),
        "keep": masks.keep(kept),
        "ignore": masks.ignore(~kept),
        "where": masks.where(lambda batch, head, query, key: ((query + key + head) % 3 != 0) & (key != 2)),
        "prefix": masks.prefix(2) | masks.window(1, 1, align="start"),
        "sinks": (masks.prefix(1) | masks.window(1, 1, align="start")) & masks.lengths(keys - 1, queries=queries - 1),
        "hole": ~masks.window(3, 90) & masks.window(4, 120),
        "dilated": masks.causal(align="start") & masks.dilated(2),
    }


def visible(mask, shape):
    """Which pairs the mask allows, ``[batch, heads, queries, keys]``."""
    grid = Grid.whole(*shape)
    return torch.ones(shape, dtype=torch.bool) if mask is None else mask.dense(grid).expand(shape).contiguous()


def sized(shape, dtype, dim=D, value_dim=V):
    batch, heads, queries, keys = shape
    generator = torch.Generator().manual_seed(7)
    return tuple(
        torch.randn(batch, heads, length, features, generator=generator).to(dtype)
        for length, features in ((queries, dim), (keys, dim), (keys, value_dim))
    )


def fill(tensor, where, numbers):
    """The tensor with these numbers, in turn, where ``where`` (broadcast over its last axes) is True."""
    if not numbers:
        return tensor.masked_fill(where, 0.0)
    pattern = torch.tensor(numbers, dtype=tensor.dtype)
    pattern = pattern.repeat(-(-tensor.numel() // len(numbers)))[: tensor.numel()].view_as(tensor)
    return torch.where(where, pattern, tensor)


def hidden_parts(inputs, allowed, numbers):
    """Query, key and value with numbers in every row that no pair of the mask allows."""
    query, key, value = inputs
    batch, _, queries, keys = allowed.shape
    blind = ~allowed.any(dim=-1)[..., None]
    unseen = ~allowed.view(batch, key.shape[1], -1, queries, keys).any(dim=(2, 3))[..., None]
    return fill(query, blind, numbers), fill(key, unseen, numbers), fill(value, unseen, numbers)


def poison_of(name, dtype):
    return tuple(number * torch.finfo(dtype).max if name == "huge" else number for number in POISONS[name])


@covering(backend=EVERY, poison=POISONS, size=SIZES, dtype=DTYPES)
def test_nonfinite_hidden_inputs_reach_no_result(backend, dtype, poison, size):
    shape = SIZES[size]
    inputs = sized(shape, dtype)
    numbers = poison_of(poison, dtype)
    for name, mask in masks_of(shape[0], *shape[2:]).items():
        allowed = visible(mask, shape)
        results = []
        for filling in ((), numbers):
            bias = fill(torch.randn(shape, generator=torch.Generator().manual_seed(3)), ~allowed, filling)
            bias.requires_grad_(backend != "sdpa")
            parameters = {"bias": bias} if bias.requires_grad else {}
            parts = hidden_parts(inputs, allowed, filling)
            results.append(measure(backend, parts, parameters, mask=mask, bias=bias))
        clean, poisoned = results
        assert_same(poisoned, clean, **TOLERANCES[dtype], context=name)
        assert all(result.isfinite().all() for key, result in poisoned.items() if key != "lse")
        hidden = hidden_parts([torch.zeros_like(t) for t in inputs], allowed, (1.0,))
        for part, key in zip(hidden, ("grad_query", "grad_key", "grad_value"), strict=True):
            assert not poisoned[key][part == 1.0].any()


EVERY_SCORE = {**SCORES, "unsquared": lambda: regard.scores.Distance(squared=False)}
SUMS_OF_UNITS = ("additive", "additive_heads", "additive_projected", "mlp")
"""Scores whose kernels take longest to compile; those of float64 are compiled for other tests as well.

With ``--full`` they are tested in float32 too.
"""


@covering(score=EVERY_SCORE, normalizer=NORMALIZERS, poison=POISONS, mask=["lengths", "causal"])
def test_nonfinite_hidden_inputs_pass_through_no_score(score, normalizer, poison, mask, is_full):
    restriction = masks.lengths([K - 3, 0]) if mask == "lengths" else masks.causal(align="start")
    scoring = EVERY_SCORE[score]()
    arguments = {"score": scoring, "normalizer": NORMALIZERS[normalizer](), "mask": restriction}
    allowed = visible(restriction, (B, H, Q, K))
    parameters = dict(scoring.named_parameters()) if isinstance(scoring, torch.nn.Module) else {}
    in_double = score in SUMS_OF_UNITS
    for dtype in [torch.float64] * in_double + [torch.float32] * (is_full or not in_double):
        inputs = problem(dtype)
        for backend in EVERY:
            if accepts(backend, inputs, **arguments):
                clean, poisoned = (
                    measure(backend, hidden_parts(inputs, allowed, filling), parameters, **arguments)
                    for filling in ((), poison_of(poison, dtype))
                )
                assert_same(poisoned, clean, **TOLERANCES[dtype], context=f"{backend}, {dtype}")


def learned():
    """Scores, normalizers and biases with parameters of their own, as trained models have them."""
    parameter = torch.nn.Parameter
    additive = regard.scores.Additive.create(D, D, 3)
    aware = regard.scores.LocationAware.create(D, D, 3, channels=2, kernel_size=3)
    return {
        "projected": {"score": additive},
        "location_aware": {"score": aware.given(torch.rand(B, K))},
        "general": {"score": regard.scores.General.create(D, D)},
        "mlp": {"score": regard.scores.MLP.create(D, D, (3,))},
        "cosine": {"score": regard.scores.Cosine.create(H)},
        "scale": {"score": regard.scores.ScaledDot(parameter(torch.rand(H, 1, 1)))},
        "temperature": {"normalizer": normalizers.Softmax(parameter(torch.rand(H) + 1))},
        "sink": {"normalizer": normalizers.softmax_with_sink(parameter(torch.rand(H)))},
        "sigmoid": {"normalizer": normalizers.Sigmoid(parameter(torch.rand(H)))},
        "relative": {"bias": regard.positions.RelativeBias(H, buckets=8, max_distance=16)},
        "shaw": {"bias": regard.positions.RelativePosition(D, 3)},
    }


@everywhere
@pytest.mark.parametrize("case", learned())
def test_gradients_of_parameters_ignore_what_is_hidden(backend, case):
    torch.manual_seed(3)
    arguments = {**learned()[case], "mask": masks.lengths([K - 3, 0])}
    inputs = problem(dtype=torch.float32)
    if accepts(backend, inputs, **arguments):
        allowed = visible(arguments["mask"], (B, H, Q, K))
        modules = [part for part in arguments.values() if isinstance(part, torch.nn.Module)]
        parameters = {name: parameter for module in modules for name, parameter in module.named_parameters()}
        assert parameters
        clean, poisoned = (
            measure(backend, hidden_parts(inputs, allowed, filling), parameters, **arguments)
            for filling in ((), POISONS["nan"])
        )
        assert_same(poisoned, clean, **TOLERANCES[torch.float32])


@everywhere
@pytest.mark.parametrize("kv_heads", [1, 3])
def test_other_rows_and_heads_are_apart(backend, kv_heads):
    """NaN in one batch row, and in one group of heads, leaves every other one as it was."""
    clean_inputs = problem(dtype=torch.float32, kv_heads=kv_heads)
    spoilt = tuple(tensor.clone() for tensor in clean_inputs)
    for tensor in spoilt:
        tensor[1, -1] = torch.nan
    for mask in (None, masks.causal(), masks.lengths([K, K - 2])):
        for normalizer in ("softmax", "sparsemax", "sink"):
            arguments = {"mask": mask, "normalizer": NORMALIZERS[normalizer]()}
            if not accepts(backend, clean_inputs, **arguments):
                continue
            clean, got = (measure(backend, inputs, **arguments) for inputs in (clean_inputs, spoilt))
            last = H - H // kv_heads if kv_heads > 1 else 0
            for name, value in clean.items():
                torch.testing.assert_close(got[name][0], value[0], **TOLERANCES[torch.float32])
                other = slice(0, last if value.shape[1] == H else kv_heads - 1)
                torch.testing.assert_close(got[name][1, other], value[1, other], **TOLERANCES[torch.float32])
            assert got["output"][1, last:].isnan().all()


SEEN = {
    "none": lambda: None,
    "causal": lambda: masks.causal(),
    "window": lambda: masks.window(2, 0),
    "lengths": lambda: masks.lengths([K - 1, 4]),
    "keep": lambda: masks.keep(torch.ones(Q, K, dtype=torch.bool).tril(2)),
    "documents": MASKS["documents"],
}


def unreached(got, clean, rows, context):
    """Rows that see no NaN have the outputs, readings and query gradients that they have without it."""
    for name in ("output", *ROW_READINGS, "grad_query"):
        torch.testing.assert_close(
            got[name][~rows],
            clean[name][~rows],
            rtol=1e-9,
            atol=1e-9,
            equal_nan=True,
            msg=lambda m, name=name: f"{context} {name}: {m}",
        )


@covering(mask=SEEN, normalizer=NORMALIZERS, score=["scaled_dot", "additive", "distance", "cosine"])
def test_a_visible_nan_is_seen(mask, normalizer, score):
    restriction = SEEN[mask]()
    allowed = visible(restriction, (B, H, Q, K))
    inputs = problem()
    arguments = {
        "score": SCORES[score](),
        "normalizer": NORMALIZERS[normalizer](),
        "mask": restriction,
        "bias": BIASES["tensor"](),
    }
    for backend in EVERY:
        if accepts(backend, inputs, **arguments):
            assert_a_visible_nan_is_seen(backend, inputs, allowed, arguments)


def assert_a_visible_nan_is_seen(backend, inputs, allowed, arguments):
    """NaN in a row of query, key or value, or in the bias, reaches the rows that see it, and no others."""
    bias, j, i = arguments["bias"], 2, 3
    clean = measure(backend, inputs, **arguments)
    assert clean["output"].isfinite().all()

    query, key, value = (tensor.clone() for tensor in inputs)
    query[0, 1, i, 4] = torch.nan
    rows = torch.zeros(B, H, Q, dtype=torch.bool)
    rows[0, 1, i] = allowed[0, 1, i].any()
    got = measure(backend, (query, key, value), **arguments)
    assert got["output"][rows].isnan().all()
    unreached(got, clean, rows, f"{backend} query")

    query, key, value = (tensor.clone() for tensor in inputs)
    key[0, 1, j, 4] = torch.nan
    rows = torch.zeros(B, H, Q, dtype=torch.bool)
    rows[0, 1] = allowed[0, 1, :, j]
    got = measure(backend, (query, key, value), **arguments)
    assert got["output"][rows].isnan().all()
    unreached(got, clean, rows, f"{backend} key")

    spoilt = bias.clone()
    spoilt[1, i, j] = torch.nan
    rows = torch.zeros(B, H, Q, dtype=torch.bool)
    rows[:, 1, i] = allowed[:, 1, i, j]
    got = measure(backend, inputs, **{**arguments, "bias": spoilt})
    assert got["output"][rows].isnan().all()
    unreached(got, clean, rows, f"{backend} bias")

    query, key, value = (tensor.clone() for tensor in inputs)
    value[0, 1, j, 4] = torch.nan
    got = regard.attend(query, key, value, backend=backend, **arguments)
    expected = clean["output"].clone()
    expected[0, 1, :, 4] = torch.where(allowed[0, 1, :, j], torch.nan, expected[0, 1, :, 4])
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9, equal_nan=True)


@everywhere
@pytest.mark.parametrize("normalizer", NORMALIZERS)
@dtypes
def test_a_score_of_minus_infinity_is_hidden(backend, normalizer, dtype):
    """An additive mask of −inf gives what the mask gives, a row of nothing but −inf included."""
    allowed = torch.rand(B, H, Q, K) < 0.6
    allowed[0, 1, 2] = allowed[1, 0] = False
    bias = torch.zeros(B, H, Q, K).masked_fill(~allowed, -torch.inf)
    inputs = problem(dtype=dtype)
    arguments = {"normalizer": NORMALIZERS[normalizer]()}
    if accepts(backend, inputs, bias=bias, **arguments):
        expected = measure("reference", inputs, mask=masks.keep(allowed), **arguments)
        got = measure(backend, inputs, bias=bias, **arguments)
        assert_same(got, expected, **TOLERANCES[dtype])
        assert not got["output"][0, 1, 2].any()


@everywhere
@pytest.mark.parametrize("normalizer", NORMALIZERS)
def test_a_score_of_plus_infinity(backend, normalizer):
    """Softmax and the entmax family give NaN; a sigmoid's weight is 1, the hard choice is that key, a score itself.

    A broken stick is used up there.
    """
    bias = BIASES["tensor"]()
    bias[1, 3, 2] = torch.inf
    large = bias.masked_fill(bias == torch.inf, 1e4)
    inputs = problem()
    arguments = {"normalizer": NORMALIZERS[normalizer]()}
    if accepts(backend, inputs, bias=bias, **arguments):
        rows = torch.zeros(B, H, Q, dtype=torch.bool)
        rows[:, 1, 3] = True
        got, finite = (measure(backend, inputs, bias=added, **arguments) for added in (bias, large))
        unreached(got, finite, rows, normalizer)
        if normalizer in ("sigmoid", "hard", "stick_breaking"):
            torch.testing.assert_close(got["output"], finite["output"], rtol=1e-9, atol=1e-9)
            torch.testing.assert_close(got["weights"], finite["weights"], rtol=1e-9, atol=1e-9)
        else:
            lost = got["output"][rows]
            assert (lost.isinf() if normalizer in ("identity", "squared_relu") else lost.isnan()).all()


@everywhere
@dtypes
@pytest.mark.parametrize("size", SIZES)
def test_rows_that_see_nothing_stop_a_nan_gradient(backend, dtype, size):
    shape = SIZES[size]
    inputs = sized(shape, dtype)
    every = masks_of(shape[0], *shape[2:])
    for name in ("lengths", "lengths_both", "documents"):
        for normalizer in ("softmax", "sparsemax", "entmax13", "sigmoid", "sink"):
            arguments = {"mask": every[name], "normalizer": NORMALIZERS[normalizer]()}
            if not accepts(backend, inputs, **arguments):
                continue
            blind = ~visible(every[name], shape).any(dim=-1)
            gradients = []
            for number in (0.0, torch.nan):
                grad_output = torch.ones(*shape[:3], V, dtype=dtype)
                grad_output[blind] = number
                gradients.append(measure(backend, inputs, grad_output=grad_output, **arguments))
            assert_same(gradients[1], gradients[0], **TOLERANCES[dtype], context=f"{name} {normalizer}")
            assert not gradients[1]["grad_query"][blind].any()
            assert not gradients[1]["output"][blind].any()


@covering(
    score=["scaled_dot", "additive", "distance"],
    shape=[(1, 1, 4, 4), (1, 2, 37, 41), (1, 2, 200, 200), (1, 2, 521, 523), (1, 2, 700, 700)],
    sample_where=lambda score, shape: shape[2] < 500 or (score == "scaled_dot") == (shape[2] == 700),
)
def test_auto_agrees_with_the_reference_at_every_size(score, shape):
    scoring = regard.scores.Additive(torch.linspace(-1, 1, 5)) if score == "additive" else score
    query, key, value = sized(shape, torch.float32, dim=5, value_dim=3)
    last = shape[2] - 1
    query[0, -1, last], key[0, -1, 2, 1], value[0, 0, 1, 2] = torch.nan, torch.nan, torch.nan
    key[0, 0, -1], value[0, 0, -1] = torch.inf, torch.nan
    bias = torch.zeros(shape[2:]).masked_fill(torch.arange(shape[3]) == 1, -torch.inf)
    for arguments in (
        {},
        {"mask": masks.causal(align="start")},
        {"mask": masks.lengths([shape[3] - 1])},
        # A kernel for this alone would be compiled: sums of tanh meet the other normalizers in float64.
        {"mask": masks.window(3, 0), "normalizer": "softmax" if score == "additive" else "sparsemax"},
        {"bias": bias},
    ):
        expected, got = (
            regard.attend(query, key, value, score=scoring, backend=backend, **arguments)
            for backend in ("reference", "auto")
        )
        assert expected.isnan().any()
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5, equal_nan=True)


@everywhere
@pytest.mark.parametrize("kind", ["additive", "general", "distance", "cosine", "location_aware", "mlp"])
@pytest.mark.parametrize("need_weights", [True, False])
def test_padding_of_a_memory_holds_whatever_it_likes(backend, kind, need_weights):
    given = {"channels": 2, "kernel_size": 3} if kind == "location_aware" else {}
    dims = (D, D) if kind in ("distance", "cosine") else (D, V)
    attention = nn.Attention.create(kind, *dims, **given, backend=backend)
    lengths = torch.tensor([K, K - 3])
    if not accepts(backend, problem(torch.float32, value_dim=D), score=SCORES.get(kind, SCORES["additive"])()):
        return
    results = []
    for number in (0.0, torch.nan, torch.inf, 1e38):
        generator = torch.Generator().manual_seed(3)
        annotations = torch.randn(2, K, dims[1], generator=generator)
        annotations[1, K - 3 :] = number
        annotations.requires_grad_()
        query = torch.randn(2, D, generator=generator, requires_grad=True)
        context, weights = attention(query, attention.remember(annotations, lengths), need_weights=need_weights)
        wanted = {"query": query, "annotations": annotations, **dict(attention.named_parameters())}
        gradients = torch.autograd.grad(context.sum(), wanted.values(), allow_unused=True)
        result = {"context": context, **({"weights": weights} if need_weights else {})}
        for (name, tensor), gradient in zip(wanted.items(), gradients, strict=True):
            result[f"grad_{name}"] = torch.zeros_like(tensor) if gradient is None else gradient
        results.append(result)
    for result in results[1:]:
        assert_same(result, results[0], rtol=1e-4, atol=1e-5)


@everywhere
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("normalizer", ["softmax", "entmax15"])
def test_padding_of_the_drop_in_holds_whatever_it_likes(backend, need_weights, normalizer):
    if not accepts(backend, problem(torch.float32), normalizer=normalizer):
        return
    attention = nn.MultiheadAttention(12, 3, batch_first=True, normalizer=normalizer, backend=backend)
    padding = torch.arange(K) >= torch.tensor([[K], [K - 3]])
    results = []
    for number in (0.0, torch.nan, torch.inf, 1e38):
        generator = torch.Generator().manual_seed(3)
        query = torch.randn(2, Q, 12, generator=generator, requires_grad=True)
        memory = torch.randn(2, K, 12, generator=generator).masked_fill(padding[..., None], number).requires_grad_()
        output, weights = attention(query, memory, memory, key_padding_mask=padding, need_weights=need_weights)
        wanted = {"query": query, "memory": memory, **dict(attention.named_parameters())}
        gradients = torch.autograd.grad(output.sum(), wanted.values())
        result = {"output": output, **({"weights": weights} if need_weights else {})}
        results.append({**result, **{f"grad_{n}": g for n, g in zip(wanted, gradients, strict=True)}})
    for result in results[1:]:
        assert_same(result, results[0], rtol=1e-4, atol=1e-5)


@everywhere
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("mask", ["causal", "window", "keep", "prefix", "hole"])
def test_a_hidden_pair_whose_score_overflows_reaches_nothing(backend, dtype, mask):
    """Every number is finite; the product of a query and a key that is hidden from it is not."""
    huge = torch.finfo(dtype).max ** 0.5
    query, key, value = problem(dtype)
    allowed = visible(masks_of(B, Q, K)[mask], (B, H, Q, K))[0, 1]
    # Other queries see the key.
    place = (allowed.any(0) & ~allowed[3]).nonzero()[0].item()
    query[0, 1, 3], key[0, 1, place] = 2 * huge, huge
    assert (query[0, 1, 3] @ key[0, 1, place]).isinf()
    arguments = {"mask": masks_of(B, Q, K)[mask], "backend": backend}
    output = regard.attend(query, key, value, **arguments)
    observed = regard.observe(query, key, value, read=READ_ALL, **arguments)
    assert torch.equal(observed.output, output)
    for result in (output, observed.weights, observed.received):
        assert result.isfinite().all()
    assert (observed.lse < torch.inf).all()


DROPPING = {
    "plain": lambda attend, value: attend(value),
    "compiled": lambda attend, value: torch.compile(attend, backend="aot_eager")(value),
    "checkpointed": lambda attend, value: torch.utils.checkpoint.checkpoint(attend, value, use_reentrant=True),
}


@covering(backend=["auto", "cpu", "tiled", "reference"], way=DROPPING, what=["bias", "padding"])
@pytest.mark.filterwarnings("ignore:.*non-leaf")
def test_dropout_of_both_passes_is_one_where_numbers_are_not_finite(backend, way, what):
    """The output of fixed weights is linear in the values: Σ gradient · output = Σ grad_value · value."""
    query, key, value = (torch.randn(2, 2, 8, 4) for _ in range(3))
    bias, mask = None, masks.causal()
    if what == "bias":
        bias = torch.zeros(2, 8, 8)
        bias[0, 3, 1] = torch.inf
    else:
        mask = masks.lengths(torch.tensor([8, 5]))
        value[1, :, 5:] = torch.nan
    arguments = {"mask": mask, "bias": bias, "dropout": 0.5}
    if not accepts(backend, (query, key, value), **arguments):
        return
    value.requires_grad_()
    torch.manual_seed(7)
    output = DROPPING[way](lambda value: regard.attend(query, key, value, backend=backend, **arguments), value)
    # Head 1, whose numbers are finite but for padding.
    gradient = torch.randn_like(output)
    gradient[:, 0] = 0.0
    output.backward(gradient)
    grad_value = value.grad
    left = (gradient * output)[:, 1].sum()
    right = (grad_value * value.detach().nan_to_num())[:, 1].sum()
    torch.testing.assert_close(right, left, rtol=1e-4, atol=1e-4)


@everywhere
@pytest.mark.parametrize("mask", ["lengths", "causal", "keep"])
def test_a_huge_value_that_is_hidden_reaches_no_gradient(backend, mask):
    """Its product with a gradient overflows, and is multiplied by 0."""
    inputs = problem(torch.float32)
    restriction = masks_of(B, Q, K)[mask]
    if not accepts(backend, inputs, mask=restriction):
        return
    clean, huge = ([tensor.clone() for tensor in inputs] for _ in range(2))
    seen = visible(restriction, (B, H, Q, K)).any(-2)
    huge[2].masked_fill_(~seen[..., None], 1e38)
    found = []
    for leaves in (clean, huge):
        leaves = [tensor.requires_grad_() for tensor in leaves]
        output = regard.attend(*leaves, mask=restriction, backend=backend)
        found.append(torch.autograd.grad(output, leaves, torch.full_like(output, 3.0)))
    for got, wanted in zip(*reversed(found), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)


@covering(
    mask=[None, "causal"],
    dtype=[torch.float32, torch.float64, torch.bfloat16],
    spoilt=[torch.nan, torch.inf, -torch.inf],
)
def test_a_query_that_is_not_finite_is_seen_in_rows_of_every_length(spoilt, dtype, mask):
    """PyTorch's kernel ignores NaN in rows that are shorter than a vector (seen in 2.13)."""
    for keys in (1, 2, 3, 4, 5, 7, 8, 9, 13, 15, 16, 17, 23, 31, 32, 33, 63, 64, 65, 127, 130):
        query, key, value = (torch.randn(1, 2, keys, 8, dtype=dtype) for _ in range(3))
        query[0, 1] = spoilt
        right = regard.attend(query, key, value, mask=mask, backend="reference").isnan()
        for gradient in (False, True):
            for _ in range(3):
                output = regard.attend(query.clone().requires_grad_(gradient), key, value, mask=mask)
                assert torch.equal(output.isnan(), right)
                assert output[0, 0].isfinite().all()


@pytest.mark.parametrize("hiding", ["window", "tensor", "lengths", "bias"])
def test_pairs_that_are_looked_at_in_slices_hide_the_same(hiding, monkeypatch):
    visible = torch.rand(2, 1, 9, 9) > 0.5
    options = {
        "window": {"mask": masks.window(2, 1)},
        "tensor": {"mask": visible},
        "lengths": {"mask": masks.lengths(torch.tensor([4, 9]))},
        "bias": {"bias": torch.zeros(2, 1, 9, 9).masked_fill(~visible, -torch.inf)},
    }[hiding]
    leaves = [torch.randn(2, heads, 9, 4) for heads in (4, 2, 2)]
    leaves[1][0, 0, 5], leaves[2][1, 1, 7], leaves[0][0, 3, 2] = torch.nan, torch.inf, torch.nan
    results = []
    for pairs in (1 << 26, 100, 1):
        monkeypatch.setattr("regard.attention.padding.SLICE_PAIRS", pairs)
        inputs = [leaf.clone().requires_grad_() for leaf in leaves]
        output = regard.attend(*inputs, **options, backend="tiled")
        results.append([output, *torch.autograd.grad(output, inputs, torch.ones_like(output))])
    for others in results[1:]:
        for one, other in zip(results[0], others, strict=True):
            torch.testing.assert_close(one, other, equal_nan=True)


@pytest.mark.parametrize("dim", [1, 3])
def test_tensors_without_what_is_hidden_lie_in_memory_as_before(dim):
    """Products of other strides, even of axes of one number, may round in another way."""
    inputs = [torch.randn(2, 1, length, dim) for length in (5, 7, 7)]
    given = validate(*inputs, mask=masks.window(1, 0) & masks.lengths([4, 7]))
    for name in ("query", "key", "value"):
        before, after = getattr(given, name), getattr(cleaned(given), name)
        assert before.stride() == after.stride()


@pytest.mark.parametrize("number", [torch.nan, torch.inf, -torch.inf])
def test_a_sum_on_one_thread_finds_each_number_that_is_not_finite(number):
    numbers = torch.randn(2, SERIAL_SUM.start)
    assert is_finite(numbers)
    for index in (0, numbers.numel() // 2 + 1, numbers.numel() - 1):
        poisoned = numbers.clone()
        poisoned.view(-1)[index] = number
        assert not is_finite(poisoned)
        assert not is_finite(poisoned.mT)
