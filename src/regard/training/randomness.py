"""Random numbers as a function of the seed and the step alone."""

import hashlib
import random

import numpy as np
import torch


def seed_step(seed: int, step: int, rank: int = 0) -> None:
    """Seed every global generator (Python, NumPy, PyTorch on all devices) for one step of training.

    What a step draws (dropout, sampling) then depends on nothing that happened before it: a resumed run draws what the
    uninterrupted one would have drawn, however it was interrupted, on any number of devices, and validation or pictures
    made between two steps change nothing.

    Args:
        seed: the run's seed.
        step: counted from 0 over the whole run.
        rank: the number of the process; each draws its own numbers.
    """
    digest = hashlib.blake2b(f"{seed}/{step}/{rank}".encode(), digest_size=8).digest()
    number = int.from_bytes(digest, "little") >> 1
    random.seed(number)
    np.random.seed(number & 0xFFFFFFFF)
    torch.manual_seed(number)
