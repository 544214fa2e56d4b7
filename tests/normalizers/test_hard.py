"""Hard attention: what it chooses, how often it draws, and which gradient it lends."""

import math

import pytest
import torch

from regard.errors import ArgumentError, KindError, UnknownNameError
from regard.normalizers import Hard, hard
from regard.shapes.grid import Grid

INF = float("inf")
MODES = ["argmax", "straight_through", "sample", "gumbel"]
DRAWS = 20_011


def seeded(seed: int = 7) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_weights_are_exactly_zero_and_one(mode, dtype):
    weights = hard(mode)(torch.randn(2, 3, 5, 7).to(dtype))
    assert weights.dtype == dtype
    assert ((weights == 0) | (weights == 1)).all()
    assert (weights.sum(-1) == 1).all()


@pytest.mark.parametrize("mode", ["argmax", "straight_through"])
def test_the_largest_score_is_chosen_and_of_equals_the_first(mode):
    weights = hard(mode)(torch.tensor([[1.0, 3.0, 2.0], [5.0, 5.0, 5.0], [-INF, 4.0, 4.0]]))
    assert weights.tolist() == [[0, 1, 0], [1, 0, 0], [0, 1, 0]]


@pytest.mark.parametrize("mode", ["argmax", "sample"])
def test_modes_without_gradient(mode):
    assert not hard(mode)(torch.randn(3, 5, requires_grad=True)).requires_grad


def test_straight_through_lends_the_gradient_of_softmax():
    scores = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(3, 5, dtype=torch.float64)
    (lent,) = torch.autograd.grad(hard("straight_through", temperature=0.5)(scores), scores, upstream)
    (soft,) = torch.autograd.grad(torch.softmax(scores / 0.5, -1), scores, upstream)
    torch.testing.assert_close(lent, soft)


def test_gumbel_lends_the_gradient_of_the_softmax_that_it_drew_from():
    scores = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(3, 5, dtype=torch.float64)
    weights = hard("gumbel", temperature=0.5, generator=seeded())(scores)
    (lent,) = torch.autograd.grad(weights, scores, upstream)
    noise = -torch.empty(3, 5, dtype=torch.float64).exponential_(generator=seeded()).log()
    soft = torch.softmax((scores + noise) / 0.5, -1)
    (expected,) = torch.autograd.grad(soft, scores, upstream)
    torch.testing.assert_close(lent, expected)
    assert torch.equal(weights.argmax(-1), soft.argmax(-1))


@pytest.mark.parametrize("mode", ["straight_through", "gumbel"])
def test_a_learned_temperature_gets_a_gradient(mode):
    temperature = torch.nn.Parameter(torch.tensor([0.5, 2.0]))
    normalizer = hard(mode, temperature)
    scores = torch.randn(2, 3, 5)
    scores[0, 0], scores[1, 1, 2:] = -INF, -INF
    (normalizer(scores) * torch.randn(2, 3, 5)).sum().backward()
    assert temperature.grad is not None
    assert temperature.grad.isfinite().all()
    assert (temperature.grad != 0).all()


@pytest.mark.parametrize(("mode", "effective"), [("sample", 0.5), ("gumbel", 1.0)])
def test_hard_weights_are_drawn_with_their_probabilities(mode, effective):
    """``sample`` draws from the tempered softmax; ``gumbel`` from the plain one, whatever its temperature."""
    scores = torch.tensor([0.0, 1.0, -1.0, -INF, 0.5], dtype=torch.float64)
    normalizer = hard(mode, temperature=0.5, generator=seeded())
    frequency = normalizer(scores.expand(DRAWS, 5)).mean(0)
    expected = torch.softmax(scores / effective, -1)
    # Five standard deviations of a mean of DRAWS coin tosses.
    assert ((frequency - expected).abs() <= 5 * (expected * (1 - expected) / DRAWS).sqrt()).all()


def test_the_generator_decides():
    scores = torch.zeros(101, 7)
    state = torch.get_rng_state()
    drawn = [hard("sample", generator=seeded(seed))(scores) for seed in (1, 1, 2)]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert torch.equal(state, torch.get_rng_state())
    first = hard("sample")(scores)
    torch.set_rng_state(state)
    assert torch.equal(first, hard("sample")(scores))


@pytest.mark.parametrize("mode", MODES)
def test_says_whether_it_is_random(mode):
    assert hard(mode).random == (mode in ("sample", "gumbel"))


def test_a_random_tile_sees_only_its_keys():
    scores = torch.randn(2, 3, 5, 7)
    scores[:, :, 2] = -INF
    weights = hard("sample").weigh(scores, Grid.whole(2, 3, 5, 7))
    assert (weights[:, :, 2] == 0).all()
    assert (weights.sum(-1)[:, :, [0, 1, 3, 4]] == 1).all()


def test_hard_refuses_wrong_arguments():
    with pytest.raises(UnknownNameError, match=r"'gumble'; did you mean 'gumbel'\?"):
        hard("gumble")
    for temperature in (0.0, math.nan):
        with pytest.raises(ArgumentError, match="temperature must be finite and greater than 0"):
            Hard("gumbel", temperature)
    with pytest.raises(KindError, match="generator"):
        hard("sample", generator=7)
