"""Rules of single pairs: masks, modifiers of scores and biases as functions that a compiler can take.

Each part states its rule once, for a whole tile: `Mask.allows`, a score's modifiers, `Bias.of_pairs`. `Pair` is a grid
of one pair, whose indices are tensors without axes, and `record` notes the operations that a rule applies to them.
Values that do not depend on the pair are computed at once, and become inputs of the rule: tensors that masks hold, the
diagonals of a bias, and integers that differ between calls. So two calls of one kind have the same text, which is the
key of their compiled kernel, whatever their lengths and numbers are.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from regard.shapes.checks import type_text
from regard.shapes.grid import Grid
from regard.tracing.transforms import sent

LARGEST_INTEGER = 1 << 29
"""Integers that a rule names may not exceed this magnitude: kernels of GPUs add a few of them in int32. Those of CPUs
take int64 unless int32 holds all that a rule calculates (`row_programs.bounds_of`)."""

SHORT_LENGTH = 1 << 15
"""Number of keys or queries up to which the product of two indices is exact in int32."""

_NARROW_INTEGERS = frozenset({
    "_to_copy", "abs", "add", "clamp", "floor_divide", "index", "maximum", "minimum", "neg", "remainder", "rsub",
    "sub", "where",
})  # fmt: skip
"""Operations whose results int32 holds if it holds their operands, but for a few additions."""

_IRRELEVANT = frozenset({"layout", "memory_format", "non_blocking", "pin_memory"})
"""Arguments that do not change a number."""


class NotPointwiseError(Exception):
    """A part has no rule of single pairs; the message says why."""


class Name(str):
    """The name of a tensor in a rule: that of an argument, ``v0`` of the first operation, ``inputs[0]``."""


class Operation(NamedTuple):
    """One operation of a rule.

    Attributes:
        function: the operator of ATen; ``index`` has one index for each axis that it removes, and may have integers.
        arguments, keywords: its arguments, with names in place of tensors.
        dtype, shape: those of the result.
        called: the name of the function that the user called.
    """

    function: torch._ops.OpOverload
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    dtype: torch.dtype
    shape: torch.Size
    called: str

    @property
    def name(self) -> str:
        """The operator's name without ``aten.``."""
        return str(self.function.overloadpacket).removeprefix("aten.")

    @property
    def text(self) -> str:
        """The operation in Python."""
        texts = [*map(_text, self.arguments), *(f"{key}={_text(value)}" for key, value in self.keywords.items())]
        # FlexAttention differentiates indices that are written as such.
        return f"{texts[0]}{texts[1]}" if self.name == "index" else f"torch.ops.{self.function}({', '.join(texts)})"


def _text(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    return value if isinstance(value, Name) else repr(value)


@dataclass(frozen=True, eq=False)
class Rule:
    """A function of single pairs.

    Attributes:
        arguments: the names of its arguments, ``[score], batch, head, query_index, key_index``.
        inputs: the tensors that it reads, on the device of the problem.
        values: the numbers of each of these tensors where the host knows them, else None.
        operations: what it calculates; ``v0`` is the result of the first operation.
        result: the name of the result.
    """

    arguments: tuple[str, ...]
    inputs: tuple[Tensor, ...]
    values: tuple[float | tuple[int, ...] | None, ...]
    operations: tuple[Operation, ...]
    result: str

    @cached_property
    def text(self) -> str:
        """The source of ``rule(*arguments, inputs)``."""
        lines = (f"v{number} = {operation.text}" for number, operation in enumerate(self.operations))
        return "\n    ".join((f"def rule({', '.join(self.arguments)}, inputs):", *lines, f"return {self.result}"))

    @property
    def wide(self) -> bool:
        """Whether the indices must be int64, since products of two of them may exceed int32."""
        kinds = {one.dtype for one in self.operations if one.name not in _NARROW_INTEGERS}
        return any(not dtype.is_floating_point and dtype != torch.bool for dtype in kinds)

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

    __getitem__ = __bool__ = __iter__ = __getattr__


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
        self.recorder.operand(value)
        return self.recorder.known(value, torch.full((), value, dtype=torch.int32, device=self.device))

    def numbers(self, values: tuple[int, ...]) -> Tensor:
        return self.recorder.known(values, sent(torch.tensor(values, dtype=torch.int64, device="cpu"), self.device))

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
            return torch.full((), fill, device=self.device)
        last = self.number(keys - 1)
        batch, head, query, key = self.index
        inner = replace(self, keys=keys, index=(batch, head, query, torch.minimum(key, last)))
        return torch.where(key > last, fill, values(inner))


class _Value(Tensor):
    """A tensor that depends on the pair: it has no numbers, but a name, a dtype, a shape, and the problem's device."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # pyright: ignore[reportAssignmentType]
    label: Name

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotPointwiseError("it keeps numbers of a pair for later")


class _Recorder(TorchDispatchMode):
    """Writes down the operators that are applied to tensors that depend on the pair.

    They run on ones in place of all numbers, for the dtypes of the results; what would tell a number to Python is
    refused. Nothing runs on the device of the problem but what does not depend on the pair.
    """

    def __init__(self, device: torch.device):
        super().__init__()
        self.device = device
        self.operations: list[Operation] = []
        # The tensors are kept, since an id is that of another tensor after the first one is gone.
        self.inputs: dict[int, tuple[Name, Tensor]] = {}
        self.values: dict[int, tuple[float | tuple[int, ...], Tensor]] = {}
        self.called = ""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # PyTorch's compiler would be imported.
        return False

    def known(self, value: float | tuple[int, ...], tensor: Tensor) -> Tensor:
        """Returns a tensor of numbers that the host knows."""
        self.values[id(tensor)] = value, tensor
        return tensor

    def value(self, name: str, dtype: torch.dtype, shape: tuple[int, ...] = ()) -> _Value:
        """Returns a tensor that depends on the pair."""
        value = Tensor._make_wrapper_subclass(_Value, shape, dtype=dtype, device=self.device)
        value.label = Name(name)
        return value

    def operand(self, value: Any) -> Any:
        """Returns an argument of an operation, with names in place of tensors."""
        if isinstance(value, _Value):
            return value.label
        if isinstance(value, Tensor):
            if value.device != self.device:
                raise NotPointwiseError(f"it reads a tensor on {value.device}")
            self.operand(self.values.get(id(value), (None, value))[0])
            return self.inputs.setdefault(id(value), (Name(f"inputs[{len(self.inputs)}]"), value))[0]
        if isinstance(value, (tuple, list)):
            return list(map(self.operand, value))
        if isinstance(value, int) and abs(value) > LARGEST_INTEGER:
            raise NotPointwiseError(f"it calculates with {value}, which is too large for its kernels")
        if value is None or isinstance(value, (bool, int, float, str, torch.dtype, torch.device)):
            return value
        raise NotPointwiseError(f"it calculates with {type_text(value)}")

    def record(self, function: Any, arguments: Any, keywords: Any, dtype: torch.dtype, shape: torch.Size) -> _Value:
        """Appends an operation; returns its result."""
        named = {key: self.operand(value) for key, value in keywords.items()}
        operation = Operation(function, tuple(map(self.operand, arguments)), named, dtype, shape, self.called)
        self.operations.append(operation)
        return self.value(f"v{len(self.operations) - 1}", dtype, shape)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        if _Value not in types:
            result = func(*args, **kwargs)
            # PyTorch makes such tensors of numbers among the arguments of ``where``.
            return self.known(args[0], result) if func is torch.ops.aten.scalar_tensor.default else result
        if func._schema.is_mutable:
            raise NotPointwiseError("it changes a tensor in place")
        kwargs = {key: value for key, value in kwargs.items() if key not in _IRRELEVANT}
        form = _result(func, *map(_form, args), **{key: kwargs[key] for key in kwargs if key != "device"})
        if form is None:
            raise NotPointwiseError(f"it reads numbers of a pair ({self.called}), as Python's 'if' does")
        return self.record(func, args, kwargs, *form)


class _Calls(TorchFunctionMode):
    """Notes which functions a rule calls, for messages, and records indices, which Python would read."""

    def __init__(self, recorder: _Recorder):
        super().__init__()
        self.recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        self.recorder.called = getattr(func, "__name__", str(func))
        if func is not Tensor.__getitem__:
            return func(*args, **(kwargs or {}))
        tensor, index = args
        indices = index if isinstance(index, tuple) else (index,)
        if not any(isinstance(one, _Value) for one in (tensor, *indices)):
            return func(*args)
        for item in indices:
            is_position = isinstance(item, Tensor) and item.dim() == 0 and not item.is_floating_point()
            if not (is_position or isinstance(item, int)) or isinstance(item, bool):
                raise NotPointwiseError("it indexes a tensor by something else than positions")
        if len(indices) > tensor.dim():
            raise NotPointwiseError("it indexes a tensor by more positions than it has axes")
        shape = tensor.shape[len(indices) :]
        return self.recorder.record(torch.ops.aten.index.Tensor, (tensor, indices), {}, tensor.dtype, shape)


class _Form(NamedTuple):
    dtype: torch.dtype
    shape: torch.Size


def _form(value: Any) -> Any:
    """Returns the dtype and the shape of a tensor; other values stay as they are."""
    if isinstance(value, (tuple, list)):
        return (*map(_form, value),)
    return _Form(value.dtype, value.shape) if isinstance(value, Tensor) else value


def _ones(form: Any) -> Any:
    if isinstance(form, _Form):
        return torch.ones((), dtype=form.dtype).expand(form.shape)
    return [*map(_ones, form)] if isinstance(form, tuple) else form


@lru_cache(maxsize=4096, typed=True)
def _result(function: torch._ops.OpOverload, *forms: Any, **keywords: Any) -> _Form | None:
    """Returns the form of an operator's result; None for what is no tensor."""
    result = function(*map(_ones, forms), **keywords)
    return _Form(result.dtype, result.shape) if isinstance(result, Tensor) else None


def record(grid: Grid, rule: Callable[..., Tensor], score: torch.dtype | None = None) -> Rule:
    """Records a rule of single pairs.

    Args:
        grid: the whole problem.
        rule: ``rule(pair)``, or ``rule(score, pair)`` if there is a score.
        score: the dtype of the scores; None for a rule of masks.
    """
    has_gradient = torch.is_grad_enabled()
    # In inference mode operators are not taken apart into those that are known.
    with torch.inference_mode(False), torch.set_grad_enabled(has_gradient):
        recorder = _Recorder(grid.device)
        index = tuple(recorder.value(name, torch.int64) for name in ("batch", "head", "query_index", "key_index"))
        scores = () if score is None else (recorder.value("score", score),)
        span: Any = _Span()
        pair = Pair(
            grid.batch, grid.heads, grid.queries, grid.keys, grid.device, span, span, span, grid.rank,
            index=index, recorder=recorder,  # type: ignore[arg-type]
        )  # fmt: skip
        try:
            with recorder, _Calls(recorder):
                result = rule(*scores, pair)
        except NotPointwiseError:
            raise
        except Exception as error:
            raise NotPointwiseError(str(error).splitlines()[0] if str(error) else type(error).__name__) from error
    if not isinstance(result, Tensor) or result.dim() != 0:
        raise NotPointwiseError("its value for one pair is not a single number")
    name = recorder.operand(result)
    inputs = tuple(tensor for _, tensor in recorder.inputs.values())
    values = tuple(recorder.values.get(id(tensor), (None,))[0] for tensor in inputs)
    arguments = tuple(one.label for one in (*scores, *index))
    return Rule(arguments, inputs, values, tuple(recorder.operations), name)
