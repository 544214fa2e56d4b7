"""LSTM and GRU layers over padded rows of different lengths, in operations that do not depend on the lengths.

A compiler or an exporter records the operator ``torch.ops.regard.recurrent_layer`` for each layer: PyTorch fixes the
number of steps of its own layers when it exports them, and packed rows fix the lengths as well. The operator packs the
rows when it runs; its backward pass computes the forward pass again. Elsewhere (``torch.jit.trace``, transforms of
``torch.func``, meta tensors) a layer consists of PyTorch's own operations. So it does within
`regard.tracing.portable.portable_operations`, where two operators (`PORTABLE_OPERATORS`) stand for PyTorch's own while
a program is traced.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.library import Library, register_autograd, register_fake
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from regard.errors import BackendError, KindError
from regard.tracing.portable import is_portable

LSTM_GATES = 4
"""Gates of an LSTM; a GRU has three."""

PARAMETER_NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
"""Names of the parameters of a direction."""

GATE_SHIFT = 1e4
"""Added to or subtracted from the sum of a gate, it opens or closes the gate fully, in half precision too."""


def run_padded(rnn: nn.LSTM | nn.GRU, padded: Tensor, lengths: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Runs an LSTM or GRU, with biases and without projections, over rows ``[batch, steps, input_size]`` of different
    lengths, in operations that do not depend on the lengths; each row has a step.

    Returns the outputs of the top layer ``[batch, steps, directions · hidden_size]``, 0 after the end of a row, and the
    last states, each ``[layers · directions, batch, hidden_size]``.
    """
    if not isinstance(rnn, (nn.LSTM, nn.GRU)):
        raise KindError(
            f"a {type(rnn).__name__} that is no nn.LSTM or nn.GRU (a quantized one, for example) cannot be exported, "
            "traced or transformed by torch.func; export the model before it is quantized"
        )
    run = recurrent_layer if torch.compiler.is_compiling() and not is_portable() else _marked_layer
    suffixes = ("", "_reverse") if rnn.bidirectional else ("",)
    data, states = padded, []
    if torch.is_autocast_enabled(padded.device.type):
        # PyTorch has an LSTM in bfloat16 for some processors only.
        data = padded.to(next(rnn.parameters()).dtype)
    # Autocast would be an operation of its own in a portable program.
    with nullcontext() if is_portable() else torch.autocast(padded.device.type, enabled=False):
        for layer in range(rnn.num_layers):
            if layer:
                data = F.dropout(data, rnn.dropout, rnn.training)
            weights = [getattr(rnn, f"{name}_l{layer}{suffix}") for suffix in suffixes for name in PARAMETER_NAMES]
            data, *last = run(data, lengths, weights)
            states.append(last)
    return data, tuple(torch.cat(tensors) for tensors in zip(*states, strict=True))


def _marked_layer(padded: Tensor, lengths: Tensor, weights: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Computes `recurrent_layer` by PyTorch's operations on padded rows; the other direction reads each row reversed.

    One more feature of the input marks padding. It closes the input gate and opens the forget gate (of a GRU: the
    update gate), so that the state stays as it was after the row's last step.
    """
    time = torch.arange(padded.shape[1], device=padded.device)
    padding = time >= lengths[:, None]
    reversed_time = torch.where(padding, time, lengths[:, None] - 1 - time)[..., None]  # its own inverse
    data = padded.masked_fill(padding[..., None], 0)
    outputs, states = [], []
    for first in range(0, len(weights), len(PARAMETER_NAMES)):
        inputs = data.gather(1, reversed_time.expand_as(data)) if first else data
        hidden, *last = _marked_direction(weights[first : first + len(PARAMETER_NAMES)], inputs, padding, lengths)
        outputs.append(hidden.gather(1, reversed_time.expand_as(hidden)) if first else hidden)
        states.append(last)
    joined = torch.cat(outputs, dim=-1).masked_fill(padding[..., None], 0)
    return joined, *(torch.stack(tensors) for tensors in zip(*states, strict=True))


def _marked_direction(weights: Sequence[Tensor], data: Tensor, padding: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
    """Computes the outputs of one direction, and each row's last states."""
    input_weight, *others = weights
    size = others[0].shape[1]
    is_lstm = others[0].shape[0] == LSTM_GATES * size
    # The gates are input, forget, cell, output; of a GRU reset, update, candidate.
    gates = (-GATE_SHIFT, GATE_SHIFT, 0.0, 0.0) if is_lstm else (0.0, GATE_SHIFT, 0.0)
    mark = torch.cat([data.new_full((size,), gate) for gate in gates])
    parameters = [torch.cat((input_weight, mark[:, None]), 1), *others]
    if data.is_cuda and not is_portable():
        parameters = _joined(parameters)
    marked = torch.cat((data, padding[..., None].to(data.dtype)), -1)
    first = data.new_zeros(1, data.shape[0], size)
    run: Any
    run, state = (torch.lstm, (first, first)) if is_lstm else (torch.gru, first)
    if is_portable():
        run, state = (torch.ops.regard.lstm, [first, first]) if is_lstm else (torch.ops.regard.gru, first)
    # cuDNN has a backward pass for training alone.
    training = torch.is_grad_enabled() and not is_portable()
    outputs, *last = run(marked, state, parameters, True, 1, 0.0, training, False, True)
    if is_lstm:  # the output gate changes after the end, the state does not
        end = (lengths - 1)[:, None, None].expand(-1, 1, size)
        last[0] = outputs.gather(1, end).transpose(0, 1)
    return outputs, *(tensor[0] for tensor in last)


def _joined(parameters: Sequence[Tensor]) -> list[Tensor]:
    """Returns the parameters as views of one tensor, in the order in which cuDNN reads them without copying them."""
    joined = torch.cat([parameter.flatten() for parameter in parameters])
    parts = joined.split([parameter.numel() for parameter in parameters])
    return [part.view_as(parameter) for part, parameter in zip(parts, parameters, strict=True)]


_ARGUMENTS = "Tensor padded, Tensor lengths, Tensor[] weights"
_LIBRARY = Library("regard", "FRAGMENT")
_LIBRARY.define(f"recurrent_layer({_ARGUMENTS}) -> (Tensor outputs, Tensor hidden, Tensor cell)")
_LIBRARY.define(
    f"recurrent_layer_backward(Tensor? grad_outputs, Tensor? grad_hidden, Tensor? grad_cell, {_ARGUMENTS}) -> Tensor[]"
)


def recurrent_layer(padded: Tensor, lengths: Tensor, weights: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Computes the outputs of a layer ``[batch, steps, directions · hidden_size]``, 0 after the end of a row, and the
    last hidden states, and those of the cells of an LSTM, ``[directions, batch, hidden_size]``.

    ``weights`` are those of one direction or both, each ``weight_ih, weight_hh, bias_ih, bias_hh`` as PyTorch has them.
    """
    outputs, *last = torch.ops.regard.recurrent_layer(padded, lengths, list(weights))
    return outputs, *(last if _is_lstm(weights) else last[:1])


def _is_lstm(weights: Sequence[Tensor]) -> bool:
    rows, size = weights[1].shape
    return rows == LSTM_GATES * size


def _run_packed(padded: Tensor, lengths: Tensor, weights: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    data, sizes, order, unsorted = pack_padded_sequence(padded, lengths.cpu(), batch_first=True, enforce_sorted=False)
    assert unsorted is not None
    is_lstm, directions = _is_lstm(weights), len(weights) // 4
    first = data.new_zeros(directions, padded.shape[0], weights[1].shape[1])
    run: Any
    run, state = (torch.lstm, (first, first)) if is_lstm else (torch.gru, first)
    # cuDNN has a backward pass for training alone.
    data, *last = run(data, sizes, state, list(weights), True, 1, 0.0, torch.is_grad_enabled(), directions == 2)
    packed = PackedSequence(data, sizes, order, unsorted)
    outputs, _ = pad_packed_sequence(packed, batch_first=True, total_length=padded.shape[1])
    hidden, cell = (tensor[:, unsorted] for tensor in (last if is_lstm else (last[0], last[0])))
    return outputs, hidden, cell if is_lstm else cell.new_empty(0)


@torch.no_grad()
def _recurrent_layer(padded: Tensor, lengths: Tensor, weights: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return tuple(tensor.contiguous() for tensor in _run_packed(padded, lengths, weights))


def _recurrent_layer_backward(
    grad_outputs: Tensor | None,
    grad_hidden: Tensor | None,
    grad_cell: Tensor | None,
    padded: Tensor,
    lengths: Tensor,
    weights: Sequence[Tensor],
) -> list[Tensor]:
    """Computes the gradients of the input and of the weights."""
    leaves = [tensor.detach().requires_grad_() for tensor in (padded, *weights)]
    with torch.enable_grad():
        results = _run_packed(leaves[0], lengths, leaves[1:])
        grads = grad_outputs, grad_hidden, grad_cell
        pairs = [pair for pair in zip(results, grads, strict=True) if pair[1] is not None]
        results, grads = zip(*pairs, strict=True)
        return [grad.contiguous() for grad in torch.autograd.grad(results, leaves, grads)]


def _shapes(padded: Tensor, lengths: Tensor, weights: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    batch, steps, _ = padded.shape
    size, directions = weights[1].shape[1], len(weights) // 4
    state = padded.new_empty(directions, batch, size)
    cell = torch.empty_like(state) if _is_lstm(weights) else padded.new_empty(0)
    return padded.new_empty(batch, steps, directions * size), state, cell


def _shapes_backward(*arguments: Any) -> list[Tensor]:
    *_, padded, _, weights = arguments
    return [torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in (padded, *weights)]


def _save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    padded, lengths, weights = inputs
    ctx.save_for_backward(padded, lengths, *weights)
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
    if torch.is_grad_enabled():
        raise BackendError("an operator of regard has no second derivative; call regard outside of what is compiled")
    padded, lengths, *weights = ctx.saved_tensors
    if all(grad is None for grad in grads):
        return None, None, [None] * len(weights)
    grad_padded, *grad_weights = torch.ops.regard.recurrent_layer_backward(*grads, padded, lengths, weights)
    return grad_padded, None, grad_weights


for _name, _implementation, _fake in (
    ("recurrent_layer", _recurrent_layer, _shapes),
    ("recurrent_layer_backward", _recurrent_layer_backward, _shapes_backward),
):
    _LIBRARY.impl(_name, _implementation, "CompositeExplicitAutograd")
    register_fake(f"regard::{_name}", _fake, lib=_LIBRARY)
register_autograd("regard::recurrent_layer", _differentiate, setup_context=_save, lib=_LIBRARY)


_OPTIONS = (
    "Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first"
)
_LIBRARY.define(f"lstm(Tensor input, Tensor[] hx, {_OPTIONS}) -> (Tensor, Tensor, Tensor)")
_LIBRARY.define(f"gru(Tensor input, Tensor hx, {_OPTIONS}) -> (Tensor, Tensor)")


def _lstm_shapes(input: Tensor, state: Sequence[Tensor], *options: Any) -> tuple[Tensor, Tensor, Tensor]:
    hidden, cell = state
    return _steps_shape(input, hidden), torch.empty_like(hidden), torch.empty_like(cell)


def _gru_shapes(input: Tensor, hidden: Tensor, *options: Any) -> tuple[Tensor, Tensor]:
    return _steps_shape(input, hidden), torch.empty_like(hidden)


def _steps_shape(input: Tensor, hidden: Tensor) -> Tensor:
    return input.new_empty(*input.shape[:2], hidden.shape[2])


for _name, _run, _fake in (("lstm", torch.lstm, _lstm_shapes), ("gru", torch.gru, _gru_shapes)):
    _LIBRARY.impl(_name, _run, "CompositeExplicitAutograd")
    register_fake(f"regard::{_name}", _fake, lib=_LIBRARY)

PORTABLE_OPERATORS = {
    torch.ops.regard.lstm.default: torch.ops.aten.lstm.input,
    torch.ops.regard.gru.default: torch.ops.aten.gru.input,
}
"""One layer in one direction, with ``batch_first``, while a portable program is traced → the operator of PyTorch with
the same arguments and results. PyTorch's exporter would take its own operator apart, into a fixed number of steps."""
