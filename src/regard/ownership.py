"""Modules own their parts: what is only a value (a score, a normalizer) is copied where a layer keeps it."""

import copy
from typing import TypeVar

import torch
from torch import nn

Part = TypeVar("Part", bound=nn.Module)


def own_copy(part: Part) -> Part:
    """A copy for one owner, with hooks, mode and attributes of its own; the part itself if it is the user's.

    The user's are parts with parameters or buffers, which several owners may be meant to share, and those whose class
    is not of regard. A function or a generator that a part holds stays the same object.

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
