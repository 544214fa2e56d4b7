"""Modules own their parts: a layer keeps a copy of a score, a normalizer or another part that is only a value."""

import copy
from typing import TypeVar

import torch
from torch import nn

Part = TypeVar("Part", bound=nn.Module)


def own_copy(part: Part) -> Part:
    """Returns a copy of a part for one owner, with its own hooks, mode and attributes, or the part itself.

    The part itself is returned if it has parameters or buffers, which several owners may be meant to share, and if its
    class is not regard's. Functions and generators inside a part are not copied.

    Args:
        part: a score, a normalizer, a bias or a position.
    """
    if torch.compiler.is_compiling() or not type(part).__module__.startswith("regard."):
        return part
    if next(part.parameters(), None) is not None or next(part.buffers(), None) is not None:
        return part
    copied = copy.copy(part)
    for name, value in vars(part).items():
        if isinstance(value, dict):  # hooks, and the tables of a module
            copied.__dict__[name] = value.copy()
    for name, child in part.named_children():
        copied._modules[name] = own_copy(child)
    return copied
