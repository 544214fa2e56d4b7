"""Functions of a row of scores: what a user's function of single pairs does to each score of a row, and its gradient.

A *program* is the function as a sequence of operations, in JSON; it comes from `attention.backends.cpu.row_programs`,
which checked it. Of a program this module writes the source of a body: only names of operations and of variables that
are listed here occur in it, and integers. What does not depend on the key is computed once a row, the rest in one loop
over keys, which the compiler vectorizes. The gradient follows from the derivative of each operation, in reverse order.

A body gets the address of a record (`kernel_arguments.FUNCTION_RECORD`). Its ``data`` are 64-bit numbers: a flag that
is set if an index is outside of a tensor; for each tensor that the program reads its address, the address of its
gradient or 0, strides of this over batch rows, key heads and chunks of rows, each of which may have sums of its own,
and the lengths of its axes; and the program's numbers.
"""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from regard.kernels.cpu.bodies.arguments import ZEROS, function_at
from regard.kernels.cpu.bodies.elementary import exp, log
from regard.kernels.cpu.bodies.intrinsics import address_of, array_at, floor, is_single, nearest, size_of, truncated
from regard.kernels.cpu.bodies.parts import embedded, exact
from regard.kernels.cpu.bodies.row_adjustments import tanh_of_half
from regard.kernels.cpu.bodies.row_normalizers import sigmoid
from regard.kernels.cpu.kernel_arguments import LISTED_RUNS
from regard.kernels.cpu.row_operations import OPERATIONS


class _Source:
    """The lines of a body that are run for each row, and those that are run for each of its keys.

    Args:
        text: the program; see `regard.attention.backends.cpu.row_programs.program_of`.
    """

    def __init__(self, text: str):
        self.program = json.loads(text)
        self.row: list[str] = []
        self.loop: list[str] = []
        self.of_pair = {"score", "key"}
        self.differentiated = {"score"}
        self.gradients: dict[str, str] = {}
        self._inputs()
        for number, (name, kind, *arguments) in enumerate(self.program["operations"]):
            result = f"v{number}"
            if name == "load":
                self._load(result, *arguments)
                continue
            formula = OPERATIONS[kind][name]
            value = formula.value.format(*arguments)
            self._assign(result, f"integer({value})" if kind == "integer" else value, self._is_of_pair(arguments))
            derived = (argument for argument, gradient in zip(arguments, formula.gradients, strict=False) if gradient)
            if kind == "real" and not self.differentiated.isdisjoint(derived):
                self.differentiated.add(result)

    def _inputs(self) -> None:
        position = 1
        for number, (kind, axes, has_gradient, _) in enumerate(self.program["inputs"]):
            strides = (f"g{number}_{axis}" for axis in ("batch", "group", "chunk"))
            for name in (f"a{number}", f"g{number}", *strides, *(f"s{number}_{axis}" for axis in range(axes))):
                self.row.append(f"{name} = data[{position}]")
                position += 1
            self.row.append(f"i{number} = array_at(a{number}, 1, {kind}_zero)")
            if has_gradient:
                own = " + ".join(f"c.{axis} * g{number}_{axis}" for axis in ("batch", "group", "chunk"))
                self.row.append(f"g{number} += ({own}) * size_of(zero)")
                self.row.append(f"e{number} = array_at(g{number}, 1, zero)")
        for number, kind in enumerate(self.program["numbers"]):
            source = "reals" if kind == "real" else "data"
            self.row.append(f"n{number} = {kind}({source}[{position + number}])")

    def _is_of_pair(self, arguments: Iterable[Any]) -> bool:
        return not self.of_pair.isdisjoint(arguments)

    def _assign(self, result: str, value: str, is_of_pair: bool) -> None:
        (self.loop if is_of_pair else self.row).append(f"{result} = {value}")
        if is_of_pair:
            self.of_pair.add(result)

    def _load(self, result: str, tensor: int, indices: list[str]) -> None:
        kind, axes, has_gradient, covers_keys = self.program["inputs"][tensor]
        is_row = covers_keys and indices[-1] == "key" and not self._is_of_pair(indices[:-1])
        offset = "0"
        for axis, index in enumerate(indices[:-1] if is_row else indices):
            name, size, is_of_pair = f"{result}_{axis}", f"s{tensor}_{axis}", index in self.of_pair
            self._assign(name, f"position(integer({index}), integer({size}))", is_of_pair)
            (self.loop if is_of_pair else self.row).append(f"misses = integer(misses | {name})")
            own, before = f"{result}_o{axis}", offset
            value = f"integer({before} * {size} + max({name}, integer(0)))"
            self._assign(own, value, self._is_of_pair((name, before)))
            offset = own
        element, gradient = f"i{tensor}[np.uint64({offset})]", f"e{tensor}[np.uint64({offset})]"
        if is_row:
            start = f"({offset} * s{tensor}_{axes - 1} + c.first)"
            self.row.append(f"{result}_row = array_at(a{tensor} + {start} * size_of({kind}_zero), n, {kind}_zero)")
            if has_gradient:
                self.row.append(f"{result}_sums = array_at(g{tensor} + {start} * size_of(zero), n, zero)")
            element, gradient = f"{result}_row[j]", f"{result}_sums[j]"
        value = {"real": element, "integer": f"integer({element})", "boolean": f"{element} != 0"}[kind]
        self._assign(result, value, is_row or offset in self.of_pair)
        if has_gradient:
            self.differentiated.add(result)
            self.gradients[result] = gradient

    def write_gradients(self) -> list[str]:
        """Appends the lines that compute gradients; returns those after the loop.

        The gradient of what does not depend on the key is summed in the loop, and passed on after it.
        """
        after: list[str] = []
        sums: defaultdict[str, list[str]] = defaultdict(list)
        carried: defaultdict[str, list[str]] = defaultdict(list)

        def add(argument: str, term: str, is_of_pair: bool) -> None:
            if argument in self.differentiated:
                (carried if is_of_pair and argument not in self.of_pair else sums)[argument].append(term)

        self.loop.insert(0, "g = gradient[j]")
        add(self.program["result"], "g", True)
        for number, (name, kind, *arguments) in reversed([*enumerate(self.program["operations"])]):
            result, is_of_pair = f"v{number}", f"v{number}" in self.of_pair
            gradient, lines = f"d_{result}", self.loop if is_of_pair else after
            if result in carried:
                self.row.append(f"{gradient} = real(0)")
                self.loop.append(f"{gradient} += ({' + '.join(carried[result])} if g != real(0) else real(0))")
                sums[result].insert(0, gradient)
            if result not in sums:
                continue
            lines.append(f"{gradient} = {' + '.join(sums[result])}")
            if name == "load":
                value = f"({gradient} if g != real(0) else real(0))" if is_of_pair else gradient
                lines.append(f"{self.gradients[result]} += {value}")
                continue
            for argument, formula in zip(arguments, OPERATIONS[kind][name].gradients, strict=False):
                if formula:
                    add(argument, f"({formula.format(*arguments, g=gradient, r=result)})", is_of_pair)
        self.loop.append(f"gradient[j] = {' + '.join(sums['score']) or 'real(0)'} if g != real(0) else real(0)")
        return after

    def body(self, dtype: str, text: str) -> Callable[[int], None]:
        """Returns the body of this text."""
        integer: Any = getattr(np, self.program["integers"])
        zero = ZEROS[dtype]
        names = {
            "np": np, "array_at": array_at, "function_at": function_at, "size_of": size_of, "position": position,
            "write_runs": write_runs, "RUNS": LISTED_RUNS, "real": type(zero), "integer": integer, "zero": zero,
            "real_zero": zero, "integer_zero": integer(0), "boolean_zero": np.int8(0), "infinity": type(zero)(np.inf),
            "exponential": exponential, "logarithm": logarithm, "power": power, "tanh_of_half": tanh_of_half,
            "sigmoid": sigmoid, "floor": floor, "truncated": truncated, "nearest": nearest,
        }  # fmt: skip
        exec(compile(text, f"<{self.program['result']} of a row>", "exec"), names)
        return names["body"]

    def row_body(self, dtype: str, *after: str) -> Callable[[int], None]:
        """Returns the body for one row: the loop over its keys, and lines after it."""
        return self.body(
            dtype, _HEAD + _indented(self.row, 1) + _LOOP + _indented(self.loop, 2) + _indented(after, 1) + _TAIL
        )


@embedded
def exponential(x: Any) -> Any:
    """Returns e to the power x."""
    real = type(x)
    limit = real(88.72283) if is_single(x) else real(709.782712893384)
    return real(np.inf) if x > limit else exp(x)


@embedded
def logarithm(x: Any) -> Any:
    """Returns the natural logarithm: −∞ for 0, NaN for a negative number."""
    real = type(x)
    tiny = real(1.1754944e-38) if is_single(x) else real(2.2250738585072014e-308)
    is_tiny = x < tiny
    # A subnormal number is multiplied by 2⁵³ before.
    result = log(x * real(2.0**53) if is_tiny else x) - (real(53.0 * math.log(2.0)) if is_tiny else real(0))
    result = x if x == real(np.inf) else result
    result = real(-np.inf) if x == real(0) else result
    return real(np.nan) if x < real(0) else result


@embedded
def power(x: Any, y: Any) -> Any:
    """Returns x to the power y for x ≥ 0, and NaN for a negative x; computed in float64."""
    exponent = np.float64(y)
    result = exponential(exponent * logarithm(np.float64(x)))
    return type(x)(1.0 if exponent == 0.0 else result)


@embedded
def position(index: Any, size: Any) -> Any:
    """Returns the position of an element for an index that may count from the end; −1 if there is no such element."""
    integer = type(index)
    element = integer(index + size if index < 0 else index)
    return integer(element if (element >= 0) & (element < size) else -1)


_HEAD = """\
def body(address):
    c = function_at(address)
    data, reals = array_at(c.data, 1, np.int64(0)), array_at(c.data, 1, np.float64(0))
    n, misses = c.keys, integer(0)
    batch, head, query, first = integer(c.batch), integer(c.head), integer(c.row), integer(c.first)
    scores, gradient = array_at(c.scores, n, zero), array_at(c.gradient, n, zero)
"""

_TAIL = """\
    if misses < 0:
        data[0] = 1
"""


_LOOP = "    for j in range(n):\n        key, score = integer(first + integer(j)), scores[j]\n"


def _indented(lines: Iterable[str], depth: int) -> str:
    return "".join(f"{'    ' * depth}{line}\n" for line in lines)


def score_function(dtype: str, program: str) -> Callable[[int], None]:
    """Returns the body that replaces each score of a row by the function of it."""
    source = _Source(program)
    source.loop.append(f"scores[j] = real({source.program['result']})")
    return source.row_body(dtype)


def gradient_function(dtype: str, program: str) -> Callable[[int], None]:
    """Returns the body that turns the gradient of a row of changed scores into that of the scores, and adds the
    gradients of the tensors that the function reads.

    Where the gradient is 0, so is what follows from it, even if a derivative is infinite.
    """
    source = _Source(program)
    return source.row_body(dtype, *source.write_gradients())


def mask_function(dtype: str, program: str) -> Callable[[int], None]:
    """Returns the body that writes −∞ to the scores of keys that the function hides."""
    source = _Source(program)
    source.loop.append(f"scores[j] = score if {source.program['result']} else -infinity")
    return source.row_body(dtype)


@exact
def write_runs(visible: Any, ends: Any) -> int:
    """Writes the start and the end of each run of visible keys; the last run includes all that are too many.

    Args:
        visible: 1 for each visible key, else 0, int8.
        ends: the output, ``[2 · RUNS]``; 0, 0 for a run that does not exist.

    Returns:
        The number of runs.
    """
    count, j, previous, equal = np.int64(0), np.int64(0), np.int8(0), np.int64(0)
    words = array_at(address_of(visible), visible.size // 8, np.int64(0))
    while j < visible.size:
        if j % 8 == 0 and j + 8 <= visible.size and words[j // 8] == equal:
            j += 8
            continue
        if visible[j] != previous:
            previous = visible[j]
            if previous != 0:
                if count < LISTED_RUNS:
                    ends[2 * count] = j
                count += 1
                equal = np.int64(0x0101010101010101)
            else:
                ends[2 * min(count, LISTED_RUNS) - 1] = j
                equal = np.int64(0)
        j += 1
    if previous != 0:
        ends[2 * min(count, LISTED_RUNS) - 1] = visible.size
    for index in range(2 * min(count, LISTED_RUNS), ends.size):
        ends[index] = 0
    return count


_RUNS_HEAD = """\
    visible, most = array_at(c.scores, n, np.int8(0)), np.int64(0)
    for r in range(c.group):
        query = integer(c.row + r)
"""

_RUNS_TAIL = """\
        ends = array_at(c.gradient + r * 2 * RUNS * 4, 2 * RUNS, np.int32(0))
        most = max(most, write_runs(visible, ends))
    c.chunk = most
"""


def visible_runs(dtype: str, program: str) -> Callable[[int], None]:
    """Returns the body that lists the runs of visible keys of ``group`` rows: ``gradient [rows, RUNS, 2]``, int32.

    ``scores`` is scratch for a byte of each key. The largest number of runs of a row is written to ``chunk``.
    """
    source = _Source(program)
    store = f"visible[j] = np.int8(1) if {source.program['result']} else np.int8(0)"
    loop = ["for j in range(n):", *(f"    {line}" for line in ("key = integer(j)", *source.loop, store))]
    return source.body(dtype, _HEAD + _RUNS_HEAD + _indented([*source.row, *loop], 2) + _RUNS_TAIL + _TAIL)
