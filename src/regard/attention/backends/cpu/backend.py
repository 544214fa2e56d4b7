"""``cpu``: fused kernels, compiled at run time from Python; linear memory, forward and backward."""

import torch
from torch import Tensor

from regard.attention.backends.backend import Backend
from regard.attention.backends.cpu.dense_rows import DenseRows
from regard.attention.backends.cpu.lowering import dense_mask, lower, obstacle, with_exponentials
from regard.attention.backends.cpu.readings import read
from regard.attention.problem import Problem
from regard.attention.readings import Gatherer
from regard.kernels.availability import why_missing
from regard.kernels.cpu.kernel_inputs import KernelInputs


class Fused(Backend):
    """Inner products and additive scores × softmax (with a sink), sparsemax, entmax, sigmoid, local windows × masks."""

    name = "cpu"

    def declines(self, problem: Problem) -> str | None:
        return why_missing() or obstacle(problem)

    def weigh(self, problem: Problem) -> tuple[Tensor, Tensor] | None:
        """Output and weights, both differentiable; None where a mask would have to be made dense."""
        from regard.kernels.cpu import operators

        if dense_mask(problem) is not None:
            return None
        output, _, weights, _ = operators.attend(*self._call(problem)._replace(return_weights=True))
        return output.to(problem.value.dtype), weights

    def _call(self, problem: Problem) -> KernelInputs:
        call = with_exponentials(lower(problem))
        return call._replace(seed=int(torch.randint(2**62, ()).item())) if call.dropout else call

    def run(self, problem: Problem, gatherer: Gatherer | None = None) -> Tensor:
        from regard.kernels.cpu import operators

        call = self._call(problem)
        mask = dense_mask(problem)
        output = operators.attend(*call)[0] if mask is None else DenseRows.apply(mask, problem.grid, *call)
        if gatherer is not None:
            read(call, mask, gatherer)
        return output.to(problem.value.dtype)
