"""Hard attention: one annotation at a time, and how to learn through that choice (Xu et al. 2015, §4.1)."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.errors import UnknownNameError

ESTIMATORS = ("reinforce", "straight_through")


class Choice(NamedTuple):
    """One annotation for each query.

    Attributes:
        weights: one-hot ``[batch, keys]`` (all zero for a row without keys).
        log_probability: ``[batch]``, of the choice; differentiable.
        entropy: ``[batch]`` in nats, of the distribution; differentiable.
    """

    weights: Tensor
    log_probability: Tensor
    entropy: Tensor


class HardChoice(nn.Module):
    """Chooses one annotation: drawn from the soft weights in training, the most likely one otherwise.

    Args:
        estimator: how gradients pass the choice in training. ``"reinforce"``: not through it; the loss adds
            `reinforce_loss`. ``"straight_through"``: as if the soft weights had been used (Bengio et al. 2013).
    """

    def __init__(self, estimator: str = "reinforce"):
        super().__init__()
        if estimator not in ESTIMATORS:
            raise UnknownNameError("hard estimator", estimator, ESTIMATORS)
        self.estimator = estimator

    def forward(self, weights: Tensor) -> Choice:
        """Choose.

        Args:
            weights: soft weights ``[batch, keys]``; a row of zeros has no key to choose.
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
        return Choice(chosen, log_probability, -(weights * logs).sum(-1))


class ReinforceBaseline(nn.Module):
    """A moving average of the log-probability of a token: what a choice must beat to be reinforced.

    ``b ← decay · b + (1 − decay) · mean log p(y)``. Xu et al. average whole sentences (their decay is 0.9); one token
    is the unit here, so that rows of different lengths and the rest of a sentence have fitting baselines.
    """

    value: Tensor

    def __init__(self, decay: float = 0.9):
        super().__init__()
        self.decay = decay
        self.register_buffer("value", torch.zeros(()))

    @torch.no_grad()
    def update(self, mean: Tensor) -> None:
        """Take in the mean log-probability of a batch's tokens (nats)."""
        self.value.mul_(self.decay).add_(mean.to(self.value.dtype), alpha=1 - self.decay)


def reinforce_loss(
    log_probability: Tensor,
    entropy: Tensor,
    reward: Tensor,
    mask: Tensor,
    baseline: Tensor | float,
    reward_weight: float = 1.0,
    entropy_weight: float = 0.01,
) -> Tensor:
    """A loss whose gradient is that of the expected reward, plus an entropy bonus, summed over all tokens.

        − Σ_t [ λ_r · log p(s_t) · Σ_{u ≥ t} (r_u − b) + λ_e · H(s_t) ]

    Xu et al. 2015, §4.1, eq. 11-12; they weigh each choice by the reward of the whole sentence, here by that of the
    words from it on, since earlier ones don't depend on it: the same expectation, with less variance.

    Args:
        log_probability: of the choices, ``[batch, steps]``; differentiable.
        entropy: of their distributions, ``[batch, steps]`` in nats; differentiable.
        reward: log-probability of each target token given the choices, ``[batch, steps]`` in nats; taken as constant.
        mask: bool ``[batch, steps]``: True where there is a target token.
        baseline: reward that a token gets on average, nats.
        reward_weight: λ_r.
        entropy_weight: λ_e.

    Returns:
        A scalar.
    """
    advantage = ((reward.detach() - baseline) * mask).flip(-1).cumsum(-1).flip(-1)
    terms = reward_weight * log_probability * advantage + entropy_weight * entropy
    return -(terms * mask).sum()
