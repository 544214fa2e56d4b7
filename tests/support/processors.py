"""What PyTorch can compute on the processor that runs the tests."""

from functools import cache

import torch


@cache
def runs_lstm_in_bfloat16() -> bool:
    """Whether PyTorch's LSTM runs under autocast: oneDNN has no kernel in bfloat16 for processors without AVX-512."""
    try:
        with torch.autocast("cpu", torch.bfloat16):
            torch.nn.LSTM(2, 3)(torch.zeros(1, 1, 2))
    except RuntimeError:
        return False
    return True
