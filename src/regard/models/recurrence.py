"""LSTM and GRU layers: over a whole sequence, step by step in a decoder, and over rows of different lengths."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.distributed.sequence_parts import refuse_parts
from regard.errors import ShapeError, UnknownNameError
from regard.models.padded_recurrence import run_padded
from regard.tracing.module_calls import Module, is_observed
from regard.tracing.transforms import active_transform, has_data, is_on_host

CELLS = ("lstm", "gru")

_HAS_LSTM_IN_BFLOAT16 = torch.backends.cpu.get_cpu_capability() == "AVX512"
"""Whether PyTorch's LSTM runs on sequences in bfloat16 on this processor."""

State = tuple[Tensor, ...]
"""``(hidden, cell)`` of an LSTM or ``(hidden,)`` of a GRU, each ``[layers · directions, batch, hidden_size]``."""


class StepLSTM(nn.LSTM):
    """`torch.nn.LSTM` with ``batch_first`` that computes a single step by `torch.lstm_cell`.

    PyTorch's kernel for whole sequences takes twice as long for one step and its gradient.
    `torch.ao.quantization.quantize_dynamic` matches exact types, so it leaves a decoder's LSTM as it is.
    """

    def forward(self, input: Any, hx: Any = None) -> Any:
        if not _is_one_step(input, hx):
            return super().forward(input, hx)
        output, cells, after = input[:, 0], hx[1], []
        for layer, hidden in enumerate(hx[0]):
            output = _dropped(self, output) if layer else output
            weights = self.all_weights[layer]
            after.append(torch.lstm_cell(output, (hidden, cells[layer]), *weights))
            output = after[-1][0]
        return output[:, None], tuple(torch.stack(tensors) for tensors in zip(*after, strict=True))


class StepGRU(nn.GRU):
    """`torch.nn.GRU` likewise, by `torch.gru_cell`."""

    def forward(self, input: Any, hx: Any = None) -> Any:
        if not _is_one_step(input, hx):
            return super().forward(input, hx)
        output, after = input[:, 0], []
        for layer, hidden in enumerate(hx):
            output = _dropped(self, output) if layer else output
            output = torch.gru_cell(output, hidden, *self.all_weights[layer])
            after.append(output)
        return output[:, None], torch.stack(after)


def _is_one_step(input: Any, state: Any) -> bool:
    return isinstance(input, Tensor) and input.dim() == 3 and input.shape[1] == 1 and state is not None


def _dropped(rnn: nn.RNNBase, output: Tensor) -> Tensor:
    return nn.functional.dropout(output, rnn.dropout, rnn.training)


class Recurrence(Module):
    """LSTM (Hochreiter & Schmidhuber 1997, with forget biases of 1) or GRU (Cho et al. 2014) layers of a decoder, which
    run over a whole sequence or step by step. A decoder with attention runs step by step, because a part of its input
    (the context) depends on the steps before."""

    def __init__(self, cell: str, input_dim: int, hidden_dim: int, layers: int = 1, dropout: float = 0.0):
        super().__init__()
        if cell not in CELLS:
            raise UnknownNameError("cell", cell, CELLS)
        self.cell, self.hidden_dim, self.layers = cell, hidden_dim, layers
        kind = StepLSTM if cell == "lstm" else StepGRU
        self.rnn = kind(input_dim, hidden_dim, layers, batch_first=True, dropout=dropout if layers > 1 else 0.0)
        if cell == "lstm":
            initialize_forget_bias(self.rnn)

    @property
    def states(self) -> int:
        """Number of tensors in the state: 2 for LSTM, 1 for GRU."""
        return 2 if self.cell == "lstm" else 1

    def forward(self, inputs: Tensor, state: State) -> tuple[Tensor, State]:
        """Runs all layers over a sequence ``[batch, steps, input_dim]``, and returns the top layer's hidden states
        ``[batch, steps, hidden_dim]``, and the state, tensors ``[layers, batch, hidden_dim]``, after the last step.
        Raises ShapeError if a tensor of the state has another size."""
        refuse_parts("a recurrent layer")
        size = self.layers, inputs.shape[0], self.hidden_dim
        for tensor in state:
            if tensor.shape != size:
                raise ShapeError(f"each state must be {list(size)}; one is {list(tensor.shape)}")
        if inputs.shape[1] != 1 and _must_leave_autocast(inputs):
            with torch.autocast("cpu", enabled=False):
                return self._run(inputs.to(next(self.rnn.parameters()).dtype), state)
        return self._run(inputs, state)

    def _run(self, inputs: Tensor, state: State) -> tuple[Tensor, State]:
        before = tuple(tensor.to(inputs.dtype) for tensor in state)
        outputs, after = self.rnn(inputs, before if self.cell == "lstm" else before[0])
        return outputs, after if self.cell == "lstm" else (after,)

    def step(self, input: Tensor, state: State) -> tuple[Tensor, State]:
        """Calls the module for one step, of ``[batch, input_dim]``, and returns the top layer's hidden state
        ``[batch, hidden_dim]``, and the state after the step."""
        outputs, state = self(input[:, None], state)
        return outputs[:, 0], state


def run_sequences(rnn: nn.LSTM | nn.GRU, padded: Tensor, lengths: Tensor) -> tuple[Tensor, State]:
    """Runs an LSTM or GRU, as in `run_padded` and with ``batch_first``, over padded rows of different lengths; a row
    without a step has outputs and states of 0."""
    refuse_parts("a recurrent layer")
    if _must_leave_autocast(padded):
        with torch.autocast("cpu", enabled=False):
            return run_sequences(rnn, padded.to(next(rnn.parameters(), padded).dtype), lengths)
    if not has_data(lengths) or active_transform() is not None:
        run = run_padded
    elif not (padded.shape[0] and padded.shape[1]):
        directions = 2 if rnn.bidirectional else 1
        state = padded.new_zeros(rnn.num_layers * directions, padded.shape[0], rnn.hidden_size)
        outputs = padded.new_zeros(*padded.shape[:2], directions * rnn.hidden_size)
        return outputs, (state,) * (2 if isinstance(rnn, nn.LSTM) else 1)
    elif not is_on_host(lengths) and not is_observed(rnn):
        # Packing would wait for the lengths.
        run = run_padded
    else:
        lengths, run = lengths.cpu(), _run_packed
        if lengths.all():
            return run(rnn, padded, lengths)
    # PyTorch's layers take no empty row: it gets one step of zeros, whose results are replaced.
    empty = (lengths == 0).to(padded.device)
    outputs, last = run(rnn, padded.masked_fill(empty[:, None, None], 0), lengths.clamp(min=1))
    return (
        outputs.masked_fill(empty[:, None, None], 0),
        tuple(tensor.masked_fill(empty[:, None], 0) for tensor in last),
    )


def _must_leave_autocast(inputs: Tensor) -> bool:
    """Whether PyTorch's layers would fail on a sequence in the dtype of autocast, which is on."""
    if not (inputs.is_cpu and torch.is_autocast_enabled("cpu")):
        return False
    return torch.get_autocast_dtype("cpu") != torch.bfloat16 or not _HAS_LSTM_IN_BFLOAT16


def _run_packed(rnn: nn.LSTM | nn.GRU, padded: Tensor, lengths: Tensor) -> tuple[Tensor, State]:
    packed = pack_padded_sequence(padded, lengths, batch_first=True, enforce_sorted=False)
    outputs, last = rnn(packed)
    outputs, _ = pad_packed_sequence(outputs, batch_first=True, total_length=padded.shape[1])
    return outputs, last if isinstance(last, tuple) else (last,)


def initialize_forget_bias(rnn: nn.RNNBase) -> None:
    """Sets the forget biases of an LSTM to 1, so that gradients do not vanish at the start (Gers et al. 2000)."""
    for name, bias in rnn.named_parameters():
        if "bias" in name:
            H = rnn.hidden_size
            with torch.no_grad():
                bias[H : 2 * H] = 1.0 if "bias_ih" in name else 0.0
