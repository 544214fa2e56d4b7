"""Converts names and tensors to masks."""

from torch import Tensor

from regard.errors import ArgumentError, KindError, UnknownNameError
from regard.masks.explicit import Keep, check_bool
from regard.masks.mask import Mask
from regard.masks.positional import causal
from regard.names.foreign_names import written_here
from regard.shapes.checks import type_text, uncalled

NAMES = {"causal": causal()}
"""Masks that need no arguments."""

WITH_ARGUMENTS = {
    "window": ("its widths", "masks.window(before, after)"),
    "prefix": ("its length", "masks.prefix(n)"),
    "chunks": ("the size of a chunk", "masks.chunks(size)"),
    "block_diffusion": ("the length of a half and the size of a block", "masks.block_diffusion(length, block)"),
    "dilated": ("its step", "masks.dilated(step)"),
    "neighborhood": ("its size", "masks.neighborhood(size, shape)"),
    "shifted_windows": ("its windows", "masks.shifted_windows(window, shift, shape)"),
    "blocks": ("a bool for each block", "masks.blocks(visible, size)"),
    "columns": ("a list of keys for each query", "masks.columns(index)"),
    "top_blocks": ("queries and keys", "masks.top_blocks(query, key, size, count)"),
    "lengths": ("the lengths", "masks.lengths(lengths)"),
    "documents": ("the ids of the documents", "masks.documents(ids)"),
    "keep": ("a bool tensor", "masks.keep(tensor)"),
    "ignore": ("a bool tensor", "masks.ignore(tensor)"),
    "where": ("a function", "masks.where(fn)"),
}
"""The other masks: what each needs, and the line."""


def as_mask(value: object) -> Mask | None:
    """Converts a user's ``mask=`` to a Mask.

    Args:
        value: None, a `Mask`, the name ``causal``, or a bool tensor (True: may attend) that broadcasts to
            ``[batch, heads, queries, keys]``.

    Raises:
        UnknownNameError: no mask has this name.
        ArgumentError: the mask of this name needs arguments; the message says which.
        KindError: the value is anything else; the message says what to write instead.

    Example:
        >>> import torch
        >>> from regard import masks
        >>> masks.as_mask(torch.tensor([True, True, False]))
        keep(<[3]>)
        >>> masks.as_mask("causal")
        causal()
        >>> masks.as_mask(None) is None
        True
    """
    if value is None or isinstance(value, Mask):
        return value
    if isinstance(value, str):
        if value in NAMES:
            return NAMES[value]
        if value in WITH_ARGUMENTS:
            need, line = WITH_ARGUMENTS[value]
            raise ArgumentError(f"mask {value!r} needs {need}: mask={line}")
        raise UnknownNameError("mask", value, {*NAMES, *WITH_ARGUMENTS}, written_here("mask", value))
    if not isinstance(value, Tensor):
        hint = uncalled(value, "masks") or ("wrap a function in masks.where" if callable(value) else "")
        if type_text(value) == "a BlockMask":
            hint = "write mask=masks.where(block_mask.mask_mod)"
        if type_text(value) == "a ndarray" or isinstance(value, (list, tuple)):
            hint = "write mask=torch.tensor(mask, dtype=torch.bool), where True means 'may attend'"
        raise KindError(
            f"mask must be a Mask, a bool tensor or None; it is {type_text(value)}{f' ({hint})' if hint else ''}"
        )
    check_bool("mask", value)
    return Keep(value, "mask=")
