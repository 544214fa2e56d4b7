"""Rules of single pairs as programs of the kernels' row functions (`regard.kernels.cpu.bodies.row_functions`).

A program has only operations that these functions know, on real numbers, integers and booleans. Numbers of Python are
inputs of a program and no part of it, so that a function whose numbers change is not compiled again.
"""

import itertools
import json
import math
import operator
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.attention.pair_rules import Name, NotPointwiseError, Operation, Rule
from regard.attention.problem import once
from regard.errors import ArgumentError
from regard.kernels.cpu.kernel_arguments import MIN_TASKS, address_of
from regard.kernels.cpu.row_operations import OPERATIONS
from regard.shapes.grid import Grid
from regard.tracing.transforms import has_host_data, in_memory

if TYPE_CHECKING:
    from regard.kernels.cpu.kernel import Kernel

GRADIENT_SUMS = 1 << 24
"""Most elements of the separate sums of a tensor's gradient: 64 MiB of float32."""

LARGEST_POWER = 8
"""Largest integer power that is computed by products."""

_INTEGERS = (torch.int64, torch.int32)

_HALVES = (torch.float16, torch.bfloat16)

_COMPARISONS = frozenset({"eq", "ge", "gt", "le", "lt", "ne"})

_FILLED = {"zeros_like": 0, "new_zeros": 0, "ones_like": 1, "new_ones": 1}
"""Operators whose results have one number everywhere, and it."""

LARGEST_ROUNDED = 1 << 48
"""Magnitude that real numbers are taken to have at most where they become integers of 64 bits."""

Bounds = tuple[int, int]
"""The least and the largest value that an integer may have."""


@dataclass(eq=False)
class PairProgram:
    """A rule as a program, with the memory of its tensors, which must outlive a launch.

    Attributes:
        text: the program, in JSON.
        gradient_text: the program with the tensors that get a gradient.
        dtype: float32 or float64, in which real numbers are computed.
        tensors: the tensors that it reads.
        numbers: its numbers, integers and real ones.
        own_sums: of each tensor, whether batch rows, heads and queries read elements of their own.
    """

    text: str
    gradient_text: str
    dtype: torch.dtype
    tensors: list[Tensor]
    numbers: list[int | float]
    own_sums: list[tuple[bool, ...]]

    def uses(self, position: str) -> bool:
        """Whether the program reads a position, ``batch`` or ``head``."""
        return f'"{position}"' in self.text

    def kernel(self, maker: str) -> "Kernel":
        """Returns the function of this maker in `bodies.row_functions`."""
        from regard.kernels.cpu import kernels

        text = self.gradient_text if maker == "gradient_function" else self.text
        return kernels.row_function(maker, text, self.dtype)

    @once
    def stored(self) -> list[Tensor]:
        """Returns the tensors, contiguous, in the kernels' types."""
        integers = torch.int32 if '"int32"' in self.text else torch.int64
        kinds = {"real": self.dtype, "integer": integers, "boolean": torch.bool}
        return [
            in_memory(tensor.detach().to(kinds[_type_of(tensor.dtype, "a tensor")])).contiguous()
            for tensor in self.tensors
        ]

    @once
    def data(self) -> Tensor:
        """Returns what functions read: see `bodies.row_functions`."""
        return self._data({})

    def _data(self, sums: Mapping[int, Tensor]) -> Tensor:
        data = [0]
        for number, tensor in enumerate(self.stored):
            gradient = [0, 0, 0, 0]
            if number in sums:
                strides = zip(sums[number].shape[:3], sums[number].stride(), strict=False)
                gradient = [address_of(sums[number]), *(0 if length == 1 else stride for length, stride in strides)]
            data += [address_of(tensor), *gradient, *tensor.shape]
        for value in self.numbers:
            data.append(struct.unpack("q", struct.pack("d", value))[0] if isinstance(value, float) else value)
        return torch.tensor(data, dtype=torch.int64)

    def check(self) -> None:
        """Raises ArgumentError if a function read an element that a tensor does not have."""
        if int(self.data[0]):
            raise ArgumentError(
                "a function of the score or of the mask reads a tensor at an index that it does not have"
            )

    @property
    def differentiable(self) -> tuple[Tensor, ...]:
        """The tensors that need a gradient."""
        return tuple(tensor for tensor in self.tensors if torch.is_grad_enabled() and tensor.requires_grad)

    def with_sums(self, batch: int, kv_heads: int, chunks: int) -> tuple[Tensor, list[Tensor]]:
        """Returns the data with memory for the gradients of the differentiable tensors, and this memory.

        Its axes are batch rows, key heads and chunks, each of length 1 if its rows read elements of their own, and the
        elements.
        """
        sums = {
            number: torch.zeros(*self._copies(number, batch, kv_heads, chunks), tensor.numel(), dtype=self.dtype)
            for number, tensor in enumerate(self.tensors)
            if tensor.requires_grad
        }
        return self._data(sums), list(sums.values())

    def _copies(self, number: int, *lengths: int) -> tuple[int, ...]:
        return tuple(1 if own else length for own, length in zip(self.own_sums[number], lengths, strict=True))

    def obstacle(self, batch: int, kv_heads: int) -> str | None:
        """Returns why the gradients of its tensors cannot be summed; None if they can."""
        for number, tensor in enumerate(self.tensors):
            elements = math.prod(self._copies(number, batch, kv_heads, MIN_TASKS)) * tensor.numel()
            if torch.is_grad_enabled() and tensor.requires_grad and elements > GRADIENT_SUMS:
                return "the gradient of a tensor that its function reads would be stored too often"
        return None


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
        self.shown = ""
        self.dtypes = {f"v{n}": operation.dtype for n, operation in enumerate(rule.operations)}
        self.dtypes |= {f"inputs[{number}]": tensor.dtype for number, tensor in enumerate(rule.inputs)}
        self.dtypes["score"] = dtype
        self.operations: list[list[Any]] = []
        self.numbers: list[int | float] = []
        # A tensor with fewer indices than axes is its number and its indices.
        self.values: dict[str, Any] = {f"inputs[{number}]": (number, []) for number in range(len(rule.inputs))}
        self.values |= {"query_index": "query", "key_index": "key"}
        self.types = {"score": "real", "batch": "integer", "head": "integer", "query": "integer", "key": "integer"}
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

    def _named(self, name: Name) -> str:
        value = self.values.get(name, str(name))
        if isinstance(value, str):
            return value
        tensor, indices = value
        if len(indices) < self.rule.inputs[tensor].dim():
            raise NotPointwiseError("it calculates with a whole axis of a tensor")
        key = (tensor, *indices)
        if key not in self.loaded:
            kind = _type_of(_stored(self.rule.inputs[tensor]).dtype, "a tensor")
            self.indices.setdefault(tensor, []).append(indices)
            self.loaded[key] = self.add("load", kind, tensor, indices)
        return self.loaded[key]

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
        if name != "load" and name not in OPERATIONS[kind]:
            raise NotPointwiseError(f"it uses {self.shown} on {kind}s")
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

    def _index(self, source: Name, index: list[Any]) -> tuple[int, list[str]]:
        if not isinstance(self.values.get(source), tuple):
            raise NotPointwiseError("it indexes what depends on the pair")
        tensor, indices = self.values[source]
        return tensor, [*indices, *(self.value(item, "integer") for item in index)]

    def write(self) -> None:
        for number, operation in enumerate(self.rule.operations):
            self.shown = f"'{operation.called}'"
            if operation.name == "index":
                result = self._index(*operation.arguments)
            elif operation.shape != ():
                raise NotPointwiseError(f"{self.shown} of it is no single number")
            else:
                result = self._in_type(operation.dtype, self._operation(operation))
            self.values[f"v{number}"] = result

    def _in_type(self, dtype: torch.dtype, result: Any) -> Any:
        """Returns the result of an operation as a number of the type that PyTorch gives it."""
        if dtype in _HALVES:
            raise NotPointwiseError(f"it rounds to half precision ({self.shown})")
        if dtype == torch.int32 and not is_short(self.bounds[result]):
            if self.bounds[result] != (-LARGEST_ROUNDED, LARGEST_ROUNDED):
                raise NotPointwiseError(f"it calculates integers that may have more than 32 bits ({self.shown})")
            self.bounds[result] = 1 - (1 << 31), (1 << 31) - 1
        return self.add("single", "real", result) if self.is_single and self.types[result] == "real" else result

    def _operation(self, operation: Operation) -> Any:
        kind = _type_of(operation.dtype, self.shown)
        name, arguments, keywords = operation.name, operation.arguments, dict(operation.keywords)
        dtypes = [operation.dtype, *(self.dtypes.get(one) for one in arguments if isinstance(one, Name))]
        self.is_single = self.is_double and torch.float64 not in (dtypes if kind == "boolean" else dtypes[:1])
        rounding = keywords.pop("rounding_mode", None)
        options = keywords.keys() - {"device", "dtype"}
        if options:
            raise NotPointwiseError(f"it uses an option of {self.shown}: {min(options)}")
        if rounding not in (None, "floor"):
            raise NotPointwiseError(f"it divides with rounding_mode={rounding!r}")
        if name in _FILLED:
            return self.value(_FILLED[name], kind)
        if name in ("full_like", "new_full"):
            return self.value(arguments[-1], kind)
        if name in ("_to_copy", "clone", "alias"):
            return self.value(arguments[0], kind)
        if name == "detach":
            return self.add("constant", kind, self.value(arguments[0], kind))
        if name in ("where", "masked_fill"):
            condition, first, second = arguments if name == "where" else (*arguments[1:], arguments[0])
            values = self.value(condition, "boolean"), self.value(first, kind), self.value(second, kind)
            return self.add("where", kind, *values)
        if name == "clamp":
            result = self.value(arguments[0], kind)
            for bound, limit in zip(("clamp_min", "clamp_max"), arguments[1:], strict=False):
                result = result if limit is None else self.add(bound, kind, result, self.value(limit, kind))
            return result
        if len(arguments) > 2:
            raise NotPointwiseError(f"it uses an option of {self.shown}")
        if name == "rsub":
            name, arguments = "sub", arguments[::-1]
        if name in ("floor_divide", "remainder") or rounding is not None:
            return self._division("remainder" if name == "remainder" else "floor_divide", kind, *arguments)
        if name == "pow":
            return self._power(kind, *arguments)
        if not any(name in operations for operations in OPERATIONS.values()):
            raise NotPointwiseError(f"it uses {self.shown}, which the kernels' row functions do not have")
        operands = kind
        if name in _COMPARISONS:
            operands = "real" if any(self._kind(argument) == "real" for argument in arguments) else "integer"
        return self.add(name, kind, *(self.value(argument, operands) for argument in arguments))

    def _kind(self, argument: Any) -> str:
        if isinstance(argument, Name):
            return self.types[self._named(argument)]
        return "real" if isinstance(argument, float) else "integer"

    def _division(self, name: str, kind: str, dividend: Any, divisor: Any) -> str:
        if kind == "real":
            raise NotPointwiseError(f"it takes remainders or whole quotients of real numbers ({self.shown})")
        if isinstance(divisor, Name) and isinstance(self.values.get(divisor), tuple):
            known = self.rule.values[self.values[divisor][0]]
            divisor = known if isinstance(known, int) else divisor
        if isinstance(divisor, bool) or not isinstance(divisor, int) or divisor <= 0:
            raise NotPointwiseError(f"it divides integers by something else than a positive number ({self.shown})")
        value = self.value(dividend, kind)
        if divisor & (divisor - 1) != 0:
            return self.add(name, kind, value, divisor)
        if name == "remainder":
            return self.add("bitwise_and", kind, value, divisor - 1)
        return self.add("right_shift", kind, value, divisor.bit_length() - 1)

    def _power(self, kind: str, base: Any, exponent: Any) -> str:
        number = None if isinstance(exponent, Name) else float(exponent)
        is_whole = number is not None and number.is_integer()
        if number is not None and is_whole and 0 <= number <= LARGEST_POWER:
            value = self.value(base, kind)
            result = self.add("constant", kind, 1) if number == 0 else value
            for _ in range(int(number) - 1):
                result = self.add("mul", kind, result, value)
            return result
        if kind != "real":
            raise NotPointwiseError("it raises integers to a power that is no small number")
        if number is not None and abs(number) == 0.5:
            return self.add("sqrt" if number > 0 else "rsqrt", kind, self.value(base, kind))
        if number is not None and is_whole and number >= -LARGEST_POWER:
            return self.add("reciprocal", kind, self._power(kind, base, -number))
        if is_whole:
            raise NotPointwiseError(f"it raises a number to the power {exponent}")
        if number is None and (isinstance(base, Name) or base <= 0):
            raise NotPointwiseError("it raises a number that may be negative to a power that may be an integer")
        return self.add("pow", kind, self.value(base, kind), self.value(exponent, kind))


def _stored(tensor: Tensor) -> Tensor:
    """Returns integers of a narrow type as int64; any other tensor as it is."""
    is_narrow = not tensor.is_floating_point() and tensor.dtype not in (torch.bool, *_INTEGERS)
    return tensor.long() if is_narrow and not tensor.is_complex() else tensor


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": operator.add, "bitwise_not": operator.invert, "clamp_max": min, "clamp_min": max,
    "floor_divide": operator.floordiv, "maximum": max, "minimum": min, "mul": operator.mul, "neg": operator.neg,
    "right_shift": operator.rshift, "sub": operator.sub,
}  # fmt: skip
"""Operations on integers that have their extremes at the bounds of the arguments."""


def bounds_of(name: str, parts: list[Bounds]) -> Bounds:
    """Returns bounds of an operation on integers within bounds."""
    if name == "remainder":
        return 0, parts[1][1]
    ends = [end for part in parts for end in part]
    if name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        bits = max(map(abs, ends)).bit_length()
        return (0 if min(ends) >= 0 else -1 << bits), (1 << bits) - 1
    if name == "abs":
        return 0, max(map(abs, ends))
    if name in _FUNCTIONS:
        ends = list(itertools.starmap(_FUNCTIONS[name], itertools.product(*parts)))
    return min(ends), max(ends)


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
    return PairProgram(text(False), text(True), dtype, tensors, writer.numbers, own)
