"""LSTM and GRU layers that run over a whole sequence with a fused kernel, or step by step.

A decoder with attention runs step by step, because a part of its input (the context) depends on the steps before.
Two computations are done once for all steps: the product of the known part of the input (the embedded tokens) with its
weights, before the loop; and the gradients of all weights, after the loop of the backward pass
(`regard.models.step_products`).
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from regard.errors import ShapeError, UnknownNameError
from regard.models.cell_equations import gru_step, gru_step_gradients, lstm_step, lstm_step_gradients
from regard.models.step_products import StepProducts, compute_dtype, replaces_autocast
from regard.module_calls import call_with, is_observed, runs
from regard.nn.matrix_products import grad_input, product, product_dtype
from regard.transforms import is_alias

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
        if not replaces_autocast(inputs):
            return self._run(inputs, state)
        with torch.autocast(inputs.device.type, enabled=False):
            return self._run(inputs.to(next(self.rnn.parameters()).dtype), state)

    def _run(self, inputs: Tensor, state: tuple[LayerState, ...]) -> tuple[Tensor, tuple[LayerState, ...]]:
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
        self._cell = _LSTMStep if recurrence.cell == "lstm" else _GRUStep
        self._dropout = recurrence.dropout if recurrence.training else 0.0
        self._size = len(known), recurrence.hidden_dim
        self._recurrence, self._known = recurrence, known
        self._runs_own = runs(recurrence.rnn, nn.LSTM.forward) or runs(recurrence.rnn, nn.GRU.forward)
        if not self._runs_own:
            # Another module stands in the place of the layers, whose weights are not known.
            return
        dtype = compute_dtype(known)
        of_products = product_dtype(dtype, known.device)
        width = known.shape[-1]
        time_first = known.transpose(0, 1)
        self._layers: list[tuple[StepProducts, ...]] = []
        for layer in range(recurrence.layers):
            parameters = (f"{name}_l{layer}" for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
            input_weight, hidden_weight, input_bias, hidden_bias = (
                getattr(recurrence.rnn, name) for name in parameters
            )
            # The reset gate of a GRU multiplies the hidden bias of the candidate, so the two sums stay separate.
            bias = input_bias + hidden_bias if recurrence.cell == "lstm" else input_bias
            if layer == 0:
                known_weight, input_weight = input_weight.split([width, input_weight.shape[1] - width], dim=1)
                if len(time_first) > 1:
                    # Read at each step.
                    input_weight = input_weight.contiguous()
                sums = _linear(time_first, known_weight, bias, of_products)
            else:
                sums = bias.to(of_products).expand(*time_first.shape[:2], -1)
            steps = len(time_first)
            if recurrence.cell == "lstm":
                self._layers.append((StepProducts((input_weight, hidden_weight), None, sums, steps, dtype),))
            else:
                of_input = StepProducts((input_weight,), None, sums, steps, dtype)
                self._layers.append((of_input, StepProducts((hidden_weight,), hidden_bias, None, steps, dtype)))

    def step(self, time: int, fed: Tensor, state: tuple[LayerState, ...]) -> tuple[Tensor, tuple[LayerState, ...]]:
        """Run all layers for one step.

        Args:
            time: index of the step.
            fed: ``[batch, input_dim − known_dim]``: the other features of this step's input.
            state: one `LayerState` for each layer.

        Returns:
            the top layer's hidden state ``[batch, hidden_dim]``, and the state of all layers.

        Raises:
            ShapeError: a state is not ``[batch, hidden_dim]``.
        """
        for tensor in (tensor for layer in state for tensor in layer):
            if tensor.shape != self._size:
                raise ShapeError(f"each state must be {list(self._size)}; one is {list(tensor.shape)}")
        if not self._runs_own or (is_observed(self._recurrence.rnn) and not torch.compiler.is_compiling()):
            return self._call(time, fed, state)
        return self._step(time, fed, state)

    def _call(self, time: int, fed: Tensor, state: tuple[LayerState, ...]) -> tuple[Tensor, tuple[LayerState, ...]]:
        """`step` by a call of the module of the layers, which hooks see."""
        rnn, lstm = self._recurrence.rnn, self._recurrence.cell == "lstm"
        input = torch.cat([self._known[:, time], fed.to(self._known.dtype)], dim=-1)[:, None]
        before = [torch.stack(tensors).to(input.dtype) for tensors in zip(*state, strict=True)]  # each L B H
        given = tuple(before) if lstm else before[0]

        def forward(changed: Tensor, first: Any = None) -> tuple[Tensor, Any]:
            of_state = first is given or (isinstance(first, Tensor) and not lstm and is_alias(first, before[0]))
            if not of_state or not is_alias(changed, input):
                return type(rnn).forward(rnn, changed, first)  # pyright: ignore
            outputs, last = changed, first
            own = changed is input and first is given
            if not own:
                # A backward hook gave the arguments nodes of their own, which the gradients pass; the numbers, and what
                # dropout draws, must be those without it.
                with torch.random.fork_rng([input.device] if input.is_cuda else []):
                    outputs, last = type(rnn).forward(rnn, changed, first)  # pyright: ignore
            with torch.set_grad_enabled(own and torch.is_grad_enabled()):
                hidden, after = self._step(time, fed, state)
                exact = [hidden[:, None], *(torch.stack(tensors) for tensors in zip(*after, strict=True))]
            if not own:
                exact = [
                    _with_numbers(*pair) for pair in zip((outputs, *(last if lstm else (last,))), exact, strict=True)
                ]
            return exact[0], tuple(exact[1:]) if lstm else exact[1]

        outputs, last = call_with(rnn, forward, input, given) if self._runs_own else rnn(input, given)
        tensors = last if lstm else (last,)
        return outputs[:, 0], tuple(zip(*(tensor.unbind(0) for tensor in tensors), strict=True))

    def _step(self, time: int, fed: Tensor, state: tuple[LayerState, ...]) -> tuple[Tensor, tuple[LayerState, ...]]:
        after = []
        for depth, (layer, before) in enumerate(zip(self._layers, state, strict=True)):
            if depth:
                fed = F.dropout(fed, self._dropout, training=self._dropout > 0)
            after.append(self._cell.advance(layer, time, fed, before))
            fed = after[-1][0]
        return fed, tuple(after)


def _with_numbers(tensor: Tensor, exact: Tensor) -> Tensor:
    """The numbers of ``exact``, whose gradient is that of ``tensor``."""
    copied = tensor.to(exact.dtype, copy=True)
    with torch.no_grad():
        copied.copy_(exact)
    return copied


def _linear(inputs: Tensor, weight: Tensor, bias: Tensor, dtype: torch.dtype) -> Tensor:
    """`torch.nn.functional.linear` in a dtype, also where autocast has another one."""
    if compute_dtype(inputs) == dtype:
        return F.linear(inputs, weight, bias)
    with torch.autocast(inputs.device.type, enabled=False):
        return F.linear(inputs.to(dtype), weight.to(dtype), bias.to(dtype))


class _LSTMStep(torch.autograd.Function):
    """i, f, o = σ(·), g = tanh(·) of known + W fed + U hidden; cell' = f cell + i g; hidden' = o tanh(cell').

    Under autocast the gates and the cell state are float32, since the cell state is a sum over all steps.
    """

    @classmethod
    def advance(cls, layer: tuple[StepProducts, ...], time: int, fed: Tensor, before: LayerState) -> LayerState:
        (products,) = layer
        if torch.compiler.is_compiling():
            hidden, cell = _lstm_step(products.known[time], fed, before, *products.weights)
            return hidden.to(products.dtype), cell
        return cls.apply(products, time, fed, *before, *products.weights)

    @staticmethod
    def forward(
        ctx: Any,
        products: StepProducts,
        time: int,
        fed: Tensor,
        hidden: Tensor,
        cell: Tensor,
        fed_weight: Tensor,
        hidden_weight: Tensor,
    ) -> tuple[Tensor, Tensor]:
        known = products.known[time]
        ctx.dtypes = fed.dtype, hidden.dtype, cell.dtype
        fed, hidden = fed.to(known.dtype), hidden.to(known.dtype)
        gates = product(hidden, hidden_weight, product(fed, fed_weight, known), reuses=True)
        gates = gates if gates.dtype == torch.float64 else gates.float()
        cell = cell.to(gates.dtype)
        after, tanh_after, output = (torch.empty_like(cell) for _ in range(3))
        lstm_step(gates, cell, after, tanh_after, output)
        ctx.sums, ctx.time = products.gradients, time
        ctx.save_for_backward(gates, cell, tanh_after, fed, hidden, fed_weight, hidden_weight)
        return output.to(products.dtype), after

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_hidden: Tensor, grad_cell: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        gates, cell, tanh_after, fed, hidden, fed_weight, hidden_weight = ctx.saved_tensors
        grad_sum = ctx.sums.gradient(ctx.time, (fed, hidden))
        grad_gates = grad_sum if grad_sum.dtype == gates.dtype else torch.empty_like(gates)
        grad_cell = torch.empty_like(cell).copy_(grad_cell)
        lstm_step_gradients(gates, cell, tanh_after, grad_hidden.to(gates.dtype), grad_cell, grad_gates)
        if grad_gates is not grad_sum:
            grad_sum.copy_(grad_gates)
        fed_dtype, hidden_dtype, cell_dtype = ctx.dtypes
        return (
            None, None, grad_input(grad_sum, fed_weight).to(fed_dtype),
            grad_input(grad_sum, hidden_weight).to(hidden_dtype),
            grad_cell.to(cell_dtype), None, None,
        )  # fmt: skip


class _GRUStep(torch.autograd.Function):
    """r, z = σ(·); n = tanh(known + W fed + r (U hidden + b)); hidden' = (1 − z) n + z hidden."""

    @classmethod
    def advance(cls, layer: tuple[StepProducts, ...], time: int, fed: Tensor, before: LayerState) -> LayerState:
        of_input, of_hidden = layer
        if torch.compiler.is_compiling():
            return (_gru_step(of_input.known[time], fed, before, of_input.weights[0], of_hidden).to(of_input.dtype),)
        return (cls.apply(layer, time, fed, *before, *of_input.weights, *of_hidden.weights, of_hidden.bias),)

    @staticmethod
    def forward(
        ctx: Any,
        layer: tuple[StepProducts, ...],
        time: int,
        fed: Tensor,
        hidden: Tensor,
        fed_weight: Tensor,
        hidden_weight: Tensor,
        hidden_bias: Tensor,
    ) -> Tensor:
        known = layer[0].known[time]
        ctx.dtypes = fed.dtype, hidden.dtype
        fed, hidden = fed.to(known.dtype), hidden.to(known.dtype)
        gates = product(fed, fed_weight, known)
        recurrent = product(hidden, hidden_weight, hidden_bias)
        if known.dtype != torch.float64:
            gates, recurrent = gates.float(), recurrent.float()
        before = hidden.to(gates.dtype)
        output = torch.empty_like(before)
        gru_step(gates, recurrent, before, output)
        ctx.sums, ctx.time = tuple(products.gradients for products in layer), time
        candidate = recurrent[:, 2 * before.shape[1] :]
        ctx.save_for_backward(gates, candidate, fed, hidden, fed_weight, hidden_weight)
        return output.to(layer[0].dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        gates, candidate, fed, hidden, fed_weight, hidden_weight = ctx.saved_tensors
        of_input, of_hidden = ctx.sums
        before = hidden.to(gates.dtype)
        grad_hidden = torch.empty_like(before).copy_(grad_output)
        grad_sums = of_input.gradient(ctx.time, (fed,)), of_hidden.gradient(ctx.time, (hidden,))
        if grad_sums[0].dtype == gates.dtype:
            gru_step_gradients(gates, candidate, before, grad_hidden, *grad_sums)
        else:
            found = torch.empty_like(gates), torch.empty_like(gates)
            gru_step_gradients(gates, candidate, before, grad_hidden, *found)
            for short, exact in zip(grad_sums, found, strict=True):
                short.copy_(exact)
        grad_hidden += grad_input(grad_sums[1], hidden_weight)
        fed_dtype, hidden_dtype = ctx.dtypes
        grad_fed = grad_input(grad_sums[0], fed_weight)
        return None, None, grad_fed.to(fed_dtype), grad_hidden.to(hidden_dtype), None, None, None


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


def _gru_step(known: Tensor, fed: Tensor, before: LayerState, fed_weight: Tensor, of_hidden: StepProducts) -> Tensor:
    """The equations of `_GRUStep` in single operations, for compilers."""
    hidden = before[0].to(known.dtype)
    input_gates = known + F.linear(fed.to(known.dtype), fed_weight)
    hidden_gates = F.linear(hidden, of_hidden.weights[0], of_hidden.bias)
    if known.dtype != torch.float64:
        input_gates, hidden_gates = input_gates.float(), hidden_gates.float()
    input_reset, input_update, input_candidate = input_gates.chunk(3, dim=1)
    hidden_reset, hidden_update, hidden_candidate = hidden_gates.chunk(3, dim=1)
    r, z = (input_reset + hidden_reset).sigmoid(), (input_update + hidden_update).sigmoid()
    n = (input_candidate + r * hidden_candidate).tanh()
    return (n + z * (hidden - n)).to(known.dtype)


def initialize_forget_bias(rnn: nn.RNNBase) -> None:
    """Set the forget biases of an LSTM to 1, so that gradients do not vanish at the start (Gers et al. 2000)."""
    for name, bias in rnn.named_parameters():
        if "bias" in name:
            H = rnn.hidden_size
            with torch.no_grad():
                bias[H : 2 * H] = 1.0 if "bias_ih" in name else 0.0
