"""One direction of an LSTM layer over packed rows.

On a CPU whose float32 products the compiled microkernel makes, a kernel takes each sequence through all steps. Under
autocast its products are bfloat16 where the processor multiplies it, else float32. Elsewhere the steps run one by one,
each with a product of PyTorch's and a kernel for the gates.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.kernels.availability import why_missing
from regard.models.cell_equations import lstm_step, lstm_step_gradients
from regard.models.packed_dtypes import as_given, keep_dtypes
from regard.models.packed_steps import Step, last_rows, states_before, steps_of
from regard.nn.matrix_products import grad_input, grad_weight, product
from regard.transforms import has_dense_cpu_storage

COMPILED = 1 << 14
"""Gates of all steps from which on one kernel runs them all; for less it need not be compiled."""


class _Trace(NamedTuple):
    """What the steps leave for the backward pass, of all packed rows.

    Attributes:
        gates: ``[rows, 4 · hidden_size]``; before a row's step, the sums of its other products.
        cells, tanh_cells, hidden: the cell state after the step, its tanh, the hidden state, ``[rows, hidden_size]``.
        short: the hidden state in bfloat16, where the kernel's products are.
    """

    gates: Tensor
    cells: Tensor
    tanh_cells: Tensor
    hidden: Tensor
    short: Tensor | None = None

    @property
    def states(self) -> Tensor:
        """The hidden state as products take it."""
        return self.hidden if self.short is None else self.short


class LSTMDirection(torch.autograd.Function):
    """Hidden states of all packed rows, and each sequence's last hidden and cell state; the first ones are zeros."""

    @staticmethod
    def forward(
        ctx: Any,
        data: Tensor,
        input_weight: Tensor,
        hidden_weight: Tensor,
        input_bias: Tensor,
        hidden_bias: Tensor,
        sizes: list[int],
        backwards: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        inputs, input_weight, short_weight = keep_dtypes(ctx, data, input_weight, hidden_weight)
        sums = product(inputs, input_weight, (input_bias + hidden_bias).to(inputs.dtype))
        gates = sums if sums.dtype == ctx.real else torch.empty_like(sums, dtype=ctx.real)
        states = [gates.new_empty(len(data), hidden_weight.shape[1]) for _ in range(3)]
        ctx.steps, ctx.compiled = list(steps_of(sizes, backwards)), _is_compiled(gates, hidden_weight)
        weight = _kernel_weight(hidden_weight, short_weight) if ctx.compiled else short_weight
        if ctx.compiled and weight.dtype != ctx.real:
            states.append(torch.empty_like(states[0], dtype=weight.dtype))
        trace = _Trace(gates, *states)
        run = _run_compiled if ctx.compiled else _run_each
        hidden, cell = run(ctx.steps, weight, sums, trace)
        ctx.save_for_backward(inputs, input_weight, weight, gates, trace.cells, trace.tanh_cells, trace.states)
        outputs = trace.states if trace.states.dtype == data.dtype else trace.hidden.to(data.dtype)
        return outputs, hidden.to(data.dtype), cell.to(data.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_outputs: Tensor, grad_last: Tensor, grad_cell: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        inputs, input_weight, hidden_weight, gates, cells, tanh_cells, states = ctx.saved_tensors
        # Of the last states; they become those of earlier ones.
        grads = tuple(torch.empty_like(grad, dtype=ctx.real).copy_(grad) for grad in (grad_last, grad_cell))
        differentiate = _differentiate_compiled if ctx.compiled else _differentiate_each
        grad_sums = differentiate(ctx.steps, hidden_weight, gates, cells, tanh_cells, grad_outputs, *grads)
        grad_sums = grad_sums.to(inputs.dtype)
        before = states_before(states, ctx.steps).to(inputs.dtype)
        grad_bias = grad_sums.sum(0, dtype=ctx.given[1])
        grad_input_weight, grad_hidden_weight = grad_weight(grad_sums, inputs), grad_weight(grad_sums, before)
        found = grad_input(grad_sums, input_weight), grad_input_weight, grad_hidden_weight
        return *as_given(ctx, found), grad_bias, grad_bias, None, None


def _is_compiled(gates: Tensor, weight: Tensor) -> bool:
    """Whether one kernel runs all steps."""
    if gates.numel() < COMPILED or why_missing() is not None or not has_dense_cpu_storage(gates, weight):
        return False
    from regard.kernels.cpu.lstm_sequence import runs

    return runs(gates.dtype)


def _kernel_weight(weight: Tensor, short: Tensor) -> Tensor:
    """The hidden state's weight as the kernel takes it, from what was given and what products of PyTorch's would take.

    It multiplies float32 where it cannot multiply what they do.
    """
    from regard.kernels.cpu.lstm_sequence import product_dtype

    dtype = product_dtype(short.dtype, short.shape[1])
    return short if short.dtype == dtype else weight.to(dtype)


def _run_compiled(steps: list[Step], weight: Tensor, sums: Tensor, trace: _Trace) -> tuple[Tensor, Tensor]:
    """Run all steps in one kernel; the last hidden and cell states."""
    from regard.kernels.cpu.lstm_sequence import lstm_sequence

    if trace.gates is not sums:
        trace.gates.copy_(sums)
    matrices = {name: matrix for name, matrix in trace._asdict().items() if matrix is not None}
    lstm_sequence(*_places(steps), weight, **matrices)
    last = last_rows(steps)
    return trace.hidden[last], trace.cells[last]


def _differentiate_compiled(
    steps: list[Step], weight: Tensor, gates: Tensor, cells: Tensor, tanh_cells: Tensor, grad_outputs: Tensor,
    grad_hidden: Tensor, grad_cell: Tensor,
) -> Tensor:  # fmt: skip
    """The gradient of all sums, in the weight's dtype."""
    from regard.kernels.cpu.lstm_sequence import lstm_sequence_gradients

    readable = grad_outputs.stride(1) == 1 and grad_outputs.dtype == gates.dtype and has_dense_cpu_storage(grad_outputs)
    if not readable:
        grad_outputs = torch.empty_like(cells).copy_(grad_outputs)
    grads = {"grad_gates": torch.empty_like(gates)}
    if weight.dtype != gates.dtype:
        grads["short"] = torch.empty_like(gates, dtype=weight.dtype)
    lstm_sequence_gradients(
        *_places(steps), weight, gates=gates, cells=cells, tanh_cells=tanh_cells, grad_outputs=grad_outputs,
        grad_hidden=grad_hidden, grad_cell=grad_cell, **grads,
    )  # fmt: skip
    return grads.get("short", grads["grad_gates"])


def _places(steps: Iterable[Step]) -> tuple[list[int], list[int]]:
    """The first row of each step, and how many it has."""
    return [step.rows.start for step in steps], [step.number for step in steps]


def _run_each(steps: list[Step], weight: Tensor, sums: Tensor, trace: _Trace) -> tuple[Tensor, Tensor]:
    """Run the steps one by one; the last hidden and cell states."""
    gates, cells, tanh_cells, outputs, _ = trace
    hidden, cell = (gates.new_zeros(max(step.number for step in steps), weight.shape[1]) for _ in range(2))
    for step in steps:
        known = sums[step.rows]
        own = product(hidden[: step.number].to(sums.dtype), weight, known, reuses=True)
        if gates is not sums or own is not known:
            own = gates[step.rows].copy_(own)
        lstm_step(own, cell[: step.number], cells[step.rows], tanh_cells[step.rows], outputs[step.rows])
        hidden[: step.number] = outputs[step.rows]
        cell[: step.number] = cells[step.rows]
    return hidden, cell


def _differentiate_each(
    steps: list[Step], weight: Tensor, gates: Tensor, cells: Tensor, tanh_cells: Tensor, grad_outputs: Tensor,
    grad_hidden: Tensor, grad_cell: Tensor,
) -> Tensor:  # fmt: skip
    """The gradient of all sums."""
    earlier, grad_gates = states_before(cells, steps), torch.empty_like(gates)
    for step in reversed(steps):
        own = grad_gates[step.rows]
        grad = grad_hidden[: step.number].add_(grad_outputs[step.rows])
        state = gates[step.rows], earlier[step.rows], tanh_cells[step.rows]
        lstm_step_gradients(*state, grad, grad_cell[: step.number], own)
        grad_hidden[: step.going_on] = grad_input(own[: step.going_on].to(weight.dtype), weight)
    return grad_gates
