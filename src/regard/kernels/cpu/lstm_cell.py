"""One LSTM step and its gradients, as `regard.models.cell_equations` has them, each in one pass over the rows."""

from torch import Tensor

from regard.kernels.cpu import kernels
from regard.kernels.cpu.fields import address_of
from regard.kernels.cpu.kernel import Kernel
from regard.kernels.cpu.own_record import OwnRecord
from regard.kernels.cpu.record import CELL, CELL_MATRICES

_RECORD = OwnRecord(CELL)

WORK = 64.0
"""Elementary operations of a unit, roughly."""


def lstm_step(gates: Tensor, **matrices: Tensor) -> None:
    """One LSTM step, in place.

    Args:
        gates: ``[rows, 4 · units]``, float32 or float64.
        matrices: ``cell``, ``after``, ``tanh_after`` and ``hidden``, ``[rows, units]``.
    """
    _run(kernels.lstm_step(gates.dtype), gates, matrices)


def lstm_step_gradients(gates: Tensor, **matrices: Tensor) -> None:
    """The gradients of one LSTM step, in place.

    Args:
        gates: ``[rows, 4 · units]``, float32 or float64, after `lstm_step`.
        matrices: ``cell``, ``tanh_after``, ``grad_hidden`` and ``grad_cell``, ``[rows, units]``; ``grad_gates``.
    """
    _run(kernels.lstm_step_gradients(gates.dtype), gates, matrices)


def _run(kernel: Kernel, gates: Tensor, matrices: dict[str, Tensor]) -> None:
    """Run a kernel on matrices whose rows have neighbouring numbers."""
    rows, units = matrices["cell"].shape
    numbers = dict.fromkeys(CELL_MATRICES, 0)
    for name, matrix in (("gates", gates), *matrices.items()):
        numbers[name], numbers[f"{name}_row"] = address_of(matrix), matrix.stride(0)
    _RECORD.launch(kernel, rows, WORK * rows * units, rows=rows, size=units, **numbers)
