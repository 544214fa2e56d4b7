"""LSTM and GRU layers over padded rows of different lengths, without a look at the lengths.

A compiler or an exporter records an operator for each layer. Elsewhere (``torch.jit.trace``, transforms of
``torch.func``, tensors without numbers) a layer is made of PyTorch's own operations.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import KindError
from regard.models.recurrence_operator import LSTM_GATES, recurrent_layer
from regard.models.step_products import replaces_autocast

NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
"""Of the parameters of a direction."""

CLOSED = 1e4
"""Added to the sum of a gate, it closes or opens the gate fully: its sigmoid is 0 or 1, in half precision too."""


def run_padded(rnn: nn.LSTM | nn.GRU, padded: Tensor, lengths: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """What an LSTM or GRU gives for rows of different lengths, in operations that depend on no length.

    Args:
        rnn: an LSTM or GRU with biases and without projections.
        padded: ``[batch, steps, input_size]``.
        lengths: integers ``[batch]``, from 1 to ``steps``.

    Returns:
        the outputs of the top layer ``[batch, steps, directions · hidden_size]``, 0 after the end of a row, and the
        last states, each ``[layers · directions, batch, hidden_size]``.
    """
    if not isinstance(rnn, (nn.LSTM, nn.GRU)):
        raise KindError(
            f"a {type(rnn).__name__} that is no nn.LSTM or nn.GRU (a quantized one, for example) cannot be exported, "
            "traced or transformed by torch.func; export the model before it is quantized"
        )
    if replaces_autocast(padded):
        with torch.autocast(padded.device.type, enabled=False):
            return _run(rnn, padded.to(next(rnn.parameters()).dtype), lengths)
    return _run(rnn, padded, lengths)


def _run(rnn: nn.LSTM | nn.GRU, data: Tensor, lengths: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    run = recurrent_layer if torch.compiler.is_compiling() else _marked_layer
    suffixes = ("", "_reverse") if rnn.bidirectional else ("",)
    states = []
    for layer in range(rnn.num_layers):
        if layer:
            data = F.dropout(data, rnn.dropout, rnn.training)
        weights = [getattr(rnn, f"{name}_l{layer}{suffix}") for suffix in suffixes for name in NAMES]
        data, *last = run(data, lengths, weights)
        states.append(last)
    return data, tuple(torch.cat(tensors) for tensors in zip(*states, strict=True))


def _marked_layer(padded: Tensor, lengths: Tensor, weights: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """`recurrent_layer` by PyTorch's operations on padded rows.

    One more feature of the input marks padding. It closes the input gate and opens the forget gate (of a GRU: the
    update gate), so that the state stays as it was after the row's last step. The other direction reads each row
    reversed.
    """
    time = torch.arange(padded.shape[1], device=padded.device)
    padding = time >= lengths[:, None]
    reversed_time = torch.where(padding, time, lengths[:, None] - 1 - time)[..., None]  # its own inverse
    data = padded.masked_fill(padding[..., None], 0)
    outputs, states = [], []
    for first in range(0, len(weights), len(NAMES)):
        given = data.gather(1, reversed_time.expand_as(data)) if first else data
        found, *last = _marked_direction(weights[first : first + len(NAMES)], given, padding, lengths)
        outputs.append(found.gather(1, reversed_time.expand_as(found)) if first else found)
        states.append(last)
    joined = torch.cat(outputs, dim=-1).masked_fill(padding[..., None], 0)
    return joined, *(torch.stack(tensors) for tensors in zip(*states, strict=True))


def _marked_direction(weights: Sequence[Tensor], data: Tensor, padding: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
    """The outputs of one direction, and each row's last states."""
    input_weight, *others = weights
    size = others[0].shape[1]
    is_lstm = others[0].shape[0] == LSTM_GATES * size
    # The gates are input, forget, cell, output; of a GRU reset, update, candidate.
    gates = (-CLOSED, CLOSED, 0.0, 0.0) if is_lstm else (0.0, CLOSED, 0.0)
    mark = torch.tensor(gates, dtype=data.dtype, device=data.device).repeat_interleave(size)
    parameters = [torch.cat((input_weight, mark[:, None]), 1), *others]
    marked = torch.cat((data, padding[..., None].to(data.dtype)), -1)
    first = data.new_zeros(1, data.shape[0], size)
    run: Any
    run, state = (torch.lstm, (first, first)) if is_lstm else (torch.gru, first)
    outputs, *last = run(marked, state, parameters, True, 1, 0.0, False, False, True)
    if is_lstm:  # after the end the output gate goes on
        end = (lengths - 1)[:, None, None].expand(-1, 1, size)
        last[0] = outputs.gather(1, end).transpose(0, 1)
    return outputs, *(tensor[0] for tensor in last)
