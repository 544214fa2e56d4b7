"""The entmax family against its optimisation problem, its limits, and itself by other ways."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import regard
from regard.errors import ArgumentError, KindError
from regard.normalizers import Entmax, Sparsemax, entmax, softmax, sparsemax
from regard.normalizers.thresholds import entmax15_by_sort, entmax_by_root, sparsemax_by_sort

INF = float("inf")

rows = st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=13)


def row(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_sparsemax_by_hand():
    weights = sparsemax(row([[1.0, 0.5, -1.0], [3.0, 0.0, 0.0], [0.1, 0.2, 0.3]]))
    expected = row([[0.75, 0.25, 0.0], [1.0, 0.0, 0.0], [7 / 30, 1 / 3, 13 / 30]])
    torch.testing.assert_close(weights, expected)
    assert weights[0, 2] == 0


def test_entmax15_by_hand():
    """Two scores, s and 0: p = (s/2 − τ)² and 1 − p = τ² with τ = s/4 − √(2 − s²/4)/2."""
    s = 1.0
    tau = s / 4 - math.sqrt(2 - s * s / 4) / 2
    torch.testing.assert_close(entmax(1.5)(row([s, 0.0])), row([(s / 2 - tau) ** 2, tau**2]))


@given(values=rows, alpha=st.floats(1.01, 6.0))
def test_the_conditions_of_the_optimum(values, alpha):
    """KKT: p ≥ 0 and Σp = 1; on the support the objective's slope s + H'(p) is one number μ; off it, at most μ."""
    scores = row(values)
    p = entmax(alpha)(scores)
    assert (p >= 0).all()
    assert p.sum().item() == pytest.approx(1.0, abs=1e-12)
    slope = scores - p.pow(alpha - 1) / (alpha - 1)
    mu = slope[p > 0]
    assert (mu.max() - mu.min()).item() < 1e-9
    assert (slope[p == 0] <= mu.min() + 1e-9).all()


@given(values=rows, alpha=st.sampled_from([1.2, 1.5, 2.0, 3.0]), data=st.data())
def test_no_other_distribution_does_better(values, alpha, data):
    scores = row(values)
    other = row(data.draw(st.lists(st.floats(0.01, 1), min_size=len(values), max_size=len(values))))

    def objective(p: Tensor) -> float:
        return (p @ scores + (p - p.pow(alpha)).sum() / (alpha * (alpha - 1))).item()

    assert objective(entmax(alpha)(scores)) >= objective(other / other.sum()) - 1e-10


@given(values=rows)
def test_sorting_and_root_finding_agree(values):
    scores = row(values)
    for alpha, by_sort in ((2.0, sparsemax_by_sort), (1.5, entmax15_by_sort)):
        by_root = entmax_by_root(scores, torch.tensor(alpha, dtype=torch.float64), -1)
        torch.testing.assert_close(by_sort(scores, -1), by_root, rtol=1e-7, atol=1e-12)


def test_sorting_and_root_finding_agree_on_long_rows():
    scores = torch.randn(5, 1009, dtype=torch.float64)
    for alpha, by_sort in ((2.0, sparsemax_by_sort), (1.5, entmax15_by_sort)):
        by_root = entmax_by_root(scores, torch.tensor(alpha, dtype=torch.float64), -1)
        torch.testing.assert_close(by_sort(scores, -1), by_root, rtol=1e-9, atol=1e-13)


@given(values=rows)
def test_sparsemax_is_the_nearest_point_of_the_simplex(values):
    """By another way: bisection on the threshold itself."""
    scores = row(values)
    low, high = scores.max() - 1, scores.max()
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if (scores - middle).clamp(min=0).sum() > 1 else (low, middle)
    torch.testing.assert_close(sparsemax(scores), (scores - low).clamp(min=0), rtol=1e-9, atol=1e-12)


def test_the_limits_of_alpha():
    scores = torch.randn(5, 11, dtype=torch.float64)
    gaps = [(entmax(1 + gap)(scores) - softmax(scores)).abs().max().item() for gap in (1e-2, 1e-4, 1e-6)]
    assert gaps[0] < 0.05
    assert gaps[1] == pytest.approx(gaps[0] / 100, rel=0.1)
    assert gaps[2] == pytest.approx(gaps[1] / 100, rel=0.1)
    learned = entmax(torch.tensor(2.0, dtype=torch.float64))
    torch.testing.assert_close(learned(scores), sparsemax(scores))
    torch.testing.assert_close(entmax(2.0 + 1e-9)(scores), sparsemax(scores), rtol=1e-6, atol=1e-7)


def test_a_larger_alpha_leaves_fewer_keys():
    scores = torch.randn(64, 31, dtype=torch.float64) * 2
    seen = [(entmax(alpha)(scores) > 0).sum().item() for alpha in (1.05, 1.3, 1.5, 2.0, 3.0, 8.0)]
    assert seen == sorted(seen, reverse=True)
    assert seen[0] > seen[-1]


@pytest.mark.parametrize("alpha", [2.5, 10.0, 100.0, 1000.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ties_share_the_weight_at_any_alpha(alpha, dtype):
    scores = torch.full((3, 101), -5.0, dtype=dtype)
    scores[:, :7] = 2.0
    weights = entmax(alpha)(scores)
    torch.testing.assert_close(weights[:, :7], torch.full_like(weights[:, :7], 1 / 7))
    assert (weights[:, 7:] == 0).all()


def test_alpha_for_each_head():
    scores = torch.randn(2, 3, 5, 7, dtype=torch.float64)
    alphas = [1.1, 1.5, 2.0]
    weights = entmax(row(alphas))(scores)
    for head, alpha in enumerate(alphas):
        torch.testing.assert_close(weights[:, head], entmax(alpha)(scores[:, head]))


@pytest.mark.parametrize("alpha", [1.0001, 1.1, 1.5, 1.9999, 2.0, 2.7, 5.0])
def test_gradient_to_alpha(alpha):
    scores = torch.randn(2, 3, 7, dtype=torch.float64) * 1.5
    scores[0, 0], scores[0, 1, 2:], scores[1, 0, 1:] = -INF, -INF, -INF
    assert torch.autograd.gradcheck(lambda a: entmax(a)(scores), row([alpha]).requires_grad_())


def test_gradient_to_alpha_of_each_head():
    scores = torch.randn(2, 3, 2, 7, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda a: entmax(a)(scores), row([1.2, 1.5, 2.3]).requires_grad_())


def test_gradient_to_alpha_is_softmax_limit_near_one():
    """As alpha falls to 1, ∂p/∂alpha → −½ p (log² p − Σ p log² p); in float32 the published form has no digit left."""
    scores = torch.randn(5, dtype=torch.float32)
    p = scores.double().softmax(-1)
    surprise = p.log().square()
    expected = -0.5 * p * (surprise - (p * surprise).sum())
    for j in range(5):
        alpha = torch.tensor(1.00001, requires_grad=True)
        entmax(alpha)(scores)[j].backward()
        assert alpha.grad is not None
        assert alpha.grad.item() == pytest.approx(expected[j].item(), abs=1e-5)


def test_gradient_is_that_of_the_support():
    scores = row([1.0, 0.5, -1.0]).requires_grad_()
    sparsemax(scores)[0].backward()
    torch.testing.assert_close(scores.grad, row([0.5, -0.5, 0.0]))


@pytest.mark.parametrize("alpha", [4.0, 30.0])
def test_small_weights_do_not_make_the_gradient_overflow(alpha):
    """p^(2 − α) of 101 equal weights is 101^28, beyond float32."""
    scores = torch.zeros(3, 101, requires_grad=True)
    entmax(alpha)(scores).square().sum().backward()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()


@pytest.mark.parametrize("alpha", [1.02, 1.06, 1.1, 1.3])
def test_gradient_to_alpha_to_ten_digits(alpha):
    """Against a five-point difference quotient, on both sides of where the series takes over from the formula."""
    scores, step = torch.randn(7, dtype=torch.float64), 1e-3
    upstream = torch.randn(7, dtype=torch.float64)

    def at(steps: int) -> float:
        return (entmax(alpha + steps * step)(scores) @ upstream).item()

    quotient = (at(-2) - 8 * at(-1) + 8 * at(1) - at(2)) / (12 * step)
    learned = row([alpha]).requires_grad_()
    (entmax(learned)(scores) @ upstream).backward()
    assert learned.grad is not None
    assert learned.grad.item() == pytest.approx(quotient, abs=1e-9)


def test_a_learned_alpha_is_registered():
    normalizer = entmax(nn.Parameter(torch.tensor([1.5, 1.7])))
    assert [name for name, _ in normalizer.named_parameters()] == ["alpha"]
    normalizer(torch.randn(2, 3, 5)).square().sum().backward()
    assert normalizer.alpha.grad.abs().min() > 0


def test_gradient_reaches_what_a_computed_alpha_came_from():
    raw = torch.zeros(3, requires_grad=True)
    entmax(1 + raw.sigmoid())(torch.randn(3, 5, 7)).square().sum().backward()
    assert raw.grad is not None
    assert raw.grad.abs().min() > 0


def test_sparsemax_is_entmax_with_alpha_two():
    assert isinstance(sparsemax, Sparsemax)
    assert isinstance(sparsemax, Entmax)
    assert sparsemax.alpha == 2.0


@pytest.mark.parametrize(
    "alpha", [1, 1.0, 0.5, -2.0, math.nan, INF, torch.tensor(1.0), torch.tensor([1.5, 0.9]), torch.tensor(torch.nan)]
)
def test_alpha_out_of_range(alpha):
    with pytest.raises(ArgumentError, match="alpha must be finite and greater than 1"):
        entmax(alpha)


@pytest.mark.parametrize("alpha", ["1.5", None, True, torch.tensor(2)])
def test_alpha_of_a_wrong_type(alpha):
    with pytest.raises(KindError, match="alpha"):
        entmax(alpha)


@pytest.mark.parametrize("alpha", [1.0, 0.9, math.nan, [1.5, 1.0]])
def test_a_learned_alpha_that_leaves_its_domain_is_an_error(alpha):
    left = torch.tensor(alpha)
    normalizer = Entmax(nn.Parameter(torch.full_like(left, 1.5)))
    scores = torch.randn(1, 2, 3, 4)
    assert normalizer(scores).isfinite().all()
    with torch.no_grad():
        normalizer.alpha.copy_(left)
    for call in (lambda: normalizer(scores), lambda: regard.attend(scores, scores, scores, normalizer=normalizer)):
        with pytest.raises(ArgumentError, match=r"a learned alpha must stay above 1.*1 \+ softplus"):
            call()
