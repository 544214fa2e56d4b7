"""The positions of an input's vectors, and checks of the arguments that determine them."""

import torch
from torch import Tensor

from regard.errors import KindError, ShapeError
from regard.shapes import check_floating


def position_index(input: Tensor, offset: Tensor) -> Tensor:
    """Returns the positions of an input whose batch rows start at different positions.

    Args:
        input: ``[batch, ..., length, dim]``.
        offset: the position of each batch row's first vector, integers ``[batch]``.

    Returns:
        ``int64 [batch, 1, ..., length]``, which broadcasts against ``input`` after one more axis is appended.
    """
    if offset.dtype == torch.bool or offset.is_floating_point() or offset.is_complex():
        raise KindError(f"offset must hold integers; it holds {offset.dtype}")
    if input.dim() < 3 or list(offset.shape) != [input.shape[0]]:
        raise ShapeError(
            f"offset must be an integer, or [batch] for an input [batch, ..., length, dim]; "
            f"it has shape {list(offset.shape)} and the input {list(input.shape)}"
        )
    if offset.device != input.device:
        raise KindError(f"offset must be on {input.device}, where the input is; it is on {offset.device}")
    rows = offset.long().reshape(-1, *[1] * (input.dim() - 2))
    return rows + torch.arange(input.shape[-2], device=input.device)


def check_features(input: Tensor, dim: int, at_least: bool = False) -> None:
    """Raises an error unless ``input`` is a floating-point ``[..., length, dim]``, or wider with ``at_least``."""
    check_floating("input", input)
    fits = input.dim() >= 2 and (input.shape[-1] == dim or (at_least and input.shape[-1] > dim))
    if not fits:
        expected = f"[..., length, {'at least ' if at_least else ''}{dim}]"
        raise ShapeError(f"input must be {expected}; it has shape {list(input.shape)}")
