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


@inlined
def row_at(address: int, distance: int, row: int, units: int, example: Any) -> Any:
    """A row of a matrix at an address; so many numbers lie between its rows."""
    return array_at(address + row * distance * size_of(example), units, example)


@inlined
def gates_at(address: int, distance: int, row: int, units: int, example: Any) -> Any:
    """The four parts i, f, g and o of a row of gates, or of their gradients."""
    first, part = address + row * distance * size_of(example), units * size_of(example)
    return (
        array_at(first, units, example),
        array_at(first + part, units, example),
        array_at(first + 2 * part, units, example),
        array_at(first + 3 * part, units, example),
    )


@inlined
def step_row(gates: Any, cell: Any, after: Any, tanh_after: Any, hidden: Any) -> None:
    """One step of a row: its sums become gates, and the states after it are written."""
    i, f, g, o = gates
    for gate in (i, f, o):
        _apply_sigmoid(gate)
    for j in range(g.size):
        g[j] = tanh(g[j])
    for j in range(g.size):
        after[j] = f[j] * cell[j] + i[j] * g[j]
    for j in range(g.size):
        tanh_after[j] = tanh(after[j])
    for j in range(g.size):
        hidden[j] = o[j] * tanh_after[j]


@inlined
def differentiate_row(
    gates: Any, grad_gates: Any, cell: Any, tanh_after: Any, grad_hidden: Any, grad_cell: Any
) -> None:
    """The gradients of one step of a row; that of the cell state after it becomes that of the one before."""
    (i, f, g, o), (grad_i, grad_f, grad_g, grad_o) = gates, grad_gates
    one = cell.dtype.type(1)
    for j in range(g.size):
        grad_cell[j] += grad_hidden[j] * o[j] * (one - tanh_after[j] * tanh_after[j])
    for j in range(g.size):
        grad_o[j] = grad_hidden[j] * tanh_after[j] * o[j] * (one - o[j])
    for j in range(g.size):
        grad_i[j] = grad_cell[j] * g[j] * i[j] * (one - i[j])
    for j in range(g.size):
        grad_f[j] = grad_cell[j] * cell[j] * f[j] * (one - f[j])
    for j in range(g.size):
        grad_g[j] = grad_cell[j] * i[j] * (one - g[j] * g[j])
    for j in range(g.size):
        grad_cell[j] *= f[j]


def lstm_step(dtype: str) -> Callable[[int], None]:
    """The body of one step, a row for each task."""
    zero = ZEROS[dtype]

    def body(address: int) -> None:
        p = cell_at(address)
        units = p.size
        while True:
            row = fetch_add(address)
            if row >= p.rows:
                break
            step_row(
                gates_at(p.gates, p.gates_row, row, units, zero),
                row_at(p.cell, p.cell_row, row, units, zero),
                row_at(p.after, p.after_row, row, units, zero),
                row_at(p.tanh_after, p.tanh_after_row, row, units, zero),
                row_at(p.hidden, p.hidden_row, row, units, zero),
            )

    return body


def lstm_step_gradients(dtype: str) -> Callable[[int], None]:
    """The body of one step's gradients, a row for each task."""
    zero = ZEROS[dtype]

    def body(address: int) -> None:
        p = cell_at(address)
        units = p.size
        while True:
            row = fetch_add(address)
            if row >= p.rows:
                break
            differentiate_row(
                gates_at(p.gates, p.gates_row, row, units, zero),
                gates_at(p.grad_gates, p.grad_gates_row, row, units, zero),
                row_at(p.cell, p.cell_row, row, units, zero),
                row_at(p.tanh_after, p.tanh_after_row, row, units, zero),
                row_at(p.grad_hidden, p.grad_hidden_row, row, units, zero),
                row_at(p.grad_cell, p.grad_cell_row, row, units, zero),
            )

    return body
