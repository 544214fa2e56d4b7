"""What one LSTM step does with its sums of products, and its gradients: one pass over each row.

The equations are those of `regard.models.cell_equations`. Each loop writes one array or two: with more, the compiler
would have to rule out too many overlaps, and use no vectors. A row stays in the first cache from loop to loop.
"""

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.

from collections.abc import Callable
from typing import Any

from regard.kernels.cpu.bodies.arguments import ZEROS, cell_at
from regard.kernels.cpu.bodies.elementary import exp, tanh
from regard.kernels.cpu.bodies.intrinsics import array_at, fetch_add, size_of
from regard.kernels.cpu.bodies.parts import inlined


@inlined
def _apply_sigmoid(row: Any) -> None:
    one = row.dtype.type(1)
    for j in range(row.size):
        row[j] = one / (one + exp(-row[j]))


def lstm_step(dtype: str) -> Callable[[int], None]:
    """The body of one step, a row for each task."""
    zero = ZEROS[dtype]

    def body(address: int) -> None:
        p = cell_at(address)
        size, units = size_of(zero), p.size
        while True:
            row = fetch_add(address)
            if row >= p.rows:
                break
            gates = p.gates + row * p.gates_row * size
            _apply_sigmoid(array_at(gates, 2 * units, zero))
            _apply_sigmoid(array_at(gates + 3 * units * size, units, zero))
            i = array_at(gates, units, zero)
            f = array_at(gates + units * size, units, zero)
            g = array_at(gates + 2 * units * size, units, zero)
            o = array_at(gates + 3 * units * size, units, zero)
            cell = array_at(p.cell + row * p.cell_row * size, units, zero)
            after = array_at(p.after + row * p.after_row * size, units, zero)
            tanh_after = array_at(p.tanh_after + row * p.tanh_after_row * size, units, zero)
            hidden = array_at(p.hidden + row * p.hidden_row * size, units, zero)
            for j in range(units):
                g[j] = tanh(g[j])
            for j in range(units):
                after[j] = f[j] * cell[j] + i[j] * g[j]
            for j in range(units):
                tanh_after[j] = tanh(after[j])
            for j in range(units):
                hidden[j] = o[j] * tanh_after[j]

    return body


def lstm_step_gradients(dtype: str) -> Callable[[int], None]:
    """The body of one step's gradients, a row for each task."""
    zero = ZEROS[dtype]

    def body(address: int) -> None:
        p = cell_at(address)
        size, units, one = size_of(zero), p.size, type(zero)(1)
        while True:
            row = fetch_add(address)
            if row >= p.rows:
                break
            gates, grad_gates = p.gates + row * p.gates_row * size, p.grad_gates + row * p.grad_gates_row * size
            i = array_at(gates, units, zero)
            f = array_at(gates + units * size, units, zero)
            g = array_at(gates + 2 * units * size, units, zero)
            o = array_at(gates + 3 * units * size, units, zero)
            grad_i = array_at(grad_gates, units, zero)
            grad_f = array_at(grad_gates + units * size, units, zero)
            grad_g = array_at(grad_gates + 2 * units * size, units, zero)
            grad_o = array_at(grad_gates + 3 * units * size, units, zero)
            cell = array_at(p.cell + row * p.cell_row * size, units, zero)
            tanh_after = array_at(p.tanh_after + row * p.tanh_after_row * size, units, zero)
            grad_hidden = array_at(p.grad_hidden + row * p.grad_hidden_row * size, units, zero)
            grad_cell = array_at(p.grad_cell + row * p.grad_cell_row * size, units, zero)
            for j in range(units):
                grad_cell[j] += grad_hidden[j] * o[j] * (one - tanh_after[j] * tanh_after[j])
            for j in range(units):
                grad_o[j] = grad_hidden[j] * tanh_after[j] * o[j] * (one - o[j])
            for j in range(units):
                grad_i[j] = grad_cell[j] * g[j] * i[j] * (one - i[j])
            for j in range(units):
                grad_f[j] = grad_cell[j] * cell[j] * f[j] * (one - f[j])
            for j in range(units):
                grad_g[j] = grad_cell[j] * i[j] * (one - g[j] * g[j])
            for j in range(units):
                grad_cell[j] *= f[j]

    return body
