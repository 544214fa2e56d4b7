"""``tiled``: the specification on blocks of query rows, made again in the backward pass. Linear memory; everything.

A block has all the keys that its rows may see, so any normalizer sees whole rows; tiles that the mask empties are never
computed. What is kept for the backward pass is the inputs: checkpointing recomputes a block's scores and weights, with
the same random numbers, when its gradient is wanted.
"""

import torch
from torch import Tensor

from regard.attention.backends.backend import Backend
from regard.attention.blocks import attend_in_blocks
from regard.attention.problem import Problem
from regard.attention.readings import Gatherer


class Tiled(Backend):
    """The specification's own steps, a block of rows at a time."""

    name = "tiled"
    why = "runs everything in linear memory"
    measured = ("score-mlp",)
    reads = True

    def declines(self, problem: Problem) -> str | None:
        if torch.is_grad_enabled() and problem.normalizer.generator is not None:
            return "the normalizer draws from a generator of its own, which the backward pass cannot rewind"
        return None

    def run(self, problem: Problem, gatherer: Gatherer | None = None) -> Tensor:
        return attend_in_blocks(problem, gatherer)
