"""Coverage: the attention that each source token has received, and its loss (See et al. 2017, section 2.3)."""

import torch
from torch import Tensor


def coverage_of(weights: Tensor) -> Tensor:
    """The coverage vector before each step, ``c^t = Σ_{t' < t} a^{t'}`` (See et al. 2017, eq. 10); never negative.

    Args:
        weights: ``[batch, steps, source]``.
    """
    return torch.cat([torch.zeros_like(weights[:, :1]), weights[:, :-1].cumsum(1)], dim=1)


def coverage_loss(weights: Tensor, is_token: Tensor) -> Tensor:
    """The coverage loss ``Σ_t Σ_i min(a_i^t, c_i^t)`` of all target tokens, a scalar (See et al. 2017, eq. 12).

    Args:
        weights: ``[batch, steps, source]``, not negative.
        is_token: bool ``[batch, steps]``: True for a target token.
    """
    return (torch.minimum(weights, coverage_of(weights)).sum(-1) * is_token).sum()
