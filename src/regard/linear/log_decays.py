"""Log-decays of linear attention: at most 0, and finite without another result."""

import torch
from torch import Tensor

from regard.errors import ArgumentError
from regard.tracing.transforms import can_read

LEAST_LOG_DECAY = -104.0
"""A log-decay whose exponential rounds to 0 in float32; kernels have the same bound."""

LEAST_EXACT_LOG_DECAY = -746.0
"""A log-decay whose exponential rounds to 0 in float64."""


def bounded(log_decay: Tensor) -> Tensor:
    """Returns log-decays that are finite, so that their sums have differences; each has the same exponential as before.

    A log-decay of −∞ clears the state, and so does every one whose exponential rounds to 0.
    """
    return log_decay.clamp(min=LEAST_EXACT_LOG_DECAY if log_decay.dtype == torch.float64 else LEAST_LOG_DECAY)


def check_log_decay(log_decay: Tensor) -> None:
    """Raises ArgumentError for a log-decay above 0, where elements can be looked at."""
    if can_read(log_decay) and log_decay.numel() and bool(log_decay.amax() > 0):
        raise ArgumentError("log_decay must be at most 0: it is the logarithm of a decay in [0, 1]")
