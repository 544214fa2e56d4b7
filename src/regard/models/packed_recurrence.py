"""LSTM and GRU layers over packed rows of different lengths, with a backward pass in linear time.

PyTorch's own loop over packed rows on a CPU takes the inputs of each step as a slice of one matrix of all steps.
The gradient of a slice is a matrix of zeros of the size of that whole matrix, so its backward pass writes and adds such
a matrix for each step. Here the matrix is split into the steps once; the gradient of the split is one concatenation.
All other operations are those of PyTorch, in their order: outputs and gradients have the same bits.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

State = tuple[Tensor, ...]
"""``(hidden, cell)`` of an LSTM or ``(hidden,)`` of a GRU, each ``[rows, hidden_size]``."""

Cell = Callable[[Tensor, State, Tensor, Tensor], State]


def run_packed(rnn: nn.LSTM | nn.GRU, packed: PackedSequence) -> tuple[PackedSequence, State]:
    """What ``rnn(packed)`` gives, bit for bit; the first state is zeros.

    Args:
        rnn: a bidirectional LSTM or GRU with biases and without projections.
        packed: rows that were packed with ``enforce_sorted=False``.

    Returns:
        the outputs of the top layer, and the last states: each tensor ``[layers · 2, batch, hidden_size]``.
    """
    wanted = torch.is_grad_enabled() and packed.data.device.type == "cpu"
    if not wanted or torch.compiler.is_compiling():
        outputs, last = rnn(packed)
        return outputs, last if isinstance(last, tuple) else (last,)
    sizes = packed.batch_sizes.tolist()
    data, states = packed.data, []
    for layer in range(rnn.num_layers):
        if layer:
            data = F.dropout(data, rnn.dropout, rnn.training)
        directions = [_direction(rnn, f"_l{layer}{suffix}", data, sizes) for suffix in ("", "_reverse")]
        data = torch.cat([outputs for outputs, _ in directions], dim=-1)
        states.extend(last for _, last in directions)
    assert packed.unsorted_indices is not None
    last = tuple(torch.stack(tensors)[:, packed.unsorted_indices] for tensors in zip(*states, strict=True))
    return packed._replace(data=data), last


def _direction(rnn: nn.LSTM | nn.GRU, suffix: str, data: Tensor, sizes: list[int]) -> tuple[Tensor, State]:
    # One direction of one layer: outputs like ``data``, and the last state of each row. ``sizes``: rows of each step;
    # they decrease, since the longest rows come first.
    input_weight, hidden_weight, input_bias, hidden_bias = (
        getattr(rnn, name + suffix) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    cell: Cell = _lstm_cell if isinstance(rnn, nn.LSTM) else _gru_cell
    known = F.linear(data, input_weight, input_bias).split(sizes)
    zeros = (data.new_zeros(sizes[0], rnn.hidden_size),) * (2 if isinstance(rnn, nn.LSTM) else 1)
    backwards = suffix.endswith("_reverse")
    state: State = tuple(zero[: sizes[-1 if backwards else 0]] for zero in zeros)
    outputs: list[Tensor] = []
    ended: list[State] = []  # last states of the rows that are shorter than the step
    for step in range(len(sizes) - 1, -1, -1) if backwards else range(len(sizes)):
        rows, before = sizes[step], len(state[0])
        if rows < before:
            ended.append(tuple(tensor[rows:] for tensor in state))
            state = tuple(tensor[:rows] for tensor in state)
        elif rows > before:
            state = tuple(torch.cat([tensor, zero[before:rows]]) for tensor, zero in zip(state, zeros, strict=True))
        state = cell(known[step], state, hidden_weight, hidden_bias)
        outputs.append(state[0])
    if backwards:
        return torch.cat(outputs[::-1]), state
    parts = [state, *reversed(ended)]
    return torch.cat(outputs), tuple(torch.cat(tensors) for tensors in zip(*parts, strict=True))


def _lstm_cell(known: Tensor, before: State, weight: Tensor, bias: Tensor) -> State:
    """One step; ``known`` is the product of the input."""
    hidden, cell = before
    # Nothing else sees the gates, so that each may change in place, as in PyTorch's own step.
    i, f, g, o = torch.unsafe_chunk(F.linear(hidden, weight, bias).add_(known), 4, dim=1)
    after = (f.sigmoid_() * cell).add_(i.sigmoid_() * g.tanh_())
    return o.sigmoid_() * after.tanh(), after


def _gru_cell(known: Tensor, before: State, weight: Tensor, bias: Tensor) -> State:
    """One step; ``known`` is the product of the input."""
    (hidden,) = before
    known_reset, known_update, known_candidate = torch.unsafe_chunk(known, 3, dim=1)
    reset, update, candidate = torch.unsafe_chunk(F.linear(hidden, weight, bias), 3, dim=1)
    reset, update = reset.add_(known_reset).sigmoid_(), update.add_(known_update).sigmoid_()
    candidate = known_candidate.add(candidate.mul_(reset)).tanh_()
    return ((hidden - candidate).mul_(update).add_(candidate),)
