"""Seeds the random number generators of a training step from the run's seed and the step."""

import hashlib
import random

import numpy as np
import torch


def seed_step(seed: int, step: int, rank: int = 0) -> None:
    """Seeds every global generator (Python, NumPy, PyTorch on all devices) for one training step, counted over the run.

    The random numbers of a step (dropout, sampling) then depend only on these arguments: a resumed run draws the same
    ones as an uninterrupted run, and a validation between two steps does not change them. Each process has its own.
    """
    digest = hashlib.blake2b(f"{seed}/{step}/{rank}".encode(), digest_size=8).digest()
    number = int.from_bytes(digest, "little") >> 1
    random.seed(number)
    np.random.seed(number & 0xFFFFFFFF)
    torch.manual_seed(number)
