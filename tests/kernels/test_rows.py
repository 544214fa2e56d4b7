"""Normalizers of a kernel's rows, against those that sort, in float64."""

import pytest
import torch

pytest.importorskip("numba", reason="kernels are compiled by Numba")

import regard
from regard import normalizers
from regard.normalizers.thresholds import entmax15_by_sort, entmax_by_root, sparsemax_by_sort
from regard.scores import Dot

ALPHAS = [1.01, 1.2, 1.5, 1.7, 2.0, 2.5, 3.0]


def weights_of(scores, normalizer):
    """The weights that the kernel makes of each row of ``scores [rows, keys]``."""
    rows, keys = scores.shape
    query, key = scores.new_ones(rows, 1, 1, 1), scores.reshape(rows, 1, keys, 1)
    values = torch.eye(keys, dtype=scores.dtype).expand(rows, 1, keys, keys)
    return regard.attend(query, key, values, score=Dot(), normalizer=normalizer, backend="cpu")[:, 0, 0]


def normalizing(alpha):
    return normalizers.sparsemax if alpha == 2.0 else normalizers.entmax(alpha)


def exactly(scores, alpha):
    """The same weights in float64, with the threshold from sorted scores, or from a root where there is none."""
    if alpha == 2.0:
        return sparsemax_by_sort(scores.double(), -1)
    if alpha == 1.5:
        return entmax15_by_sort(scores.double(), -1)
    return entmax_by_root(scores.double(), torch.tensor([alpha], dtype=torch.float64), -1)


def assert_as_sorted(scores, alpha, roundings=30):
    """The kernel's weights of some rows are those of the float64 normalizer, which sorts or finds roots."""
    got, expected = weights_of(scores, normalizing(alpha)), exactly(scores, alpha)
    # A weight's slope in its score is p^(2 − alpha), at most 1 for alpha up to 2, and large for small weights above.
    eps = torch.finfo(scores.dtype).eps
    error = roundings * eps * max(1.0, float(scores[scores.isfinite()].abs().max().clamp(max=8)))
    power = 1.0 if alpha <= 2 else 1.0 / (alpha - 1.0)
    torch.testing.assert_close(got.double(), expected, rtol=0, atol=error**power)
    one = torch.ones(len(scores), dtype=torch.float64)
    # A threshold that is rounded is off by as much in every weight.
    torch.testing.assert_close(got.double().sum(-1), one, rtol=0, atol=(roundings + scores.shape[1]) * eps)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_rows_of_any_length(alpha, dtype):
    for length in (*range(1, 71), 1009):
        assert_as_sorted((3 * torch.randn(3, length, dtype=torch.float64)).to(dtype), alpha)


@pytest.mark.parametrize("alpha", [1.001, 1.01, 1.1])
def test_weights_of_alpha_near_1_have_the_digits_of_their_dtype(alpha):
    """Their logarithm is divided by alpha − 1, and a rounding inside of it, too."""
    scores = 3 * torch.randn(50, 71)
    torch.testing.assert_close(
        weights_of(scores, normalizing(alpha)).double(), exactly(scores, alpha), rtol=5e-6, atol=1e-9
    )


@pytest.mark.parametrize("alpha", [1.5, 2.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("length", [1023, 1024, 1025, 1040, 1041, 1093, 2203])
def test_rows_with_more_candidates_than_are_copied(alpha, dtype, length):
    """All scores may have a weight, or those of one end."""
    even = 1e-3 * torch.randn(5, length, dtype=torch.float64)
    even[1, : length // 2] -= 3
    even[2, length // 2 :] -= 3
    even[3, :-5] -= 3
    even[4, -5:] -= torch.inf
    # The sum of 2,203 float32 numbers, each near the next, has few digits more than they have.
    assert_as_sorted(even.to(dtype), alpha, 100)


@pytest.mark.parametrize("name", ["1.5", "2.0"])
@pytest.mark.parametrize("place", [0, 1023, 1030, 1099, 1100])
@pytest.mark.parametrize("scale", [1e-3, 10.0])
def test_not_a_number_makes_a_long_row_not_a_number(name, place, scale):
    scores = scale * torch.randn(2, 1101)
    scores[1, place] = torch.nan
    _, weights = regard.attend_with_weights(
        torch.ones(2, 1, 1, 1), scores.reshape(2, 1, 1101, 1), torch.ones(2, 1, 1101, 1), score=Dot(),
        normalizer=normalizing(float(name)), backend="cpu",
    )  # fmt: skip
    assert weights[0].isfinite().all()
    assert weights[1].isnan().all()


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("scale", [0.0, 1e-3, 0.1, 1.0, 10.0, 1e3])
def test_rows_of_any_scale(alpha, scale):
    assert_as_sorted(scale * torch.randn(7, 131), alpha)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_rows_with_equal_scores_match_sorting(alpha):
    assert_as_sorted(torch.randint(-2, 3, (7, 131)).float(), alpha)
    assert_as_sorted(torch.full((1, 131), 5.0), alpha)
    torch.testing.assert_close(
        weights_of(torch.full((1, 131), -7.0), normalizing(alpha)), torch.full((1, 131), 1 / 131)
    )


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("huge", [1e4, 1e30])
def test_one_huge_score_takes_everything(alpha, huge):
    scores = torch.randn(3, 67)
    scores[:, 41] = huge
    expected = torch.zeros(3, 67)
    expected[:, 41] = 1
    assert torch.equal(weights_of(scores, normalizing(alpha)), expected)
    scores[:, 41] = -huge
    assert not weights_of(scores, normalizing(alpha))[:, 41].any()


@pytest.mark.parametrize("alpha", ALPHAS)
def test_scores_of_minus_infinity_count_as_missing(alpha):
    scores = torch.randn(5, 67)
    hidden = torch.rand(5, 67) < 0.5
    hidden[3], hidden[4] = True, False
    got = weights_of(scores.masked_fill(hidden, -torch.inf), normalizing(alpha))
    assert not got[hidden].any()
    assert not got[3].any()
    for row in (0, 1, 2, 4):
        alone = exactly(scores[row][~hidden[row]], alpha)
        torch.testing.assert_close(got[row][~hidden[row]].double(), alone, rtol=0, atol=1e-3 if alpha > 2 else 1e-5)


@pytest.mark.parametrize("name", ["softmax", "sink", "sigmoid", *map(str, ALPHAS)])
@pytest.mark.parametrize("length", [1, 3, 16, 67])
def test_not_a_number_comes_out_as_not_a_number(name, length):
    chosen = {
        "softmax": normalizers.softmax,
        "sink": normalizers.softmax_with_sink(0.5),
        "sigmoid": normalizers.sigmoid,
    }
    normalizer = chosen[name] if name in chosen else normalizing(float(name))
    scores = torch.randn(4, length)
    scores[1, length // 2] = torch.nan
    scores[2] = torch.nan
    scores[3, :] = -torch.inf
    scores[3, -1] = torch.nan
    got = weights_of(scores, normalizer)
    assert got[0].isfinite().all()
    assert got[1:].isnan().any(-1).all()


@pytest.mark.parametrize("alpha", [1.5, 2.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_newton_arrives_where_its_steps_grow(alpha, dtype):
    """Many scores that drop out at once leave the sum less steep, so that the next step is longer."""
    # The threshold by sorting is the less exact one: it loses some of float64's digits in a variance.
    roundings = 100 if dtype == torch.float32 else 1e5
    depth = 2.0 if alpha == 1.5 else 1.0
    for middle in (0.1, 0.3, 0.5):
        for low in (0.001, 0.01, 0.02, 0.05, 0.1):
            for few, many in ((3, 100), (10, 200), (30, 500)):
                heights = torch.cat([torch.ones(1), torch.full((few,), middle), torch.full((many,), low)])
                assert_as_sorted((depth * (heights - 1))[None].to(dtype), alpha, roundings)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_gradients_follow_from_the_weights(alpha):
    """diag(g) − g gᵀ / Σ g, with g = p^(2 − alpha) where p > 0."""
    scores = torch.randn(5, 37, dtype=torch.float64, requires_grad=True)
    target = torch.randn(5, 37, dtype=torch.float64)
    gradient = torch.autograd.grad(weights_of(scores, normalizing(alpha)), scores, target)[0]
    weights = exactly(scores.detach(), alpha)
    mobility = torch.where(weights > 0, weights ** (2 - alpha), 0)
    mean = (mobility * target).sum(-1, keepdim=True) / mobility.sum(-1, keepdim=True)
    torch.testing.assert_close(gradient, mobility * (target - mean), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("alpha", [2.5, 4.0, 6.0, 9.0])
def test_the_conditions_of_the_optimum_where_weights_are_steep(alpha):
    """KKT: Σp = 1, and the slope s − p^a / a of the objective, with a = alpha − 1, is one number μ on the support, and
    at most μ off it. Many scores lie about 1/a below the largest, where weights leave 0."""
    scores = torch.randn(500, 1 + 6, dtype=torch.float64).mul_(0.05) - 1.0 / (alpha - 1.0)
    scores[:, 0] = 0.0
    p = weights_of(scores, normalizers.entmax(alpha))
    torch.testing.assert_close(p.sum(-1), p.new_ones(500), rtol=0, atol=1e-14)
    slope = scores - p.pow(alpha - 1.0) / (alpha - 1.0)
    largest, least = slope.amax(-1), slope.masked_fill(p == 0.0, float("inf")).amin(-1)
    torch.testing.assert_close(largest, least, rtol=0, atol=1e-14)


@pytest.mark.parametrize("alpha", [3.0, 6.0])
def test_the_backward_pass_has_the_weights_of_the_forward_pass(alpha):
    """The gradient by the values is the weights, also where a rounding of the largest weight moves the smallest."""
    scores = torch.randn(200, 7, dtype=torch.float64).mul_(0.05) - 1.0 / (alpha - 1.0)
    scores[:, 0] = 0.0
    query, key = scores.new_ones(200, 1, 1, 1), scores.reshape(200, 1, 7, 1)
    values = torch.ones(200, 1, 7, 1, dtype=torch.float64, requires_grad=True)
    weights = weights_of(scores, normalizers.entmax(alpha))
    regard.attend(query, key, values, score=Dot(), normalizer=normalizers.entmax(alpha), backend="cpu").sum().backward()
    # Loops of the two passes round in other orders on some processors; a weight that is lost is 1e-8 and more.
    torch.testing.assert_close(values.grad.reshape(200, 7), weights, rtol=0, atol=1e-14)
