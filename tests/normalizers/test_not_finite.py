"""What −inf, +inf and NaN among the scores or the incoming gradients come to: one rule, whichever solver weighs."""

import pytest
import torch
from torch import Tensor

from normalizer_cases import ALL, FIXED, SMOOTH, B, H, K, Q, over, some_scores
from regard import normalizers

INF, NAN = torch.inf, torch.nan
EXACT = {name: value for name, value in SMOOTH.items() if not name.startswith("custom")}
APART = ("sigmoid", "squared relu", "chunkwise", "identity", "stick-breaking")
COMPETING = {name: value for name, value in EXACT.items() if not name.startswith(APART)}
PARAMETERS = {
    "temperature": (normalizers.Softmax, [0.7, 1.0, 1.5]),
    "sink": (normalizers.SoftmaxWithSink, [0.3, -1.0, 2.0]),
    "scale": (normalizers.ScalableSoftmax, [0.7, 1.0, 1.5]),
    "alpha": (normalizers.Entmax, [1.2, 1.5, 2.3]),
    "bias": (normalizers.Sigmoid, [0.0, 0.5, -1.0]),
    "center": (lambda c: normalizers.LocalGaussian(normalizers.softmax, c[:, None], 1.5), [0.5, 2.0, 3.0]),
    "sigma": (lambda s: normalizers.LocalGaussian(normalizers.softmax, s[:, None], s[:, None]), [0.5, 2.0, 3.0]),
}
sizes = pytest.mark.parametrize("keys", [K, 2003], ids=["few", "many"])


def scores_of(keys: int) -> Tensor:
    """Rows: finite, nothing seen, one key, gaps, a hidden first key; so many keys that compiled loops run."""
    scores = torch.randn(B, H, Q, keys, dtype=torch.float64)
    scores[:, :, 1] = -INF
    scores[:, :, 2, 1:] = -INF
    scores[:, :, 3, ::2] = -INF
    scores[:, :, 4, 0] = -INF
    return scores


def gradient(normalizer, scores: Tensor, upstream: Tensor) -> Tensor:
    leaf = scores.clone().requires_grad_()
    return torch.autograd.grad(normalizer(leaf), leaf, upstream)[0]


@over(EXACT)
@sizes
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_hidden_scores_get_no_gradient_even_from_nan(normalizer, keys, bad):
    scores = scores_of(keys)
    hidden = scores == -INF
    upstream = torch.randn_like(scores)
    expected = gradient(normalizer, scores, upstream.masked_fill(hidden, 0.0))
    assert (expected[hidden] == 0).all()
    assert expected.isfinite().all()
    got = gradient(normalizer, scores, upstream.masked_fill(hidden, bad))
    torch.testing.assert_close(got, expected)
    assert (got[hidden] == 0).all()


@pytest.mark.parametrize(("make", "value"), PARAMETERS.values(), ids=PARAMETERS.keys())
@pytest.mark.parametrize("bad", [NAN, INF])
def test_nor_to_parameters(make, value, bad):
    scores = scores_of(K)
    hidden = scores == -INF
    upstream = torch.randn_like(scores)
    grads = []
    for filling in (0.0, bad):
        parameter = torch.tensor(value, dtype=torch.float64, requires_grad=True)
        weights = make(parameter)(scores)
        grads.append(torch.autograd.grad(weights, parameter, upstream.masked_fill(hidden, filling))[0])
    assert grads[0].isfinite().all()
    torch.testing.assert_close(grads[1], grads[0])


@over({name: value for name, value in EXACT.items() if not isinstance(value, (normalizers.TopK, normalizers.TopP))})
@sizes
def test_a_gradient_of_nan_at_a_visible_key_is_not_lost(normalizer, keys):
    scores, upstream = scores_of(keys), torch.zeros(B, H, Q, keys, dtype=torch.float64)
    upstream[1, 2, 4, 3] = NAN
    got = gradient(normalizer, scores, upstream)
    assert got[1, 2, 4].isnan().any()
    got[1, 2, 4] = 0.0
    assert (got == 0).all()


@over(COMPETING)
@sizes
@pytest.mark.parametrize("bad", [NAN, INF])
@pytest.mark.parametrize("row", [0, 3, 4])
def test_a_row_whose_keys_compete_is_nan_where_it_is_visible(normalizer, keys, bad, row):
    scores = scores_of(keys)
    plain = normalizer(scores)
    scores[1, 2, row, 3] = bad
    hidden = scores == -INF
    weights = normalizer(scores)
    assert weights[1, 2, row][~hidden[1, 2, row]].isnan().all()
    assert (weights[hidden] == 0).all()
    grad_scores = gradient(normalizer, scores, torch.ones_like(scores))
    assert grad_scores[1, 2, row][~hidden[1, 2, row]].isnan().all()
    assert (grad_scores[hidden] == 0).all()
    for result, others in (
        (weights, plain),
        (grad_scores, gradient(normalizer, scores_like(scores, plain), torch.ones_like(scores))),
    ):
        result[1, 2, row], others[1, 2, row] = 0.0, 0.0
        assert result.isfinite().all()
        torch.testing.assert_close(result, others)


def scores_like(scores: Tensor, plain: Tensor) -> Tensor:
    return scores.masked_fill(scores.isnan() | (scores == INF), 0.0)


@over(COMPETING)
def test_a_single_visible_key_with_nan_or_infinity_is_nan(normalizer):
    for bad in (NAN, INF):
        scores = torch.full((B, H, Q, K), -INF, dtype=torch.float64)
        scores[..., 2] = bad
        weights = normalizer(scores)
        assert weights[..., 2].isnan().all()
        assert (weights[..., [0, 1, 3, 4, 5, 6]] == 0).all()


@pytest.mark.parametrize("name", ["sigmoid", "sigmoid bias a head"])
def test_sigmoid_weighs_each_key_by_itself(name):
    normalizer, scores = ALL[name], some_scores()
    plain = normalizer(scores)
    scores[1, 2, 4, 3], scores[1, 2, 4, 4] = NAN, INF
    weights = normalizer(scores)
    assert weights[1, 2, 4, 3].isnan()
    assert weights[1, 2, 4, 4] == 1
    weights[1, 2, 4, 3:5], plain[1, 2, 4, 3:5] = 0.0, 0.0
    assert torch.equal(weights, plain)


@pytest.mark.parametrize("mode", ["argmax", "straight_through", "sample", "gumbel"])
def test_hard_weights_of_nan_rows_stay_apart(mode):
    normalizer = normalizers.hard(mode)
    scores = some_scores().requires_grad_()
    bad = scores.detach().clone()
    bad[1, 2, 4, 3], bad[0, 0, 4, 5] = NAN, INF
    weights = normalizer(bad.requires_grad_())
    assert weights[1, 2, 4].isnan().tolist() == [False, False, False, True, False, False, False]
    assert weights[1, 2, 4].nansum() == 0
    assert weights[0, 0, 4].tolist() == [0, 0, 0, 0, 0, 1, 0]
    others = weights.detach().clone()
    others[1, 2, 4], others[0, 0, 4] = 0.0, 0.0
    assert ((others == 0) | (others == 1)).all()


@over(FIXED)
def test_log_sum_exp(normalizer):
    scores = some_scores()
    scores[1, 2, 4, 3], scores[1, 1, 4, 3] = NAN, INF
    lse = normalizer.log_sum_exp(scores)
    assert (lse == -INF).sum() == B * H
    assert (lse[:, :, 1] == -INF).all()
    assert lse[1, 2, 4].isnan()
    assert lse[1, 1, 4] == INF
    leaf = some_scores().requires_grad_()
    normalizer.log_sum_exp(leaf).backward(torch.full((B, H, Q), NAN).masked_fill(torch.arange(Q) != 1, 1.0))
    assert leaf.grad is not None
    assert leaf.grad.isfinite().all()
    assert (leaf.grad[leaf == -INF] == 0).all()


@over({name: value for name, value in EXACT.items() if "a head" not in name})
def test_the_rule_holds_under_function_transforms(normalizer):
    scores = scores_of(K)
    hidden = scores == -INF
    scores[1, 2, 4, 3] = NAN
    batched = torch.func.vmap(normalizer)(scores)
    torch.testing.assert_close(batched, normalizer(scores), equal_nan=True)
    tangent = torch.randn_like(scores).masked_fill(hidden, NAN)
    value, forward = torch.func.jvp(normalizer, (scores,), (tangent,))
    torch.testing.assert_close(value, batched, equal_nan=True)
    assert (forward[hidden] == 0).all()
    forward[1, 2, 4] = 0.0
    assert forward.isfinite().all()
