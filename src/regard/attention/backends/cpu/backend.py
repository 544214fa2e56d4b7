"""``cpu``: fused kernels, compiled at run time from Python; linear memory, forward and backward."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.attention.backends.backend import Backend
from regard.attention.backends.cpu.cached_memory import FusedMemory
from regard.attention.backends.cpu.dense_rows import DenseRows
from regard.attention.backends.cpu.lowering import (
    kernel_inputs,
    obstacle,
    row_normalizer,
    with_exponentials,
    with_heads_as_rows,
)
from regard.attention.backends.cpu.packed_rows import PackedRows
from regard.attention.backends.cpu.readings import read
from regard.attention.blocks import read_shares
from regard.attention.problem import Problem
from regard.attention.readings import Gatherer
from regard.attention.result import Attended
from regard.kernels.availability import why_missing
from regard.kernels.cpu.kernel_arguments import KernelInputs
from regard.scores import Score
from regard.scores.score import InnerProduct, ReluSum
from regard.transforms import can_branch_on

if TYPE_CHECKING:
    from regard.kernels.cpu.kernel import Kernel


class Fused(Backend):
    """Inner products and additive scores × softmax (with a sink), sparsemax, entmax, sigmoid, local windows × masks."""

    name = "cpu"
    why = "fused kernels run this in linear memory, faster than anything else here"
    measured = (
        "additive", "entmax15-attention", "small-sparsemax", "window", "ragged", "dot-causal", "dot-1024", "dot-batch",
    )  # fmt: skip
    reads = True

    def declines(self, problem: Problem) -> str | None:
        return why_missing() or obstacle(problem)

    def delay(self, problem: Problem, gatherer: Gatherer | None = None) -> str | None:
        from regard.kernels.cpu import kernel

        return kernel.delay(required_kernels(problem, gatherer))

    def prepare(self, problem: Problem, gatherer: Gatherer | None = None) -> None:
        from regard.kernels.cpu import kernel

        kernel.request(required_kernels(problem, gatherer))

    def run(self, problem: Problem, gatherer: Gatherer | None = None) -> Tensor:
        from regard.kernels.cpu import operators

        if isinstance(problem.memory, FusedMemory):
            return problem.memory.attend(problem).output
        if isinstance(problem.memory, PackedRows):
            return problem.memory.output.to(problem.value.dtype)
        inputs = _prepared(problem, gatherer)
        mask = problem.lowered.dense_mask
        if mask is None:
            dispatched = problem.wants_gradient or not can_branch_on(problem.query)
            if problem.wants_gradient and inputs.keeps_weights:
                inputs = inputs._replace(return_weights=True)
            attend = operators.attend if dispatched else operators.attend_now
            output = attend(*with_heads_as_rows(inputs))[0].view(*problem.query.shape[:3], -1)
        else:
            output = DenseRows.apply(mask, problem.grid, *inputs)
        if gatherer is not None:
            read(inputs, mask, gatherer)
            read_shares(problem, gatherer)
        return output.to(problem.value.dtype)

    def read(self, problem: Problem, gatherer: Gatherer) -> None:
        read(with_exponentials(kernel_inputs(problem)), problem.lowered.dense_mask, gatherer)
        read_shares(problem, gatherer)

    def run_with_weights(self, problem: Problem) -> Attended:
        from regard.kernels.cpu import operators

        if isinstance(problem.memory, FusedMemory):
            return problem.memory.attend(problem)
        if isinstance(problem.memory, PackedRows) or problem.lowered.dense_mask is not None:
            return super().run_with_weights(problem)
        inputs = with_heads_as_rows(_prepared(problem)._replace(return_weights=True))
        output, weights = (part.view(*problem.query.shape[:3], -1) for part in operators.attend(*inputs)[::2])
        row = problem.row
        assert row is not None
        if row.kind == "hard" and row.center is None:
            # Weights that no score has a part in.
            weights = weights.detach()
        return Attended(output.to(problem.value.dtype), weights)

    def prepare_memory(self, key: Tensor, value: Tensor, score: Score, mask: Tensor | None) -> FusedMemory | None:
        return None if why_missing() else FusedMemory.prepare(key, value, score, mask)


def _prepared(problem: Problem, gatherer: Gatherer | None = None) -> KernelInputs:
    """The problem's inputs, with the exponentials of an additive score's keys and a seed for dropout.

    Args:
        problem: the call's. Its kernels that are missing are asked for at once.
        gatherer: gets the readings; None where no readings are wanted.
    """
    from regard.kernels.cpu import kernel

    kernel.request(required_kernels(problem, gatherer), awaited=True)
    inputs = with_exponentials(kernel_inputs(problem))
    return inputs._replace(seed=int(torch.randint(2**62, ()).item())) if inputs.dropout else inputs


def required_kernels(problem: Problem, gatherer: Gatherer | None) -> "tuple[Kernel, ...]":
    """The kernels that a problem and its readings may need."""
    from regard.kernels.cpu import kernels

    row = problem.row
    if row is None or isinstance(problem.memory, PackedRows):
        return ()
    primitive = problem.prepared.primitive
    units = "product" if isinstance(primitive, InnerProduct) else "relu" if isinstance(primitive, ReluSum) else "tanh"
    normalizer = row_normalizer(row)["normalizer"]
    dtype = torch.float64 if problem.query.dtype == torch.float64 else torch.float32
    required = kernels.of_calls(dtype, units, normalizer, problem.wants_gradient)
    return required if gatherer is None else (*required, *kernels.of_readings(dtype, units, normalizer))
