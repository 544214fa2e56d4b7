"""The checks that arguments of the whole package share."""

import inspect
import math
from collections.abc import Callable, Collection
from numbers import Integral
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from regard.errors import ArgumentError, KindError, ShapeError, UnknownNameError
from regard.shapes.grid import Grid
from regard.shapes.layout import mask_or_bias_error
from regard.tracing.transforms import is_dtensor

Value = TypeVar("Value")
Requested = Value | Any
"""The type of a result that is None unless it was requested. Type checkers report a misspelt attribute of it, and do
not demand a test for None; the types of Python's standard library do so too (``re.Match.group``)."""

SIZE_LIMIT = 2**31 - 1
"""The largest size of a module."""

_INPUTS = ("query", "key", "value", "bias")
_STRIDED = torch.strided
_FLOATING = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
# uint64 is not among them: int64 cannot hold all of its values.
_INTEGERS = frozenset({torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32})


def check_broadcast(name: str, tensor: Tensor, shape: tuple[int, ...], axes: str, hint: str = "") -> None:
    """Raises ShapeError unless ``tensor`` broadcasts to ``shape`` without enlarging it.

    Args:
        axes: the names of these axes, e.g. ``"[batch, heads, queries, keys]"``.
        hint: what to write, for the end of the message.
    """
    if not _broadcasts(tensor, shape):
        ending = f": {hint}" if hint else ""
        raise ShapeError(f"{name} must broadcast to {axes} = {list(shape)}; it has shape {list(tensor.shape)}{ending}")


def check_result(name: str, tensor: Tensor, grid: Grid) -> None:
    """Raises ShapeError unless what a user's mask or bias returned for a tile broadcasts to it.

    Args:
        name: what returned it, for the message.
        tensor: what it returned.
        grid: the tile.
    """
    if not _broadcasts(tensor, grid.shape):
        batch, _, queries, keys = grid.shape
        hint = ""
        if tensor.dim() == 3 and _broadcasts(tensor, (batch, queries, keys)):
            hint = ", of which axis 0 is read as heads: if it is [batch, queries, keys], return it as result[:, None]"
        raise ShapeError(
            f"{name} must broadcast to [batch, heads, queries, keys] = {list(grid.shape)}; it has shape "
            f"{list(tensor.shape)}{hint}"
        )


def check_pairs(name: str, tensor: Tensor, grid: Grid) -> None:
    """Raises ShapeError unless the tensor of a mask or of a bias broadcasts to all pairs of a problem."""
    pairs = grid.batch, grid.heads, grid.queries, grid.keys
    if not _broadcasts(tensor, pairs):
        raise ShapeError(mask_or_bias_error(name, tensor.shape, pairs, grid.rank))


def _broadcasts(tensor: Tensor, shape: tuple[int, ...]) -> bool:
    fits = tensor.dim() <= len(shape)
    for axis in range(1, 1 + min(tensor.dim(), len(shape))):
        length = tensor.shape[-axis]
        fits = fits and (length == 1 or length == shape[-axis])
    return fits


def check_same_dim(query: Tensor, key: Tensor) -> None:
    """Raises ShapeError unless queries and keys have the same number of features."""
    if query.shape[-1] != key.shape[-1]:
        is_column = query.shape[-1] == 1 and query.shape[-2] == key.shape[-2]
        hint = " (if these vectors are columns, write query.mT, key.mT, value.mT)" if is_column else ""
        raise ShapeError(
            f"query and key must have the same dim; query has {query.shape[-1]}, key has {key.shape[-1]}{hint}"
        )


def check_undivided(name: str, tensor: object) -> None:
    """Raises KindError if ``tensor`` is a DTensor: only queries, keys and values may be divided."""
    if is_dtensor(tensor):
        raise KindError(
            f"{name} must be a plain tensor, the whole of it on every process; it is a DTensor (write "
            "tensor.full_tensor())"
        )


_MEANINGS = {
    "torch.nn.attention.bias.CausalBias": "it says which keys are visible, and has no numbers: write mask='causal' in "
    "its place, which aligns the ends (causal_lower_right), or mask=masks.causal(align='start') (causal_upper_left)",
    "torch.masked.maskedtensor.core.MaskedTensor": "some of its elements are missing: write tensor.to_tensor(0.0)",
    "torch.nn.parameter.UninitializedParameter": "it has no shape yet: call its lazy module once",
    "torch.nn.parameter.UninitializedBuffer": "it has no shape yet: call its lazy module once",
}
"""The subclasses of Tensor in PyTorch whose elements are not what they stand for, and what they are."""


def check_elements(name: str, tensor: Tensor) -> None:
    """Raises KindError if ``tensor`` is of a subclass of Tensor whose elements are not what it stands for.

    PyTorch's functions give elements of any other subclass the meaning that it defines.
    """
    if type(tensor) is Tensor or type(tensor) is nn.Parameter:
        return
    for kind in type(tensor).__mro__:
        meaning = _MEANINGS.get(f"{kind.__module__}.{kind.__qualname__}")
        if meaning is not None:
            raise KindError(f"{name} must be a plain tensor; it is a {kind.__name__}: {meaning}")


def check_dense(name: str, tensor: object) -> None:
    """Raises KindError unless ``tensor`` is a tensor that is neither sparse nor nested nor quantized nor divided, and
    whose elements are what it stands for."""
    if not isinstance(tensor, Tensor):
        numbers = isinstance(tensor, (list, tuple)) or type_text(tensor) == "a ndarray"
        hint = f" (write torch.tensor({name}, dtype=torch.float32))" if numbers and name in _INPUTS else ""
        raise KindError(f"{name} must be a tensor; it is {type_text(tensor)}{hint}")
    check_elements(name, tensor)
    if tensor.is_nested:
        raise KindError(f"{name} must be a dense tensor; it is a nested one (pad it, and mask with masks.lengths)")
    if tensor.layout is not torch.strided:
        raise KindError(f"{name} must be a dense tensor; it has the layout {tensor.layout}")
    if tensor.is_quantized:
        raise KindError(f"{name} must be a dense tensor; it is quantized ({tensor.dtype})")
    check_undivided(name, tensor)


def check_floating(name: str, tensor: object) -> None:
    """Raises KindError unless ``tensor`` is a dense tensor of float16, bfloat16, float32 or float64."""
    if isinstance(tensor, Tensor):
        if type(tensor) is not Tensor:
            check_elements(name, tensor)
        if tensor.dtype in _FLOATING and tensor.layout is _STRIDED and not tensor.is_nested:
            return
    check_dense(name, tensor)
    assert isinstance(tensor, Tensor)
    if tensor.is_floating_point():
        raise KindError(f"{name} must hold float16, bfloat16, float32 or float64; it holds {tensor.dtype}")
    hint = f" (write {name}.float())" if name in _INPUTS and tensor.dtype in _INTEGERS else ""
    raise KindError(f"{name} must hold floating-point numbers; it holds {tensor.dtype}{hint}")


def check_module(name: str, value: object, kind: type[nn.Module] = nn.Module) -> None:
    """Raises KindError unless a value is a module of this class of PyTorch's."""
    if not isinstance(value, kind):
        raise KindError(f"{name} must be a torch.nn.{kind.__name__}; it is {type_text(value)}")


def check_integers(name: str, tensor: object) -> None:
    """Raises KindError unless ``tensor`` is a dense tensor of an integer dtype that int64 can represent."""
    check_dense(name, tensor)
    assert isinstance(tensor, Tensor)
    if tensor.dtype not in _INTEGERS:
        hint = " (int64 cannot represent all of its values)" if tensor.dtype == torch.uint64 else ""
        raise KindError(f"{name} must hold integers; it holds {tensor.dtype}{hint}")


def check_device(name: str, tensor: Tensor, grid: Grid) -> None:
    """Raises KindError unless ``tensor`` is on the device of the problem."""
    if tensor.device != grid.device:
        raise KindError(f"{name} must be on {grid.device}, where query is; it is on {tensor.device}")


def type_text(value: object) -> str:
    """Returns the type of a value for a message: "a list", "an int", "None", "a torch.nn.TransformerEncoderLayer".

    Only classes of Python, NumPy, regard and PyTorch's own ones beside its modules go by their bare names, so that no
    message wants a class and says that it came.
    """
    if value is None:
        return "None"
    owner, kind = type(value).__module__, type(value).__name__
    if owner.startswith("torch.nn.modules."):
        kind = f"torch.nn.{kind}"
    elif owner.partition(".")[0] not in ("builtins", "numpy", "torch", "regard"):
        kind = f"{owner.partition('.')[0]}.{kind}"
    return f"{'an' if kind[0] in 'aeioAEIO' else 'a'} {kind}"


def whole_number(name: str, value: object, low: int | None = None, high: int | None = None) -> int:
    """Returns the value as an int.

    Raises:
        KindError: the value is not an integer; bools do not count as integers.
        ArgumentError: the value is below ``low`` or above ``high``.
    """
    if isinstance(value, bool) or not isinstance(value, (Integral, torch.SymInt)):
        raise KindError(f"{name} must be an integer; it is {_with_type(value)}")
    # int() would specialize the symbolic integer of an exporter.
    number: Any = value if isinstance(value, torch.SymInt) else int(value)
    if low is not None and number < low:
        raise ArgumentError(f"{name} must be at least {low}; it is {_digits(number)}")
    if high is not None and number > high:
        raise ArgumentError(f"{name} must be at most {high}; it is {_digits(number)}")
    return number


def _digits(number: int) -> str:
    # The digits of a huge number would fill the message, and Python refuses to print the largest ones.
    return f"an integer of {number.bit_length()} bits" if abs(number) >= 1 << 64 else str(number)


def size(name: str, value: object, low: int = 1) -> int:
    """Returns the value as a size of a module, from ``low`` to `SIZE_LIMIT`; raises like `whole_number`."""
    return whole_number(name, value, low, SIZE_LIMIT)


def check_arguments(name: str, function: Callable[..., object], number: int) -> None:
    """Raises KindError for a class, and for a function or a module that cannot be called with ``number`` tensors.

    Functions without a readable signature pass, as does every function while a compiler traces.
    """
    if isinstance(function, type):
        raise KindError(f"{name} must be a function of {number} tensors; it is the class {function.__name__}")
    if not torch.compiler.is_compiling() and (problem := _refusal(function, number)):
        raise KindError(f"{name} must take {number} tensors; {function!r} does not: {problem}")


def takes(function: Callable[..., object], number: int) -> bool:
    """Whether a function or a module can be called with ``number`` tensors; True if its signature cannot be read."""
    return not _refusal(function, number)


def _refusal(function: Callable[..., object], number: int) -> str:
    called = function.forward if isinstance(function, nn.Module) else function
    try:
        signature = inspect.signature(called)
    except (TypeError, ValueError):
        return ""
    try:
        signature.bind(*[None] * number)
    except TypeError as error:
        return str(error)
    return ""


def check_sizes(**sizes: object) -> None:
    """Raises KindError or ArgumentError unless each argument is a valid `size`."""
    for name, value in sizes.items():
        size(name, value)


def flag(name: str, value: object) -> bool:
    """Returns the value if it is True or False; raises KindError otherwise."""
    if not isinstance(value, bool):
        raise KindError(f"{name} must be True or False; it is {_with_type(value)}")
    return value


def check_factory(device: object, dtype: object) -> None:
    """Raises KindError or ArgumentError unless parameters can be created with this device and dtype; None is valid."""
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype in _FLOATING):
        raise KindError(f"dtype must be float16, bfloat16, float32 or float64; it is {dtype!r}")
    if device is None:
        return
    if isinstance(device, bool) or not isinstance(device, (str, int, torch.device)):
        raise KindError(f"device must be a torch.device or its name; it is {_with_type(device)}")
    usable_device(device)


def usable_device(device: str | int | torch.device, with_elements: bool = False) -> torch.device:
    """Returns the device, with its index, if a tensor can be made on it.

    Args:
        device: a device or its name.
        with_elements: whether the tensors must have elements, which those of ``meta`` do not.

    Raises:
        ArgumentError: PyTorch does not know the device, or has no such device here: its build may lack it, or the
            machine a driver.
    """
    try:
        torch.device(device)
    except RuntimeError:
        line = ': write device="cuda"' if str(device).partition(":")[0].lower() in ("gpu", "nvidia") else ""
        raise ArgumentError(f"device must be one that PyTorch knows; it is {device!r}{line}") from None
    try:
        usable = torch.empty(0, device=device).device
    except Exception as error:  # PyTorch raises RuntimeError, AssertionError or ImportError, by device and build
        raise unusable_device(device, error) from error
    if with_elements and usable.type == "meta":
        raise ArgumentError("device 'meta' cannot be used here: its tensors have no elements")
    return usable


def unusable_device(device: object, error: Exception) -> ArgumentError:
    """Returns the error of a device that failed, with the first line of its reason."""
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    return ArgumentError(f"device {str(device)!r} cannot be used here: {reason}")


def known_name(name: str, value: object, known: Collection[str], here: str = "") -> str:
    """Returns the value if it is a known name; raises KindError if it is no string, UnknownNameError otherwise.

    Args:
        here: as in `UnknownNameError`.
    """
    if not isinstance(value, str):
        raise KindError(f"{name} must be one of {', '.join(known)}; it is {_with_type(value)}")
    if value not in known:
        raise UnknownNameError(name, value, known, here)
    return value


def positive_number(name: str, value: object) -> float:
    """Returns the value as a float; raises KindError for no number, ArgumentError unless it is positive and finite."""
    number = _number(name, value)
    if not (number > 0 and math.isfinite(number)):
        raise ArgumentError(f"{name} must be positive and finite; it is {number}")
    return number


def finite_number(name: str, value: object) -> float:
    """Returns the value as a float; raises KindError for no number, ArgumentError unless it is finite."""
    number = _number(name, value)
    if not math.isfinite(number):
        raise ArgumentError(f"{name} must be finite; it is {number}")
    return number


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise KindError(f"{name} must be a number; it is {_with_type(value)}")
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _with_type(value: object) -> str:
    """Returns a value and its type for a message: a number or a short string literally, anything else by its type."""
    literal = repr(value) if isinstance(value, (bool, float, complex, str, bytes)) else ""
    return f"{literal} ({type(value).__name__})" if 0 < len(literal) <= 40 else type_text(value)


def uncalled(value: object, package: str) -> str:
    """Returns what to write if a value is a function or a class of regard that makes a part; empty if it is not.

    Args:
        package: ``"scores"``, ``"normalizers"``, ``"masks"`` or ``"biases"``.
    """
    if not (isinstance(value, type) or inspect.isfunction(value)):
        return ""
    if not str(value.__module__).startswith((f"regard.{package}.", "regard.positions.")):
        return ""
    parameters = inspect.signature(value).parameters.values()
    required = [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    kind = "class" if isinstance(value, type) else "function"
    owner = "positions" if package == "biases" else package
    return f"{value.__name__} is a {kind}: call it, as in {owner}.{value.__name__}({', '.join(required)})"
