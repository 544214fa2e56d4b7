"""``tiled``: the specification on blocks of query rows, made again in the backward pass. Linear memory; everything.

A block has all the keys that its rows may see, so any normalizer sees whole rows; tiles that the mask empties are never
computed. What is kept for the backward pass is the inputs: checkpointing recomputes a block's scores and weights, with
the same random numbers, when its gradient is wanted.
"""

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from regard.attention.backends.backend import Backend
from regard.attention.blocks import block_shape, blocks
from regard.attention.problem import Problem
from regard.attention.readings import Gatherer
from regard.attention.steps import Inputs, mix, nothing, weigh, whole


class Tiled(Backend):
    """The reference's own steps, a block of rows at a time."""

    name = "tiled"

    def declines(self, problem: Problem) -> str | None:
        if torch.is_grad_enabled() and problem.normalizer.generator is not None:
            return "the normalizer draws from a generator of its own, which the backward pass cannot rewind"
        return None

    def run(self, problem: Problem, gatherer: Gatherer | None = None) -> Tensor:
        grid = problem.grid
        if problem.is_empty:
            return nothing(whole(problem))
        shape = block_shape(problem)
        outputs = [self._block(problem, inputs, gatherer) for inputs in blocks(problem, shape)]
        per_batch = -(-grid.queries // shape[1])
        rows = [torch.cat(outputs[i : i + per_batch], dim=2) for i in range(0, len(outputs), per_batch)]
        return torch.cat(rows, dim=0)

    def _block(self, problem: Problem, inputs: Inputs, gatherer: Gatherer | None) -> Tensor:
        reader = gatherer

        def calculate() -> Tensor:
            steps = weigh(problem, inputs)
            if reader is not None:
                reader.add(steps.masked, steps.weights, inputs.grid)
            return mix(problem, inputs, steps.weights)

        if not torch.is_grad_enabled():
            return calculate()
        output = checkpoint(calculate, use_reentrant=False)
        # The backward pass calculates again; it must not read again.
        reader = None
        return output
