"""Rules of single pairs: masks, modifiers of scores and biases as functions that a compiler can take.

Each part states its rule once, for a whole tile: `Mask.allows`, a score's modifiers, `Bias.of_pairs`. `Pair` is a grid
of one pair, whose indices are tensors without axes, and `record` notes the operations that a rule applies to them.
Values that do not depend on the pair are computed at once, and become inputs of the rule: tensors that masks hold, the
diagonals of a bias, and integers that differ between calls. So two calls of one kind have the same text, which is the
key of their compiled kernel, whatever their lengths and numbers are.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode, resolve_name

from regard.shapes.checks import type_text
from regard.shapes.grid import Grid
from regard.tracing.transforms import sent

LARGEST_INTEGER = 1 << 29
"""Integers that a rule names may not exceed this magnitude: kernels of GPUs add a few of them in int32. Those of CPUs
take int64 unless int32 holds all that a rule calculates (`row_programs.bounds_of`)."""

SHORT_LENGTH = 1 << 15
"""Number of keys or queries up to which the product of two indices is exact in int32."""

STAND_IN_DEVICE = torch.device("cpu")
"""The device of the tensors on which a rule runs while it is recorded."""

_NARROW_INTEGERS = frozenset({
    "__abs__", "__add__", "__floordiv__", "__getitem__", "__mod__", "__neg__", "__radd__", "__rsub__", "__sub__",
    "abs", "add", "clamp", "double", "float", "int", "long", "minimum", "maximum", "neg", "remainder", "rsub",
    "sub", "to", "where",
})  # fmt: skip
"""Operations whose results int32 holds if it holds their operands, but for a few additions."""


_OF_SHAPE = frozenset({"__len__", "dim", "is_floating_point", "ndimension", "nelement", "numel", "size", "stride"})
"""Methods that return what does not depend on numbers."""


class NotPointwiseError(Exception):
    """A part has no rule of single pairs; the message says why."""


class Name(str):
    """The name of a tensor in a rule: that of an argument, ``v0`` of the first operation, ``inputs[0]``."""


class Operation(NamedTuple):
    """One operation of a rule.

    Attributes:
        name: the name of PyTorch's function or method; the method ``where`` has the arguments of the function.
        arguments, keywords: its arguments, with names in place of tensors.
        dtype, shape: those of the result.
    """

    name: str
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    dtype: torch.dtype
    shape: torch.Size


class Rule(NamedTuple):
    """A function of single pairs.

    Attributes:
        text: the source of ``rule([score], batch, head, query_index, key_index, inputs)``.
        inputs: the tensors that it reads, on the device of the problem.
        values: the integers of each of these tensors where the host knows them, else None.
        wide: whether the indices must be int64, since products of two of them may exceed int32.
        operations: the operations of the source; ``v0`` is the result of the first one.
        result: the name of the result.
    """

    text: str
    inputs: tuple[Tensor, ...]
    values: tuple[int | tuple[int, ...] | None, ...]
    wide: bool
    operations: tuple[Operation, ...]
    result: str

    @property
    def function(self) -> Callable[..., Tensor]:
        """The compiled source, the same object for equal texts."""
        return _function(self.text)


@lru_cache(maxsize=256)
def _function(text: str) -> Callable[..., Tensor]:
    names: dict[str, Any] = {"torch": torch, "device": torch.device, "inf": torch.inf, "nan": torch.nan}
    exec(compile(text, "<rule of single pairs>", "exec"), names)
    return names["rule"]


class _Span:
    """The span of an axis of a `Pair`, which no rule may read."""

    def __getattr__(self, name: str) -> object:
        raise NotPointwiseError("it reads the limits of a tile, and not the positions of a pair alone")

    __getitem__ = __bool__ = __iter__ = __getattr__  # type: ignore[assignment]


@dataclass(frozen=True)
class Pair(Grid):
    """The grid of one pair, while a rule is recorded."""

    index: tuple[Tensor, Tensor, Tensor, Tensor] = ()  # type: ignore[assignment]
    recorder: "_Recorder" = None  # type: ignore[assignment]

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return 1, 1, 1, 1

    @property
    def offset(self) -> int:
        return self.number(self.keys - self.queries)  # type: ignore[return-value]

    @property
    def batch_index(self) -> Tensor:
        return self.index[0]

    @property
    def head_index(self) -> Tensor:
        return self.index[1]

    @property
    def query_index(self) -> Tensor:
        return self.index[2]

    @property
    def key_index(self) -> Tensor:
        return self.index[3]

    @property
    def shared_query_index(self) -> Tensor:
        return self.query_index

    @property
    def shared_key_index(self) -> Tensor:
        return self.key_index

    def cut(self, tensor: Tensor) -> Tensor:
        axes = self.index[4 - tensor.dim() :]
        # The heads' axis is not cut in a tile, so it is indexed here as the others are.
        index = tuple(0 if length == 1 else axis for length, axis in zip(tensor.shape, axes, strict=True))
        return tensor[index] if index else tensor

    def number(self, value: int) -> Tensor:
        if abs(value) > LARGEST_INTEGER:
            raise NotPointwiseError(f"it calculates with {value}, which is too large for its kernels")
        return self.recorder.known(value, torch.full((), value, dtype=torch.int32, device=self.recorder.device))

    def numbers(self, values: tuple[int, ...]) -> Tensor:
        tensor = sent(torch.tensor(values, dtype=torch.int64, device="cpu"), self.recorder.device)
        return self.recorder.known(values, tensor)

    def of_batch(self, values: Tensor) -> Tensor:
        return values[self.batch_index]

    def of_queries(self, values: Tensor) -> Tensor:
        return self._value_at(values, self.query_index)

    def of_keys(self, values: Tensor) -> Tensor:
        return self._value_at(values, self.key_index)

    def _value_at(self, values: Tensor, index: Tensor) -> Tensor:
        if values.dim() == 1:
            return values[index]
        return values[self.batch_index, index]

    def with_appended(self, appended: int, values: Callable[[Grid], Tensor], fill: bool | float) -> Tensor:
        keys = self.keys - appended
        if keys == 0:
            return torch.full((), fill, device=self.recorder.device)
        last = self.number(keys - 1)
        batch, head, query, key = self.index
        inner = replace(self, keys=keys, index=(batch, head, query, torch.minimum(key, last)))
        return torch.where(key > last, fill, values(inner))


class _Recorder(TorchFunctionMode):
    """Writes down the operations on tensors that depend on the pair.

    It runs them on ones in place of all numbers, for the dtypes of the results; what would tell a number to Python is
    refused. Nothing runs on the device of the problem but what does not depend on the pair.
    """

    def __init__(self, device: torch.device):
        super().__init__()
        self.device = device
        self.lines: list[str] = []
        self.operations: list[Operation] = []
        self.names: dict[int, str] = {}
        self.inputs: list[Tensor] = []
        self.values: dict[int, int | tuple[int, ...]] = {}
        self.arguments: list[str] = []
        self.wide = False
        # An id is that of another tensor after the first one is gone.
        self.alive: list[Tensor] = []

    def known(self, value: int | tuple[int, ...], tensor: Tensor) -> Tensor:
        """Returns a tensor of integers that the host knows."""
        self.alive.append(tensor)
        self.values[id(tensor)] = value
        return tensor

    def argument(self, name: str, dtype: torch.dtype) -> Tensor:
        """Returns a stand-in for an argument of the rule."""
        self.arguments.append(name)
        return self._named(torch.ones((), dtype=dtype), name)

    def _named(self, tensor: Tensor, name: str) -> Tensor:
        self.alive.append(tensor)
        self.names[id(tensor)] = name
        return tensor

    def _on_device(self, value: Any) -> Any:
        """Returns the problem's device in place of that of the stand-ins; other values stay as they are."""
        return self.device if isinstance(value, torch.device) and value == STAND_IN_DEVICE else value

    def _text(self, value: Any) -> str:
        """Returns the text of an argument of an operation."""
        if isinstance(value, Tensor):
            return self._name(value)
        if isinstance(value, (tuple, list)):
            items = ", ".join(map(self._text, value))
            return f"({items},)" if isinstance(value, tuple) and items else f"[{items}]"
        if isinstance(value, int) and abs(value) > LARGEST_INTEGER:
            raise NotPointwiseError(f"it calculates with {value}, which is too large for its kernels")
        if value is None or isinstance(value, (bool, int, float, str, torch.dtype, torch.device)):
            return repr(self._on_device(value))
        raise NotPointwiseError(f"it calculates with {type_text(value)}")

    def _name(self, tensor: Tensor) -> str:
        if id(tensor) not in self.names:
            if tensor.device != self.device:
                raise NotPointwiseError(f"it reads a tensor on {tensor.device}")
            self._named(tensor, f"inputs[{len(self.inputs)}]")
            self.inputs.append(tensor)
        return self.names[id(tensor)]

    def _operand(self, value: Any) -> Any:
        return Name(self._name(value)) if isinstance(value, Tensor) else value

    def _depends(self, value: Any) -> bool:
        """Whether a tensor depends on the pair."""
        return isinstance(value, Tensor) and not self.names.get(id(value), "inputs").startswith("inputs")

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", str(func))
        is_property = name == "__get__"
        if is_property or name in _OF_SHAPE:
            result = func(*args, **kwargs)
            if not isinstance(result, Tensor):
                return result
        if not any(map(self._depends, _leaves((args, kwargs)))):
            return func(*_mapped(self._on_device, args), **_mapped(self._on_device, kwargs))
        if (name.startswith("__i") and name not in ("__invert__", "__index__", "__int__")) or name == "__setitem__":
            raise NotPointwiseError("it changes a tensor in place")
        if name.endswith("_") and not name.endswith("__"):
            raise NotPointwiseError("it changes a tensor in place")
        result = _indexed(*args) if name == "__getitem__" else func(*_mapped(_stand_in, args), **kwargs)
        if not isinstance(result, Tensor):
            raise NotPointwiseError(f"it reads numbers of a pair ({name}), as Python's 'if' does")
        if is_property:
            raise NotPointwiseError("it reads a property of a tensor that is a tensor")
        texts = [*map(self._text, args), *(f"{key}={self._text(value)}" for key, value in kwargs.items())]
        if name == "__getitem__":
            text = f"{texts[0]}[{texts[1]}]"
        elif getattr(Tensor, name, None) is func:
            text = f"{texts[0]}.{name}({', '.join(texts[1:])})"
        else:
            text = f"{resolve_name(func)}({', '.join(texts)})"
        if name not in _NARROW_INTEGERS and not result.is_floating_point() and result.dtype != torch.bool:
            self.wide = True
        if func is Tensor.where:
            args = (args[1], args[0], *args[2:])
        operands = _mapped(self._operand, args), _mapped(self._operand, kwargs)
        self.operations.append(Operation(name, *operands, result.dtype, result.shape))
        self.lines.append(f"    v{len(self.lines)} = {text}")
        return self._named(result, f"v{len(self.lines) - 1}")

    def rule(self, result: Tensor) -> Rule:
        """Returns the rule that ends with this tensor."""
        name = self._name(result)
        self.lines.append(f"    return {name}")
        text = "\n".join((f"def rule({', '.join(self.arguments)}, inputs):", *self.lines))
        values = tuple(self.values.get(id(tensor)) for tensor in self.inputs)
        return Rule(text, tuple(self.inputs), values, self.wide, tuple(self.operations), name)


def _mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """Returns tuples, lists and dictionaries with a function of each of their items."""
    if isinstance(value, (tuple, list)):
        items = [_mapped(function, item) for item in value]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, dict):
        return {key: _mapped(function, item) for key, item in value.items()}
    return function(value)


def _leaves(value: Any) -> Iterator[Any]:
    """Yields the items of tuples, lists and dictionaries, at all levels."""
    if isinstance(value, (tuple, list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _leaves(item)
    else:
        yield value


def _stand_in(value: Any) -> Any:
    """Returns ones of the shape and dtype of a tensor; other values stay as they are."""
    return torch.ones((), dtype=value.dtype).expand(value.shape) if isinstance(value, Tensor) else value


def _indexed(tensor: Tensor, index: Any) -> Tensor:
    """Returns a stand-in for ``tensor[index]``."""
    indices = index if isinstance(index, tuple) else (index,)
    for item in indices:
        is_position = isinstance(item, Tensor) and item.dim() == 0 and not item.is_floating_point()
        if not (is_position or isinstance(item, int)) or isinstance(item, bool):
            raise NotPointwiseError("it indexes a tensor by something else than positions")
    if len(indices) > tensor.dim():
        raise NotPointwiseError("it indexes a tensor by more positions than it has axes")
    return torch.ones((), dtype=tensor.dtype).expand(tensor.shape[len(indices) :])


def record(grid: Grid, rule: Callable[..., Tensor], score: torch.dtype | None = None) -> Rule:
    """Records a rule of single pairs.

    Args:
        grid: the whole problem.
        rule: ``rule(pair)``, or ``rule(score, pair)`` if there is a score.
        score: the dtype of the scores; None for a rule of masks.
    """
    recorder = _Recorder(grid.device)
    arguments = [] if score is None else [recorder.argument("score", score)]
    index = tuple(recorder.argument(name, torch.int64) for name in ("batch", "head", "query_index", "key_index"))
    span: Any = _Span()
    pair = Pair(
        grid.batch, grid.heads, grid.queries, grid.keys, STAND_IN_DEVICE, span, span, span, grid.rank,
        index=index, recorder=recorder,  # type: ignore[arg-type]
    )  # fmt: skip
    try:
        with recorder:
            result = rule(*arguments, pair)
    except NotPointwiseError:
        raise
    except Exception as error:
        raise NotPointwiseError(str(error).splitlines()[0] if str(error) else type(error).__name__) from error
    if not isinstance(result, Tensor) or result.dim() != 0:
        raise NotPointwiseError("its value for one pair is not a single number")
    return recorder.rule(result)
