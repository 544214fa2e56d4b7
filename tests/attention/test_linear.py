"""The backend ``linear``: where it runs, its results, gradients and readings are those of the specification."""

import pytest
import torch

import regard
from backends import assert_same, measure
from cases import B, D, H, K, problem
from covering import covering
from regard import masks, normalizers, scores
from regard.errors import BackendError
from regard.kernels.availability import why_missing


def rand(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


SCORES = {
    "features": lambda: scores.Features("elu"),
    "scaled dot": lambda: scores.ScaledDot(0.5 + rand(H, 1, 1)),
    "location": lambda: scores.Location(rand(K, D)),
    "random features": lambda: scores.Features(scores.RandomFeatures(rand(5, D) - 0.5)),
    "retention": lambda: scores.Decayed("scaled_dot", -rand(H)),
    "gates": lambda: scores.Decayed(scores.Features("elu"), -rand(B, H, K)),
    "gates of features": lambda: scores.Decayed("dot", -rand(B, 1, K, D)),
    "delta": lambda: scores.DeltaRule("cosine", rand(B, H, K)),
    "gated delta": lambda: scores.DeltaRule(scores.Decayed("cosine", -rand(B, H, K)), rand(1, H, K)),
}
MASKS = {
    "none": lambda: None,
    "causal": lambda: masks.causal(),
    "causal_start": lambda: masks.causal(align="start"),
    "behind": lambda: masks.causal(offset=-2),
    "ahead": lambda: masks.causal(offset=4),
    "lengths": lambda: masks.lengths([4, 0], [2, 3]),
    "causal_lengths": lambda: masks.causal() & masks.lengths([4, 6]),
}


def normalizer_of(score):
    """Those that normalize a row need scores that are not negative."""
    return "ratio" if score in ("features", "random features", "gates") else "identity"


def runs(inputs, **arguments):
    """Whether the backend takes the call; a score of recurrences refuses some masks altogether."""
    try:
        return not regard.plan(*inputs, **arguments).reasons["linear"].startswith("cannot")
    except regard.errors.ArgumentError:
        return False


@covering(score=SCORES, mask=MASKS, queries=[4, K, 9], kv_heads=[1, 3])
def test_results_gradients_and_readings_are_those_of_the_specification(score, mask, queries, kv_heads):
    if score == "location" and kv_heads == 1:
        return
    inputs, scoring = problem(kv_heads=kv_heads, queries=queries), SCORES[score]()
    arguments = {"score": scoring, "normalizer": normalizer_of(score), "mask": MASKS[mask]()}
    if not runs(inputs, **arguments):
        is_taken = (
            mask in ("causal", "none") and queries <= K and score not in ("retention", "gates", "gates of features")
        )
        assert not is_taken
        return
    results = []
    for backend in ("reference", "linear"):
        buffers = {name: buffer.requires_grad_() for name, buffer in scoring.named_buffers()}
        results.append(measure(backend, inputs, buffers, **arguments))
    assert_same(results[1], results[0], rtol=1e-9, atol=1e-10)


IDS = torch.tensor([[5, 5, 5, 2, 2, 9, 9], [0, 1, 1, 1, 1, -1, -1]])


@pytest.mark.parametrize("score", [name for name in SCORES if name != "location"])
def test_recurrences_of_documents_are_those_of_each_alone(score):
    (query, key, value), scoring = problem(queries=K), SCORES[score]()
    arguments = {"normalizer": normalizer_of(score)}
    mask = masks.causal() & masks.documents(IDS)
    results = []
    for backend in ("reference", "linear"):
        buffers = {name: buffer.requires_grad_() for name, buffer in scoring.named_buffers()}
        results.append(measure(backend, (query, key, value), buffers, score=scoring, mask=mask, **arguments))
    assert_same(results[1], results[0], rtol=1e-9, atol=1e-10)
    output = regard.attend(query, key, value, score=scoring, mask=mask, backend="linear", **arguments)
    own = DOCUMENT_SCORES[score](slice(1, 2), slice(1, 5)) if score in DOCUMENT_SCORES else scoring
    document = [tensor[1:, :, 1:5] for tensor in (query, key, value)]
    alone = regard.attend(*document, score=own, mask="causal", backend="reference", **arguments)
    torch.testing.assert_close(output[1:, :, 1:5], alone, rtol=1e-9, atol=1e-10)
    assert not output[1, :, 5:].any()


DOCUMENT_SCORES = {
    "gates": lambda rows, span: scores.Decayed(scores.Features("elu"), -rand(B, H, K)[rows, :, span]),
    "gates of features": lambda rows, span: scores.Decayed("dot", -rand(B, 1, K, D)[rows, :, span]),
    "delta": lambda rows, span: scores.DeltaRule("cosine", rand(B, H, K)[rows, :, span]),
    "gated delta": lambda rows, span: scores.DeltaRule(
        scores.Decayed("cosine", -rand(B, H, K)[rows, :, span]), rand(1, H, K)[:, :, span]
    ),
}
"""The scores with a number for each token, of the tokens of a document alone."""


def test_tokens_of_documents_that_are_interleaved_have_no_recurrence():
    inputs, mask = problem(queries=K), masks.causal() & masks.documents(torch.arange(K) % 2)
    arguments = {"score": SCORES["delta"](), "normalizer": "identity", "mask": mask}
    with pytest.raises(BackendError, match="documents in runs of tokens"):
        regard.attend(*inputs, backend="linear", **arguments)
    every_other = [tensor[:, :, ::2] for tensor in inputs]
    alone = regard.attend(
        *every_other, score=scores.DeltaRule("cosine", rand(B, H, K)[:, :, ::2]), normalizer="identity", mask="causal"
    )
    for backend in ("reference", "tiled"):
        output = regard.attend(*inputs, backend=backend, **arguments)
        torch.testing.assert_close(output[:, :, ::2], alone, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("backend", ["reference", "tiled", "linear"])
@pytest.mark.parametrize("score", [name for name in SCORES if "delta" in name or name in ("retention", "gates")])
def test_an_empty_batch_has_an_empty_output(score, backend):
    inputs, scoring = [tensor[:0] for tensor in problem(queries=K)], SCORES[score]()
    for inner in scoring.modules():
        for name, buffer in inner.named_buffers(recurse=False):
            setattr(inner, name, buffer[:1] if buffer.dim() > 2 else buffer)
    output = regard.attend(*inputs, score=scoring, normalizer="identity", mask="causal", backend=backend)
    assert output.shape == (0, H, K, inputs[2].shape[-1])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("score", ["features", "gates of features", "gated delta"])
def test_linear_accumulates_half_precision_in_float32(score, dtype):
    inputs = problem(dtype, queries=K)
    arguments = {"score": SCORES[score]().float(), "normalizer": normalizer_of(score), "mask": masks.causal()}
    exact = regard.attend(*(tensor.float() for tensor in inputs), backend="reference", **arguments)
    got = regard.attend(*inputs, backend="linear", **arguments)
    assert got.dtype == dtype
    torch.testing.assert_close(
        got, exact.to(dtype), rtol=2 * torch.finfo(dtype).eps, atol=1e-3 * torch.finfo(dtype).eps
    )


@pytest.mark.parametrize("score", ["features", "gates of features", "gated delta"])
def test_every_derivative_is_exact(score, is_full):
    scoring = SCORES[score]()
    inputs = [tensor.requires_grad_() for tensor in problem(queries=K)]
    arguments = {"score": scoring, "normalizer": normalizer_of(score), "mask": masks.causal(), "backend": "linear"}

    def attend(*tensors):
        return regard.attend(*tensors, **arguments)

    assert torch.autograd.gradcheck(attend, inputs, fast_mode=not is_full, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(attend, inputs, fast_mode=not is_full)
    many = [torch.stack([tensor, 2 * tensor]).detach() for tensor in inputs]
    each = torch.stack([attend(*pair) for pair in zip(*many, strict=True)])
    torch.testing.assert_close(torch.func.vmap(attend)(*many), each)


@pytest.mark.parametrize("score", SCORES)
def test_a_single_query_reads_what_the_last_of_many_reads(score):
    query, key, value = problem(queries=K)
    arguments = {"score": SCORES[score](), "normalizer": normalizer_of(score), "mask": "causal", "backend": "linear"}
    last = regard.attend(query[:, :, -1:], key, value, **arguments)
    torch.testing.assert_close(last, regard.attend(query, key, value, **arguments)[:, :, -1:])


def test_hidden_keys_that_are_not_finite_reach_nothing():
    query, key, value = problem(queries=K)
    arguments = {"score": scores.Features("elu"), "normalizer": "ratio", "backend": "linear"}
    mask = masks.causal() & masks.lengths([4, 5])
    clean = regard.attend(query, key, value, mask=mask, **arguments)
    for spoilt in (key, value):
        spoilt[0, :, 4:], spoilt[1, :, 5:] = torch.nan, torch.inf
    torch.testing.assert_close(regard.attend(query, key, value, mask=mask, **arguments), clean)
    value[0, :, 2] = torch.nan
    seen = regard.attend(query, key, value, mask=mask, **arguments)
    assert seen[0, :, 2:].isnan().all()
    torch.testing.assert_close(seen[0, :, :2], clean[0, :, :2])


DECLINED = {
    "neither 'identity'": {"normalizer": "sigmoid"},
    "which is no product": {"score": scores.Additive(rand(D))},
    "modified": {"score": scores.SoftCap("dot", 1.0)},
    "a bias": {"bias": rand(K, K)},
    "dropped": {"dropout": 0.1},
    "neither causal": {"mask": masks.window(2, 0)},
    "one offset": {"mask": masks.causal(offset=[0, 1])},
    "not causal": {"score": scores.Decayed("dot", -rand(H))},
    "nor 'ratio'": {"normalizer": normalizers.local_gaussian("identity", torch.tensor(1.0), 1.0)},
}


@pytest.mark.parametrize("reason", DECLINED)
def test_linear_declines_with_its_reason(reason):
    arguments = {"score": "dot", "normalizer": "identity", **DECLINED[reason]}
    with pytest.raises(BackendError, match=reason):
        regard.attend(*problem(queries=K), backend="linear", **arguments)


def test_calls_of_the_delta_rule_without_a_mask_stay_causal():
    arguments = {"score": SCORES["gated delta"](), "normalizer": "identity"}
    for number in range(3):
        inputs = [tensor + number for tensor in problem(queries=K)]
        expected = regard.attend(*inputs, mask="causal", backend="reference", **arguments)
        torch.testing.assert_close(regard.attend(*inputs, backend="linear", **arguments), expected)


def test_plan_says_which_form_of_linear_runs():
    inputs = problem(torch.float32, queries=K)
    arguments = {"score": SCORES["delta"]().float(), "normalizer": "identity", "mask": "causal", "backend": "linear"}
    expected = "PyTorch's operations run it" if why_missing() else "fused kernels run it"
    assert expected in regard.plan(*inputs, **arguments).reasons["linear"]
    plain = regard.plan(*problem(queries=K), **arguments | {"score": SCORES["delta"]()})
    assert "PyTorch's operations run it" in plain.reasons["linear"]


def test_auto_takes_it_for_long_sequences_and_plan_says_why():
    inputs = [torch.zeros(1, 1, 512, 4)] * 3
    plan = regard.plan(*inputs, score=scores.Features("elu"), normalizer="ratio", mask="causal")
    assert plan.backend == "linear"
    assert "'linear' is faster" in plan.reasons["reference"]
    assert regard.plan(*problem(), score=scores.Features("elu"), normalizer="ratio").backend == "reference"


@pytest.mark.parametrize("score", ["random features", "gated delta"])
def test_compiled_calls_are_the_same(score):
    inputs, scoring = problem(queries=K), SCORES[score]()
    arguments = {"score": scoring, "normalizer": normalizer_of(score), "mask": masks.causal(), "backend": "linear"}
    compiled = torch.compile(lambda *tensors: regard.attend(*tensors, **arguments), backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(*inputs), regard.attend(*inputs, **arguments))
