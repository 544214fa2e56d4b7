"""The positions of an input's vectors, and checks of the arguments that determine them."""

import torch
from torch import Tensor

from regard.distributed.sequence_parts import shards_of_part
from regard.errors import KindError, ShapeError
from regard.shapes.checks import check_floating, whole_number


def positions_of(input: Tensor, offset: int | Tensor) -> tuple[int, int] | Tensor:
    """Returns the positions of an input's vectors, which count through the whole sequence if the input is a part of it.

    Args:
        input: ``[..., length, dim]``.
        offset: the position of the sequence's first vector; an integer, or integers ``[batch]`` with ``batch`` the
            input's first axis.

    Returns:
        the first position and the one after the last, if they follow one another; else ``int64 [length]`` or
        ``[batch, 1, ..., length]``, which broadcasts against ``input`` after one more axis is appended.
    """
    length = input.shape[-2]
    shards = shards_of_part(length, "input")
    if not isinstance(offset, Tensor):
        first = whole_number("offset", offset)
        return (first, first + length) if shards is None else shards.positions(device=input.device) + first
    own = torch.arange(length, device=input.device) if shards is None else shards.positions(device=input.device)
    return _rows_of(input, offset) + own


def _rows_of(input: Tensor, offset: Tensor) -> Tensor:
    """Returns the position of each batch row's first vector, with axes for those of the input."""
    if offset.dtype == torch.bool or offset.is_floating_point() or offset.is_complex():
        raise KindError(f"offset must hold integers; it holds {offset.dtype}")
    if input.dim() < 3 or list(offset.shape) != [input.shape[0]]:
        raise ShapeError(
            f"offset must be an integer, or [batch] for an input [batch, ..., length, dim]; "
            f"it has shape {list(offset.shape)} and the input {list(input.shape)}"
        )
    if offset.device != input.device:
        raise KindError(f"offset must be on {input.device}, where the input is; it is on {offset.device}")
    return offset.long().reshape(-1, *[1] * (input.dim() - 2))


def check_features(input: Tensor, dim: int, at_least: bool = False) -> None:
    """Raises an error unless ``input`` is a floating-point ``[..., length, dim]``, or wider with ``at_least``."""
    check_floating("input", input)
    fits = input.dim() >= 2 and (input.shape[-1] == dim or (at_least and input.shape[-1] > dim))
    if not fits:
        expected = f"[..., length, {'at least ' if at_least else ''}{dim}]"
        raise ShapeError(f"input must be {expected}; it has shape {list(input.shape)}")
