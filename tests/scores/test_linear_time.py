"""Kernel features, decays and the delta rule: their scores are the weights that the papers' recurrences imply."""

import pytest
import torch
from torch.nn import functional as F

import regard
from cases import B, D, H, K, problem
from covering import covering
from largest_tensor import LargestTensor
from linear_loops import by_loops, weights_by_loops
from regard import masks, normalizers, scores
from regard.errors import ArgumentError, KindError, ShapeError, UnknownNameError

DECAYS = {
    "none": None,
    "head": -torch.linspace(0.1, 0.7, H).double(),
    "token": -torch.rand(B, H, K, generator=torch.Generator().manual_seed(1)).double(),
    "shared token": -torch.rand(B, 1, K, generator=torch.Generator().manual_seed(2)).double(),
    "feature": -torch.rand(B, H, K, D, generator=torch.Generator().manual_seed(3)).double(),
}
DECAYS["cleared token"], DECAYS["cleared feature"] = (
    torch.where(DECAYS[name] < -0.6, -torch.inf, DECAYS[name]) for name in ("token", "feature")
)
BETA = torch.rand(B, H, K, generator=torch.Generator().manual_seed(4)).double()


def score_of(inner, decay, delta):
    score = inner if decay is None else scores.Decayed(inner, decay)
    return scores.DeltaRule(score, BETA) if delta else score


def each_token(decay):
    """A decay in the layout of the loops: ``[batch, heads, keys, gates]``."""
    if decay is None:
        return None
    by_token = decay[None, :, None, None] if decay.dim() == 1 else decay if decay.dim() == 4 else decay[..., None]
    return by_token.expand(B, H, K, -1)


@covering(decay=DECAYS, delta=[False, True], kv_heads=[1, 3], queries=[1, 4, K], backend=["reference", "tiled"])
def test_weights_are_those_that_the_recurrence_implies(decay, delta, kv_heads, queries, backend, monkeypatch):
    monkeypatch.setattr("regard.attention.backends.tiled.BLOCK_ELEMENTS", 2 * H * K)
    query, key, value = problem(kv_heads=kv_heads, queries=K)
    unit = F.normalize(key, dim=-1).repeat_interleave(H // kv_heads, dim=1)
    expected = weights_by_loops(F.normalize(query, dim=-1), unit, each_token(DECAYS[decay]), BETA if delta else None)
    score = score_of("cosine", DECAYS[decay], delta)
    arguments = {"score": score, "normalizer": "identity", "mask": "causal", "backend": backend}
    observed = regard.observe(query[:, :, -queries:], key, value, read=regard.Readings(weights=True), **arguments)
    torch.testing.assert_close(observed.weights, expected[:, :, -queries:], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("decay", ["head", "token", "feature"])
def test_later_keys_decay_alike(decay):
    """Without a mask the weights of a bidirectional problem are those of the causal one and of the reversed one."""
    query, key, _ = problem(queries=K)
    decays = each_token(DECAYS[decay])
    score = scores.Decayed("dot", DECAYS[decay])
    behind = weights_by_loops(query, key, decays)
    # A gate belongs to the step onto its token, so that of a reversed step is the later token's.
    steps = torch.cat((torch.zeros_like(decays[:, :, :1]), decays.flip(2)[:, :, :-1]), dim=2)
    ahead = weights_by_loops(query.flip(2), key.flip(2), steps).flip(2, 3)
    torch.testing.assert_close(score(query, key), behind + ahead.triu(1), rtol=1e-10, atol=1e-10)


def test_sums_of_many_decays_keep_their_digits():
    length = 30_000
    query = torch.ones(1, 1, 1, 1)
    key = torch.ones(1, 1, length, 1)
    decay = torch.full((1, 1, length), -7.1)
    weights = scores.Decayed("dot", decay)(query, key)[0, 0, 0]
    torch.testing.assert_close(weights[-5:], (-7.1 * torch.arange(4, -1, -1)).exp(), rtol=1e-5, atol=0)


def test_features_of_elu_give_the_weights_of_the_paper():
    query, key, value = problem(queries=K)
    phi = [torch.where(x > 0, x + 1, x.exp()) for x in (query, key)]
    weights = torch.zeros(B, H, K, K, dtype=torch.float64)
    for i in range(K):
        for j in range(i + 1):
            weights[:, :, i, j] = (phi[0][:, :, i] * phi[1][:, :, j]).sum(-1)
    weights = weights / weights.sum(-1, keepdim=True)
    arguments = {"score": scores.Features("elu"), "normalizer": "ratio", "mask": "causal"}
    for backend in ("reference", "linear"):
        attended = regard.attend_with_weights(query, key, value, backend=backend, **arguments)
        torch.testing.assert_close(attended.weights, weights, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(attended.output, weights @ value, rtol=1e-10, atol=1e-10)


def test_random_features_estimate_softmax_without_a_bias():
    generator = torch.Generator().manual_seed(5)
    query, key, _ = (0.5 * tensor for tensor in problem(queries=K, dim=4))
    estimates = []
    for _ in range(64):
        map = scores.RandomFeatures.create(4, 10, generator=generator).double()
        assert map.projection.shape == (10, 4)
        cosines = map.projection[:4] @ map.projection[:4].mT
        torch.testing.assert_close(cosines, torch.diag(cosines.diag()), atol=1e-5, rtol=0)
        estimates.append(scores.Features(map)(query, key))
    assert all((estimate > 0).all() for estimate in estimates)
    exact = (query @ key.mT / 2.0).exp()
    many = torch.stack(estimates)
    assert ((many.mean(0) - exact).abs() < 5.0 * many.std(0) / 8.0 + 1e-9).all()


def test_random_features_of_long_queries_are_no_empty_row():
    map = scores.RandomFeatures.create(16, 64, generator=torch.Generator().manual_seed(6))
    query, key = 50 * F.normalize(torch.randn(1, 1, 5, 16), dim=-1), torch.randn(1, 1, 7, 16)
    arguments = {"score": scores.Features(map), "normalizer": "ratio"}
    weights = regard.attend_with_weights(query, key, key, **arguments).weights
    assert not map(query).any()
    exact = map.double()(query.double()) @ map.double()(key.double()).mT
    torch.testing.assert_close(weights.double(), exact / exact.sum(-1, keepdim=True), rtol=1e-3, atol=1e-6)


def test_a_row_whose_scores_sum_to_0_has_weights_0():
    rows = torch.tensor([[0.0, 0.0, -torch.inf], [-torch.inf] * 3, [3.0, 1.0, -torch.inf]], requires_grad=True)
    weights = normalizers.ratio(rows)
    assert weights.tolist() == [[0.0] * 3, [0.0] * 3, [0.75, 0.25, 0.0]]
    (gradient,) = torch.autograd.grad(weights[:, 0].sum(), rows)
    torch.testing.assert_close(gradient, torch.tensor([[0.0] * 3, [0.0] * 3, [0.0625, -0.1875, 0.0]]))


INPUTS = problem(queries=K)
MISTAKES = {
    "another mask": (
        {"score": scores.DeltaRule("dot", BETA), "mask": masks.lengths([3, 4])}, ArgumentError, "set its beta to 0",
    ),
    "another start": (
        {"score": scores.DeltaRule("dot", BETA), "mask": masks.causal(offset=1)}, ArgumentError, "must be 'causal'",
    ),
    "a growing weight": ({"score": scores.Decayed("dot", torch.full((H,), 0.1))}, ArgumentError, "at most 0"),
    "no number": ({"score": scores.Decayed("dot", torch.full((H,), torch.nan))}, ArgumentError, "at most 0"),
    "other keys": ({"score": scores.Decayed("dot", torch.zeros(B, H, K + 1))}, ShapeError, "log_decay must broadcast"),
    "other strengths": ({"score": scores.DeltaRule("dot", torch.ones(B, H, 3))}, ShapeError, "beta must broadcast"),
    "a capped product": (
        {"score": scores.Decayed(scores.SoftCap("dot", 1.0), DECAYS["head"])}, ArgumentError, "inner product",
    ),
    "decays twice": (
        {"score": scores.Decayed(scores.Decayed("dot", DECAYS["head"]), DECAYS["head"])}, ArgumentError, "decays",
    ),
    "a matrix": ({"score": scores.Features(lambda x: x.sum(-1))}, ShapeError, r"map must return \[..., features\]"),
    "an unknown map": ({"score": "features"}, UnknownNameError, "features"),
}  # fmt: skip


@pytest.mark.parametrize("arguments", [{"normalizer": "softmax"}, {"normalizer": "identity", "bias": torch.ones(K, K)}])
def test_the_delta_rule_without_a_mask_is_causal_whatever_the_normalizer(arguments):
    arguments = {"score": scores.DeltaRule("dot", BETA), **arguments}
    weights = regard.attend_with_weights(*INPUTS, **arguments).weights
    assert not weights.triu(1).any()
    torch.testing.assert_close(weights, regard.attend_with_weights(*INPUTS, mask="causal", **arguments).weights)
    assert "causal()" in repr(regard.plan(*INPUTS, **arguments).candidates.problem)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_clear_error(name):
    arguments, kind, message = MISTAKES[name]
    with pytest.raises(kind, match=message):
        regard.attend(*INPUTS, normalizer="identity", **arguments)


def test_constructors_take_nothing_else():
    with pytest.raises(UnknownNameError, match="elu"):
        scores.Features("elo")
    with pytest.raises(KindError, match="map must be a name or a callable"):
        scores.Features(3)
    with pytest.raises(ShapeError, match="log_decay must be"):
        scores.Decayed("dot", torch.zeros(2, 2))
    query, key, value = problem(queries=K + 1)
    for score in (scores.Decayed("dot", DECAYS["token"]), scores.DeltaRule("dot", BETA)):
        with pytest.raises(ArgumentError, match="queries"):
            regard.attend(query, key, value, score=score, normalizer="identity")


@pytest.mark.parametrize("features", [1, 3])
def test_rows_of_many_keys_are_solved_in_blocks_with_linear_memory(features):
    length, generator = 701, torch.Generator().manual_seed(7)
    query, key, value = F.normalize(torch.randn(3, 1, 1, length, 3, generator=generator).double(), dim=-1)
    log_decay = -0.01 * torch.rand(1, 1, length, features, generator=generator).double()
    beta = torch.rand(1, 1, length, generator=generator).double()
    score = scores.DeltaRule(scores.Decayed("dot", log_decay if features > 1 else log_decay[..., 0]), beta)
    options = {"score": score, "normalizer": "identity", "mask": "causal"}
    with LargestTensor() as largest:
        weights = regard.attend_with_weights(query[:, :, -2:], key, value, **options, backend="reference").weights
    assert largest.numbers <= 256 * length
    expected, _ = by_loops(query, key, value, log_decay, beta)
    torch.testing.assert_close(weights @ value, expected[:, :, -2:])
