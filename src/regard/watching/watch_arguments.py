"""The arguments of `regard.watch`: readings, layers and heads that were asked for, and models that can't be watched."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import nn

from regard.attention.readings import Readings, check_readings
from regard.errors import ArgumentError, KindError
from regard.shapes import Grid, whole_number


def check_watched_readings(read: Readings) -> None:
    """Types are checked at once; indices when a call shows its size."""
    if read is _CHECKED[-1]:
        return
    if isinstance(read, Readings) and isinstance(read.shares, (list, tuple)) and read.shares:
        read = replace(read, shares=())
    check_readings(read, _LARGE)
    if read.rows is read.tile is read.pooled is None:
        # Nothing of it can change, and contexts in a loop read the same.
        _CHECKED[-1] = read


_CHECKED = [Readings()]
"""The last readings that were found right."""

_LARGE = Grid.whole(1, 1, 2**40, 2**40)
"""Larger than any call."""


def chosen_numbers(name: str, given: int | Sequence[int] | None) -> tuple[int, ...] | None:
    if given is None:
        return None
    if isinstance(given, str) or not isinstance(given, (Sequence, range, set, frozenset)):
        given = (given,)  # type: ignore[assignment]
    numbers = tuple(whole_number(f"{name}[{place}]", each, low=0) for place, each in enumerate(cast(Any, given)))
    if not numbers:
        raise ArgumentError(f"{name} must name at least one; None means all")
    return numbers


def heads_of_call(heads: tuple[int, ...] | None, count: int, name: str) -> tuple[int, ...]:
    if heads is None:
        return tuple(range(count))
    if max(heads) >= count:
        raise ArgumentError(f"heads must be below {count}, the heads of {name!r}; got {max(heads)}")
    return heads


def refuse_compiled(modules: dict[str, nn.Module]) -> None:
    """Raise if `torch.compile` or TorchScript compiled the model or a module in it: Python does not see what runs."""
    for name, module in modules.items():
        # Not by getattr: what a module does not have it looks for in three places.
        own = vars(module)
        is_original = isinstance(own["_modules"].get("_orig_mod"), nn.Module)
        if is_original or own.get("_compiled_call_impl") is not None or isinstance(module, torch.jit.ScriptModule):
            raise KindError(_refusal(f"module {name!r}" if name else "the model", module, is_original))


def _refusal(named: str, module: nn.Module, is_original: bool) -> str:
    """What is said of a compiled module.

    Args:
        named: how the module is called in the message.
        module: which.
        is_original: whether it holds the module that was compiled.
    """
    if is_original:
        return (
            f"model: {named} is compiled by torch.compile, so its attention calls cannot be seen; "
            "watch and call the original module, which is its attribute _orig_mod"
        )
    if isinstance(module, torch.jit.ScriptModule):
        return f"model: {named} is compiled by TorchScript, so its attention calls cannot be seen"
    return (
        f"model: {named} is compiled ({type(module).__name__}.compile() was called), so its attention calls "
        "cannot be seen; watch a copy that is not compiled"
    )
