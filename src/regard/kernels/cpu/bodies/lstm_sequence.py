"""All steps of one direction of an LSTM layer over packed rows, and their gradients.

A row's states depend on no other row: a task takes a few rows through all steps, and no thread waits for another. Rows
are packed as PyTorch packs them: those of a step lie side by side, the longest sequence first.
"""

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# Intrinsics take one argument less than they are defined with: the first one is Numba's.

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from regard.kernels.cpu.bodies.arguments import ZEROS, sequence_at
from regard.kernels.cpu.bodies.elementary import bfloat16_of
from regard.kernels.cpu.bodies.intrinsics import array_at, fetch_add, size_of
from regard.kernels.cpu.bodies.lstm_cell import differentiate_row, gates_at, row_at, step_row
from regard.kernels.cpu.bodies.parts import inlined
from regard.kernels.cpu.bodies.products import Routine, product
from regard.kernels.cpu.bodies.wide_product import Matrix, Size
from regard.kernels.cpu.record import WIDE
from regard.kernels.cpu.sizes import SEQUENCES


class Step(NamedTuple):
    """One step of a task's sequences.

    Attributes:
        at: the packed row of the first of them.
        rows: how many there are.
        before: the packed row of the first of them in the step before, in the order of the loop.
        going_on: how many have a step before; they come first, and the states of the others begin with zeros.
    """

    at: int
    rows: int
    before: int
    going_on: int


@inlined
def step_of(p: Any, task: int, number: int) -> Step:
    """A step of a task, counted in the order of the loop."""
    starts, counts = array_at(p.starts, p.steps, np.int64(0)), array_at(p.counts, p.steps, np.int64(0))
    first = task * SEQUENCES
    rows = max(0, min(counts[number] - first, SEQUENCES))
    earlier = max(number - 1, 0)
    going_on = min(rows, max(0, counts[earlier] - first)) if number > 0 else 0
    return Step(starts[number] + first, rows, starts[earlier] + first, going_on)


@inlined
def state_before(p: Any, address: int, step: Step, r: int, example: Any) -> Any:
    """The state of a row before a step, of states after each."""
    begins = r >= step.going_on
    return row_at(p.zeros if begins else address, p.units, 0 if begins else step.before + r, p.units, example)


@inlined
def rows_from(address: int, row: int, width: int, example: Any) -> Matrix:
    """The rows of a matrix from one on."""
    return Matrix(address + row * width * size_of(example), width, 1)


@inlined
def shorten(row: Any, address: int) -> None:
    """Write a row of float32 to an address, in bfloat16."""
    rounded = array_at(address, row.size, np.int16(0))
    for j in range(row.size):
        rounded[j] = bfloat16_of(row[j])


def lstm_sequence(dtype: str, products: str = "float32") -> Callable[[int], None]:
    """The body of all steps, some sequences for each task.

    Args:
        dtype: float32.
        products: float32, or bfloat16, of an even number of units.
    """
    zero, short = ZEROS[dtype], products == "bfloat16"

    def body(address: int) -> None:
        p = sequence_at(address)
        units, one, routine = p.units, type(zero)(1), Routine(WIDE, 0, p.multiply)
        # What the weight multiplies, and its numbers in a row; pairs of bfloat16 are as large as a float32.
        factors, terms = (p.short, units // 2) if short else (p.hidden, units)
        while True:
            task = fetch_add(address)
            if task * SEQUENCES >= p.sequences:
                break
            for number in range(p.steps):
                step = step_of(p, task, number)
                if step.going_on > 0:
                    product(
                        routine, Size(step.going_on, 4 * units, terms), one,
                        rows_from(factors, step.before, terms, zero), Matrix(p.weight, p.weight_row, 1),
                        rows_from(p.gates, step.at, 4 * units, zero), 1,
                    )  # fmt: skip
                for r in range(step.rows):
                    at = step.at + r
                    hidden = row_at(p.hidden, units, at, units, zero)
                    step_row(
                        gates_at(p.gates, 4 * units, at, units, zero),
                        state_before(p, p.cells, step, r, zero),
                        row_at(p.cells, units, at, units, zero),
                        row_at(p.tanh_cells, units, at, units, zero),
                        hidden,
                    )
                    if short:
                        shorten(hidden, p.short + at * units * 2)

    return body


def lstm_sequence_gradients(dtype: str, products: str = "float32") -> Callable[[int], None]:
    """The body of all steps' gradients, some sequences for each task; arguments as for `lstm_sequence`."""
    zero, short = ZEROS[dtype], products == "bfloat16"

    def body(address: int) -> None:
        p = sequence_at(address)
        units, one, routine = p.units, type(zero)(1), Routine(WIDE, 0, p.multiply)
        factors, terms = (p.short, 2 * units) if short else (p.grad_gates, 4 * units)
        while True:
            task = fetch_add(address)
            if task * SEQUENCES >= p.sequences:
                break
            first = task * SEQUENCES
            for back in range(p.steps):
                step = step_of(p, task, p.steps - 1 - back)
                for r in range(step.rows):
                    at = step.at + r
                    given, grad_hidden = (
                        row_at(p.grad_outputs, p.grad_outputs_row, at, units, zero),
                        row_at(p.grad_hidden, units, first + r, units, zero),
                    )
                    for j in range(units):
                        grad_hidden[j] += given[j]
                    differentiate_row(
                        gates_at(p.gates, 4 * units, at, units, zero),
                        gates_at(p.grad_gates, 4 * units, at, units, zero),
                        state_before(p, p.cells, step, r, zero),
                        row_at(p.tanh_cells, units, at, units, zero),
                        grad_hidden,
                        row_at(p.grad_cell, units, first + r, units, zero),
                    )
                    if short:
                        shorten(row_at(p.grad_gates, 4 * units, at, 4 * units, zero), p.short + at * 4 * units * 2)
                if step.going_on > 0:
                    product(
                        routine, Size(step.going_on, units, terms), one,
                        rows_from(factors, step.at, terms, zero), Matrix(p.weight, p.weight_row, 1),
                        rows_from(p.grad_hidden, first, units, zero), 0,
                    )  # fmt: skip

    return body
