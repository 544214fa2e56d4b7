"""Rules of single pairs as programs of the kernels' row functions (`regard.kernels.cpu.bodies.row_functions`).

A program has only operations that these functions know, on real numbers, integers and booleans. Numbers of Python are
inputs of a program and no part of it, so that a function whose numbers change is not compiled again.
"""

import json
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attention.pair_rules import Name, NotPointwiseError, Operation, Rule
from regard.shapes.grid import Grid
from regard.tracing.transforms import has_host_data

LARGEST_POWER = 8
"""Largest integer power that is computed by products."""

_UNARY = {
    "neg": "neg", "negative": "neg", "abs": "abs", "absolute": "abs", "exp": "exp", "log": "log", "tanh": "tanh",
    "sigmoid": "sigmoid", "sqrt": "sqrt", "sin": "sin", "cos": "cos", "floor": "floor", "trunc": "trunc",
    "fix": "trunc", "round": "round", "sign": "sign", "relu": "relu", "special_expit": "sigmoid",
}  # fmt: skip
"""Operations on one number that keep its type, by PyTorch's names."""

_ARITHMETIC = {
    "add": "add", "sub": "sub", "subtract": "sub", "mul": "mul", "multiply": "mul", "div": "div", "divide": "div",
    "true_divide": "div", "truediv": "div", "maximum": "maximum", "minimum": "minimum", "floordiv": "floordiv",
    "floor_divide": "floordiv", "mod": "mod", "remainder": "mod", "pow": "pow", "float_power": "pow",
}  # fmt: skip
"""Operations on two numbers of the result's type."""

_COMPARISONS = {
    "lt": "lt", "less": "lt", "le": "le", "less_equal": "le", "gt": "gt", "greater": "gt", "ge": "ge",
    "greater_equal": "ge", "eq": "eq", "ne": "ne", "not_equal": "ne",
}  # fmt: skip

_LOGICAL = {
    "and": "and", "or": "or", "xor": "xor", "bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor",
    "logical_and": "and", "logical_or": "or", "logical_xor": "xor",
}  # fmt: skip

_CASTS = {
    "float": "real", "double": "real", "half": "real", "bfloat16": "real", "int": "integer", "long": "integer",
    "bool": "boolean", "to": None, "type_as": None, "type": None,
}  # fmt: skip

_IGNORED = frozenset({"copy", "inplace", "non_blocking"})
"""Arguments that do not change a result."""

_UNCHANGED = frozenset({"clone", "contiguous", "alias", "positive", "__pos__"})

_INTEGERS = (torch.int64, torch.int32)

_HALVES = (torch.float16, torch.bfloat16)

_OF_BOOLEANS = {"mul": "and", "minimum": "and", "add": "or", "maximum": "or"}
"""What arithmetic does with two booleans."""

LARGEST_ROUNDED = 1 << 48
"""Magnitude that real numbers are taken to have at most where they become integers of 64 bits."""

Bounds = tuple[int, int]
"""The least and the largest value that an integer may have."""


class PairProgram(NamedTuple):
    """A rule as a program.

    Attributes:
        text: the program, in JSON.
        gradient_text: the program with the tensors that get a gradient.
        tensors: the tensors that it reads.
        numbers: its numbers, integers and real ones.
        own_sums: of each tensor, whether batch rows, heads and queries read elements of their own.
    """

    text: str
    gradient_text: str
    tensors: tuple[Tensor, ...]
    numbers: tuple[int | float, ...]
    own_sums: tuple[tuple[bool, ...], ...]

    @property
    def uses(self) -> frozenset[str]:
        """The positions that the program reads."""
        return frozenset(name for name in ("batch", "head") if f'"{name}"' in self.text)


def _type_of(dtype: torch.dtype, name: str) -> str:
    if dtype.is_floating_point:
        return "real"
    if dtype == torch.bool:
        return "boolean"
    if dtype not in _INTEGERS:
        raise NotPointwiseError(f"{name} gives {str(dtype).removeprefix('torch.')}, in which kernels do not calculate")
    return "integer"


class _Writer:
    """Writes the program of a rule."""

    def __init__(self, rule: Rule, grid: Grid, dtype: torch.dtype):
        self.rule, self.is_double, self.is_single = rule, dtype == torch.float64, False
        lengths = zip(("batch", "head", "query", "key"), grid.shape, strict=True)
        self.bounds: dict[str, Bounds] = {name: (0, max(length - 1, 0)) for name, length in lengths}
        self.dtypes = {operation_name(n): operation.dtype for n, operation in enumerate(rule.operations)}
        self.dtypes |= {f"inputs[{number}]": tensor.dtype for number, tensor in enumerate(rule.inputs)}
        self.dtypes["score"] = dtype
        self.operations: list[list[Any]] = []
        self.numbers: list[int | float] = []
        self.values: dict[str, Any] = {"query_index": "query", "key_index": "key"}
        self.types = {"score": "real", "batch": "integer", "head": "integer", "query": "integer", "key": "integer"}
        self.partial: dict[str, tuple[int, list[Any]]] = {}
        self.indices: dict[int, list[list[Any]]] = {}
        self.loaded: dict[Any, str] = {}

    def value(self, argument: Any, kind: str) -> Any:
        """Returns an argument as a value of the program of this type."""
        if isinstance(argument, Name):
            value = self._named(argument)
        elif isinstance(argument, (bool, int, float)):
            value = self._number(argument, kind)
        else:
            raise NotPointwiseError(f"it calculates with {argument!r}")
        return self._cast(value, kind)

    def _number(self, number: float, kind: str) -> str:
        is_real = kind == "real" or isinstance(number, float)
        value = float(number) if is_real else int(number)
        self.numbers.append(torch.tensor(value, dtype=torch.float32).item() if is_real and self.is_single else value)
        name = f"n{len(self.numbers) - 1}"
        if not is_real:
            self.bounds[name] = int(number), int(number)
        self.types[name] = "real" if is_real else "integer"
        return name

    def _named(self, name: Name) -> Any:
        if name in self.partial:
            raise NotPointwiseError("it calculates with a whole axis of a tensor")
        if name.startswith("inputs["):
            return self._load(int(name[7:-1]), [])
        return self.values.get(name, str(name))

    def _cast(self, value: str, kind: str) -> str:
        own = self.types[value]
        if own == kind:
            return value
        if own == "boolean":
            return self.add("where", kind, value, *(self.add("constant", kind, number) for number in (1, 0)))
        if own == "real" and kind == "integer":
            value = self.add("trunc", "real", value)
        return self.add(kind, kind, value)

    def add(self, name: str, kind: str, *arguments: Any) -> str:
        """Appends an operation; returns the name of its result."""
        self.operations.append([name, kind, *arguments])
        result = f"v{len(self.operations) - 1}"
        self.types[result] = kind
        if kind == "integer":
            self.bounds[result] = self._bounds_of(name, list(arguments))
        return result

    def _bounds_of(self, name: str, arguments: list[Any]) -> Bounds:
        if name == "load":
            tensor = self.rule.inputs[arguments[0]]
            low, high = map(int, _stored(tensor).aminmax())
        elif name == "integer" and arguments[0] not in self.bounds:
            low, high = -LARGEST_ROUNDED, LARGEST_ROUNDED
        else:
            used = arguments[1:] if name == "where" else arguments
            low, high = bounds_of(name, [(one, one) if isinstance(one, int) else self.bounds[one] for one in used])
        if max(-low, high) >= 1 << 63:
            raise NotPointwiseError("it calculates integers that may have more than 64 bits")
        return low, high

    def _load(self, tensor: int, indices: list[Any]) -> str:
        key = (tensor, *indices)
        if key not in self.loaded:
            kind = _type_of(_stored(self.rule.inputs[tensor]).dtype, "a tensor")
            self.indices.setdefault(tensor, []).append(indices)
            self.loaded[key] = self.add("load", kind, tensor, indices)
        return self.loaded[key]

    def _getitem(self, source: Name, index: Any) -> Any:
        tensor, indices = self.partial.get(source, (None, []))
        if tensor is None:
            if not source.startswith("inputs["):
                raise NotPointwiseError("it indexes what depends on the pair")
            tensor = int(source[7:-1])
        items = index if isinstance(index, tuple) else (index,)
        indices = [*indices, *(self.value(item, "integer") for item in items)]
        return (tensor, indices) if len(indices) < self.rule.inputs[tensor].dim() else self._load(tensor, indices)

    def write(self) -> None:
        for number, operation in enumerate(self.rule.operations):
            name = f"v{number}"
            if operation.name == "__getitem__":
                result = self._getitem(*operation.arguments)
                if isinstance(result, tuple):
                    self.partial[name] = result
                    continue
            elif operation.shape != ():
                raise NotPointwiseError(f"{_shown(operation)} of it is no single number")
            else:
                result = self._in_type(operation, self._operation(operation))
            self.values[name] = result

    def _in_type(self, operation: Operation, result: Any) -> Any:
        """Returns the result of an operation as a number of the type that PyTorch gives it."""
        if operation.dtype in _HALVES:
            raise NotPointwiseError(f"it rounds to half precision ({_shown(operation)})")
        if operation.dtype == torch.int32 and not is_short(self.bounds[result]):
            low, high = self.bounds[result]
            if (low, high) != (-LARGEST_ROUNDED, LARGEST_ROUNDED):
                raise NotPointwiseError(f"it calculates integers that may have more than 32 bits ({_shown(operation)})")
            self.bounds[result] = 1 - (1 << 31), (1 << 31) - 1
        return self.add("single", "real", result) if self.is_single and self.types[result] == "real" else result

    def _operation(self, operation: Operation) -> Any:
        kind = _type_of(operation.dtype, _shown(operation))
        name, arguments = operation.name, operation.arguments
        dtypes = [operation.dtype, *(self.dtypes.get(one) for one in arguments if isinstance(one, Name))]
        self.is_single = self.is_double and torch.float64 not in (dtypes if kind == "boolean" else dtypes[:1])
        keywords = {key: item for key, item in operation.keywords.items() if key not in _IGNORED}
        bare = name.strip("_") if name.startswith("__") else name
        if keywords.pop("alpha", 1) != 1 or keywords.pop("memory_format", None) is not None:
            raise NotPointwiseError(f"it uses an option of {_shown(operation)}")
        rounding = keywords.pop("rounding_mode", None)
        if bare in _CASTS:
            return self.value(arguments[0], kind)
        names = "min", "max", "other", "exponent", "value", "fill_value"
        named = {key: keywords.pop(key) for key in names if key in keywords}
        is_made = bare.endswith("_like") or bare.startswith("new_")
        if is_made:
            keywords = {key: keywords[key] for key in keywords.keys() - {"dtype", "device", "size", "pin_memory"}}
        if keywords:
            raise NotPointwiseError(f"it uses an option of {_shown(operation)}: {next(iter(keywords))}")
        if bare in ("clamp", "clip", "clamp_min", "clamp_max"):
            return self._clamp(bare, arguments, named, kind)
        arguments = (*arguments, *named.values())
        if bare in _UNCHANGED or name in _UNCHANGED or bare == "detach":
            value = self.value(arguments[0], kind)
            return self.add("constant", kind, value) if bare == "detach" else value
        if bare in _UNARY and (len(arguments) == 1 or bare == "relu"):
            return self._unary(_UNARY[bare], arguments[0], kind)
        if bare in ("invert", "bitwise_not", "logical_not"):
            return self.add("not", kind, self.value(arguments[0], kind))
        if bare in _COMPARISONS and len(arguments) == 2:
            both = "real" if any(self._kind(argument) == "real" for argument in arguments) else "integer"
            return self.add(_COMPARISONS[bare], "boolean", *(self.value(argument, both) for argument in arguments))
        if bare in ("where", "masked_fill"):
            order = (0, 1, 2) if bare == "where" else (1, 2, 0)
            condition, first, second = (arguments[index] for index in order)
            values = self.value(condition, "boolean"), self.value(first, kind), self.value(second, kind)
            return self.add("where", kind, *values)
        reverse = bare[:1] == "r" and bare[1:] in (*_ARITHMETIC, *_LOGICAL) and name != "round"
        bare = bare[1:] if reverse else bare
        if bare in _LOGICAL and len(arguments) == 2:
            return self.add(_LOGICAL[bare], kind, *(self.value(argument, kind) for argument in arguments))
        if bare in _ARITHMETIC and len(arguments) == 2:
            pair = arguments[::-1] if reverse else arguments
            return self._arithmetic(operation, _ARITHMETIC[bare], pair, kind, rounding)
        return self._composed(operation, bare, arguments, kind)

    def _kind(self, argument: Any) -> str:
        if isinstance(argument, Name):
            return self.types[self._named(argument)]
        return "real" if isinstance(argument, float) else "integer"

    def _clamp(self, name: str, arguments: Any, named: dict[str, Any], kind: str) -> str:
        if kind == "boolean":
            raise NotPointwiseError("it clamps booleans")
        value, bounds = arguments[0], arguments[1:]
        if name == "clamp_max":
            low, high = None, bounds[0] if bounds else named.get("max")
        else:
            low = named.get("min", bounds[0] if bounds else None)
            high = named.get("max", bounds[1] if len(bounds) > 1 else None)
        result = self.value(value, kind)
        if low is not None:
            result = self.add("at_least", kind, result, self.value(low, kind))
        return result if high is None else self.add("at_most", kind, result, self.value(high, kind))

    def _unary(self, name: str, argument: Any, kind: str) -> str:
        value = self.value(argument, kind)
        if kind == "integer" and name in ("floor", "trunc", "round"):
            return value
        if kind == "integer" and name == "relu":
            return self.add("at_least", kind, value, self.add("constant", kind, 0))
        if kind == "boolean" or (kind == "integer" and name not in ("neg", "abs")):
            raise NotPointwiseError(f"it uses {name} on {kind}s")
        return self.add(name, kind, value)

    def _arithmetic(self, operation: Operation, name: str, pair: Any, kind: str, rounding: str | None) -> str:
        if kind == "boolean":
            if name not in _OF_BOOLEANS:
                raise NotPointwiseError(f"it uses {_shown(operation)} on booleans")
            name = _OF_BOOLEANS[name]
        if name == "div" and rounding is not None:
            if rounding != "floor":
                raise NotPointwiseError(f"it divides with rounding_mode={rounding!r}")
            name = "floordiv"
        if name == "pow":
            return self._power(pair[0], pair[1], kind)
        if name in ("floordiv", "mod"):
            return self._division(operation, name, pair, kind)
        return self.add(name, kind, *(self.value(argument, kind) for argument in pair))

    def _division(self, operation: Operation, name: str, pair: Any, kind: str) -> str:
        dividend, divisor = pair
        if kind == "real":
            raise NotPointwiseError(f"it takes remainders or whole quotients of real numbers ({_shown(operation)})")
        if isinstance(divisor, Name) and divisor.startswith("inputs["):
            number = self.rule.values[int(divisor[7:-1])]
            divisor = number if isinstance(number, int) else divisor
        if isinstance(divisor, bool) or not isinstance(divisor, int) or divisor <= 0:
            raise NotPointwiseError(f"it divides integers by something else than a positive number ({operation.name})")
        value = self.value(dividend, kind)
        if divisor & (divisor - 1) == 0:
            bits = divisor.bit_length() - 1
            return self.add(
                *(("rightshift", kind, value, bits) if name == "floordiv" else ("and", kind, value, divisor - 1))
            )
        return self.add(name, kind, value, divisor)

    def _power(self, base: Any, exponent: Any, kind: str) -> str:
        if not isinstance(exponent, Name) and float(exponent).is_integer() and 0 <= exponent <= LARGEST_POWER:
            value = self.value(base, kind)
            result = self.add("constant", kind, 1) if exponent == 0 else value
            for _ in range(int(exponent) - 1):
                result = self.add("mul", kind, result, value)
            return result
        if kind != "real":
            raise NotPointwiseError("it raises integers to a power that is no small number")
        if not isinstance(exponent, Name) and abs(exponent) == 0.5:
            root = self.add("sqrt", kind, self.value(base, kind))
            return root if exponent > 0 else self.add("div", kind, self.add("constant", kind, 1), root)
        if isinstance(exponent, (int, float)) and float(exponent).is_integer() and exponent >= -LARGEST_POWER:
            return self.add("div", kind, self.add("constant", kind, 1), self._power(base, -exponent, kind))
        if isinstance(exponent, (int, float)) and float(exponent).is_integer():
            raise NotPointwiseError(f"it raises a number to the power {exponent}")
        is_base = not isinstance(base, Name) and base > 0
        if not is_base and isinstance(exponent, Name):
            raise NotPointwiseError("it raises a number that may be negative to a power that may be an integer")
        return self.add("pow", kind, self.value(base, kind), self.value(exponent, kind))

    def _composed(self, operation: Operation, name: str, arguments: Any, kind: str) -> str:
        """Writes what consists of other operations."""
        made = {"zeros_like": 0, "ones_like": 1, "new_zeros": 0, "new_ones": 1}
        if name in (*made, "full_like", "new_full"):
            return self.value(made[name] if name in made else arguments[-1], kind)
        if name in ("square", "exp2", "rsqrt", "reciprocal", "log2", "silu"):
            value = self.value(arguments[0], kind)
            if name == "square":
                return self.add("mul", kind, value, value)
            if name == "exp2":
                return self.add("pow", kind, self.add("constant", kind, 2), value)
            if name == "log2":
                return self.add("mul", kind, self.add("log", kind, value), self._number(1.0 / math.log(2.0), kind))
            if name == "silu":
                return self.add("mul", kind, value, self.add("sigmoid", kind, value))
            one = self.add("constant", kind, 1)
            return self.add("div", kind, one, self.add("sqrt", kind, value) if name == "rsqrt" else value)
        raise NotPointwiseError(f"it uses {_shown(operation)}, which the kernels' row functions do not have")


def _shown(operation: Operation) -> str:
    return f"'{operation.name}'"


def _stored(tensor: Tensor) -> Tensor:
    """Returns integers of a narrow type as int64; any other tensor as it is."""
    is_narrow = not tensor.is_floating_point() and tensor.dtype not in (torch.bool, *_INTEGERS)
    return tensor.long() if is_narrow and not tensor.is_complex() else tensor


def operation_name(number: int) -> str:
    """Returns the name of the result of a rule's operation."""
    return f"v{number}"


def bounds_of(name: str, parts: list[Bounds]) -> Bounds:
    """Returns bounds of an operation on integers within bounds."""
    (low, high), *others = parts
    least, most = others[0] if others else (0, 0)
    corners = low * least, low * most, high * least, high * most
    bits = max(max(abs(one), abs(other)) for one, other in parts).bit_length()
    bitwise = (0 if min(low, least) >= 0 else -1 << bits), (1 << bits) - 1
    bounds = {
        "add": (low + least, high + most),
        "sub": (low - most, high - least),
        "mul": (min(corners), max(corners)),
        "neg": (-high, -low),
        "not": (-high - 1, -low - 1),
        "abs": (0, max(abs(low), abs(high))),
        "maximum": (max(low, least), max(high, most)),
        "minimum": (min(low, least), min(high, most)),
        "where": (min(low, least), max(high, most)),
        "mod": (0, most),
        "and": bitwise,
        "or": bitwise,
        "xor": bitwise,
    }
    bounds |= {"at_least": bounds["maximum"], "at_most": bounds["minimum"]}
    if name == "floordiv":
        return low // least, high // least
    if name == "rightshift":
        return low >> least, high >> least
    return bounds.get(name, (low, high))


def is_short(bounds: Bounds) -> bool:
    """Whether int32 holds all integers within bounds."""
    return max(-bounds[0], bounds[1]) < 1 << 31


def program_of(rule: Rule, grid: Grid, kind: str, dtype: torch.dtype) -> PairProgram:
    """Returns the program of a rule.

    Args:
        grid: the whole problem.
        dtype: float32 or float64, in which real numbers are computed.
        kind: the type of the result, ``real`` or ``boolean``.

    Raises:
        NotPointwiseError: the kernels' functions cannot compute it; the message says why.
    """
    if not has_host_data(*rule.inputs) or not all(tensor.numel() for tensor in rule.inputs):
        raise NotPointwiseError("it reads a tensor without elements")
    writer = _Writer(rule, grid, dtype)
    writer.write()
    result = writer.value(Name(rule.result), kind)
    tensors = [_stored(tensor) for tensor in rule.inputs]
    is_narrow = all(tensor.numel() < 1 << 31 for tensor in tensors) and all(map(is_short, writer.bounds.values()))

    def text(has_gradient: bool) -> str:
        inputs = [
            [
                _type_of(tensor.dtype, "a tensor"),
                tensor.dim(),
                has_gradient and tensor.requires_grad,
                tensor.dim() > 0 and tensor.shape[-1] >= grid.keys,
            ]
            for tensor in tensors
        ]
        program = {
            "inputs": inputs,
            "numbers": [writer.types[f"n{number}"] for number in range(len(writer.numbers))],
            "operations": writer.operations,
            "result": result,
            "integers": "int32" if is_narrow else "int64",
        }
        return json.dumps(program, separators=(",", ":"))

    read = [writer.indices.get(number, []) for number in range(len(tensors))]
    own = [tuple(all(name in one for one in indices) for name in ("batch", "head", "query")) for indices in read]
    return PairProgram(text(False), text(True), tuple(tensors), tuple(writer.numbers), tuple(own))
