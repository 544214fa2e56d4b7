"""Tensors without numbers: shapes, dtypes and devices go through every verb and layer."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

import regard
from backends import EVERY, READ_ALL, accepts
from cases import B, D, H, K, Q, V
from covering import covering
from regard import masks, nn, normalizers, positions, scores
from regard.errors import BackendError

KINDS = ("meta", "fake")
kinds = pytest.mark.parametrize("kind", KINDS)


def on(kind):
    """What makes tensors of this kind: a context for fake ones, the meta device else."""
    return FakeTensorMode() if kind == "fake" else torch.device("meta")


def is_without_numbers(tensor, kind):
    return isinstance(tensor, FakeTensor) if kind == "fake" else tensor.device.type == "meta"


def problem(dtype=torch.float32, kv_heads=H, queries=Q):
    lengths = (H, queries, D), (kv_heads, K, D), (kv_heads, K, V)
    return tuple(torch.randn(B, *shape, dtype=dtype, requires_grad=True) for shape in lengths)


# Made inside the context, so that their parameters and tensors are without numbers as well.
CASES = {
    "plain": dict,
    "causal": lambda: {"mask": masks.causal()},
    "window": lambda: {"mask": masks.window(2, 0), "normalizer": "sparsemax"},
    "lengths": lambda: {"mask": masks.lengths(torch.ones(B, dtype=torch.int64)), "normalizer": normalizers.entmax(1.3)},
    "lengths_both": lambda: {
        "mask": masks.lengths(torch.ones(B, dtype=torch.int64), torch.ones(B, dtype=torch.int64)),
        "normalizer": "entmax15",
    },
    "keep": lambda: {"mask": masks.keep(torch.ones(B, 1, 1, K, dtype=torch.bool)), "normalizer": "sigmoid"},
    "ignore": lambda: {"mask": masks.ignore(torch.ones(Q, K, dtype=torch.bool)), "normalizer": "hard"},
    "documents": lambda: {
        "mask": masks.documents(torch.ones(B, Q, dtype=torch.int64), torch.ones(B, K, dtype=torch.int64))
    },
    "where": lambda: {"mask": masks.where(lambda batch, head, query, key: query + head >= key)},
    "prefix": lambda: {"mask": masks.prefix(torch.ones(B, dtype=torch.int64)) | masks.dilated(2)},
    "bias": lambda: {
        "bias": torch.randn(H, Q, K, requires_grad=True),
        "normalizer": normalizers.softmax_with_sink(0.3),
    },
    "alibi": lambda: {"bias": positions.alibi(H)},
    "relative": lambda: {"bias": positions.RelativeBias(H)},
    "shaw": lambda: {"bias": positions.RelativePosition(D, 3)},
    "additive": lambda: {"score": scores.Additive.create(D, D, 3), "mask": masks.causal()},
    "general": lambda: {"score": scores.General.create(D, D, H)},
    "cosine": lambda: {"score": scores.Cosine.create(H)},
    "mlp": lambda: {"score": scores.MLP.create(D, D, (3,))},
    "location": lambda: {"score": scores.Location.create(D, K)},
    "location_aware": lambda: {
        "score": scores.LocationAware.create(D, D, 3, channels=2, kernel_size=3).given(torch.rand(B, K))
    },
    "distance": lambda: {"score": "distance"},
    "unsquared": lambda: {"score": scores.Distance(squared=False)},
    "soft_cap": lambda: {"score": scores.SoftCap("scaled_dot", 2.0)},
    "sink": lambda: {"normalizer": normalizers.softmax_with_sink(torch.nn.Parameter(torch.zeros(H)))},
    "temperature": lambda: {"normalizer": normalizers.Softmax(torch.nn.Parameter(torch.ones(H)))},
    "dropout": lambda: {"dropout": 0.3},
}


@kinds
@pytest.mark.parametrize("case", CASES)
def test_verbs_run_on_tensors_without_numbers(kind, case):
    """Output, readings and gradients have the shapes and dtypes that they have with numbers."""
    real_arguments, real = CASES[case](), problem()
    expected = regard.observe(*real, read=READ_ALL, backend="reference", **real_arguments)
    for backend in EVERY:
        if accepts(backend, real, **real_arguments):
            assert_shapes(backend, kind, case, expected)


def assert_shapes(backend, kind, case, expected):
    with on(kind):
        inputs, arguments = problem(), CASES[case]()
        observed = regard.observe(*inputs, read=READ_ALL, backend=backend, **arguments)
        output = regard.attend(*inputs, backend=backend, **arguments)
        assert regard.plan(*inputs, backend=backend, **arguments).backend in EVERY
        gradients = torch.autograd.grad(output.sum(), inputs, allow_unused=True)
    for name, value in expected._asdict().items():
        if name in ("shares", "recall"):  # which cannot be read here: see below
            continue
        got = getattr(observed, name)
        assert (got.shape, got.dtype) == (value.shape, value.dtype), name
        assert is_without_numbers(got, kind), name
    assert (output.shape, output.dtype) == (expected.output.shape, expected.output.dtype)
    assert is_without_numbers(output, kind)
    for tensor, gradient in zip(inputs, gradients, strict=True):
        assert gradient is None or (gradient.shape, gradient.device) == (tensor.shape, tensor.device)


@kinds
def test_shares_are_refused(kind):
    with on(kind), pytest.raises(BackendError, match="shares cannot be read while a compiler traces"):
        regard.observe(*problem(), read=regard.Readings(shares=[masks.causal()]))


@covering(queries=[0, 1, 613], dtype=[torch.bfloat16, torch.float64], kind=KINDS)
def test_dtypes_and_lengths(kind, dtype, queries):
    for backend in EVERY:
        if accepts(backend, problem(dtype, 1, queries), mask=masks.causal()):
            with on(kind):
                inputs = problem(dtype, 1, queries)
                output = regard.attend(*inputs, backend=backend, mask=masks.causal())
                three = regard.attend(*(tensor[:, 0] for tensor in inputs), backend=backend)
            assert (output.shape, output.dtype) == ((B, H, queries, V), dtype), backend
            assert three.shape == (B, queries, V), backend


@kinds
@pytest.mark.parametrize("case", ["plain", "causal", "additive", "bias", "soft_cap"])
def test_explain_runs_on_tensors_without_numbers(kind, case):
    with on(kind):
        explanation = regard.explain(*problem(), **CASES[case]())
    assert explanation.weights.shape == (B, H, Q, K)
    assert explanation.output.shape == (B, H, Q, V)
    assert is_without_numbers(explanation.output, kind)


@covering(
    name=["additive", "scaled_dot", "general", "location_aware", "cosine"], need_weights=[True, False], kind=KINDS
)
def test_attention_layers_run_on_tensors_without_numbers(kind, name, need_weights):
    given = {"channels": 2, "kernel_size": 3} if name == "location_aware" else {}
    score = scores.create(name, D, D, **given)
    for backend in EVERY:
        if accepts(backend, problem(), score=score):
            assert_layer(backend, kind, name, given, need_weights)


def assert_layer(backend, kind, name, given, need_weights):
    with on(kind):
        attention = nn.Attention.create(name, D, D, **given, backend=backend)
        for queries in ((), (Q,)):
            lengths = torch.ones(B, dtype=torch.int64)
            memory = attention.remember(torch.randn(B, K, D), lengths)
            query = torch.randn(B, *queries, D, requires_grad=True)
            context, weights = attention(query, memory, need_weights=need_weights)
            assert context.shape == (B, *queries, D)
            assert is_without_numbers(context, kind)
            assert (weights is not None) == need_weights
            assert weights is None or weights.shape == (B, *queries, K)
        context.sum().backward()


# Every backend accepts all of these.
@covering(backend=EVERY, need_weights=[True, False], padded=[True, False], kind=KINDS)
def test_the_drop_in_runs_on_tensors_without_numbers(backend, kind, need_weights, padded):
    with on(kind):
        attention = nn.MultiheadAttention(12, 3, batch_first=True, backend=backend)
        x = torch.randn(B, Q, 12)
        padding = torch.zeros(B, Q, dtype=torch.bool) if padded else None
        output, weights = attention(x, x, x, key_padding_mask=padding, need_weights=need_weights)
        output.sum().backward()
    assert output.shape == (B, Q, 12)
    assert is_without_numbers(output, kind)
    assert weights is None or weights.shape == (B, Q, Q)
