"""Softpick, signed and scalable softmax against the formulas of their papers, in float64, row by row."""

import math

import pytest
import torch

import regard
from regard import masks, normalizers
from regard.errors import ArgumentError, KindError

INF = torch.inf


def rows(*shape):
    scores = 2 * torch.randn(*shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    scores[..., 1, 2:] = -INF
    return scores


def by_row(function, scores):
    """Applies a function of the visible numbers of a row to each row."""
    weights = torch.zeros_like(scores)
    for row, result in zip(scores.flatten(0, -2), weights.flatten(0, -2), strict=True):
        seen = [index for index, score in enumerate(row.tolist()) if score > -INF]
        for index, weight in zip(seen, function([row[index].item() for index in seen]), strict=True):
            result[index] = weight
    return weights


def softpick_of(row, epsilon=1e-8):
    top = max(row)
    sizes = [math.exp(score - top) - math.exp(-top) for score in row]
    return [max(size, 0.0) / (sum(map(abs, sizes)) + epsilon) for size in sizes]


def signed_of(row):
    total = sum(math.exp(abs(score)) for score in row)
    return [math.copysign(math.exp(abs(score)) / total, score) if score else 0.0 for score in row]


def scalable_of(row, scale=0.43):
    powers = [len(row) ** (scale * score) for score in row]
    return [power / sum(powers) for power in powers]


@pytest.mark.parametrize(
    ("normalizer", "formula"),
    [
        (normalizers.softpick, softpick_of),
        (normalizers.Softpick(0.3), lambda row: softpick_of(row, 0.3)),
        (normalizers.signed_softmax, signed_of),
        (normalizers.ScalableSoftmax(0.43), scalable_of),
    ],
    ids=["softpick", "softpick 0.3", "signed", "scalable"],
)
def test_variants_of_softmax_are_their_formulas(normalizer, formula):
    scores = rows(2, 3, 5, 7)
    scores[0, 0, 0, 3] = 0.0
    torch.testing.assert_close(normalizer(scores), by_row(formula, scores), rtol=1e-13, atol=1e-15)
    torch.testing.assert_close(normalizer(scores.float()), by_row(formula, scores).float(), rtol=1e-6, atol=1e-6)


def test_softpick_loses_no_digits_at_small_scores_and_no_row_to_an_overflow():
    small = torch.tensor([1e-6, 3e-6, -1e-6])
    torch.testing.assert_close(normalizers.softpick(small), torch.tensor([1 / 5.01, 3 / 5.01, 0.0]), rtol=1e-5, atol=0)
    for scores in (torch.zeros(3), torch.tensor([-1e3, -2.0]), torch.tensor([-3e38])):
        scores.requires_grad_()
        weights = normalizers.softpick(scores)
        assert (weights == 0).all()
        assert (torch.autograd.grad(weights.sum(), scores)[0] == 0).all()
    far = normalizers.softpick(torch.tensor([500.0, 499.0, -1e30]))
    torch.testing.assert_close(far, torch.tensor([0.7311, 0.2689, 0.0]), rtol=1e-3, atol=0)


def test_the_exact_gradient_of_softpick_includes_that_of_the_maximum():
    scores = torch.tensor([[1.0, 0.5, -0.7], [-1.0, -2.0, -0.3]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(normalizers.Softpick(0.5), scores)
    assert torch.autograd.gradgradcheck(normalizers.Softpick(0.5), scores)


def test_scalable_softmax_is_softmax_of_longer_queries():
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 2, 3, 7, 5, dtype=torch.float64).unbind()
    scale = torch.tensor([0.43, 0.7, 1.0], dtype=torch.float64)
    seen = torch.arange(1.0, 8, dtype=torch.float64)
    scalable = normalizers.ScalableSoftmax(scale)
    longer = query * scale[:, None, None] * seen.log()[:, None]
    expected = regard.observe(longer, key, value, mask="causal")
    for backend in ("reference", "tiled"):
        observed = regard.observe(query, key, value, normalizer=scalable, mask="causal", backend=backend)
        torch.testing.assert_close(observed.output, expected.output)
        torch.testing.assert_close(observed.lse, expected.lse)


def test_readings_of_signed_weights_say_what_they_can():
    x = torch.tensor([[1.0, 0.0], [-1.0, 0.5], [0.5, 2.0]])
    read = regard.Readings(entropy=True, top_k=2, received=True, peak=True, weights=True)
    for backend in ("reference", "tiled"):
        observed = regard.observe(x, x, x, score="dot", normalizer="signed_softmax", read=read, backend=backend)
        weights = observed.weights
        assert (weights < 0).any()
        assert torch.equal(observed.entropy.isnan(), (weights < 0).any(-1))
        torch.testing.assert_close(observed.received, weights.sum(0))
        torch.testing.assert_close(observed.peak, weights.amax(-1))
        assert (observed.top_weights >= 0).all()
        assert torch.equal(observed.top_indices == -1, observed.top_weights == 0)
    with pytest.raises(ArgumentError, match="weights of SignedSoftmax may be negative"):
        normalizers.top_p(0.5, "signed_softmax")


def test_signed_weights_are_watched_and_drawn_with_their_signs():
    torch.manual_seed(0)
    layer, x = regard.nn.SelfAttention(8, 2, normalizer="signed_softmax"), torch.randn(1, 5, 8)
    with regard.watch(layer, read="view") as watched:
        layer(x, mask="causal")
    (call,) = watched.calls
    assert call.signed
    assert call.weights.min() < 0
    (record,) = regard.View(watched, list("abcde")).document.records
    assert record.signed
    figure = regard.explain(x[0], x[0], x[0], normalizer="signed_softmax").figure()
    (panel,) = [axes for axes in figure.axes if axes.get_label() == "weights"]
    low, high = panel.images[0].get_clim()
    assert low == -high < 0


def test_variants_of_softmax_refuse_numbers_out_of_range():
    for make in (normalizers.Softpick, normalizers.ScalableSoftmax):
        with pytest.raises(ArgumentError, match="must be finite and greater than 0"):
            make(0.0)
        with pytest.raises(KindError, match="must be a number"):
            make("1")
    with pytest.raises(KindError, match="mean must be True or False"):
        normalizers.SquaredReLU(1)


def test_a_causal_query_sees_more_keys_than_the_one_before_it():
    """Numbers of keys count what the mask shows, in rows of any tile."""
    x = torch.ones(4, 1)
    for normalizer, expected in ((normalizers.SquaredReLU(mean=True), 1.0), (normalizers.scalable_softmax, 1.0)):
        weights = regard.attend_with_weights(x, x, x, normalizer=normalizer, mask=masks.causal()).weights
        torch.testing.assert_close(weights.sum(1), torch.full((4,), expected))
