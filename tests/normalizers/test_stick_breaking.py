"""Stick-breaking: the product of the paper, its limits, and rows that are long."""

import pytest
import torch

import regard
from regard import masks, normalizers

INF, NAN = torch.inf, torch.nan


def by_product(scores):
    """Breaks each row's stick from the last visible key on."""
    weights = torch.zeros_like(scores)
    for row, result in zip(scores.flatten(0, -2), weights.flatten(0, -2), strict=True):
        left = 1.0
        for key in reversed(range(row.numel())):
            if row[key] > -INF:
                share = 1 / (1 + float(torch.exp(-row[key])))
                result[key] = left * share
                left *= 1 - share
    return weights


def test_stick_breaking_is_its_product():
    scores = torch.randn(2, 3, 5, 7, dtype=torch.float64) * 2
    scores[:, :, 1, 2:5] = -INF
    scores[:, :, 2] = -INF
    torch.testing.assert_close(normalizers.stick_breaking(scores), by_product(scores), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("offset", [0, -1])
def test_stick_breaking_prefers_the_nearest_key_under_a_causal_mask(offset):
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 1, 2, 7, 5, dtype=torch.float64).unbind()
    mask = masks.causal(offset=offset)
    scores = (query @ key.mT / 5**0.5).masked_fill(~torch.ones(7, 7).tril(offset).bool(), -INF)
    weights = by_product(scores)
    for backend in ("reference", "tiled"):
        output = regard.attend(query, key, value, normalizer="stick_breaking", mask=mask, backend=backend)
        torch.testing.assert_close(output, weights @ value)
    even = regard.attend_with_weights(0 * query, key, value, normalizer="stick_breaking", mask="causal").weights
    torch.testing.assert_close(even[0, 0, 3, :4], torch.tensor([1, 2, 4, 8]).double() / 16)


def test_long_rows_do_not_underflow():
    scores = torch.full((20011,), -12.0)
    weights = normalizers.stick_breaking(scores)
    exact = normalizers.stick_breaking(scores.double())
    torch.testing.assert_close(weights.double(), exact, rtol=1e-4, atol=0)
    assert (weights.diff() > 0).float().mean() > 0.9


def test_infinite_and_nan_scores_of_a_stick():
    scores = torch.tensor([0.0, 1.0, INF, 0.0])
    torch.testing.assert_close(normalizers.stick_breaking(scores), torch.tensor([0.0, 0.0, 0.5, 0.5]))
    scores[2] = NAN
    weights = normalizers.stick_breaking(scores)
    assert weights.isnan().tolist() == [True, True, True, False]
    leaf = torch.tensor([0.0, INF, -INF, 0.0], requires_grad=True)
    (gradient,) = torch.autograd.grad(normalizers.stick_breaking(leaf).sum(), leaf)
    assert gradient.isfinite().all()
