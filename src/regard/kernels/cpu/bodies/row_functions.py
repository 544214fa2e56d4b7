"""Functions of a row of scores: what a user's function of single pairs does to each score of a row, and its gradient.

A *program* is the function as a sequence of operations, in JSON; it comes from `attention.backends.cpu.row_programs`,
which checked it. Of a program this module writes the source of a body: only names of operations and of variables that
are listed here occur in it, and integers. What does not depend on the key is computed once a row, the rest in one loop
over keys, which the compiler vectorizes. The gradient follows from the derivative of each operation, in reverse order.

A body gets the address of a record (`kernel_arguments.FUNCTION_RECORD`). Its ``data`` are 64-bit numbers: a flag that
is set if an index is outside of a tensor; for each tensor that the program reads its address and the lengths of its
axes, and if it holds real numbers, the address of its gradient, and strides over batch rows, key heads and chunks of
rows, each of which may have sums of its own; and the program's numbers.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from regard.kernels.cpu.bodies import pointwise
from regard.kernels.cpu.bodies.arguments import ZEROS, function_at
from regard.kernels.cpu.bodies.intrinsics import address_of, array_at, nearest, size_of
from regard.kernels.cpu.bodies.parts import exact
from regard.kernels.cpu.bodies.row_normalizers import sigmoid
from regard.kernels.cpu.kernel_arguments import LISTED_RUNS


class Formula(NamedTuple):
    """How an operation is computed.

    Attributes:
        value: the expression; ``{0}`` is the first argument, and so on.
        gradients: for each argument the gradient of a loss, for the gradient ``{g}`` of the result ``{r}``; an empty
            text for none.
    """

    value: str
    gradients: tuple[str, ...] = ()


_ONE, _ONE_HALF, _ZERO = "real(1)", "real(0.5)", "real(0)"


def _bounded(sign: str) -> Formula:
    is_beyond = f"{{0}} {sign} {{1}}"
    gradients = f"({_ZERO} if {is_beyond} else {{g}})", f"({{g}} if {is_beyond} else {_ZERO})"
    return Formula(f"({{1}} if {is_beyond} else {{0}})", gradients)


def _extreme(name: str, sign: str) -> Formula:
    """Returns the larger or the smaller of two numbers; equal ones share the gradient."""
    gradients = (
        f"({{g}} if {a} {sign} {b} else ({_ONE_HALF} * {{g}} if {a} == {b} else {_ZERO}))"
        for a, b in (("{0}", "{1}"), ("{1}", "{0}"))
    )
    return Formula(f"pointwise_{name}({{0}}, {{1}})", tuple(gradients))


REAL: dict[str, Formula] = {
    "add": Formula("{0} + {1}", ("{g}", "{g}")),
    "sub": Formula("{0} - {1}", ("{g}", "-{g}")),
    "mul": Formula("{0} * {1}", ("{g} * {1}", "{g} * {0}")),
    "div": Formula("{0} / {1}", ("{g} / {1}", "-{g} * {r} / {1}")),
    "neg": Formula("-{0}", ("-{g}",)),
    "abs": Formula("abs({0})", ("{g} * pointwise_sign({0})",)),
    "exp": Formula("pointwise_exponential({0})", ("{g} * {r}",)),
    "log": Formula("pointwise_logarithm({0})", ("{g} / {0}",)),
    "tanh": Formula("pointwise_tanh({0})", (f"{{g}} * ({_ONE} - {{r}} * {{r}})",)),
    "sigmoid": Formula("sigmoid({0})", (f"{{g}} * {{r}} * ({_ONE} - {{r}})",)),
    "sqrt": Formula("np.sqrt({0})", (f"{_ONE_HALF} * {{g}} / {{r}}",)),
    "sin": Formula("np.sin({0})", ("{g} * np.cos({0})",)),
    "cos": Formula("np.cos({0})", ("-{g} * np.sin({0})",)),
    "floor": Formula("pointwise_floor({0})"),
    "trunc": Formula("pointwise_truncated({0})"),
    "round": Formula("nearest({0})"),
    "sign": Formula("pointwise_sign({0})"),
    "pow": Formula(
        "pointwise_power({0}, {1})",
        (
            f"{{g}} * {{1}} * pointwise_power({{0}}, {{1}} - {_ONE})",
            f"({{g}} * {{r}} * pointwise_logarithm({{0}}) if {{0}} > {_ZERO} else {_ZERO})",
        ),
    ),
    "maximum": _extreme("larger", ">"),
    "minimum": _extreme("smaller", "<"),
    "at_least": _bounded("<"),
    "at_most": _bounded(">"),
    "relu": Formula(f"({_ZERO} if {{0}} < {_ZERO} else {{0}})", (f"({{g}} if {{0}} > {_ZERO} else {_ZERO})",)),
    "where": Formula("({1} if {0} else {2})", ("", f"({{g}} if {{0}} else {_ZERO})", f"({_ZERO} if {{0}} else {{g}})")),
    "real": Formula("real({0})", ("{g}",)),
    "single": Formula("real(np.float32({0}))", ("{g}",)),
    "constant": Formula("real({0})"),
}  # fmt: skip
"""Operations on real numbers."""

INTEGER: dict[str, Formula] = {
    **{name: REAL[name] for name in ("add", "sub", "mul", "neg", "abs", "at_least", "at_most", "where")},
    "maximum": Formula("max({0}, {1})"),
    "minimum": Formula("min({0}, {1})"),
    "floordiv": Formula("{0} // {1}"),
    "mod": Formula("{0} % {1}"),
    "rightshift": Formula("{0} >> {1}"),
    **{name: Formula(f"{{0}} {sign} {{1}}") for name, sign in (("and", "&"), ("or", "|"), ("xor", "^"))},
    "not": Formula("~{0}"),
    "integer": Formula("{0}"),
    "constant": Formula("{0}"),
}
"""Operations on integers."""

BOOLEAN: dict[str, Formula] = {
    **{
        name: Formula(f"{{0}} {sign} {{1}}")
        for name, sign in (
            ("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">="), ("eq", "=="), ("ne", "!="),
            ("and", "&"), ("or", "|"), ("xor", "^"),
        )
    },
    "not": Formula("not {0}"),
    "where": REAL["where"],
    "boolean": Formula("{0} != 0"),
    "constant": Formula("{0} != 0"),
}  # fmt: skip
"""Operations whose results are booleans."""

OPERATIONS = {"real": REAL, "integer": INTEGER, "boolean": BOOLEAN}
"""Operations by the type of their results."""

GRADIENT_SLOTS = 4
"""Numbers of a tensor's gradient: its address, and strides over batch rows, key heads and chunks of rows."""

POSITIONS = ("batch", "head", "query")
"""The positions of a row."""


class _Load(NamedTuple):
    """A tensor's element: the expression of its index, as written to the body."""

    tensor: int
    offset: str
    is_of_pair: bool


class _Source:
    """The source of a body.

    Args:
        program: see `regard.attention.backends.cpu.row_programs.program_of`.
    """

    def __init__(self, program: Mapping[str, Any]):
        self.program = program
        self.row: list[str] = []
        self.loop: list[str] = []
        self.of_pair = {"score", "key"}
        self.types: dict[str, str] = dict.fromkeys((*POSITIONS, "key"), "integer") | {"score": "real"}
        self.loads: dict[str, _Load] = {}
        self.gathers = False
        self._inputs()

    def _inputs(self) -> None:
        position = 1
        for number, (kind, axes, has_gradient, _) in enumerate(self.program["inputs"]):
            self.row.append(f"a{number} = data[{position}]")
            position += 1
            for axis in range(axes):
                self.row.append(f"s{number}_{axis} = data[{position}]")
                position += 1
            if has_gradient:
                strides = (f"c.{name} * data[{position + 1 + n}]" for n, name in enumerate(("batch", "group", "chunk")))
                self.row.append(f"g{number} = data[{position}] + ({' + '.join(strides)}) * size_of(zero)")
            position += GRADIENT_SLOTS if kind == "real" else 0
            size = " * ".join(f"s{number}_{axis}" for axis in range(axes)) or "1"
            self.row.append(f"l{number} = {size}")
            self.row.append(f"i{number} = array_at(a{number}, l{number}, {kind}_zero)")
        for number, kind in enumerate(self.program["numbers"]):
            source = "reals" if kind == "real" else "data"
            self.row.append(f"n{number} = {kind}({source}[{position}])")
            self.types[f"n{number}"] = kind
            position += 1

    def write(self) -> None:
        """Writes the operations of the program."""
        for number, (name, kind, *arguments) in enumerate(self.program["operations"]):
            result = f"v{number}"
            self.types[result] = kind
            if name == "load":
                self._load(result, arguments[0], arguments[1])
                continue
            formula = OPERATIONS[kind][name]
            value = formula.value.format(*map(_text, arguments))
            value = f"integer({value})" if kind == "integer" else value
            self._assign(result, value, self._is_of_pair(arguments))

    def _is_of_pair(self, arguments: Any) -> bool:
        return any(argument in self.of_pair for argument in arguments)

    def _assign(self, result: str, value: str, is_of_pair: bool) -> None:
        (self.loop if is_of_pair else self.row).append(f"{result} = {value}")
        if is_of_pair:
            self.of_pair.add(result)

    def _load(self, result: str, tensor: int, indices: list[Any]) -> None:
        kind, axes, _, covers_keys = self.program["inputs"][tensor]
        is_of_pair = self._is_of_pair(indices)
        offset = "0"
        is_row = covers_keys and axes > 0 and indices[-1] == "key" and not self._is_of_pair(indices[:-1])
        for axis, index in enumerate(indices[:-1] if is_row else indices):
            lines = self.loop if index in self.of_pair else self.row
            name, size = f"{result}_{axis}", f"s{tensor}_{axis}"
            index_type = "integer" if index in self.of_pair else "np.int64"
            lines.append(f"{name} = {index_type}({_text(index)})")
            size = f"integer({size})" if index in self.of_pair else size
            lines.append(f"{name} = {index_type}({name} + {size} if {name} < 0 else {name})")
            lines.append(f"{name}_in = ({name} >= 0) & ({name} < {size})")
            count = "misses" if index in self.of_pair else "row_misses"
            lines.append(f"{count} = integer({count} | (integer(0) if {name}_in else integer(1)))")
            lines.append(f"{name} = {index_type}({name} if {name}_in else 0)")
            cast = "integer" if index in self.of_pair or offset in self.of_pair else "np.int64"
            product = f"({offset}) * s{tensor}_{axis} + " if offset != "0" else ""
            offset_name = f"{result}_o{axis}"
            target = self.loop if self._is_of_pair((index, offset)) else self.row
            target.append(f"{offset_name} = {cast}({product}{name})")
            if target is self.loop:
                self.of_pair.add(offset_name)
            offset = offset_name
        if is_row:
            last = f"s{tensor}_{axes - 1}"
            start = f"{result}_start"
            self.row.append(f"{start} = {offset} * {last} + c.first")
            self.row.append(f"{result}_row = array_at(a{tensor} + {start} * size_of({kind}_zero), n, {kind}_zero)")
            value, stored = f"{result}_row[j]", start
        else:
            self.gathers = self.gathers or is_of_pair
            value, stored = f"i{tensor}[np.uint64({offset})]", offset
        value = {"real": value, "integer": f"integer({value})", "boolean": f"{value} != 0"}[kind]
        self._assign(result, value, is_of_pair)
        self.loads[result] = _Load(tensor, stored, is_of_pair)

    def gradients(self) -> tuple[list[str], list[str], list[str]]:
        """Returns the lines before the loop, in the loop and after it that compute gradients."""
        differentiated = {"score"}
        for number, (name, kind, *arguments) in enumerate(self.program["operations"]):
            if name == "load":
                if self.program["inputs"][arguments[0]][2]:
                    differentiated.add(f"v{number}")
            elif any(argument in differentiated for argument in _differentiable(name, kind, arguments)):
                differentiated.add(f"v{number}")
        before: list[str] = []
        loop: list[str] = []
        after: list[str] = []
        sums: dict[str, list[str]] = {self.program["result"]: ["g"]}
        carried: dict[str, list[str]] = {}
        operations = list(enumerate(self.program["operations"]))
        for number, operation in reversed(operations):
            result = f"v{number}"
            if result in self.of_pair and result in differentiated and result in sums:
                loop.append(f"d_{result} = {' + '.join(sums[result])}")
                self._pass_on(result, operation, differentiated, sums, carried, loop)
        if self.program["result"] not in self.of_pair and self.program["result"] in differentiated:
            carried[self.program["result"]] = ["g"]
        for name, parts in carried.items():
            before.append(f"d_{name} = real(0)")
            loop.append(f"d_{name} += ({' + '.join(parts)} if g != real(0) else real(0))")
        score = " + ".join(sums.get("score", ["real(0)"]))
        loop.append(f"gradient[j] = {score} if g != real(0) else real(0)")
        sums = {name: [f"d_{name}"] for name in carried}
        for number, operation in reversed(operations):
            result = f"v{number}"
            if result not in self.of_pair and result in differentiated and result in sums:
                after.append(f"d_{result} = {' + '.join(sums[result])}")
                self._pass_on(result, operation, differentiated, sums, None, after)
        return before, loop, after

    def _pass_on(
        self,
        result: str,
        operation: Any,
        differentiated: set[str],
        sums: dict[str, list[str]],
        carried: dict[str, list[str]] | None,
        lines: list[str],
    ) -> None:
        """Adds the gradient of an operation's result to the sums of its arguments.

        Args:
            carried: sums over the keys of what does not depend on the key; None after the loop.
        """
        name, kind, *arguments = operation
        if name == "load":
            load = self.loads[result]
            is_row = f"{result}_start" == load.offset
            if is_row:
                gradient = f"{result}_gradient"
                self.row.append(f"{gradient} = array_at(g{load.tensor} + {load.offset} * size_of(zero), n, zero)")
                target = f"{gradient}[j]"
            else:
                self.row.append(f"{result}_gradient = array_at(g{load.tensor}, l{load.tensor}, zero)")
                target = f"{result}_gradient[np.uint64({load.offset})]"
            value = f"d_{result} if g != real(0) else real(0)" if load.is_of_pair else f"d_{result}"
            lines.append(f"{target} += {value}")
            return
        formula = OPERATIONS[kind][name]
        for argument, gradient in zip(arguments, formula.gradients, strict=False):
            if not gradient or argument not in differentiated:
                continue
            term = "(" + gradient.format(*map(_text, arguments), g=f"d_{result}", r=result) + ")"
            is_carried = carried is not None and argument not in self.of_pair
            (carried if is_carried and carried is not None else sums).setdefault(argument, []).append(term)


def _differentiable(name: str, kind: str, arguments: list[Any]) -> Iterator[Any]:
    """Yields the arguments on which the result depends differentiably."""
    for argument, gradient in zip(arguments, OPERATIONS[kind][name].gradients if kind == "real" else (), strict=False):
        if gradient:
            yield argument


def _text(argument: Any) -> str:
    """Returns a variable, or a literal integer."""
    return str(argument)


_HEAD = """\
def body(address):
    c = function_at(address)
    data, reals = array_at(c.data, 1, np.int64(0)), array_at(c.data, 1, np.float64(0))
    n = c.keys
    scores, gradient = array_at(c.scores, n, zero), array_at(c.gradient, n, zero)
    batch, head, query, first = integer(c.batch), integer(c.head), integer(c.row), integer(c.first)
    misses, row_misses = integer(0), integer(0)
"""

_TAIL = """\
    if (misses | row_misses) != 0:
        data[0] = 1
"""


def _indented(lines: list[str], depth: int) -> str:
    return "".join(f"{'    ' * depth}{line}\n" for line in lines)


def _body(dtype: str, program: str, write: Callable[["_Source", Mapping[str, Any]], str]) -> Callable[[int], None]:
    """Returns the body of a source."""
    parsed = json.loads(program)
    source = _Source(parsed)
    source.write()
    integer: Any = getattr(np, parsed["integers"])
    zero = ZEROS[dtype]
    names = {
        "np": np, "array_at": array_at, "function_at": function_at, "nearest": nearest, "size_of": size_of,
        "sigmoid": sigmoid, "real": type(zero), "integer": integer, "zero": zero, "real_zero": zero,
        "infinity": type(zero)(np.inf),
        "integer_zero": integer(0), "boolean_zero": np.int8(0), "write_runs": write_runs, "RUNS": LISTED_RUNS,
        **{f"pointwise_{name}": getattr(pointwise, name) for name in (
            "exponential", "logarithm", "power", "tanh", "sign", "floor", "truncated", "larger", "smaller",
        )},
    }  # fmt: skip
    exec(compile(write(source, parsed), f"<{parsed['result']} of a row>", "exec"), names)
    return names["body"]


_LOOP = "    for j in range(n):\n        key, score = integer(first + integer(j)), scores[j]\n"


def score_function(dtype: str, program: str) -> Callable[[int], None]:
    """Returns the body that replaces each score of a row by the function of it."""

    def write(source: _Source, parsed: Mapping[str, Any]) -> str:
        store = [f"scores[j] = real({parsed['result']})"]
        return _HEAD + _indented(source.row, 1) + _LOOP + _indented([*source.loop, *store], 2) + _TAIL

    return _body(dtype, program, write)


def gradient_function(dtype: str, program: str) -> Callable[[int], None]:
    """Returns the body that turns the gradient of a row of changed scores into that of the scores, and adds the
    gradients of the tensors that the function reads.

    Where the gradient is 0, so is what follows from it, even if a derivative is infinite.
    """

    def write(source: _Source, parsed: Mapping[str, Any]) -> str:
        before, loop, after = source.gradients()
        lines = ["g = gradient[j]", *source.loop, *loop]
        return _HEAD + _indented([*source.row, *before], 1) + _LOOP + _indented(lines, 2) + _indented(after, 1) + _TAIL

    return _body(dtype, program, write)


def mask_function(dtype: str, program: str) -> Callable[[int], None]:
    """Returns the body that writes −∞ to the scores of keys that the function hides."""

    def write(source: _Source, parsed: Mapping[str, Any]) -> str:
        store = [f"scores[j] = score if {parsed['result']} else -infinity"]
        return _HEAD + _indented(source.row, 1) + _LOOP + _indented([*source.loop, *store], 2) + _TAIL

    return _body(dtype, program, write)


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
def body(address):
    c = function_at(address)
    data, reals = array_at(c.data, 1, np.int64(0)), array_at(c.data, 1, np.float64(0))
    n = c.keys
    visible = array_at(c.scores, n, np.int8(0))
    batch, head = integer(c.batch), integer(c.head)
    misses, row_misses = integer(0), integer(0)
    most = np.int64(0)
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

    def write(source: _Source, parsed: Mapping[str, Any]) -> str:
        store = [f"visible[j] = np.int8(1) if {parsed['result']} else np.int8(0)"]
        loop = ["for j in range(n):", *(f"    {line}" for line in ("key = integer(j)", *source.loop, *store))]
        return _RUNS_HEAD + _indented([*source.row, *loop], 2) + _RUNS_TAIL + _TAIL

    return _body(dtype, program, write)
