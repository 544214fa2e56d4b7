"""LSTM and GRU layers over packed rows of different lengths, with a backward pass of a few large products.

PyTorch's own loop over packed rows on a CPU differentiates each step by itself: at each step it adds a matrix of the
weights' size to their gradient, and another one of the size of all inputs. Here one autograd function runs a whole
direction of a layer; the gradients of the weights and of the inputs are one product each, after the loop.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from regard.models.cell_equations import gru_step, gru_step_gradients, lstm_step, lstm_step_gradients
from regard.models.matrix_products import grad_input, grad_weight, product, product_dtype
from regard.models.step_products import compute_dtype, replaces_autocast

State = tuple[Tensor, ...]
"""``(hidden, cell)`` of an LSTM or ``(hidden,)`` of a GRU, each ``[rows, hidden_size]``."""


def run_packed(rnn: nn.LSTM | nn.GRU, packed: PackedSequence) -> tuple[PackedSequence, State]:
    """What ``rnn(packed)`` gives, up to rounding; the first state is zeros.

    Under autocast the products are of its dtype (see `matrix_products.product_dtype`), gates and states float32.

    Args:
        rnn: an LSTM or GRU with biases and without projections.
        packed: rows that were packed with ``enforce_sorted=False``.

    Returns:
        the outputs of the top layer, and the last states: each tensor ``[layers · directions, batch, hidden_size]``.
    """
    wanted = torch.is_grad_enabled() and packed.data.device.type == "cpu"
    if not wanted or torch.compiler.is_compiling():
        if not replaces_autocast(packed.data):
            return _run_as_it_is(rnn, packed)
        data = packed.data.to(next(rnn.parameters()).dtype)
        with torch.autocast(data.device.type, enabled=False):
            return _run_as_it_is(rnn, packed._replace(data=data))
    run = _LSTMDirection if isinstance(rnn, nn.LSTM) else _GRUDirection
    sizes = packed.batch_sizes.tolist()
    data, states = packed.data, []
    for layer in range(rnn.num_layers):
        if layer:
            data = F.dropout(data, rnn.dropout, rnn.training)
        outputs = []
        for suffix in ("", "_reverse") if rnn.bidirectional else ("",):
            names = (f"{name}_l{layer}{suffix}" for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
            parameters = (getattr(rnn, name) for name in names)
            found, *last = run.apply(data, *parameters, sizes, suffix == "_reverse")  # pyright: ignore[reportGeneralTypeIssues]
            outputs.append(found)
            states.append(last)
        data = torch.cat(outputs, dim=-1)
    assert packed.unsorted_indices is not None
    last = tuple(torch.stack(tensors)[:, packed.unsorted_indices] for tensors in zip(*states, strict=True))
    return packed._replace(data=data), last


def _run_as_it_is(rnn: nn.LSTM | nn.GRU, packed: PackedSequence) -> tuple[PackedSequence, State]:
    outputs, last = rnn(packed)
    return outputs, last if isinstance(last, tuple) else (last,)


class _Step(NamedTuple):
    """The packed rows of one step.

    Attributes:
        rows: where they are.
        number: how many there are.
        earlier: where the rows of the step before, in the order of the loop, are that go on; they come first.
        going_on: how many go on; the state of the others begins with zeros.
    """

    rows: slice
    number: int
    earlier: slice
    going_on: int


def _steps(sizes: list[int], backwards: bool) -> Iterator[_Step]:
    # ``sizes``: rows of each step; they decrease, since the longest rows come first.
    first, place = [], 0
    for size in sizes:
        first.append(place)
        place += size
    order = list(range(len(sizes)))
    if backwards:
        order.reverse()
    before = None
    for step in order:
        going_on = 0 if before is None else min(sizes[step], sizes[before])
        start = 0 if before is None else first[before]
        yield _Step(
            slice(first[step], first[step] + sizes[step]), sizes[step], slice(start, start + going_on), going_on
        )
        before = step


def _before(states: Tensor, steps: list[_Step]) -> Tensor:
    """The state before each row's step, from those after it; both are packed."""
    before = torch.zeros_like(states)
    for step in steps:
        before[step.rows][: step.going_on] = states[step.earlier]
    return before


class _LSTMDirection(torch.autograd.Function):
    """One direction of an LSTM layer: hidden states of all packed rows, and each row's last hidden and cell state."""

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
        inputs, input_weight, hidden_weight = _keep_dtypes(ctx, data, input_weight, hidden_weight)
        sums = product(inputs, input_weight, (input_bias + hidden_bias).to(inputs.dtype))
        gates = sums if sums.dtype == ctx.real else torch.empty_like(sums, dtype=ctx.real)
        rows, size = len(data), hidden_weight.shape[1]
        outputs, cells, tanh_cells = (gates.new_empty(rows, size) for _ in range(3))
        hidden, cell = (gates.new_zeros(sizes[0], size) for _ in range(2))
        ctx.steps = list(_steps(sizes, backwards))
        for step in ctx.steps:
            known = sums[step.rows]
            own = product(hidden[: step.number].to(sums.dtype), hidden_weight, known, reuses=True)
            if gates is not sums or own is not known:
                own = gates[step.rows].copy_(own)
            lstm_step(own, cell[: step.number], cells[step.rows], tanh_cells[step.rows], outputs[step.rows])
            hidden[: step.number] = outputs[step.rows]
            cell[: step.number] = cells[step.rows]
        ctx.save_for_backward(inputs, input_weight, hidden_weight, gates, cells, tanh_cells, outputs)
        return outputs.to(data.dtype), hidden.to(data.dtype), cell.to(data.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_outputs: Tensor, grad_last: Tensor, grad_cell: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        inputs, input_weight, hidden_weight, gates, cells, tanh_cells, outputs = ctx.saved_tensors
        cells = _before(cells, ctx.steps)
        grad_sums = torch.empty_like(gates)
        grad_hidden, grad_cell = (torch.empty_like(grad, dtype=ctx.real).copy_(grad) for grad in (grad_last, grad_cell))
        for step in reversed(ctx.steps):
            own = grad_sums[step.rows]
            grad = grad_hidden[: step.number].add_(grad_outputs[step.rows])
            state = gates[step.rows], cells[step.rows], tanh_cells[step.rows]
            lstm_step_gradients(*state, grad, grad_cell[: step.number], own)
            grad_hidden[: step.going_on] = grad_input(own[: step.going_on].to(inputs.dtype), hidden_weight)
        grad_sums, before = grad_sums.to(inputs.dtype), _before(outputs, ctx.steps).to(inputs.dtype)
        grad_bias = grad_sums.sum(0, dtype=ctx.given[1])
        grad_input_weight, grad_hidden_weight = grad_weight(grad_sums, inputs), grad_weight(grad_sums, before)
        found = grad_input(grad_sums, input_weight), grad_input_weight, grad_hidden_weight
        return *_as_given(ctx, found), grad_bias, grad_bias, None, None


class _GRUDirection(torch.autograd.Function):
    """One direction of a GRU layer: hidden states of all packed rows, and each row's last one."""

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
    ) -> tuple[Tensor, Tensor]:
        inputs, input_weight, hidden_weight = _keep_dtypes(ctx, data, input_weight, hidden_weight)
        gates = product(inputs, input_weight, input_bias.to(inputs.dtype)).to(ctx.real)
        rows, size = len(data), hidden_weight.shape[1]
        outputs, candidates = (gates.new_empty(rows, size) for _ in range(2))
        hidden, bias = gates.new_zeros(sizes[0], size), hidden_bias.to(inputs.dtype)
        ctx.steps = list(_steps(sizes, backwards))
        for step in ctx.steps:
            before = hidden[: step.number]
            recurrent = product(before.to(inputs.dtype), hidden_weight, bias).to(ctx.real)
            candidates[step.rows] = recurrent[:, 2 * size :]
            gru_step(gates[step.rows], recurrent, before, outputs[step.rows])
            hidden[: step.number] = outputs[step.rows]
        ctx.save_for_backward(inputs, input_weight, hidden_weight, gates, candidates, outputs)
        return outputs.to(data.dtype), hidden.to(data.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_outputs: Tensor, grad_last: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        inputs, input_weight, hidden_weight, gates, candidates, outputs = ctx.saved_tensors
        before = _before(outputs, ctx.steps)
        grad_gates, grad_recurrent = torch.empty_like(gates), torch.empty_like(gates)
        grad_hidden = torch.empty_like(grad_last, dtype=ctx.real).copy_(grad_last)
        for step in reversed(ctx.steps):
            own = grad_recurrent[step.rows]
            grad = grad_hidden[: step.number].add_(grad_outputs[step.rows])
            state = gates[step.rows], candidates[step.rows], before[step.rows]
            gru_step_gradients(*state, grad, grad_gates[step.rows], own)
            grad[: step.going_on] += grad_input(own[: step.going_on].to(inputs.dtype), hidden_weight)
        grad_gates, grad_recurrent = grad_gates.to(inputs.dtype), grad_recurrent.to(inputs.dtype)
        biases = (grad.sum(0, dtype=ctx.given[1]) for grad in (grad_gates, grad_recurrent))
        grad_input_weight = grad_weight(grad_gates, inputs)
        grad_hidden_weight = grad_weight(grad_recurrent, before.to(inputs.dtype))
        found = grad_input(grad_gates, input_weight), grad_input_weight, grad_hidden_weight
        return *_as_given(ctx, found), *biases, None, None


def _keep_dtypes(ctx: Any, *tensors: Tensor) -> Iterator[Tensor]:
    """The data and the weights in the dtype of the products; the context keeps their own dtypes and that of gates."""
    dtype = product_dtype(compute_dtype(tensors[0]), tensors[0].device)
    ctx.given = [tensor.dtype for tensor in tensors]
    ctx.real = torch.float64 if dtype == torch.float64 else torch.float32
    return (tensor.to(dtype) for tensor in tensors)


def _as_given(ctx: Any, gradients: tuple[Tensor, ...]) -> Iterator[Tensor]:
    return (gradient.to(dtype) for gradient, dtype in zip(gradients, ctx.given, strict=True))
