"""The equations of one LSTM or GRU step and their gradients, on matrices that the caller owns.

LSTM (Hochreiter & Schmidhuber 1997, with the forget gate of Gers et al. 2000), the gates in the order i, f, g, o:

    i, f, o = σ(·)    g = tanh(·)    cell' = f cell + i g    hidden' = o tanh(cell')

GRU (Cho et al. 2014, in PyTorch's form), the gates in the order r, z, n:

    r, z = σ(input + recurrent)    n = tanh(input + r recurrent)    hidden' = (1 − z) n + z hidden

All arguments are ``[rows, features]`` and of one dtype, float32 or float64. Results go into memory of the caller, since
encoders and decoders run these functions at each step: there, the time goes to reading and writing, not to arithmetic.
On a CPU an LSTM's step is one pass of a compiled kernel, which takes half the time of PyTorch's operations one by one.
"""

import torch
from torch import Tensor

from regard.kernels.availability import why_missing
from regard.transforms import has_dense_cpu_storage

COMPILED = 1 << 11
"""Gates from which on a compiled kernel runs; for less it need not be compiled."""

_sigmoid_gradient = torch.ops.aten.sigmoid_backward.grad_input
_tanh_gradient = torch.ops.aten.tanh_backward.grad_input


def lstm_step(gates: Tensor, cell: Tensor, after: Tensor, tanh_after: Tensor, hidden: Tensor) -> None:
    """One LSTM step.

    Args:
        gates: ``[rows, 4 · hidden_dim]``, the sums of products; they become the gates.
        cell: the cell state before the step.
        after: receives the cell state after the step.
        tanh_after: receives its tanh.
        hidden: receives the hidden state.
    """
    if _is_compiled((gates,), (cell, after, tanh_after, hidden)):
        from regard.kernels.cpu import lstm_cell

        return lstm_cell.lstm_step(gates, cell=cell, after=after, tanh_after=tanh_after, hidden=hidden)
    size = cell.shape[1]
    gates[:, : 2 * size].sigmoid_()
    gates[:, 2 * size : 3 * size].tanh_()
    gates[:, 3 * size :].sigmoid_()
    i, f, g, o = gates.chunk(4, dim=1)
    torch.mul(f, cell, out=after).addcmul_(i, g)
    torch.tanh(after, out=tanh_after)
    torch.mul(o, tanh_after, out=hidden)
    return None


def lstm_step_gradients(
    gates: Tensor, cell: Tensor, tanh_after: Tensor, grad_hidden: Tensor, grad_cell: Tensor, grad_gates: Tensor
) -> None:
    """The gradients of one LSTM step.

    Args:
        gates: after `lstm_step`.
        cell: the cell state before the step.
        tanh_after: of `lstm_step`.
        grad_hidden: of the hidden state after the step.
        grad_cell: of the cell state after the step; it becomes that of the cell state before the step.
        grad_gates: receives the gradient of the sums of products.
    """
    if _is_compiled((gates, grad_gates), (cell, tanh_after, grad_hidden, grad_cell)):
        from regard.kernels.cpu import lstm_cell

        return lstm_cell.lstm_step_gradients(
            gates, cell=cell, tanh_after=tanh_after, grad_hidden=grad_hidden, grad_cell=grad_cell, grad_gates=grad_gates
        )
    size = cell.shape[1]
    i, f, g, o = gates.chunk(4, dim=1)
    grad_i, grad_f, grad_g, grad_o = grad_gates.chunk(4, dim=1)
    # The gate's slot holds ∂L/∂tanh(cell') until its own gradient is written.
    torch.mul(grad_hidden, o, out=grad_o)
    _tanh_gradient(grad_o, tanh_after, grad_input=grad_o)
    grad_cell.add_(grad_o)
    torch.mul(grad_cell, g, out=grad_i)
    torch.mul(grad_cell, cell, out=grad_f)
    torch.mul(grad_cell, i, out=grad_g)
    torch.mul(grad_hidden, tanh_after, out=grad_o)
    grad_cell.mul_(f)
    for gate in (slice(0, 2 * size), slice(3 * size, 4 * size)):
        _sigmoid_gradient(grad_gates[:, gate], gates[:, gate], grad_input=grad_gates[:, gate])
    _tanh_gradient(grad_g, g, grad_input=grad_g)
    return None


def _is_compiled(wide: tuple[Tensor, ...], narrow: tuple[Tensor, ...]) -> bool:
    """Whether the kernel takes these matrices. Where their sizes do not fit, PyTorch's operations have an error.

    Args:
        wide: ``[rows, 4 · units]``.
        narrow: ``[rows, units]``.
    """
    dtype, size = wide[0].dtype, tuple(wide[0].shape)
    if wide[0].numel() < COMPILED or dtype not in (torch.float32, torch.float64) or why_missing() is not None:
        return False
    own = size[0], size[1] // 4
    fits = all(matrix.shape == size for matrix in wide) and all(matrix.shape == own for matrix in narrow)
    matrices = (*wide, *narrow)
    fits = fits and all(matrix.dtype == dtype and matrix.stride(1) == 1 for matrix in matrices)
    return fits and has_dense_cpu_storage(*matrices)


def gru_step(gates: Tensor, recurrent: Tensor, before: Tensor, hidden: Tensor) -> None:
    """One GRU step.

    Args:
        gates: ``[rows, 3 · hidden_dim]``, the products of the input; they become the gates.
        recurrent: ``[rows, 3 · hidden_dim]``, the products of the hidden state.
        before: the hidden state before the step.
        hidden: receives that after the step.
    """
    size = before.shape[1]
    gates[:, : 2 * size].add_(recurrent[:, : 2 * size]).sigmoid_()
    r, z, n = gates.chunk(3, dim=1)
    n.addcmul_(r, recurrent[:, 2 * size :]).tanh_()
    torch.lerp(n, before, z, out=hidden)


def gru_step_gradients(
    gates: Tensor, candidate: Tensor, before: Tensor, grad_hidden: Tensor, grad_gates: Tensor, grad_recurrent: Tensor
) -> None:
    """The gradients of one GRU step.

    Args:
        gates: after `gru_step`.
        candidate: ``[rows, hidden_dim]``, the last third of ``recurrent``.
        before: the hidden state before the step.
        grad_hidden: of the hidden state after the step; it becomes that of the hidden state before the step, without
            what passes through ``recurrent``.
        grad_gates: receives the gradient of the products of the input.
        grad_recurrent: receives that of the products of the hidden state.
    """
    size = before.shape[1]
    r, z, n = gates.chunk(3, dim=1)
    grad_r, grad_z, grad_n = grad_gates.chunk(3, dim=1)
    torch.sub(before, n, out=grad_z)
    grad_z.mul_(grad_hidden)
    torch.mul(grad_hidden, z, out=grad_r)
    torch.sub(grad_hidden, grad_r, out=grad_n)
    grad_hidden.copy_(grad_r)
    _tanh_gradient(grad_n, n, grad_input=grad_n)
    torch.mul(grad_n, candidate, out=grad_r)
    _sigmoid_gradient(grad_gates[:, : 2 * size], gates[:, : 2 * size], grad_input=grad_gates[:, : 2 * size])
    grad_recurrent[:, : 2 * size] = grad_gates[:, : 2 * size]
    torch.mul(grad_n, r, out=grad_recurrent[:, 2 * size :])
