"""Products of tensors as equations of ``einsum``: which axes the operands share, and which of them remain."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

AxisLabels = tuple[object, ...]
"""The names of a tensor's axes."""


class Equation(NamedTuple):
    """A product of tensors, with the labels of their axes, that is added up over the axes that the output lacks."""

    operands: tuple[Tensor, ...]
    labels: tuple[AxisLabels, ...]
    output: AxisLabels


def matmul(left: Tensor, right: Tensor) -> Equation:
    """Returns the equation of ``left @ right``, whose first axes broadcast from the last one."""
    rows = ("row",) if left.dim() > 1 else ()
    columns = ("column",) if right.dim() > 1 else ()
    first = (*_batch(left.dim() - 2), *rows, "sum")
    second = (*_batch(right.dim() - 2), "sum", *columns)
    return Equation((left, right), (first, second), (*_batch(max(left.dim(), right.dim()) - 2), *rows, *columns))


def _batch(axes: int) -> AxisLabels:
    return tuple(range(axes - 1, -1, -1))


def addbmm(left: Tensor, right: Tensor) -> Equation:
    """Returns the equation of the sum of ``left @ right`` over the batch."""
    return Equation((left, right), (("batch", "row", "sum"), ("batch", "sum", "column")), ("row", "column"))


def linear(inputs: Tensor, weight: Tensor) -> Equation:
    """Returns the equation of ``inputs @ weight.T``."""
    first = tuple(range(inputs.dim() - 1))
    columns = ("column",) if weight.dim() > 1 else ()
    return Equation((inputs, weight), ((*first, "sum"), (*columns, "sum")), (*first, *columns))


def inner(left: Tensor, right: Tensor) -> Equation:
    """Returns the equation of the sum over the last axis of both."""
    first, second = _named("left", left.dim() - 1), _named("right", right.dim() - 1)
    return Equation((left, right), ((*first, "sum"), (*second, "sum")), (*first, *second))


def tensordot(left: Tensor, right: Tensor, dims: Any = 2) -> Equation:
    """Returns the equation of the sum over the axes that ``dims`` names."""
    if isinstance(dims, Tensor):
        dims = dims.tolist()
    if isinstance(dims, int):
        dims = range(-dims, 0), range(dims)
    of_left, of_right = ([dims_of] if isinstance(dims_of, int) else list(dims_of) for dims_of in dims)
    first, second = list(_named("left", left.dim())), list(_named("right", right.dim()))
    for number, (one, other) in enumerate(zip(of_left, of_right, strict=True)):
        first[one] = second[other] = ("sum", number)
    summed = {("sum", number) for number in range(len(of_left))}
    output = tuple(label for label in (*first, *second) if label not in summed)
    return Equation((left, right), (tuple(first), tuple(second)), output)


def vecdot(left: Tensor, right: Tensor, dim: int = -1) -> Equation:
    """Returns the equation of the sum of products over one axis, where the others broadcast."""
    axes = max(left.dim(), right.dim())
    first, second = (tuple(range(axes - tensor.dim(), axes)) for tensor in (left, right))
    summed = dim % axes if dim >= 0 else axes + dim
    return Equation((left, right), (first, second), tuple(axis for axis in range(axes) if axis != summed))


def einsum(*args: Any) -> Equation | None:
    """Returns the equation of ``torch.einsum``; None if an operand has one axis twice."""
    if isinstance(args[0], str):
        text, operands = args[0], args[1:]
        operands = operands[0] if len(operands) == 1 and isinstance(operands[0], (list, tuple)) else operands
        inputs, arrow, output = text.replace(" ", "").partition("->")
        written: list[Sequence[object]] = [_letters(part) for part in inputs.split(",")]
        result = _letters(output) if arrow else None
    else:
        operands, written = args[: len(args) // 2 * 2 : 2], list(args[1::2])
        result = args[-1] if len(args) % 2 else None
    operands = tuple(operands)
    hidden = [
        tensor.dim() - len(labels) + 1 if ... in labels else 0 for tensor, labels in zip(operands, written, strict=True)
    ]
    labels = tuple(_spelled(each, axes) for each, axes in zip(written, hidden, strict=True))
    if any(len(set(each)) != len(each) for each in labels):
        return None
    if result is None:
        counts = Counter(label for each in written for label in each if label is not ...)
        result = [..., *sorted(label for label, count in counts.items() if count == 1)]  # type: ignore[type-var]
    return Equation(operands, labels, _spelled(result, max(hidden, default=0)))


def _letters(text: str) -> list[object]:
    before, dots, after = text.partition("...")
    return [*before, *([...] if dots else []), *after]


def _spelled(labels: Sequence[object], axes: int) -> AxisLabels:
    """Returns the labels with a name for each axis that ``...`` stands for."""
    return tuple(
        name for label in labels for name in (((..., axis) for axis in _batch(axes)) if label is ... else (label,))
    )


def _named(side: str, axes: int) -> AxisLabels:
    return tuple((side, axis) for axis in range(axes))


EQUATIONS = {
    **dict.fromkeys(("matmul", "__matmul__", "bmm", "mm", "mv", "dot", "vdot"), (matmul, 0)),
    **dict.fromkeys(("baddbmm", "addmm", "addmv", "baddbmm_", "addmm_", "addmv_"), (matmul, 1)),
    **dict.fromkeys(("addbmm", "addbmm_"), (addbmm, 1)),
    "linear": (linear, 0),
    "inner": (inner, 0),
    "tensordot": (tensordot, 0),
    "vecdot": (vecdot, 0),
    "einsum": (einsum, 0),
}
"""By the name of a function of PyTorch: its equation, and the number of arguments before the operands."""

_OPERAND_NAMES = (
    "input", "other", "batch1", "batch2", "mat", "mat1", "mat2", "tensor", "vec", "vec2", "weight", "a", "b", "x", "y",
)  # fmt: skip
"""Names of operands that a model may pass by name."""


def equation_of(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Equation | None:
    """Returns the equation of a call of a function in `EQUATIONS`; None if it has none."""
    make, skipped = EQUATIONS[name]
    if make is einsum:
        return einsum(*args)
    operands = [*args, *(kwargs[each] for each in _OPERAND_NAMES if each in kwargs)][skipped:]
    options = {each: kwargs[each] for each in ("dims", "dim") if each in kwargs}
    if make is tensordot or make is vecdot:
        return make(*operands[: 3 if make is tensordot else 2], **options)
    return make(*operands[:2])


def added_axes(tensor: Tensor, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[int, ...]:
    """Returns the axes, from 0, that a call of ``sum`` with these other arguments adds up; () if it adds up all."""
    dim = args[0] if args else kwargs.get("dim", kwargs.get("axis"))
    if dim is None or isinstance(dim, torch.dtype):
        return ()
    if len(args) > 1 and all(type(each) is int for each in args):
        dim = args
    axes = (dim,) if isinstance(dim, int) else tuple(dim)
    return tuple(sorted(axis % tensor.dim() for axis in axes))
