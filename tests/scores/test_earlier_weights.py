"""Scores that see earlier weights: the previous ones, their total, or both."""

import math

import pytest
import torch

import regard
from regard import nn, scores
from regard.errors import RegardError
from regard.models import coverage_loss
from regard.models.copying import coverage_of

B, K, Q, KEYS = 2, 7, 3, 5


def test_coverage_is_the_equation_of_see():
    """See et al. 2017, equations 10 to 12: e = v · tanh(W_h h + W_s s + w_c c + b), c the sum of earlier weights."""
    torch.manual_seed(1)
    attention = nn.Attention.create("coverage", 3, KEYS, 11).double()
    annotations, states = torch.randn(B, K, KEYS).double(), torch.randn(B, 4, 3).double()
    memory, earlier, rows = attention.remember(annotations, torch.tensor([K, 4])), None, []
    for state in states.unbind(1):
        attended = attention(state, memory, earlier=earlier)
        earlier = attention.following(state, memory, attended, earlier)
        rows.append(attended.weights)
    score = attention.score
    vector = score.location_projection.weight[:, 0] * score.convolution.weight[0, 0, 0]
    coverage, loss = torch.zeros(B, K).double(), 0.0
    for row, state in zip(rows, states.unbind(1), strict=True):
        for b, length in enumerate((K, 4)):
            energies = []
            for i in range(length):
                units = score.key_projection(annotations[b, i]) + score.query_projection(state[b])
                energies.append(score.weight @ torch.tanh(units + vector * coverage[b, i]))
            expected = torch.stack(energies).softmax(0)
            torch.testing.assert_close(row[b, :length], expected)
            assert not row[b, length:].any()
        loss += torch.minimum(row, coverage).sum()
        coverage = coverage + row
    torch.testing.assert_close(earlier.total, coverage)
    weights = torch.stack(rows, 1)
    torch.testing.assert_close(coverage_loss(weights, torch.ones(B, 4, dtype=torch.bool)), loss)
    torch.testing.assert_close(coverage_of(weights)[:, -1], coverage - rows[-1])


@pytest.mark.parametrize("sees", ["previous", "total", "both"])
def test_a_score_sees_the_weights_that_it_names(sees):
    torch.manual_seed(2)
    score = scores.LocationAware.create(3, KEYS, 11, channels=2, kernel_size=3, sees=sees)
    query, key = torch.randn(B, 1, Q, 3), torch.randn(B, 1, K, KEYS)
    previous, total, other = torch.rand(3, B, K)
    seen = score.given(previous, total)(query, key)
    assert torch.equal(seen, score.given(other, total)(query, key)) == (sees == "total")
    assert torch.equal(seen, score.given(previous, other)(query, key)) == (sees == "previous")
    assert torch.equal(score.given(previous)(query, key), score.given(previous, previous)(query, key))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda score: score.given(torch.zeros(B, K), torch.zeros(B, K + 1)), "total must be .* as previous is"),
        (lambda score: score.given(torch.zeros(B, K), torch.zeros(B, K).long()), "total must hold floating-point"),
        (lambda score: scores.LocationAware(*parts(score), sees="all"), "unknown value of sees 'all'"),
        (lambda score: scores.LocationAware(*parts(score), sees="both"), "must take 2 channels, the earlier weights"),
        (
            lambda score: scores.LocationAware(*parts(score), earlier=torch.zeros(B, K)),
            r"earlier must be \[batch, 1, k",
        ),
        (lambda score: scores.create("additive", 3, KEYS, sees="total"), "score 'additive' takes no sees"),
    ],
)
def test_scores_of_earlier_weights_refuse_wrong_arguments(call, message):
    with pytest.raises(RegardError, match=message):
        call(scores.create("location_aware", 3, KEYS, channels=2, kernel_size=3))


def filtered(score, query, before, keys):
    """Battenberg et al. 2020: v · tanh(U f_j + T g_j + b) + log p_j, term by term."""
    F, P, width = score.convolution.weight[:, 0], score.prior, score.width
    units = score.filter_projection.weight @ torch.tanh(
        score.hidden_projection.weight @ query + score.hidden_projection.bias
    )
    G, scores = units.view(-1, width), []
    for j in range(keys):
        f, g, p = torch.zeros(len(F)).double(), torch.zeros(len(G)).double(), 0.0
        for n in range(keys):
            if abs(n - j) <= F.shape[1] // 2:
                f = f + F[:, n - j + F.shape[1] // 2] * before[n]
            if abs(n - j) <= width // 2:
                g = g + G[:, n - j + width // 2] * before[n]
            if 0 <= j - n < len(P):
                p = p + P[j - n] * before[n]
        u, t = score.location_projection, score.dynamic_projection
        energy = score.weight @ torch.tanh(u.weight @ f + u.bias + t.weight @ g)
        scores.append(energy + torch.log(torch.as_tensor(p).double().clamp(min=1e-6)))
    return torch.stack(scores)


def test_dynamic_convolution_is_its_equation():
    torch.manual_seed(3)
    attention = nn.Attention.create("dynamic_convolution", 3, KEYS, 11, channels=2, kernel_size=3).double()
    annotations, states = torch.randn(B, K, KEYS).double(), torch.randn(B, 4, 3).double()
    memory, earlier = attention.remember(annotations, torch.tensor([K, 4])), None
    before = [torch.eye(1, keys)[0].double() for keys in (K, 4)]
    for state in states.unbind(1):
        attended = attention(state, memory, earlier=earlier)
        earlier = attention.following(state, memory, attended, earlier)
        for b, keys in enumerate((K, 4)):
            before[b] = filtered(attention.score, state[b], before[b], keys).softmax(0)
            torch.testing.assert_close(attended.weights[b, :keys], before[b])
    score, query = attention.score.given(earlier.previous), torch.randn(B, 1, Q, 3).double()
    whole = score(query, annotations[:, None])
    for i in range(Q):
        torch.testing.assert_close(whole[1, 0, i, :], filtered(score, query[1, 0, i], earlier.previous[1], K))
    steps = regard.explain(query, annotations[:, None], annotations[:, None], score=score)
    torch.testing.assert_close(steps.scores, whole)
    units = score.pair_units(query, annotations[:, None]).steps[1].values
    torch.testing.assert_close(units @ score.weight, whole - prior_of(score, K))


def prior_of(score, keys):
    rows = score.earlier[:, 0]
    mass = sum(score.prior[n] * torch.nn.functional.pad(rows, (n, 0))[:, :keys] for n in range(len(score.prior)))
    return mass.clamp(min=1e-6).log()[:, None, None]


def test_the_prior_of_dynamic_convolution_is_beta_binomial():
    prior = scores.create("dynamic_convolution", 3, KEYS, channels=2, kernel_size=3).prior
    torch.testing.assert_close(prior.sum(), torch.tensor(1.0))
    torch.testing.assert_close((prior * torch.arange(11)).sum(), torch.tensor(1.0))  # n α / (α + β) = 10 · 0.1
    torch.testing.assert_close(prior[0].item(), math.gamma(10.9) * math.gamma(1) / math.gamma(11) / math.gamma(0.9))


@pytest.mark.parametrize("backend", ["reference", "tiled"])
def test_gradients_of_dynamic_convolution_are_exact(backend):
    torch.manual_seed(4)
    score = scores.create("dynamic_convolution", 2, 2, 3, channels=2, kernel_size=3).double()
    x, earlier = torch.randn(1, 1, 3, 2).double().requires_grad_(), torch.rand(1, 3).double().requires_grad_()
    names = [name for name, _ in score.named_parameters()]

    def attend(query, earlier, *parameters):
        def call():
            return regard.attend(query, x, x, score=score.given(earlier), backend=backend)

        with torch.nn.utils.stateless._reparametrize_module(score, dict(zip(names, parameters, strict=True))):
            return call()

    assert torch.autograd.gradcheck(attend, (x, earlier, *score.parameters()), fast_mode=True)


def parts(score):
    return score.weight, score.convolution, score.location_projection
