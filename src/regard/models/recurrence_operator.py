"""A layer of an LSTM or GRU over padded rows as one operator of PyTorch, which compilers and exporters take as it is.

PyTorch fixes the number of steps of its own layers when it exports them, and packed rows fix the lengths as well. The
operator ``torch.ops.regard.recurrent_layer`` packs the rows when it runs; its backward pass computes the forward pass
again.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.library import Library, register_autograd, register_fake
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.errors import BackendError

LSTM_GATES = 4
"""A GRU has three."""

_ARGUMENTS = "Tensor padded, Tensor lengths, Tensor[] weights"
_LIBRARY = Library("regard", "FRAGMENT")
_LIBRARY.define(f"recurrent_layer({_ARGUMENTS}) -> (Tensor outputs, Tensor hidden, Tensor cell)")
_LIBRARY.define(
    f"recurrent_layer_backward(Tensor? grad_outputs, Tensor? grad_hidden, Tensor? grad_cell, {_ARGUMENTS}) -> Tensor[]"
)


def recurrent_layer(padded: Tensor, lengths: Tensor, weights: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The outputs of a layer, 0 after the end of a row, and the last states.

    Args:
        padded: ``[batch, steps, input_size]``.
        lengths: integers ``[batch]``, from 1 to ``steps``.
        weights: of one direction or both, each ``weight_ih, weight_hh, bias_ih, bias_hh`` as PyTorch has them.

    Returns:
        the outputs ``[batch, steps, directions · hidden_size]``, and the hidden states, and those of the cells of an
        LSTM, ``[directions, batch, hidden_size]``.
    """
    outputs, *last = torch.ops.regard.recurrent_layer(padded, lengths, list(weights))
    return outputs, *(last if _is_lstm(weights) else last[:1])


def _is_lstm(weights: Sequence[Tensor]) -> bool:
    rows, size = weights[1].shape
    return rows == LSTM_GATES * size


def _run(padded: Tensor, lengths: Tensor, weights: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    data, sizes, order, places = pack_padded_sequence(padded, lengths.cpu(), batch_first=True, enforce_sorted=False)
    assert places is not None
    is_lstm, directions = _is_lstm(weights), len(weights) // 4
    first = data.new_zeros(directions, padded.shape[0], weights[1].shape[1])
    run: Any
    run, state = (torch.lstm, (first, first)) if is_lstm else (torch.gru, first)
    found, *last = run(data, sizes, state, list(weights), True, 1, 0.0, False, directions == 2)
    packed = torch.nn.utils.rnn.PackedSequence(found, sizes, order, places)
    outputs, _ = pad_packed_sequence(packed, batch_first=True, total_length=padded.shape[1])
    hidden, cell = (tensor[:, places] for tensor in (last if is_lstm else (last[0], last[0])))
    return outputs, hidden, cell if is_lstm else cell.new_empty(0)


@torch.no_grad()
def _recurrent_layer(padded: Tensor, lengths: Tensor, weights: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return tuple(tensor.contiguous() for tensor in _run(padded, lengths, weights))


def _recurrent_layer_backward(
    grad_outputs: Tensor | None,
    grad_hidden: Tensor | None,
    grad_cell: Tensor | None,
    padded: Tensor,
    lengths: Tensor,
    weights: Sequence[Tensor],
) -> list[Tensor]:
    """Gradients of the input and of the weights."""
    leaves = [tensor.detach().requires_grad_() for tensor in (padded, *weights)]
    with torch.enable_grad():
        results = _run(leaves[0], lengths, leaves[1:])
        grads = grad_outputs, grad_hidden, grad_cell
        pairs = [pair for pair in zip(results, grads, strict=True) if pair[1] is not None]
        results, grads = zip(*pairs, strict=True)
        found = torch.autograd.grad(results, leaves, grads)
    return [grad.contiguous() for grad in found]


def _shapes(padded: Tensor, lengths: Tensor, weights: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    batch, steps, _ = padded.shape
    size, directions = weights[1].shape[1], len(weights) // 4
    state = padded.new_empty(directions, batch, size)
    cell = torch.empty_like(state) if _is_lstm(weights) else padded.new_empty(0)
    return padded.new_empty(batch, steps, directions * size), state, cell


def _shapes_backward(*given: Any) -> list[Tensor]:
    *_, padded, _, weights = given
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
