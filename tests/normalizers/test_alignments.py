"""Stepwise and forward alignments against the equations of their papers, in plain loops; the laws of all alignments."""

import math

import pytest
import torch

import regard
from cases import MASKS, H, Q, problem
from regard.errors import ArgumentError, KindError, ShapeError
from regard.normalizers import ForwardAlignment, Monotonic, Stepwise
from regard.shapes.grid import Grid

INF = math.inf
FULL = {name: make for name, make in MASKS.items() if name in ("none", "where", "lengths_both", "hole", "nobody")}
ALIGNMENTS = {
    "monotonic": Monotonic,
    "stepwise": Stepwise,
    "stepwise, hard": lambda: Stepwise("hard"),
    "forward": ForwardAlignment,
    "forward, agent": lambda: ForwardAlignment(torch.linspace(0.1, 0.9, H * Q).double().view(H, Q)),
}


def masked_scores(mask):
    query, key, _ = problem()
    scores = query @ key.mT / 3 + 0.3
    restriction = FULL[mask]()
    return scores if restriction is None else scores.masked_fill(~restriction.dense(Grid.of(query, key)), -INF)


def paths(scores, step):
    """Runs a step over the visible keys of each query as a list; what was at a hidden key goes to the next visible."""
    keys = scores.shape[1]
    before, rows = [1.0] + [0.0] * (keys - 1), []
    for i, row in enumerate(scores.tolist()):
        visible = [j for j in range(keys) if row[j] > -INF]
        weights = [0.0] * keys
        if visible:
            first = [0] + [j + 1 for j in visible[:-1]]
            start = [sum(before[a : b + 1]) for a, b in zip(first, visible, strict=True)]
            for j, weight in zip(visible, step(i, start, [row[j] for j in visible]), strict=True):
                weights[j] = weight
            before = weights
        rows.append(weights)
    return torch.tensor(rows, dtype=torch.float64)


def stepwise(i, before, scores):
    """He et al. 2019: α_ij = α_{i−1,j} p_ij + α_{i−1,j−1} (1 − p_{i,j−1})."""
    p = [1 / (1 + math.exp(-score)) for score in scores]
    return [
        before[j] * p[j] + (before[j - 1] * (1 - p[j - 1]) if j else 0.0) for j in range(len(scores))
    ]  # fmt: skip


def stepwise_hard(i, before, scores):
    place = next((j for j in range(len(scores)) if before[j]), len(scores))
    place += place < len(scores) and not scores[place] > 0
    return [float(j == place) for j in range(len(scores))]


def forward(transition):
    """Zhang et al. 2018, the forward algorithm: α'(n) = ((1 − u) α(n) + u α(n − 1)) y(n), divided by its sum."""

    def step(i, before, scores):
        u, exponents = transition[i], [math.exp(score) for score in scores]
        y = [exponent / sum(exponents) for exponent in exponents]
        new = [((1 - u) * before[n] + (u * before[n - 1] if n else 0.0)) * y[n] for n in range(len(scores))]
        total = sum(new)
        return [number / total if total else 0.0 for number in new]

    return step


@pytest.mark.parametrize("mask", FULL)
def test_alignments_by_single_keys_are_their_equations(mask):
    scores, agent = masked_scores(mask), ALIGNMENTS["forward, agent"]()
    soft, hard, plain, moved = Stepwise()(scores), Stepwise("hard")(scores), ForwardAlignment()(scores), agent(scores)
    for b in range(len(scores)):
        for h in range(H):
            one = scores[b, h]
            torch.testing.assert_close(soft[b, h], paths(one, stepwise))
            assert torch.equal(hard[b, h], paths(one, stepwise_hard))
            torch.testing.assert_close(plain[b, h], paths(one, forward([0.5] * Q)))
            torch.testing.assert_close(moved[b, h], paths(one, forward(agent.transition[h].tolist())))


@pytest.mark.parametrize("score", [-70.0, 0.0, 59.0, 60.0, 61.0, 300.0])
def test_the_derivative_by_a_path_that_does_not_begin_is_exact_up_to_its_limit(score):
    moves = torch.zeros((), dtype=torch.float64, requires_grad=True)
    weights = ForwardAlignment(moves)(torch.tensor([[1.0, 1.0 + score, 0.0]], dtype=torch.float64))
    assert weights.tolist() == [[1.0, 0.0, 0.0]]
    (gradient,) = torch.autograd.grad(weights[0, 1], moves)
    assert gradient.item() == pytest.approx(math.exp(min(score, 60.0)), rel=1e-12)


@pytest.mark.parametrize("name", ALIGNMENTS)
@pytest.mark.parametrize("mask", ["none", "where"])
def test_an_alignment_step_by_step_is_the_whole_one(name, mask):
    scores, normalizer = masked_scores(mask), ALIGNMENTS[name]()
    whole, before = normalizer(scores), None
    for i in range(Q):
        step = normalizer.given(before)
        if isinstance(getattr(step, "transition", None), torch.Tensor):
            step = step.given(before, step.transition[:, i : i + 1])
        weights = step(scores[:, :, i : i + 1])
        torch.testing.assert_close(weights[:, :, 0], whole[:, :, i])
        seeing = (scores[:, :, i] > -INF).any(-1, keepdim=True)
        first = torch.eye(1, scores.shape[-1], dtype=scores.dtype)
        before = torch.where(seeing, weights[:, :, 0], first if before is None else before)


@pytest.mark.parametrize("name", ALIGNMENTS)
def test_hidden_keys_of_an_alignment_are_absent_keys(name):
    torch.manual_seed(3)
    scores, normalizer = torch.randn(2, H, Q, 11).double(), ALIGNMENTS[name]()
    visible = torch.tensor([False, True, True, False, False, True, True, True, False, True, False])
    weights = normalizer(scores.masked_fill(~visible, -INF))
    torch.testing.assert_close(weights[..., visible], normalizer(scores[..., visible]))
    assert not weights[..., ~visible].any()
    torch.testing.assert_close(normalizer(scores)[1], normalizer(scores[1:])[0])


def test_alignments_move_by_one_key_and_keep_their_mass():
    torch.manual_seed(4)
    scores = torch.randn(5, 8, 9).double()
    hard, soft, sums = Stepwise("hard")(scores), Stepwise()(scores), ForwardAlignment(0.3)(scores).sum(-1)
    torch.testing.assert_close(sums, torch.ones_like(sums))
    for weights in (hard, soft, ForwardAlignment(0.3)(scores)):
        reach = torch.ones(8, 9).tril(1).bool()  # query i reaches key i + 1 at most
        assert not weights[:, ~reach].any()
    places = hard.argmax(-1)
    assert set(places.diff(dim=1).unique().tolist()) == {0, 1}
    assert torch.equal(hard.sum(-1), torch.ones(5, 8).double())
    torch.testing.assert_close(soft[:, :7].sum(-1), torch.ones(5, 7).double())  # nothing has left the last key yet
    assert (soft[:, 7:].sum(-1) <= 1).all()
    gone = Stepwise("hard")(torch.full((3, 2), -1.0))
    assert gone.tolist() == [[0, 1], [0, 0], [0, 0]]
    assert ForwardAlignment(1.0)(torch.zeros(3, 2)).tolist() == [[0, 1], [0, 0], [0, 0]]


def test_large_scores_give_exact_forward_alignments():
    scores = torch.tensor([[-300.0, -310.0, 500.0], [-900.0, -850.0, 0.0]])
    weights = ForwardAlignment()(scores.double())
    torch.testing.assert_close(ForwardAlignment()(scores).double(), weights, rtol=1e-6, atol=1e-30)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2).double())
    torch.testing.assert_close(weights[0, 1].item(), 1 / (1 + math.exp(10)))
    half = ForwardAlignment()(scores.half())
    assert half.dtype == torch.half
    torch.testing.assert_close(half.double(), weights, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["stepwise", "forward"])
def test_derivatives_of_alignments_are_exact(name):
    torch.manual_seed(5)
    scores, previous = torch.randn(1, 2, 3).double(), torch.rand(1, 3).double()
    hidden = torch.zeros(2, 3).bool()
    hidden[1, 0] = True
    extra = torch.rand(2).double() if name == "forward" else torch.rand(1).double()

    def weights(scores, previous, extra):
        scores = scores.masked_fill(hidden, -INF)
        if name == "forward":
            return ForwardAlignment(extra, previous)(scores)
        return Stepwise(bias=extra).given(previous)(scores)

    inputs = [tensor.requires_grad_() for tensor in (scores, previous, extra)]
    assert torch.autograd.gradcheck(weights, inputs, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(weights, inputs, fast_mode=True)
    # The first alignment is 0 at most keys, and no derivative at a hidden pair is lost to NaN.
    assert torch.autograd.gradcheck(lambda scores: weights(scores, torch.eye(1, 3).double(), extra), inputs[:1])
    output = weights(*inputs)
    incoming = torch.ones_like(output).masked_fill(hidden, torch.nan)
    for gradient in torch.autograd.grad(output, inputs, incoming):
        assert gradient.isfinite().all()


def test_scores_of_an_alignment_that_are_not_finite():
    scores = torch.zeros(2, 4, dtype=torch.float64)
    scores[0, 1] = torch.nan
    assert ForwardAlignment()(scores)[0].isnan().all()
    assert Stepwise()(scores)[0].isnan().tolist() == [False, True, True, True]
    scores[0, 1] = INF
    assert ForwardAlignment()(scores)[0].isnan().all()
    assert Stepwise()(scores)[0].tolist() == [0.5, 0.5, 0.0, 0.0]


@pytest.mark.parametrize("name", ["monotonic", "stepwise", "forward"])
def test_alignments_by_name_through_the_verbs(name):
    inputs, mask = problem(), MASKS["where"]()
    plan = regard.plan(*inputs, normalizer=name, mask=mask)
    assert plan.backend == "reference"
    output, weights = regard.attend_with_weights(*inputs, normalizer=name, mask=mask)
    torch.testing.assert_close(weights @ inputs[2], output)
    seen = regard.observe(*inputs, normalizer=name, mask=mask, read=regard.Readings(received=True))
    torch.testing.assert_close(seen.received, weights.sum(2))
    torch.testing.assert_close(regard.explain(*inputs, normalizer=name, mask=mask).weights, weights)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ForwardAlignment(1.5), ArgumentError, r"transition must be in \[0, 1\]; it is 1.5"),
        (lambda: ForwardAlignment("x"), KindError, "transition must be a number or a tensor"),
        (lambda: ForwardAlignment(torch.rand(5))(torch.zeros(2, 3)), ShapeError, "transition must"),
        (lambda: ForwardAlignment().given(torch.zeros(2, 4))(torch.zeros(2, 3, 5)), ShapeError, "previous must"),
        (lambda: ForwardAlignment()(torch.zeros(2, 3), dim=0), ArgumentError, "goes along the last axis"),
        (lambda: ForwardAlignment(previous=torch.zeros(2).long()), KindError, "previous must hold floating-point"),
    ],
)
def test_forward_alignments_refuse_wrong_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_a_tensor_of_transitions_outside_the_unit_interval_is_refused():
    for transition in (torch.tensor(1.5), torch.tensor([0.5, -0.25])):
        with pytest.raises(ArgumentError, match=r"transition must be in \[0, 1\]; it is"):
            ForwardAlignment(transition)
