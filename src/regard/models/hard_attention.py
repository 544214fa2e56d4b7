"""Hard attention: chooses one annotation, with gradients by REINFORCE or straight-through (Xu et al. 2015, §4.1)."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from regard.errors import UnknownNameError
from regard.tracing.module_calls import Module

ESTIMATORS = ("reinforce", "straight_through")


class ChosenKey(NamedTuple):
    """The chosen annotation of each query: one-hot weights ``[batch, keys]`` (zero for a row without keys), the
    log-probability of the choice, and the entropy of the soft weights, both ``[batch]`` in nats and differentiable."""

    weights: Tensor
    log_probability: Tensor
    entropy: Tensor


class HardChoice(Module):
    """Chooses one annotation: in training, a sample from the soft weights; otherwise, the one with the largest weight.

    In training with ``"reinforce"`` it is the stochastic hard attention of Xu et al. 2015, §4.1.

    Args:
        estimator: the gradient of the choice in training. ``"reinforce"``: no gradient passes through the choice;
            `reinforce_loss` is added to the loss. ``"straight_through"``: the gradient of the soft weights (Bengio et
            al. 2013).

    Raises:
        UnknownNameError: an unknown estimator.

    Example:
        >>> import torch
        >>> from regard import models
        >>> choice = models.HardChoice().eval()(torch.tensor([[0.2, 0.7, 0.1]]))
        >>> choice.weights, choice.log_probability.exp(), choice.entropy
        (tensor([[0., 1., 0.]]), tensor([0.7000]), tensor([0.8018]))
    """

    def __init__(self, estimator: str = "reinforce"):
        super().__init__()
        if estimator not in ESTIMATORS:
            raise UnknownNameError("hard estimator", estimator, ESTIMATORS)
        self.estimator = estimator

    def forward(self, weights: Tensor) -> ChosenKey:
        """Chooses one annotation for each row.

        Args:
            weights: soft weights ``[batch, keys]``; for a row of zeros no key is chosen.
        """
        has_keys = weights.sum(-1, keepdim=True) > 0
        if self.training:
            index = torch.multinomial(torch.where(has_keys, weights.detach(), torch.ones_like(weights)), 1)
        else:
            index = weights.argmax(-1, keepdim=True)
        chosen = torch.zeros_like(weights).scatter_(-1, index, 1.0) * has_keys
        tiny = torch.finfo(weights.dtype).tiny
        logs = weights.clamp(min=tiny).log()
        if self.training and self.estimator == "straight_through":
            chosen = chosen + weights - weights.detach()
        log_probability = (logs.gather(-1, index) * has_keys).squeeze(-1)
        return ChosenKey(chosen, log_probability, -(weights * logs).sum(-1))


class ReinforceBaseline(Module):
    """The baseline of REINFORCE, ``b ← decay · b + (1 − decay) · mean log p(y)``. Xu et al. average over sentences
    (their decay is 0.9); an average over tokens fits sentences of any length and the rest of a sentence."""

    value: Tensor

    def __init__(self, decay: float = 0.9):
        super().__init__()
        self.decay = decay
        self.register_buffer("value", torch.zeros(()))

    @torch.no_grad()
    def update(self, mean: Tensor) -> None:
        """Updates the average with the mean log-probability of the tokens of a batch, in nats."""
        self.value.mul_(self.decay).add_(mean.to(self.value.dtype), alpha=1 - self.decay)

    def loss(self, choices: "Choices", nll: Tensor, is_token: Tensor, entropy_weight: float) -> Tensor:
        """Computes `reinforce_loss`, and updates this baseline while the module is in training mode;
        ``nll [batch, steps]`` is −log p of each target token given the choices."""
        loss = reinforce_loss(
            choices.log_probability, choices.entropy, -nll, is_token, self.value.clone(), entropy_weight=entropy_weight
        )
        if self.training:
            self.update(-nll.sum() / is_token.sum().clamp(min=1))
        return loss


class Choices(NamedTuple):
    """The log-probabilities of the chosen annotations, and the entropies of the distributions of the choices, each
    ``[batch, steps]`` in nats and differentiable, for REINFORCE."""

    log_probability: Tensor
    entropy: Tensor

    @classmethod
    def of_steps(cls, choices: Sequence[ChosenKey]) -> "Choices | None":
        """Joins the choices of successive steps; returns None if there are none."""
        if not choices:
            return None
        parts = zip(*((choice.log_probability, choice.entropy) for choice in choices), strict=True)
        return cls(*(torch.stack(part, dim=1) for part in parts))


def reinforce_loss(
    log_probability: Tensor,
    entropy: Tensor,
    reward: Tensor,
    mask: Tensor,
    baseline: Tensor | float,
    reward_weight: float = 1.0,
    entropy_weight: float = 0.01,
) -> Tensor:
    """Computes a loss whose gradient is minus that of the expected reward and the entropy bonus, summed over tokens:
    ``− Σ_t [ λ_r · log p(s_t) · Σ_{u ≥ t} (r_u − b) + λ_e · H(s_t) ]``.

    Xu et al. 2015, §4.1, eq. 11-12; they multiply each choice by the reward of the whole sentence. Here each choice is
    multiplied by the reward of its own and the later words, because earlier words do not depend on it: the expectation
    is the same, and the variance is smaller. The reward r is the log-probability of each target token given the
    choices, ``[batch, steps]`` in nats, a constant; ``mask`` is True for target tokens; b is ``baseline``, the average
    reward of a token.
    """
    advantage = ((reward.detach() - baseline) * mask).flip(-1).cumsum(-1).flip(-1)
    terms = reward_weight * log_probability * advantage + entropy_weight * entropy
    return -(terms * mask).sum()
