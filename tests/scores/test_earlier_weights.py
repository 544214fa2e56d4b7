"""Scores that see earlier weights: the previous ones, their total, or both."""

import pytest
import torch

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


def parts(score):
    return score.weight, score.convolution, score.location_projection
