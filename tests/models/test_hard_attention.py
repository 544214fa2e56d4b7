from itertools import product

import pytest
import torch

from regard.errors import UnknownNameError
from regard.models.hard_attention import HardChoice, ReinforceBaseline, reinforce_loss

WEIGHTS = torch.tensor([[0.2, 0.5, 0.3], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]], dtype=torch.float64)


@pytest.mark.parametrize("estimator", ["reinforce", "straight_through"])
def test_chooses_one_seen_annotation(estimator):
    choose = HardChoice(estimator)
    for mode in (True, False):
        for seed in range(5):
            torch.manual_seed(seed)
            chosen = choose.train(mode)(WEIGHTS).weights
            assert chosen.sum(-1).tolist() == [1.0, 1.0, 0.0]
            assert chosen.count_nonzero(-1).tolist() == [1, 1, 0]
            assert chosen[1].tolist() == [0, 0, 1]
    assert choose(WEIGHTS).weights[0].tolist() == [0, 1, 0]  # in evaluation: the most likely


def test_draws_with_the_weights_as_probabilities():
    torch.manual_seed(0)
    chosen = HardChoice()(WEIGHTS[:1].expand(4000, 3)).weights.mean(0)
    torch.testing.assert_close(chosen, WEIGHTS[0], atol=0.03, rtol=0)


def test_log_probability_and_entropy():
    choice = HardChoice().eval()(WEIGHTS)
    entropy = -(WEIGHTS[0] * WEIGHTS[0].log()).sum()
    torch.testing.assert_close(choice.log_probability, torch.stack([WEIGHTS[0, 1].log(), entropy * 0, entropy * 0]))
    torch.testing.assert_close(choice.entropy, torch.stack([entropy, entropy * 0, entropy * 0]))


def test_straight_through_has_the_gradient_of_the_soft_weights():
    weights = WEIGHTS.clone().requires_grad_()
    values = torch.arange(9, dtype=torch.float64).view(3, 3)
    (HardChoice("straight_through")(weights).weights * values).sum().backward()
    assert torch.equal(weights.grad, values)


def test_reinforce_is_unbiased_against_enumeration():
    """Two steps of three choices, and a reward for each step that depends on all choices up to it."""
    torch.manual_seed(1)
    logits = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    reward_1, reward_2 = torch.randn(3, dtype=torch.float64), torch.randn(3, 3, dtype=torch.float64)
    logs = logits.log_softmax(-1)
    entropy = -(logs.exp() * logs).sum(-1)[None]
    mask = torch.ones(1, 2, dtype=torch.bool)

    expected_reward = torch.zeros((), dtype=torch.float64)
    estimate = torch.zeros_like(logits)
    for first, second in product(range(3), range(3)):
        log_probability = torch.stack([logs[0, first], logs[1, second]])[None]
        probability = log_probability.sum().exp()
        expected_reward = expected_reward + probability * (reward_1[first] + reward_2[first, second])
        rewards = torch.stack([reward_1[first], reward_2[first, second]])[None]
        loss = reinforce_loss(log_probability, entropy, rewards, mask, 0.7, entropy_weight=0.3)
        estimate += probability.detach() * torch.autograd.grad(loss, logits, retain_graph=True)[0]
    (exact,) = torch.autograd.grad(-(expected_reward + 0.3 * entropy.sum()), logits)
    torch.testing.assert_close(estimate, exact)


def test_padding_has_no_part_in_the_loss():
    log_probability, entropy, reward = torch.randn(3, 2, 5, dtype=torch.float64)
    mask = torch.tensor([[True] * 5, [True, True, False, False, False]])
    whole = reinforce_loss(log_probability, entropy, reward, mask, 0.1)
    rows = [
        reinforce_loss(*(tensor[row : row + 1, :length] for tensor in (log_probability, entropy, reward, mask)), 0.1)
        for row, length in enumerate((5, 2))
    ]
    torch.testing.assert_close(whole, rows[0] + rows[1])


def test_baseline_is_a_moving_average():
    baseline = ReinforceBaseline(decay=0.9)
    for _ in range(2):
        baseline.update(torch.tensor(-2.0))
    torch.testing.assert_close(baseline.value, torch.tensor(-0.38))


def test_an_unknown_estimator_of_hard_attention_is_refused():
    with pytest.raises(UnknownNameError, match="hard estimator"):
        HardChoice("gumbel")
