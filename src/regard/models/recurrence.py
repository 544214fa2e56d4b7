"""LSTM and GRU layers that run over a whole sequence with a fused kernel, or step by step.

A decoder with attention runs step by step, because a part of its input (the context) depends on the steps before.
Two computations are done once for all steps: the product of the known part of the input (the embedded tokens) with its
weights, before the loop; and the gradients of all weights, after the loop of the backward pass
(`regard.models.shared_weight`).
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from regard.errors import UnknownNameError
from regard.models.shared_weight import SharedWeight, compute_dtype

CELLS = ("lstm", "gru")

LayerState = tuple[Tensor, ...]
"""``(hidden, cell)`` of one LSTM layer or ``(hidden,)`` of one GRU layer, each ``[batch, hidden_dim]``."""


class Recurrence(nn.Module):
    """LSTM or GRU layers that run over a whole sequence (`forward`) or step by step (`unroll`).

    Args:
        cell: ``"lstm"`` (Hochreiter & Schmidhuber 1997, with forget biases of 1) or ``"gru"`` (Cho et al.
            2014).
        input_dim: features of the input.
        hidden_dim: features of each layer's state.
        layers: number of layers.
        dropout: rate between layers.
    """

    def __init__(self, cell: str, input_dim: int, hidden_dim: int, layers: int = 1, dropout: float = 0.0):
        super().__init__()
        if cell not in CELLS:
            raise UnknownNameError("cell", cell, CELLS)
        self.cell, self.hidden_dim, self.layers, self.dropout = cell, hidden_dim, layers, dropout
        kind = nn.LSTM if cell == "lstm" else nn.GRU
        self.rnn = kind(input_dim, hidden_dim, layers, batch_first=True, dropout=dropout if layers > 1 else 0.0)
        if cell == "lstm":
            initialize_forget_bias(self.rnn)

    @property
    def states(self) -> int:
        """Number of tensors in the state of one layer: 2 for LSTM, 1 for GRU."""
        return 2 if self.cell == "lstm" else 1

    def forward(self, inputs: Tensor, state: tuple[LayerState, ...]) -> tuple[Tensor, tuple[LayerState, ...]]:
        """Run all layers over a whole sequence with the fused kernel.

        Args:
            inputs: ``[batch, steps, input_dim]``.
            state: one `LayerState` for each layer.

        Returns:
            the top layer's hidden states ``[batch, steps, hidden_dim]``, and the state after the last step.
        """
        packed = [torch.stack(tensors).to(inputs.dtype) for tensors in zip(*state, strict=True)]  # each L B H
        outputs, last = self.rnn(inputs, tuple(packed) if self.cell == "lstm" else packed[0])
        tensors = last if self.cell == "lstm" else (last,)
        return outputs, tuple(zip(*(tensor.unbind(0) for tensor in tensors), strict=True))

    def unroll(self, known: Tensor) -> "Unrolled":
        """Prepare to run step by step; the first features of all inputs are known before the first step.

        Args:
            known: ``[batch, steps, known_dim]``; the other features are an argument of each step.
        """
        return Unrolled(self, known)


class Unrolled:
    """Runs a `Recurrence` step by step over one sequence."""

    def __init__(self, recurrence: Recurrence, known: Tensor):
        self._steps = _LSTMStep if recurrence.cell == "lstm" else _GRUStep
        self._dropout = recurrence.dropout if recurrence.training else 0.0
        dtype = compute_dtype(known)
        width = known.shape[-1]
        time_first = known.transpose(0, 1)
        self._layers: list[_UnrolledLayer] = []
        for layer in range(recurrence.layers):
            parameters = (f"{name}_l{layer}" for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
            input_weight, hidden_weight, input_bias, hidden_bias = (
                getattr(recurrence.rnn, name) for name in parameters
            )
            # The reset gate of a GRU multiplies the hidden bias of the candidate, so the two biases stay separate.
            bias = input_bias + hidden_bias if recurrence.cell == "lstm" else input_bias
            if layer == 0:
                known_gates = F.linear(time_first, input_weight[:, :width], bias).unbind(0)
                input_weight = input_weight[:, width:]
            else:
                known_gates = bias.to(dtype).expand(*time_first.shape[:2], -1).unbind(0)
            self._layers.append(
                _UnrolledLayer(
                    known=known_gates,
                    fed=SharedWeight(input_weight, None, dtype),
                    hidden=SharedWeight(hidden_weight, hidden_bias if recurrence.cell == "gru" else None, dtype),
                )
            )

    def step(self, time: int, fed: Tensor, state: tuple[LayerState, ...]) -> tuple[Tensor, tuple[LayerState, ...]]:
        """Run all layers for one step.

        Args:
            time: index of the step.
            fed: ``[batch, input_dim − known_dim]``: the other features of this step's input.
            state: one `LayerState` for each layer.

        Returns:
            the top layer's hidden state ``[batch, hidden_dim]``, and the state of all layers.
        """
        after = []
        for depth, (layer, before) in enumerate(zip(self._layers, state, strict=True)):
            if depth:
                fed = F.dropout(fed, self._dropout, training=self._dropout > 0)
            after.append(self._steps.advance(layer, layer.known[time], fed, before))
            fed = after[-1][0]
        return fed, tuple(after)


class _UnrolledLayer(NamedTuple):
    """One layer of an `Unrolled`.

    Attributes:
        known: the known inputs times their weights, plus the bias: ``[batch, gates · hidden_dim]`` for each step.
        fed: weights of the other features of the input.
        hidden: weights of the hidden state.
    """

    known: tuple[Tensor, ...]
    fed: SharedWeight
    hidden: SharedWeight


class _LSTMStep(torch.autograd.Function):
    """i, f, o = σ(·), g = tanh(·) of known + W fed + U hidden; cell' = f cell + i g; hidden' = o tanh(cell').

    Under autocast the gates and the cell state are float32, since the cell state is a sum over all steps.
    """

    @classmethod
    def advance(cls, layer: _UnrolledLayer, known: Tensor, fed: Tensor, before: LayerState) -> LayerState:
        if torch.compiler.is_compiling():
            return _lstm_step(known, fed, before, layer.fed.weight, layer.hidden.weight)
        return cls.apply(known, fed, *before, layer.fed, layer.hidden, layer.fed.weight, layer.hidden.weight)

    @staticmethod
    def forward(
        ctx: Any,
        known: Tensor,
        fed: Tensor,
        hidden: Tensor,
        cell: Tensor,
        fed_uses: SharedWeight,
        hidden_uses: SharedWeight,
        fed_weight: Tensor,
        hidden_weight: Tensor,
    ) -> tuple[Tensor, Tensor]:
        ctx.dtypes = fed.dtype, hidden.dtype, cell.dtype
        fed, hidden = fed.to(known.dtype), hidden.to(known.dtype)
        H = hidden.shape[1]
        gates = torch.addmm(known, fed, fed_weight.t()).addmm_(hidden, hidden_weight.t())
        gates = gates if gates.dtype == torch.float64 else gates.float()
        gates[:, : 2 * H].sigmoid_()
        gates[:, 2 * H : 3 * H].tanh_()
        gates[:, 3 * H :].sigmoid_()
        i, f, g, o = gates.chunk(4, dim=1)
        cell = cell.to(gates.dtype)
        after = (f * cell).addcmul_(i, g)
        tanh_cell = after.tanh()
        output = o * tanh_cell
        ctx.uses = fed_uses, hidden_uses
        ctx.save_for_backward(gates, cell, tanh_cell, fed, hidden, fed_weight, hidden_weight)
        return output.to(known.dtype), after

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_hidden: Tensor, grad_cell: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        gates, cell, tanh_cell, fed, hidden, fed_weight, hidden_weight = ctx.saved_tensors
        i, f, g, o = gates.chunk(4, dim=1)
        grad_hidden = grad_hidden.to(gates.dtype)
        grad_cell = torch.addcmul(grad_cell, grad_hidden * o, 1 - tanh_cell.square())
        grad_gates = torch.empty_like(gates)
        grad_i, grad_f, grad_g, grad_o = grad_gates.chunk(4, dim=1)
        torch.mul(grad_cell, g, out=grad_i)
        torch.mul(grad_cell, cell, out=grad_f)
        torch.mul(grad_cell, i, out=grad_g)
        torch.mul(grad_hidden, tanh_cell, out=grad_o)
        H = hidden.shape[1]
        for rows in (slice(0, 2 * H), slice(3 * H, 4 * H)):
            gate = gates[:, rows]
            grad_gates[:, rows].mul_(torch.addcmul(gate, gate, gate, value=-1))  # σ' = σ − σ²
        grad_g.mul_(1 - g.square())
        grad_gates = grad_gates.to(fed.dtype)
        for uses, inputs in zip(ctx.uses, (fed, hidden), strict=True):
            uses.add(inputs, grad_gates)
        fed_dtype, hidden_dtype, cell_dtype = ctx.dtypes
        return (
            grad_gates, (grad_gates @ fed_weight).to(fed_dtype), (grad_gates @ hidden_weight).to(hidden_dtype),
            (grad_cell * f).to(cell_dtype), None, None, None, None,
        )  # fmt: skip


class _GRUStep(torch.autograd.Function):
    """r, z = σ(·); n = tanh(known + W fed + r (U hidden + b)); hidden' = (1 − z) n + z hidden."""

    @classmethod
    def advance(cls, layer: _UnrolledLayer, known: Tensor, fed: Tensor, before: LayerState) -> LayerState:
        if torch.compiler.is_compiling():
            return _gru_step(known, fed, before, layer.fed.weight, layer.hidden)
        shared = layer.fed, layer.hidden, layer.fed.weight, layer.hidden.weight, layer.hidden.bias
        return (cls.apply(known, fed, *before, *shared),)

    @staticmethod
    def forward(
        ctx: Any,
        known: Tensor,
        fed: Tensor,
        hidden: Tensor,
        fed_uses: SharedWeight,
        hidden_uses: SharedWeight,
        fed_weight: Tensor,
        hidden_weight: Tensor,
        hidden_bias: Tensor,
    ) -> Tensor:
        ctx.dtypes = fed.dtype, hidden.dtype
        fed, hidden = fed.to(known.dtype), hidden.to(known.dtype)
        H = hidden.shape[1]
        input_gates = torch.addmm(known, fed, fed_weight.t())
        hidden_gates = torch.addmm(hidden_bias, hidden, hidden_weight.t())
        if known.dtype != torch.float64:
            input_gates, hidden_gates = input_gates.float(), hidden_gates.float()
        gates = input_gates[:, : 2 * H].add_(hidden_gates[:, : 2 * H]).sigmoid_()
        r, z = gates.chunk(2, dim=1)
        hidden_candidate = hidden_gates[:, 2 * H :]
        n = torch.addcmul(input_gates[:, 2 * H :], r, hidden_candidate).tanh_()
        output = torch.addcmul(n, z, hidden - n)
        ctx.uses = fed_uses, hidden_uses
        ctx.save_for_backward(gates, n, hidden_candidate, fed, hidden, fed_weight, hidden_weight)
        return output.to(known.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        gates, n, hidden_candidate, fed, hidden, fed_weight, hidden_weight = ctx.saved_tensors
        r, z = gates.chunk(2, dim=1)
        H = hidden.shape[1]
        grad = grad_output.to(gates.dtype)
        grad_input_gates = torch.empty(len(grad), 3 * H, dtype=grad.dtype, device=grad.device)
        grad_r, grad_z, grad_n = grad_input_gates.chunk(3, dim=1)
        torch.mul(grad * (1 - z), 1 - n.square(), out=grad_n)
        torch.mul(grad_n, hidden_candidate, out=grad_r)
        torch.mul(grad, hidden - n, out=grad_z)
        grad_input_gates[:, : 2 * H].mul_(torch.addcmul(gates, gates, gates, value=-1))
        grad_hidden_gates = grad_input_gates.clone()
        grad_hidden_gates[:, 2 * H :].mul_(r)
        grad_input_gates, grad_hidden_gates = grad_input_gates.to(fed.dtype), grad_hidden_gates.to(fed.dtype)
        fed_uses, hidden_uses = ctx.uses
        fed_uses.add(fed, grad_input_gates)
        hidden_uses.add(hidden, grad_hidden_gates)
        grad_hidden = (grad * z).add_(grad_hidden_gates @ hidden_weight)
        fed_dtype, hidden_dtype = ctx.dtypes
        return (
            grad_input_gates, (grad_input_gates @ fed_weight).to(fed_dtype), grad_hidden.to(hidden_dtype),
            None, None, None, None, None,
        )  # fmt: skip


def _lstm_step(
    known: Tensor, fed: Tensor, before: LayerState, fed_weight: Tensor, hidden_weight: Tensor
) -> tuple[Tensor, Tensor]:
    """The equations of `_LSTMStep` in single operations, for compilers."""
    hidden, cell = before
    gates = known + F.linear(fed.to(known.dtype), fed_weight) + F.linear(hidden.to(known.dtype), hidden_weight)
    gates = gates if gates.dtype == torch.float64 else gates.float()
    i, f, g, o = gates.chunk(4, dim=1)
    after = f.sigmoid() * cell.to(gates.dtype) + i.sigmoid() * g.tanh()
    return (o.sigmoid() * after.tanh()).to(known.dtype), after


def _gru_step(
    known: Tensor, fed: Tensor, before: LayerState, fed_weight: Tensor, hidden_weight: SharedWeight
) -> tuple[Tensor]:
    """The equations of `_GRUStep` in single operations, for compilers."""
    hidden = before[0].to(known.dtype)
    input_gates = known + F.linear(fed.to(known.dtype), fed_weight)
    hidden_gates = F.linear(hidden, hidden_weight.weight, hidden_weight.bias)
    if known.dtype != torch.float64:
        input_gates, hidden_gates = input_gates.float(), hidden_gates.float()
    input_reset, input_update, input_candidate = input_gates.chunk(3, dim=1)
    hidden_reset, hidden_update, hidden_candidate = hidden_gates.chunk(3, dim=1)
    r, z = (input_reset + hidden_reset).sigmoid(), (input_update + hidden_update).sigmoid()
    n = (input_candidate + r * hidden_candidate).tanh()
    return ((n + z * (hidden - n)).to(known.dtype),)


def initialize_forget_bias(rnn: nn.RNNBase) -> None:
    """Set the forget biases of an LSTM to 1, so that gradients do not vanish at the start (Gers et al. 2000)."""
    for name, bias in rnn.named_parameters():
        if "bias" in name:
            H = rnn.hidden_size
            with torch.no_grad():
                bias[H : 2 * H] = 1.0 if "bias_ih" in name else 0.0
