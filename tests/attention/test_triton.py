"""``triton`` against the specification in float64: on a GPU, or in Triton's interpreter (``TRITON_INTERPRET=1``)."""

import functools
import os
from importlib.metadata import version
from importlib.util import find_spec

import pytest
import torch

import regard
from cases import BIASES, KV, MASKS, NORMALIZERS, SCORES, problem
from covering import covering
from regard import masks, normalizers, scores
from regard.attention.execution import BACKENDS
from regard.attention.problem import validate
from regard.attention.readings import Gatherer
from regard.errors import BackendError
from regard.kernels.triton.call import Call, tile_of

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED or not torch.cuda.is_available() else "cuda"

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::DeprecationWarning")


@pytest.fixture(autouse=True, scope="module")
def _language_changed_once():
    """The interpreter changes Triton's language anew at each call of a function, which takes half of the time."""
    with pytest.MonkeyPatch.context() as patch:
        if INTERPRETED:
            from triton.runtime import interpreter

            patch.setattr(interpreter._LangPatchScope, "restore", lambda scope: None)
            patch.setattr(interpreter, "_patch_lang", functools.cache(interpreter._patch_lang))
        yield


def version_of(package):
    return tuple(map(int, version(package).split(".")[:2]))


if find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)
if INTERPRETED and version_of("numpy") >= (2, 4) and version_of("triton") < (3, 7):
    pytest.skip("Triton's interpreter needs NumPy below 2.4 before Triton 3.7", allow_module_level=True)
if DEVICE == "cpu" and not INTERPRETED:
    pytest.skip("there is no GPU, and TRITON_INTERPRET is not 1", allow_module_level=True)

# Triton's interpreter multiplies the bits of bfloat16 numbers.
DTYPES = (torch.float32, torch.float16) if INTERPRETED else (torch.float32, torch.float16, torch.bfloat16)

ROUNDINGS = {torch.float32: 64, torch.float16: 8, torch.bfloat16: 4}
"""Allowed errors, in roundings of the largest number."""

# Two blocks of every kernel and a remainder, as `regard.kernels.triton.call` has the tiles of each score.
QUERIES = {"scaled_dot": 75, "additive": 47} if INTERPRETED else dict.fromkeys(("scaled_dot", "additive"), 261)
KEYS = 79 if INTERPRETED else 399

SCORED = ("scaled_dot", "cosine", "general_heads", "additive", "additive_heads", "additive_projected", "soft_cap")
# The interpreter takes seconds for many tiles; a small call meets every normalizer, and heads that share keys.
TILED = ("softmax", "entmax13", "sigmoid") if INTERPRETED else ("softmax", "entmax15", "entmax13", "sigmoid")
TILED_HEADS = 1 if INTERPRETED else 2

MASKED = ("none", "causal", "window", "lengths", "sinks", "where", "nobody") if INTERPRETED else tuple(MASKS)
NORMALIZED = ("softmax", "tempered", "sink", "sparsemax", "entmax15", "entmax13", "sigmoid")


def moved(part, device, dtype=None):
    """A score, a mask, a bias or a tensor on another device."""
    if isinstance(part, torch.Tensor):
        return part.detach().to(device, dtype)
    if isinstance(part, torch.nn.Module):
        part = part.to(device, dtype)
    return part.map_tensors(lambda tensor: tensor.to(device)) if hasattr(part, "map_tensors") else part


def parameters_of(*parts):
    for part in parts:
        if isinstance(part, torch.nn.Module):
            yield from part.parameters()
        elif isinstance(part, torch.Tensor):
            yield part


def run(backend, device, dtype, inputs, score, normalizer, mask, bias, **options):
    """The output, the gradients and the statistics of one call, in float64 on the CPU."""
    leaves = [tensor.to(device, dtype).requires_grad_() for tensor in inputs]
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    score, bias = moved(score, device, wide), moved(bias, device, wide)
    with torch.device(device):
        mask = mask()
    added = [part.requires_grad_() for part in parameters_of(score, bias)]
    output = regard.attend(
        *leaves, score=score, normalizer=normalizer, mask=mask, bias=bias, backend=backend, **options
    )
    pull = torch.randn(output.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64).to(dtype)
    gradients = torch.autograd.grad(output, [*leaves, *added], pull.to(device), allow_unused=True)
    gradients = [torch.zeros(()) if gradient is None else gradient for gradient in gradients]
    return [tensor.detach().cpu().double() for tensor in (output, *gradients)]


def assert_equal_to_truth(dtype, inputs, score, normalizer="softmax", mask=lambda: None, bias=None, size=1):
    rounded = [tensor.to(dtype).double() for tensor in inputs]
    truth = run("reference", "cpu", torch.float64, rounded, score, normalizer, mask, bias)
    got = run("triton", DEVICE, dtype, inputs, score, normalizer, mask, bias)
    for index, (one, other) in enumerate(zip(got, truth, strict=True)):
        allowed = (
            size * ROUNDINGS[dtype] * torch.finfo(dtype).eps * (1 + float(other.abs().max() if other.numel() else 0))
        )
        error = float((one - other).abs().max()) if other.numel() else 0.0
        assert error <= allowed, f"result {index}: error {error:.1e}, allowed {allowed:.1e}"


@covering(score=SCORED, normalizer=NORMALIZED, mask=MASKED, kv_heads=KV, dtype=DTYPES)
def test_triton_computes_the_equation(score, normalizer, mask, kv_heads, dtype):
    inputs = problem(kv_heads=kv_heads)
    assert_equal_to_truth(dtype, inputs, SCORES[score](), NORMALIZERS[normalizer](), MASKS[mask])


TILED_MASKS = {
    "none": lambda: None,
    "causal": lambda: masks.causal(),
    "window": lambda: masks.window(20, 3),
    "sinks": lambda: masks.window(20, 0) | masks.prefix(KEYS // 2 - 5) & masks.causal(),
    "where": lambda: masks.where(
        lambda batch, head, query, key: ((query // 64 + key // 32 + head) % 2 == 0) & ((query < 32) ^ (key > 40))
    ),
    "lengths": lambda: masks.lengths(torch.tensor([KEYS - 16, 0])),  # one key less than a full tile
}  # fmt: skip


def tiled_problem(score, dim, value_dim, heads):
    """Inputs of many tiles, and their score."""
    whole = problem(queries=QUERIES[score], keys=KEYS, kv_heads=1, dim=dim, value_dim=value_dim)
    weight = torch.randn(dim, generator=torch.Generator().manual_seed(5), dtype=torch.float64) / dim**0.5
    return [part[:, :heads] for part in whole], scores.Additive(weight) if score == "additive" else scores.ScaledDot()


@covering(
    score=("scaled_dot", "additive"), normalizer=TILED, mask=TILED_MASKS, dtype=DTYPES,
    dims=[(5, 7)] if INTERPRETED else [(64, 64), (80, 48), (128, 128), (256, 256), (16, 128)],
)  # fmt: skip
def test_triton_computes_the_equation_over_many_tiles(score, normalizer, mask, dtype, dims):
    inputs, scoring = tiled_problem(score, *dims, TILED_HEADS)
    if max(dims) > 128 and dtype == torch.float32:
        with pytest.raises(BackendError, match="up to 128 features"):
            run("triton", DEVICE, dtype, inputs, scoring, NORMALIZERS[normalizer](), TILED_MASKS[mask], None)
        return
    assert_equal_to_truth(dtype, inputs, scoring, NORMALIZERS[normalizer](), TILED_MASKS[mask])


@covering(bias=BIASES, normalizer=("softmax", "entmax15"), mask=("none", "window"))
def test_triton_adds_the_bias(bias, normalizer, mask):
    assert_equal_to_truth(
        torch.float32, problem(), scores.Dot(), NORMALIZERS[normalizer](), MASKS[mask], BIASES[bias]()
    )


@pytest.mark.parametrize("size", [3.0, 30.0, 3000.0])
def test_large_units_overflow_nowhere(size):
    query, key, value = problem()
    weight = torch.randn(query.shape[3], generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    # Where both are large and cancel, the float32 sum of a query and a key has an error of its own.
    inputs = (size * query).round(), (size * key).round(), value
    assert_equal_to_truth(torch.float32, inputs, scores.Additive(weight))


@pytest.mark.parametrize("normalizer", ["softmax", "sparsemax", "entmax15", "entmax13", "sink"])
def test_large_scores_overflow_nowhere(normalizer):
    query, key, value = problem()
    inputs = (100 * query).round(), (100 * key).round(), value
    # A gradient of 0 is a difference of two equal numbers, times a key.
    assert_equal_to_truth(torch.float32, inputs, scores.Dot(), NORMALIZERS[normalizer](), size=100)


@covering(
    score=("scaled_dot", "additive"), normalizer=NORMALIZED, mask=("none", "causal", "sinks", "where", "nobody"),
    top_k=(0, 2),
)  # fmt: skip
def test_triton_reads_the_weights(score, normalizer, mask, top_k):
    read = regard.Readings(entropy=True, peak=True, received=True, distance=True, top_k=top_k)
    seen = {}
    for backend, device, dtype in (("reference", "cpu", torch.float64), ("triton", DEVICE, torch.float32)):
        inputs = [tensor.to(device, dtype) for tensor in problem(kv_heads=1)]
        scoring = moved(SCORES[score](), device, dtype)
        with torch.device(device):
            restriction = MASKS[mask]()
        arguments = {"score": scoring, "normalizer": NORMALIZERS[normalizer](), "mask": restriction}
        seen[backend] = regard.observe(*inputs, **arguments, read=read, backend=backend)
        assert torch.equal(seen[backend].output, regard.attend(*inputs, **arguments, backend=backend))
    for name, truth in seen["reference"]._asdict().items():
        if truth is not None:
            got = getattr(seen["triton"], name).cpu().to(truth.dtype)
            torch.testing.assert_close(got, truth, rtol=2e-5, atol=2e-5, msg=lambda text, name=name: f"{name}: {text}")


def test_dropout_drops_the_same_pairs_in_all_passes():
    """With ones as values of a single pass, the output is the weights, and shows which ones were dropped."""
    query, key, value = (tensor.to(DEVICE, torch.float32) for tensor in problem(queries=70, keys=90, value_dim=90))
    value = torch.eye(90, device=DEVICE).expand(*value.shape[:2], -1, -1).clone()
    leaves = [tensor.requires_grad_() for tensor in (query, key, value)]
    torch.manual_seed(3)
    weights = regard.attend(*leaves, dropout=0.5, backend="triton")
    is_dropped = weights.detach() == 0
    assert 0.4 < float(is_dropped.float().mean()) < 0.6
    truth = (query @ key.mT / query.shape[3] ** 0.5).softmax(3).masked_fill(is_dropped, 0.0) * 2 @ value
    torch.testing.assert_close(weights, truth, rtol=1e-4, atol=1e-6)
    pull = torch.randn_like(truth)
    for got, right in zip(*(torch.autograd.grad(output, leaves, pull) for output in (weights, truth)), strict=True):
        torch.testing.assert_close(got, right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("widths", [(5, 5), (16, 128), (64, 64), (128, 16)])
def test_each_warp_has_rows_of_its_own(dtype, widths):
    """A warp of a GPU computes 16 rows; warps that shared them held 64 rows of the other matrix each, and failed."""
    query, value = (torch.empty(1, 1, 1, width, dtype=dtype) for width in widths)
    for part, side in (("forward", "rows"), ("rows", "rows"), ("columns", "columns")):
        tile = tile_of(Call(query, query, value), part)
        assert 16 * tile.warps <= getattr(tile, side), (part, tile)


HIDING = {
    **{name: (mask, None) for name, mask in TILED_MASKS.items() if name != "none"},
    "bias": (lambda: None, lambda seen: torch.where(seen, 0.5, -torch.inf)),
}  # fmt: skip


@covering(
    score=("scaled_dot", "additive"), normalizer=("softmax", "sparsemax", "sigmoid"),
    hiding=("sinks", "where", "bias") if INTERPRETED else HIDING, place=("query", "key", "value"),
)  # fmt: skip
def test_hidden_numbers_reach_nothing_and_visible_ones_do(score, normalizer, hiding, place):
    """One row or key is NaN: what sees it is NaN, everything else is as if it were 0 (contracts 4 and 10)."""
    inputs, scoring = tiled_problem(score, 5, 7, 1)
    inputs, scoring = [part.to(DEVICE, torch.float32) for part in inputs], moved(scoring, DEVICE, torch.float32)
    queries = QUERIES[score]
    make_mask, make_bias = HIDING[hiding]
    with torch.device(DEVICE):
        mask = make_mask()
    index = ("query", "key", "value").index(place)
    # The bias hides no key of this query.
    at = (0, slice(None), queries // 2 + 2 if place == "query" else KEYS * 9 // 10)
    grid = validate(*inputs).grid
    visible = grid.query_index % 7 >= grid.key_index % 5 if mask is None else mask.allows(grid)
    visible = visible.expand(2, 1, queries, KEYS)
    read = regard.Readings(peak=True, received=True)
    results = []
    for number in (0.0, torch.nan):
        leaves = [part.clone() for part in inputs]
        leaves[index][at] = number
        leaves = [leaf.requires_grad_() for leaf in leaves]
        bias = None if make_bias is None else make_bias(visible)
        call = validate(*leaves, score=scoring, normalizer=normalizer, mask=mask, bias=bias)
        gatherer = Gatherer(call, read)
        output = BACKENDS["triton"].run(call, gatherer)
        results.append([output, gatherer.peak, *torch.autograd.grad(output.sum(), leaves), gatherer.received])
    is_bad = torch.zeros(2, 1, queries if place == "query" else KEYS, dtype=torch.bool, device=DEVICE)
    is_bad[at] = True
    rows = is_bad & visible.any(3) if place == "query" else (visible & is_bad[:, :, None]).any(3)
    columns = (visible & rows[..., None]).any(2)
    for name, clean, bad in zip(("output", "peak", "query", "key", "value", "received"), *results, strict=True):
        reached = rows if name in ("output", "peak", "query") else columns
        clean, bad = clean[~reached], bad[~reached]
        torch.testing.assert_close(bad, clean, rtol=1e-5, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}")
    with torch.device("cpu"):
        mask = make_mask()
    leaves = [leaf.detach().cpu().requires_grad_() for leaf in leaves]
    bias = None if bias is None else bias.cpu()
    parts = {
        "score": moved(scoring, "cpu"),
        "normalizer": normalizer,
        "mask": mask,
        "bias": bias,
        "backend": "reference",
    }
    seen = regard.observe(*leaves, **parts, read=read)
    gradients = torch.autograd.grad(seen.output.sum(), leaves)
    truth = [seen.output, seen.peak, *gradients, seen.received]
    for name, right, bad in zip(
        ("output", "peak", "query", "key", "value", "received"), truth, results[1], strict=True
    ):
        if place == "value" and normalizer == "sparsemax" and name in ("query", "key"):
            continue  # the derivative of a weight of 0 is 0, whatever its value is
        is_lost = right.isnan() & ~bad.isnan().cpu()
        assert not bool(is_lost.any()), name


@pytest.mark.parametrize("hiding", ["causal", "none"])
@pytest.mark.parametrize("score", ["scaled_dot", "additive"])
def test_a_gradient_that_is_not_finite_reaches_its_own_feature_of_the_values(score, hiding):
    mask = None if hiding == "none" else masks.causal()
    query, key, value = (part[:, :1].to(DEVICE, torch.float32) for part in problem(queries=67, keys=67, kv_heads=1))
    value.requires_grad_()
    output = BACKENDS["triton"].run(validate(query, key, value, score=moved(SCORES[score](), DEVICE), mask=mask))
    pull = torch.ones_like(output)
    pull[0, 0, 40, 2] = torch.nan
    (gradient,) = torch.autograd.grad(output, value, pull)
    expected = torch.zeros_like(gradient, dtype=torch.bool)
    expected[0, 0, : 67 if mask is None else 41, 2] = True
    assert torch.equal(gradient.isnan(), expected)


def test_triton_refuses_second_derivatives():
    query, key, value = (tensor.to(DEVICE, torch.float32).requires_grad_() for tensor in problem())
    with pytest.raises(BackendError, match="no second derivative"):
        torch.autograd.grad(regard.attend(query, key, value, backend="triton").sum(), query, create_graph=True)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"normalizer": normalizers.hard()}, "there is no kernel for Hard"),
        ({"normalizer": normalizers.entmax(3.0)}, "an alpha up to 2"),
        ({"normalizer": normalizers.entmax(torch.tensor(1.3))}, "alpha is a tensor"),
        ({"score": "distance", "normalizer": normalizers.Softmax(0.5)}, None),
    ],
)
def test_triton_runs_or_says_why_not(arguments, reason):
    inputs = [tensor.to(DEVICE, torch.float32) for tensor in problem()]
    if reason is None:
        regard.attend(*inputs, **arguments, backend="triton")
        return
    with pytest.raises(BackendError, match=reason):
        regard.attend(*inputs, **arguments, backend="triton")
