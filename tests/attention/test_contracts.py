"""The contracts of DESIGN.md, over every backend and every score × normalizer × mask × bias that it accepts."""

import gc
import weakref

import pytest
import torch

import regard
from backends import ON_CPU, is_compiled
from cases import BIASES, KV, MASKS, NORMALIZERS, SCORES, B, D, H, K, Q, V, problem
from covering import covering
from regard import masks, normalizers
from regard.errors import BackendError
from regard.shapes.grid import Grid

READ_ALL = regard.Readings(
    entropy=True, peak=True, top_k=3, received=True, distance=True, pooled=(2, 3), rows=[0, -1], tile=((1, 4), (2, 6)),
    weights=True,
)  # fmt: skip

FAST = sorted(set(ON_CPU) - {"reference"})


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    """Blocks of one batch row and two queries, so that small problems have several."""
    monkeypatch.setattr("regard.attention.backends.tiled.BLOCK_ELEMENTS", 2 * H * K)
    monkeypatch.setattr("regard.attention.backends.tiled.KEY_BLOCK", 2)
    monkeypatch.setattr("regard.attention.backends.sdpa.backend.ROWS", 2)


def accepts(backend, inputs, **arguments):
    """Whether the backend runs this; what it declines must raise when it is named (contract 5)."""
    reason = regard.plan(*inputs, **arguments).reasons[backend]
    if not reason.startswith("cannot"):
        return backend != "cpu" or is_compiled(inputs, **arguments)
    with pytest.raises(BackendError, match="cannot run this"):
        regard.attend(*inputs, backend=backend, **arguments)
    return False


def literal(query, key, value, score, normalizer, mask, bias=None):
    """Row by row, on the visible keys alone: a masked key is a key that isn't there."""
    key, value = (tensor.repeat_interleave(H // tensor.shape[1], 1) for tensor in (key, value))
    grid = Grid.whole(B, H, Q, K)
    scores = score(query, key)
    if bias is not None:
        scores = scores + bias.of_keys(key)(query, grid)
    allowed = torch.ones(grid.shape, dtype=torch.bool) if mask is None else mask.dense(grid)
    output, lse = query.new_zeros(B, H, Q, V), query.new_full((B, H, Q), -torch.inf)
    for b in range(B):
        for h in range(H):
            for i in range(Q):
                visible = allowed[b, h, i].nonzero()[:, 0]
                if len(visible):
                    row = scores[b, h, i, visible]
                    output[b, h, i] = normalizer(row[None, None, None])[0, 0, 0] @ value[b, h, visible]
                    lse[b, h, i] = row.logsumexp(-1)
    return output, lse


@covering(score=SCORES, normalizer=sorted(set(NORMALIZERS) - {"local", "chunkwise"}), kv_heads=KV, mask=MASKS)
def test_every_backend_computes_the_equation(score, normalizer, kv_heads, mask):
    scoring, normalizing, restriction = SCORES[score](), NORMALIZERS[normalizer](), MASKS[mask]()
    inputs = problem(kv_heads=kv_heads)
    arguments = {"score": scoring, "normalizer": normalizing, "mask": restriction}
    module = scoring if isinstance(scoring, torch.nn.Module) else regard.scores.as_score(scoring)
    output, _ = literal(*inputs, module, normalizing, restriction)
    for backend in ON_CPU:
        if accepts(backend, inputs, **arguments):
            got = regard.attend(*inputs, backend=backend, **arguments)
            torch.testing.assert_close(
                got, output, rtol=1e-9, atol=1e-9, msg=lambda m, backend=backend: f"{backend}: {m}"
            )


@pytest.mark.parametrize("bias", sorted(set(BIASES) - {"none"}))
@pytest.mark.parametrize("normalizer", ["softmax", "tempered", "sparsemax"])
def test_every_backend_adds_the_bias(normalizer, bias):
    inputs = problem()
    normalizing, added = NORMALIZERS[normalizer](), BIASES[bias]()
    for mask in ("none", "causal", "lengths"):
        restriction = MASKS[mask]()
        expected, _ = literal(
            *inputs, regard.scores.ScaledDot(), normalizing, restriction, regard.positions.as_bias(added)
        )
        arguments = {"normalizer": normalizing, "mask": restriction, "bias": added}
        with torch.no_grad():
            for backend in ON_CPU:
                if accepts(backend, inputs, **arguments):
                    got = regard.attend(*inputs, backend=backend, **arguments)
                    torch.testing.assert_close(got, expected.detach(), rtol=1e-9, atol=1e-9)


@covering(score=SCORES, normalizer=NORMALIZERS, mask=MASKS)
def test_gradients_of_every_backend_are_those_of_the_reference(score, normalizer, mask, monkeypatch):
    monkeypatch.setattr("regard.attention.backends.tiled.BLOCK_ELEMENTS", H * K * Q)
    inputs = problem(kv_heads=1, requires_grad=True)
    grad_output = torch.randn(B, H, Q, V, dtype=torch.float64)
    scoring, bias = SCORES[score](), BIASES["tensor"]()
    arguments = {"score": scoring, "normalizer": NORMALIZERS[normalizer](), "mask": MASKS[mask](), "bias": bias}
    compared = []
    for backend in FAST:
        bias.requires_grad_(backend != "sdpa")
        if not accepts(backend, inputs, **arguments):
            continue
        wanted = [*inputs, *([bias] if bias.requires_grad else [])]
        if isinstance(scoring, torch.nn.Module):
            wanted += scoring.parameters()
        expected, got = (
            torch.autograd.grad(
                regard.attend(*inputs, backend=name, **arguments), wanted, grad_output, allow_unused=True
            )
            for name in ("reference", backend)
        )
        for one, other in zip(expected, got, strict=True):
            if one is None:
                assert other is None or not other.any()
            else:
                assert torch.isfinite(other).all()
                torch.testing.assert_close(
                    other, one, rtol=1e-8, atol=1e-9, msg=lambda m, backend=backend: f"{backend}: {m}"
                )
        compared.append(backend)
    assert compared


@pytest.mark.parametrize("backend", ON_CPU)
@pytest.mark.parametrize("score", ["scaled_dot", "additive", "cosine"])
@pytest.mark.parametrize("normalizer", ["softmax", "entmax15"])
def test_gradients_of_attend_are_exact(backend, score, normalizer, is_full):
    inputs = tuple(t[:1, :, :3, :5].detach().requires_grad_() for t in problem(dim=5, value_dim=3))
    scoring = regard.scores.Additive(torch.randn(5, dtype=torch.float64)) if score == "additive" else score
    arguments = {"score": scoring, "normalizer": NORMALIZERS[normalizer](), "mask": masks.causal()}
    if accepts(backend, inputs, **arguments):
        assert torch.autograd.gradcheck(
            lambda *t: regard.attend(*t, backend=backend, **arguments), inputs, fast_mode=not is_full
        )


@pytest.mark.parametrize("backend", ON_CPU)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_a_query_that_sees_no_key_gets_nothing(backend, dtype):
    for normalizer in NORMALIZERS:
        inputs = problem(dtype=dtype, requires_grad=True)
        center = torch.zeros(1)
        normalizing = (
            normalizers.local_gaussian(normalizers.softmax, center, 1.0)
            if normalizer == "local"
            else NORMALIZERS[normalizer]()
        )
        arguments = {"normalizer": normalizing, "mask": masks.lengths([K, 0])}
        if not accepts(backend, inputs, **arguments):
            continue
        observed = regard.observe(*inputs, backend=backend, read=READ_ALL, **arguments)
        assert observed.output.dtype == dtype
        observed.output.float().square().sum().backward()
        assert not observed.output[1].any()
        assert not observed.weights[1].any()
        assert not observed.entropy[1].any()
        assert not observed.received[1].any()
        assert (observed.top_indices[1] == -1).all()
        assert (observed.lse[1] == -torch.inf).all()
        assert torch.isfinite(observed.lse[0]).all()
        for tensor in inputs:
            if tensor.grad is not None:
                assert torch.isfinite(tensor.grad).all()
                assert not tensor.grad[1].any()
        assert inputs[2].grad[0].any()


@pytest.mark.parametrize("backend", ON_CPU)
def test_every_backend_aligns_the_ends_of_causal(backend):
    query, key, value = problem()
    visible = torch.arange(K) <= torch.arange(Q)[:, None] + (K - Q)
    assert visible[-1].all()
    got = regard.attend(query, key, value, mask=masks.causal(), backend=backend)
    torch.testing.assert_close(got, regard.attend(query, key, value, mask=masks.keep(visible), backend="reference"))
    start = regard.attend(query, key, value, mask=masks.causal(align="start"), backend=backend)
    torch.testing.assert_close(start[:, :, 0], value[:, :, 0])
    three = regard.observe(query, key, value, mask=masks.window(2, 0), backend=backend, read=READ_ALL).weights
    assert ((three > 0).sum(-1) == 3).all()


@pytest.mark.parametrize("causal", [masks.causal(align="start"), masks.causal(offset=0), masks.causal()])
@pytest.mark.parametrize("queries", [3, 7, 11])
def test_causal_of_any_lengths(queries, causal):
    inputs = problem(queries=queries)
    expected = regard.attend(*inputs, mask=causal, backend="reference")
    for backend in FAST:
        torch.testing.assert_close(regard.attend(*inputs, mask=causal, backend=backend), expected)


LOOKED_AT = {
    **{name: NORMALIZERS[name] for name in ("softmax", "entmax15", "hard")},
    "gumbel": lambda: normalizers.hard("gumbel"),
}


@pytest.mark.parametrize("backend", ON_CPU)
@covering(
    normalizer=LOOKED_AT,
    mask=["none", "causal", "lengths", "where"],
    dropout=[0.0, 0.4],
    dtype=[torch.float32, torch.bfloat16],
)
def test_observing_never_changes_the_output(backend, dropout, dtype, mask, normalizer):
    arguments = {"normalizer": LOOKED_AT[normalizer](), "mask": MASKS[mask](), "dropout": dropout}
    inputs = problem(dtype=dtype, requires_grad=True)
    if not accepts(backend, inputs, **arguments):
        return
    outputs, gradients = [], []
    for look in (False, True):
        torch.manual_seed(5)
        if look:
            output = regard.observe(*inputs, backend=backend, read=READ_ALL, **arguments).output
        else:
            output = regard.attend(*inputs, backend=backend, **arguments)
        outputs.append(output)
        gradients.append(torch.autograd.grad(output.float().square().sum(), inputs, allow_unused=True))
    assert torch.equal(*outputs)
    for one, other in zip(*gradients, strict=True):
        assert (one is None and other is None) or torch.equal(one, other)


@pytest.mark.parametrize("backend", ON_CPU)
def test_weights_are_reported_before_dropout(backend):
    inputs = problem()
    arguments = {"dropout": 0.5, "mask": masks.causal()}
    if accepts(backend, inputs, **arguments):
        observed = regard.observe(*inputs, backend=backend, read=READ_ALL, **arguments)
        torch.testing.assert_close(observed.weights.sum(-1), torch.ones(B, H, Q, dtype=torch.float64))
        assert not torch.allclose(observed.output, regard.attend(*inputs, mask=masks.causal()))


@pytest.mark.parametrize("backend", ON_CPU)
def test_dropout_keeps_the_expectation(backend, monkeypatch):
    monkeypatch.setattr("regard.attention.backends.tiled.BLOCK_ELEMENTS", 1 << 18)
    inputs = [tensor[:1].expand(4000, -1, -1, -1) for tensor in problem()]
    if accepts(backend, inputs, dropout=0.3):
        mean = regard.attend(*inputs, dropout=0.3, backend=backend).mean(0)
        torch.testing.assert_close(mean, regard.attend(*(tensor[0] for tensor in inputs)), rtol=0, atol=0.1)


@pytest.mark.parametrize("backend", ON_CPU)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("score", ["dot", "cosine", "additive", "distance", "general"])
def test_half_precision_is_calculated_in_float32(backend, dtype, score):
    inputs = problem(dtype=dtype)
    scoring = SCORES[score]()
    for bias in (None, 100 * BIASES["tensor"]()):
        arguments = {"score": scoring, "mask": masks.causal(), "bias": bias}
        if not accepts(backend, inputs, **arguments):
            continue
        got = regard.attend(*inputs, backend=backend, **arguments)
        oracle = regard.attend(*(t.double() for t in inputs), backend="reference", **arguments)
        # Half an ulp of the output's dtype, and of the weights where a kernel multiplies them in that dtype.
        torch.testing.assert_close(
            got.double(), oracle, rtol=2 * torch.finfo(dtype).eps, atol=2 * torch.finfo(dtype).eps
        )


@pytest.mark.parametrize("backend", ["auto", "reference", "tiled"])
@pytest.mark.parametrize(
    ("batch", "queries", "keys"), [(0, 3, 5), (2, 0, 5), (2, 3, 0), (2, 1, 1), (1, 1, 5), (1, 3, 1), (0, 0, 0)]
)
def test_attend_takes_empty_and_single_axes(backend, batch, queries, keys):
    for normalizer in sorted(set(NORMALIZERS) - {"local"}):
        query, key, value = (torch.randn(batch, H, length, D, requires_grad=True) for length in (queries, keys, keys))
        arguments = {"normalizer": NORMALIZERS[normalizer](), "mask": masks.causal()}
        observed = regard.observe(query, key, value, read=regard.Readings(entropy=True, weights=True), backend=backend)
        assert observed.output.shape == (batch, H, queries, D)
        assert observed.weights.shape == (batch, H, queries, keys)
        output = regard.attend(query, key, value, backend=backend, **arguments)
        output.sum().backward()
        assert torch.isfinite(output).all()
        if keys == 1 and queries == 1 and normalizer in ("softmax", "sparsemax", "entmax15", "hard"):
            torch.testing.assert_close(output, value)
        if keys == 0:
            assert not output.any()


@pytest.mark.parametrize("backend", ON_CPU)
def test_leading_axes_of_a_call_may_be_missing(backend):
    query, key, value = problem()
    whole = regard.attend(query, key, value, backend=backend)
    three = regard.observe(query[1], key[1], value[1], backend=backend)
    one_head = regard.observe(query[:, 1], key[:, 1], value[:, 1], backend=backend)
    two = regard.observe(query[1, 2], key[1, 2], value[1, 2], backend=backend)
    torch.testing.assert_close(three.output, whole[1])  # each head is a row of a batch with one head
    torch.testing.assert_close(two.output, whole[1, 2])
    torch.testing.assert_close(one_head.output, whole[:, 1])
    assert one_head.lse.shape == (B, Q)
    assert three.lse.shape == (H, Q)
    assert three.received.shape == (H, K)
    assert two.entropy.shape == (Q,)
    explanation = regard.explain(query[1, 2], key[1, 2], value[1, 2])
    assert explanation.weights.shape == (Q, K)
    torch.testing.assert_close(explanation.output, whole[1, 2])


@pytest.mark.parametrize("scale", [1.0, 1e2, 1e4])
def test_large_scores_overflow_on_no_backend(scale):
    inputs = [scale * t for t in problem(dtype=torch.float32)]
    for backend in ON_CPU:
        for normalizer in ("softmax", "sparsemax", "entmax15", "entmax13", "sink"):
            arguments = {"normalizer": NORMALIZERS[normalizer](), "score": "dot"}
            if accepts(backend, inputs, **arguments):
                output = regard.attend(*inputs, backend=backend, **arguments)
                assert torch.isfinite(output).all()


def test_memory_of_tiled_is_linear(monkeypatch):
    """What the backward pass keeps does not grow with the number of pairs."""
    monkeypatch.setattr("regard.attention.backends.tiled.BLOCK_ELEMENTS", 1 << 15)
    kept = []
    for queries in (64, 128):
        inputs = [t.requires_grad_() for t in problem(torch.float32, queries=queries, keys=queries)]
        elements = 0

        def pack(tensor):
            nonlocal elements
            elements += tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            regard.attend(*inputs, score=regard.scores.Additive(torch.randn(D)), backend="tiled")
        kept.append(elements)
    assert kept[1] <= 2.1 * kept[0]


@pytest.mark.parametrize("backend", ON_CPU)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_call_keeps_nothing_alive(backend, requires_grad):
    """When its result is gone, a call's tensors are gone too, without the help of Python's cycle collector."""
    calls = ({}, {"mask": masks.causal()}, {"mask": masks.causal(), "bias": torch.zeros(Q, K)})
    for arguments in calls:
        # A first call may compile kernels, and a compiler's errors hold the frames in which they were raised.
        inputs = problem(torch.float32)
        if accepts(backend, inputs, **arguments):
            regard.observe(*inputs, backend=backend, **arguments)
    gc.collect()
    gc.disable()
    try:
        for arguments in calls:
            inputs = problem(torch.float32, requires_grad=requires_grad)
            if accepts(backend, inputs, **arguments):
                copies = [tensor * 1.0 for tensor in inputs]
                alive = [weakref.ref(tensor) for tensor in copies]
                regard.attend(*copies, backend=backend, **arguments)
                regard.observe(*copies, backend=backend, **arguments)
                del copies
                assert not [ref for ref in alive if ref() is not None]
    finally:
        gc.enable()
