"""Monotonic and chunkwise weights against the equations of their papers, in plain loops."""

import math

import pytest
import torch

import regard
from cases import MASKS, H, K, Q, problem
from regard import normalizers
from regard.errors import ArgumentError, BackendError, ShapeError, UnknownNameError
from regard.normalizers import Chunkwise, Monotonic
from regard.shapes.grid import Grid

INF = math.inf
FULL = {name: make for name, make in MASKS.items() if name in ("none", "where", "lengths_both", "hole", "nobody")}


def sigmoid(number):
    return 1 / (1 + math.exp(-number))


def expected_alignments(scores):
    """Raffel et al. 2017, equation 9, term by term: a hidden key stops nothing; a query that sees none does nothing."""
    (queries, keys), scores = scores.shape, scores.tolist()
    before = [1.0] + [0.0] * (keys - 1)
    rows = []
    for i in range(queries):
        p = [0.0 if scores[i][j] == -INF else sigmoid(scores[i][j]) for j in range(keys)]
        row = [
            p[j] * sum(before[k] * math.prod(1 - p[m] for m in range(k, j)) for k in range(j + 1)) for j in range(keys)
        ]
        rows.append(row)
        if any(scores[i][j] > -INF for j in range(keys)):
            before = row
    return torch.tensor(rows, dtype=torch.float64)


def hard_alignments(scores):
    """Raffel et al. 2017, algorithm 1: from the last stop on, stop at the first key with p > 1/2."""
    weights, position = torch.zeros_like(scores), 0
    for i in range(len(scores)):
        if (scores[i] == -INF).all():
            continue
        while position < scores.shape[1] and not scores[i, position] > 0:
            position += 1
        if position == scores.shape[1]:
            break
        weights[i, position] = 1.0
    return weights


def chunkwise(stops, scores, width):
    """Chiu & Raffel 2018, equation 17."""
    keys, scores, stops = len(scores), scores.tolist(), stops.tolist()
    weights = [0.0] * keys
    for k in range(keys):
        chunk = [m for m in range(max(0, k - width + 1), k + 1) if scores[m] > -INF]
        if scores[k] == -INF:
            continue
        total = sum(math.exp(scores[m]) for m in chunk)
        for m in chunk:
            weights[m] += stops[k] * math.exp(scores[m]) / total
    return torch.tensor(weights, dtype=torch.float64)


def masked_scores(mask):
    query, key, _ = problem()
    scores = query @ key.mT / 3 + 0.3
    restriction = FULL[mask]()
    return scores if restriction is None else scores.masked_fill(~restriction.dense(Grid.of(query, key)), -INF)


@pytest.mark.parametrize("mask", FULL)
def test_monotonic_normalizers_are_their_equations(mask):
    scores = masked_scores(mask)
    expected, hard = Monotonic()(scores), Monotonic("hard")(scores)
    stops = torch.rand(scores.shape, dtype=torch.float64)
    spread = Chunkwise(stops, 3)(scores)
    for b in range(len(scores)):
        for h in range(H):
            torch.testing.assert_close(expected[b, h], expected_alignments(scores[b, h]))
            assert torch.equal(hard[b, h], hard_alignments(scores[b, h]))
            for i in range(Q):
                torch.testing.assert_close(spread[b, h, i], chunkwise(stops[b, h, i], scores[b, h, i], 3))


@pytest.mark.parametrize("mode", ["expected", "hard"])
def test_step_by_step_is_all_at_once(mode):
    scores = masked_scores("none")
    whole, before = Monotonic(mode)(scores), None
    for i in range(Q):
        step = Monotonic(mode).given(before)(scores[:, :, i : i + 1])
        torch.testing.assert_close(step[:, :, 0], whole[:, :, i])
        before = step[:, :, 0]


def test_long_rows_neither_underflow_nor_divide():
    """Where the cumulative products of the paper's equation 12 underflow, the recurrence in float64 is still met."""
    scores = torch.full((3, 5000), 3.0)
    scores[:, -1], scores[0, :4000] = 40.0, -40.0
    weights = Monotonic()(scores)
    torch.testing.assert_close(weights.double(), Monotonic()(scores.double()), rtol=1e-5, atol=1e-7)
    assert weights[0, :4000].sum() < 1e-6
    torch.testing.assert_close(weights[0].sum(), torch.tensor(1.0))
    assert weights[1, 4000:].sum() > 0.999


def test_derivatives_of_monotonic_normalizers_are_exact():
    scores = masked_scores("where")[:1, :2, :2, :3].clone().requires_grad_()
    bias, stops = torch.tensor([0.3, -0.2], dtype=torch.float64, requires_grad=True), torch.rand(1, 2, 2, 3).double()

    def both(scores, bias, stops):
        alpha = Monotonic(bias=bias)(scores)
        return alpha, Chunkwise(alpha + stops, 2)(scores)

    inputs = scores.masked_fill(scores == -INF, 0.1).detach().requires_grad_(), bias, stops.requires_grad_()
    assert torch.autograd.gradcheck(both, inputs, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(both, inputs)
    for weights in (Monotonic(bias=bias)(scores), Chunkwise(stops, 2)(scores)):
        hidden = scores == -INF
        (grad,) = torch.autograd.grad(weights, scores, torch.ones_like(weights).masked_fill(hidden, torch.nan))
        assert grad.isfinite().all()
        assert not grad[hidden].any()


@pytest.mark.parametrize("bad", [torch.nan, INF])
def test_scores_that_are_not_finite(bad):
    scores = torch.zeros(2, 4, dtype=torch.float64)
    scores[0, 1] = bad
    soft, hard = Monotonic()(scores), Monotonic("hard")(scores)
    if bad == INF:
        assert soft[0].tolist() == [0.5, 0.5, 0.0, 0.0]
        assert hard.tolist() == [[0, 1, 0, 0], [0, 0, 0, 0]]
    else:
        for weights in (soft, hard):
            assert weights[0].isnan().tolist() == [False, True, True, True]


def test_through_the_verbs():
    inputs = problem()
    arguments = {"normalizer": Monotonic(bias=0.3), "mask": MASKS["where"]()}
    plan = regard.plan(*inputs, **arguments)
    assert plan.backend == "reference"
    assert "depends on all queries" in plan.reasons["tiled"]
    with pytest.raises(BackendError, match="depends on all queries"):
        regard.attend(*inputs, backend="tiled", **arguments)
    output, stops = regard.attend_with_weights(*inputs, **arguments)
    torch.testing.assert_close(stops @ inputs[2], output)
    seen = regard.observe(*inputs, read=regard.Readings(peak=True, received=True), **arguments)
    torch.testing.assert_close(seen.received, stops.sum(2))
    torch.testing.assert_close(regard.explain(*inputs, **arguments).weights, stops)
    chunks = {"normalizer": Chunkwise(stops, 3), "mask": arguments["mask"]}
    results = [regard.attend(*inputs, backend=backend, **chunks) for backend in ("reference", "tiled")]
    torch.testing.assert_close(*results)
    torch.testing.assert_close(regard.explain(*inputs, **chunks).weights.sum(-1), stops.sum(-1))


def test_noise_is_drawn_in_training_alone():
    scores = masked_scores("none")
    noisy = Monotonic(noise=1.0, generator=torch.Generator().manual_seed(3))
    assert not torch.equal(noisy(scores), noisy(scores))
    assert torch.equal(noisy.eval()(scores), Monotonic()(scores))
    assert torch.equal(noisy.train().given(None, "hard")(scores), Monotonic("hard")(scores))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: Monotonic("soft"), UnknownNameError, "mode of monotonic attention"),
        (lambda: Monotonic(noise=-1.0), ArgumentError, "noise must be 0 or more"),
        (lambda: Monotonic()(torch.zeros(2, 3), dim=0), ArgumentError, "goes along the last axis"),
        (lambda: Monotonic().given(torch.zeros(2, 4))(torch.zeros(2, 3, K)), ShapeError, "previous must"),
        (lambda: Chunkwise(torch.zeros(4), 0), ArgumentError, "width must be at least 1"),
        (lambda: Chunkwise(torch.zeros(4), 2)(torch.zeros(2, K)), ShapeError, "stops must"),
        (lambda: normalizers.as_normalizer(Monotonic), Exception, "must be an instance"),
    ],
)
def test_monotonic_normalizers_refuse_wrong_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call()
