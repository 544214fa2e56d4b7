"""LSTM and GRU layers over packed rows of different lengths, with a backward pass of a few large products.

PyTorch's own loop over packed rows on a CPU differentiates each step by itself: at each step it adds a matrix of the
weights' size to their gradient, and another one of the size of all inputs. Here one autograd function runs a whole
direction of a layer; the gradients of the weights and of the inputs are one product each, after the loop.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from regard.models.cell_equations import gru_step, gru_step_gradients
from regard.models.packed_dtypes import as_given, keep_dtypes
from regard.models.packed_lstm import LSTMDirection
from regard.models.packed_steps import states_before, steps_of
from regard.models.padded_recurrence import run_padded
from regard.models.step_products import replaces_autocast
from regard.module_calls import call_with, is_observed, runs
from regard.nn.matrix_products import grad_input, grad_weight, product
from regard.transforms import active_transform, has_data

LSTM, GRU = nn.LSTM.forward, nn.GRU.forward
State = tuple[Tensor, ...]
"""``(hidden, cell)`` of an LSTM or ``(hidden,)`` of a GRU, each ``[rows, hidden_size]``."""


def run_sequences(rnn: nn.LSTM | nn.GRU, padded: Tensor, lengths: Tensor) -> tuple[Tensor, State]:
    """What an LSTM or GRU gives for padded rows of different lengths; padding has no influence.

    Args:
        rnn: an LSTM or GRU with biases and without projections; ``batch_first``.
        padded: ``[batch, steps, input_size]``.
        lengths: integers ``[batch]``; a row must have a step, so an empty one gets one.

    Returns:
        the outputs of the top layer ``[batch, steps, directions · hidden_size]``, 0 after the end of a row, and the
        last states, each ``[layers · directions, batch, hidden_size]``.
    """
    lengths = lengths.clamp(min=1)
    if not has_data(lengths) or active_transform() is not None:
        return run_padded(rnn, padded, lengths)
    packed = pack_padded_sequence(padded, lengths.cpu(), batch_first=True, enforce_sorted=False)
    outputs, last = run_packed(rnn, packed)
    return pad_packed_sequence(outputs, batch_first=True, total_length=padded.shape[1])[0], last


def run_packed(rnn: nn.LSTM | nn.GRU, packed: PackedSequence) -> tuple[PackedSequence, State]:
    """What ``rnn(packed)`` gives, up to rounding; the first state is zeros.

    Under autocast the products are of its dtype (see `matrix_products.product_dtype` and `packed_lstm`), gates and
    states float32.

    Args:
        rnn: an LSTM or GRU with biases and without projections.
        packed: rows that were packed with ``enforce_sorted=False``.

    Returns:
        the outputs of the top layer, and the last states: each tensor ``[layers · directions, batch, hidden_size]``.
    """
    ours = runs(rnn, LSTM) or runs(rnn, GRU)
    wanted = ours and torch.is_grad_enabled() and packed.data.device.type == "cpu"
    if not wanted or rnn._compiled_call_impl is not None:
        if not replaces_autocast(packed.data):
            return _run_as_it_is(rnn, packed)
        data = packed.data.to(next(rnn.parameters(), packed.data).dtype)
        with torch.autocast(data.device.type, enabled=False):
            return _run_as_it_is(rnn, packed._replace(data=data))
    if not is_observed(rnn) or torch.compiler.is_compiling():
        return _run_fused(rnn, packed)

    def forward(packed: PackedSequence) -> tuple[PackedSequence, Tensor | State]:
        outputs, last = _run_fused(rnn, packed)
        return outputs, last if isinstance(rnn, nn.LSTM) else last[0]

    outputs, last = call_with(rnn, forward, packed)
    return outputs, last if isinstance(last, tuple) else (last,)


def _run_fused(rnn: nn.LSTM | nn.GRU, packed: PackedSequence) -> tuple[PackedSequence, State]:
    """As `run_packed`, by the functions below."""
    run = LSTMDirection if isinstance(rnn, nn.LSTM) else _GRUDirection
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
        inputs, input_weight, hidden_weight = keep_dtypes(ctx, data, input_weight, hidden_weight)
        gates = product(inputs, input_weight, input_bias.to(inputs.dtype)).to(ctx.real)
        rows, size = len(data), hidden_weight.shape[1]
        outputs, candidates = (gates.new_empty(rows, size) for _ in range(2))
        hidden, bias = gates.new_zeros(sizes[0], size), hidden_bias.to(inputs.dtype)
        ctx.steps = list(steps_of(sizes, backwards))
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
        before = states_before(outputs, ctx.steps)
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
        return *as_given(ctx, found), *biases, None, None
