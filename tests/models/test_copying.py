"""Copying and coverage: the mixture is a distribution, its loss is exact, and coverage is a sum."""

import pytest
import torch
from torch import nn

from regard.errors import ArgumentError
from regard.models import chunked_loss
from regard.models.copying import copy_log_probabilities, copy_loss, copy_share, coverage_loss, coverage_of

VOCABULARY, EXTRA = 7, 3


def problem(dtype=torch.float64):
    """Five rows of three steps over eleven source tokens, with padding, an empty source and words out of it."""
    batch, steps, source, dim = 5, 3, 11, 4
    lengths = torch.tensor([11, 5, 1, 0, 7])
    output = nn.Linear(dim, VOCABULARY).to(dtype)
    features = torch.randn(batch, steps, dim, dtype=dtype)
    gate = 3 * torch.randn(batch, steps, dtype=dtype)
    scores = torch.randn(batch, steps, source, dtype=dtype)
    hidden = torch.arange(source) >= lengths[:, None]
    weights = scores.masked_fill(hidden[:, None], -torch.inf).softmax(-1).nan_to_num(0)
    ids = torch.randint(3, VOCABULARY + EXTRA, (batch, source)).masked_fill(hidden, 0)
    ids[0, :3] = torch.tensor([VOCABULARY, VOCABULARY + 1, VOCABULARY + 2])
    target = torch.randint(3, VOCABULARY, (batch, steps))
    target[0] = torch.tensor([VOCABULARY, VOCABULARY + 2, 5])
    target[1, 2] = -1
    target[2, 0] = ids[2, 0]
    return features, output, gate, weights, ids, target


def full(features, output, gate, weights, ids):
    source = ids[:, None].expand(-1, features.shape[1], -1)
    return copy_log_probabilities(output(features), gate, weights, source, VOCABULARY + EXTRA)


def test_the_mixture_is_equation_9():
    features, output, gate, weights, ids, _ = problem()
    found = full(features, output, gate, weights, ids).exp()
    torch.testing.assert_close(found.sum(-1), torch.ones(5, 3, dtype=torch.float64))
    generated = torch.sigmoid(gate)
    generated[3] = 1  # an empty source
    for row in range(5):
        for step in range(3):
            expected = torch.zeros(VOCABULARY + EXTRA, dtype=torch.float64)
            expected[:VOCABULARY] = generated[row, step] * output(features[row, step]).softmax(-1)
            for place, id in enumerate(ids[row]):
                expected[id] += (1 - generated[row, step]) * weights[row, step, place]
            torch.testing.assert_close(found[row, step], expected)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("chunk", [1, 1 << 20])
@pytest.mark.parametrize("on_host", [True, False], ids=["host", "device"])
def test_the_loss_is_that_of_the_mixture(smoothing, chunk, on_host, monkeypatch):
    monkeypatch.setattr(chunked_loss, "is_on_host", lambda tensor: on_host)
    features, output, gate, weights, ids, target = problem()
    found = copy_loss(
        features, output, gate, weights, ids, target, label_smoothing=smoothing, chunk_elements=chunk
    )  # fmt: skip
    kept = target >= 0
    nll = -full(features, output, gate, weights, ids).gather(-1, target.clamp(min=0)[..., None]).squeeze(-1)
    torch.testing.assert_close(found.nll, nll.masked_fill(~kept, 0))
    uniform = -output(features).log_softmax(-1).mean(-1)
    torch.testing.assert_close(found.total, ((1 - smoothing) * nll + smoothing * uniform)[kept].sum())


@pytest.mark.parametrize("chunk", [1, 1 << 20])
@pytest.mark.parametrize("on_host", [True, False], ids=["host", "device"])
def test_the_gradient_is_exact(chunk, on_host, monkeypatch, is_full):
    monkeypatch.setattr(chunked_loss, "is_on_host", lambda tensor: on_host)
    features, output, gate, weights, ids, target = problem()
    for tensor in (features, gate, weights):
        tensor.requires_grad_()

    def total(*_):
        # Gradcheck changes the numbers of its inputs. The rows with a source only: an empty one has constant weights.
        rows = (tensor[[0, 1, 2, 4]] for tensor in (gate, weights, ids, target))
        return copy_loss(features[[0, 1, 2, 4]], output, *rows, label_smoothing=0.1, chunk_elements=chunk).total

    leaves = features, output.weight, output.bias, gate, weights
    assert torch.autograd.gradcheck(total, leaves, fast_mode=not is_full)


def test_the_whole_distribution_is_differentiable():
    features, output, gate, weights, ids, _ = problem()
    gate.requires_grad_()
    weights.requires_grad_()
    source = ids[:, None].expand(-1, 3, -1)
    logits = output(features)
    found = copy_log_probabilities(logits, gate, weights, source, VOCABULARY + EXTRA)
    found.exp().square().sum().backward()
    assert gate.grad.isfinite().all()
    assert weights.grad.isfinite().all()


def test_large_logits_and_gates_stay_finite():
    features, output, gate, weights, ids, target = problem(torch.float32)
    found = copy_loss(1e4 * features, output, 1e3 * gate, weights, ids, target)
    assert found.nll.isfinite().all()
    log_probabilities = full(1e4 * features, output, 1e3 * gate, weights, ids)
    torch.testing.assert_close(log_probabilities.exp().sum(-1), torch.ones(5, 3))


def test_a_word_without_weight_has_a_finite_loss():
    features, output, gate, weights, ids, target = problem(torch.float32)
    weights[0] = 0
    weights[0, :, 5] = 1
    ids[0, 5] = 4
    assert copy_loss(features, output, gate, weights, ids, target).nll.isfinite().all()


def test_the_copied_share_is_the_part_of_the_sum():
    features, output, gate, weights, ids, target = problem()
    target = target.clamp(min=3)
    share = copy_share(output(features), gate, weights, ids, target)
    whole = full(features, output, gate, weights, ids).gather(-1, target[..., None]).squeeze(-1).exp()
    mass = (weights * (target[..., None] == ids[:, None])).sum(-1)
    expected = (1 - torch.sigmoid(gate)) * mass / whole
    torch.testing.assert_close(share, expected)
    assert share[0, :2].tolist() == [1, 1]  # out of the vocabulary
    assert share[3].tolist() == [0, 0, 0]  # an empty source


def test_smoothing_must_be_a_probability():
    with pytest.raises(ArgumentError, match="label_smoothing"):
        copy_loss(*problem(), label_smoothing=1.1)


def test_coverage_is_the_sum_of_the_earlier_weights():
    weights = torch.rand(3, 7, 5).softmax(-1)
    found = coverage_of(weights)
    assert (found >= 0).all()
    assert not found[:, 0].any()
    for step in range(1, 7):
        torch.testing.assert_close(found[:, step], weights[:, :step].sum(1))
    is_token = torch.arange(7) < torch.tensor([7, 2, 0])[:, None]
    expected = sum(
        min(float(weights[row, step, place]), float(found[row, step, place]))
        for row, step in is_token.nonzero().tolist()
        for place in range(5)
    )
    assert float(coverage_loss(weights, is_token)) == pytest.approx(expected, rel=1e-5)


def test_attending_once_costs_nothing():
    once = torch.eye(5)[None]
    assert coverage_loss(once, torch.ones(1, 5, dtype=torch.bool)) == 0
    again = torch.eye(5)[[0, 0, 1, 1, 1]][None]
    assert coverage_loss(again, torch.ones(1, 5, dtype=torch.bool)) == 3
