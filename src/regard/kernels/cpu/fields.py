"""A record's fields are told once: the operators' schema, the kernels' record and its filling follow from them.

A field's annotation says its type and, in ``Annotated``, what a kernel is told of it. To add one is to write a line in
its record (`kernel_inputs`, `reading_options`), and to use it.

Compiling a kernel needs the records, and no PyTorch, which takes longer to import than a small kernel to compile.
"""

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

from regard.errors import KindError

if TYPE_CHECKING:
    from torch import Tensor
else:

    class Tensor:
        """The name of PyTorch's tensors in a record."""


class Strides(NamedTuple):
    """What a kernel is told of a tensor besides its address.

    Attributes:
        axes: names of the first axes, whose strides are told as ``<prefix>_<axis>``, in numbers.
        prefix: of these names; None: the field's own name.
        repeats: whether an axis of length 1 stands for any length, so that its stride is 0.
    """

    axes: tuple[str, ...]
    prefix: str | None = None
    repeats: bool = True


class Items(NamedTuple):
    """Names, after the field's own, of the numbers in a list; the list may be empty."""

    names: tuple[str, ...]


DIFFERENTIABLE = "differentiable"
"""Marks an input whose gradient the backward pass returns."""

_SCHEMA = {
    Tensor: "Tensor",
    Tensor | None: "Tensor?",
    bool: "bool",
    int: "int",
    float: "float",
    Sequence[int]: "int[]",
}


class Field(NamedTuple):
    """One field of a record.

    Attributes:
        name: its own.
        type: the operator's.
        strides, items: what a kernel is told besides the address or the number.
        differentiable: whether it has a gradient.
    """

    name: str
    type: str
    strides: Strides | None
    items: Items | None
    differentiable: bool


@cache
def fields_of(record: type) -> tuple[Field, ...]:
    """The fields of a NamedTuple's type, in its order."""
    found = []
    for name, hint in get_type_hints(record, include_extras=True).items():
        plain, *told = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        strides = next((one for one in told if isinstance(one, Strides)), None)
        items = next((one for one in told if isinstance(one, Items)), None)
        found.append(Field(name, _SCHEMA[plain], strides, items, DIFFERENTIABLE in told))
    return tuple(found)


def schema_of(record: type) -> str:
    """The arguments of an operator that takes the record's fields."""
    return ", ".join(f"{field.type} {field.name}" for field in fields_of(record))


def differentiable(record: type) -> tuple[str, ...]:
    """Names of the fields that have a gradient."""
    return tuple(field.name for field in fields_of(record) if field.differentiable)


def layout_of(record: type) -> dict[str, str]:
    """The numbers that a kernel is told of a record: names, each with its format for `struct`, ``q`` or ``d``."""
    layout: dict[str, str] = {}
    for field in fields_of(record):
        names = _names(field)
        layout.update(dict.fromkeys(names, "d" if field.type == "float" else "q"))
        if field.differentiable:
            layout[f"grad_{field.name}"] = "q"
    return layout


def address_of(tensor: "Tensor | None") -> int:
    """Where a kernel finds a tensor's numbers; 0 for None. Every address that a kernel gets is taken here.

    Raises:
        KindError: its numbers do not lie in a CPU's memory as they are: `regard.transforms.in_memory`.
    """
    if tensor is None:
        return 0
    if tensor.is_neg() or tensor._is_zerotensor() or not tensor.is_cpu:
        raise KindError(
            f"a compiled kernel reads numbers where they lie in a CPU's memory, and those of this tensor "
            f"{list(tensor.shape)} are not there (a lazily negated view, zeros without memory, or another device): "
            "pass tensor.cpu().clone()"
        )
    return tensor.data_ptr()


class Writer:
    """Writes a record's numbers, addresses, strides and plain numbers, to where a kernel looks for them.

    Where each of them goes is found once, since a short launch takes no longer than looking it up by name.

    Args:
        record: a NamedTuple's type.
        positions: of the names of `layout_of`, in the list of numbers.
    """

    def __init__(self, record: type, positions: dict[str, int]):
        tensors, lists, plain = [], [], []
        for index, field in enumerate(fields_of(record)):
            own, *more = (positions[name] for name in _names(field))
            if field.items is not None:
                lists.append((index, (own, *more)))
            elif field.type.startswith("Tensor"):
                tensors.append((index, own, tuple(more), field.strides is not None and field.strides.repeats))
            else:
                plain.append((index, own))
        self._tensors, self._lists, self._plain = tuple(tensors), tuple(lists), tuple(plain)

    def write(self, record: tuple[Any, ...], numbers: list[float]) -> None:
        """Write the numbers of one record; nothing for None, nor for items that a list does not have."""
        for index, own, axes, repeats in self._tensors:
            tensor = record[index]
            if tensor is None:
                continue
            numbers[own] = address_of(tensor)
            if repeats:
                for axis, step, length in zip(axes, tensor.stride(), tensor.shape, strict=False):
                    numbers[axis] = 0 if length == 1 else step
            elif axes:
                for axis, step in zip(axes, tensor.stride(), strict=False):
                    numbers[axis] = step
        for index, places in self._lists:
            for place, item in zip(places, record[index], strict=False):
                numbers[place] = item
        for index, own in self._plain:
            numbers[own] = record[index]


@cache
def _names(field: Field) -> tuple[str, ...]:
    """What a kernel calls the numbers of a field."""
    if field.items is not None:
        return tuple(f"{field.name}_{name}" for name in field.items.names)
    if field.strides is None:
        return (field.name,)
    prefix = field.strides.prefix or field.name
    return (field.name, *(f"{prefix}_{axis}" for axis in field.strides.axes))
