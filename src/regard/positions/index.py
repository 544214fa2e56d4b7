"""The positions of an input's vectors, and checks of the arguments that determine them."""

import torch
from torch import Tensor

from regard.distributed.sequence_parts import refuse_parts, shards_of_part, whole_length
from regard.errors import KindError, ShapeError
from regard.shapes.checks import check_dense, check_floating, whole_number


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
    return _rows_of("offset", input, offset) + own


def whole_lengths(input: Tensor, offset: int | Tensor, length: int | Tensor | None) -> int | Tensor:
    """Returns the number of positions of a whole sequence: ``length``, or the position after the input's last; for
    integers ``[batch]``, with axes for those of the input."""
    name, value = ("offset", offset) if length is None else ("length", length)
    rest = whole_length(input.shape[-2], "input") if length is None else 0
    return rest + (_rows_of(name, input, value) if isinstance(value, Tensor) else whole_number(name, value))


def explicit_positions(input: Tensor, positions: Tensor, axes: int | None) -> Tensor:
    """Returns positions that the user passed, ``[(axes,) (batch,) length]``, with axes for those of the input."""
    refuse_parts("a call with positions=")
    check_dense("positions", positions)
    if positions.dtype == torch.bool or positions.is_complex():
        raise KindError(f"positions must hold real numbers; they hold {positions.dtype}")
    first, shape = () if axes is None else (axes,), tuple(positions.shape)
    if shape == (*first, input.shape[-2]):
        return positions
    if input.dim() < 3 or shape != (*first, input.shape[0], input.shape[-2]):
        names = "axes, " if first else ""
        whole = [*first, input.shape[0], input.shape[-2]]
        expected = f"[{names}length] or [{names}batch, length] = {whole}"
        if input.dim() < 3:
            expected = f"[{names}length] = {[*first, input.shape[-2]]}"
        raise ShapeError(f"positions must be {expected}; it has shape {list(shape)}")
    return positions.reshape(*shape[:-1], *[1] * (input.dim() - 3), shape[-1])


def _rows_of(name: str, input: Tensor, rows: Tensor) -> Tensor:
    """Returns integers ``[batch]`` with axes for those of the input."""
    if rows.dtype == torch.bool or rows.is_floating_point() or rows.is_complex():
        raise KindError(f"{name} must hold integers; it holds {rows.dtype}")
    if input.dim() < 3 or list(rows.shape) != [input.shape[0]]:
        raise ShapeError(
            f"{name} must be an integer, or [batch] for an input [batch, ..., length, dim]; "
            f"it has shape {list(rows.shape)} and the input {list(input.shape)}"
        )
    if rows.device != input.device:
        raise KindError(f"{name} must be on {input.device}, where the input is; it is on {rows.device}")
    return rows.long().reshape(-1, *[1] * (input.dim() - 2))


def check_features(input: Tensor, dim: int, at_least: bool = False) -> None:
    """Raises an error unless ``input`` is a floating-point ``[..., length, dim]``, or wider with ``at_least``."""
    check_floating("input", input)
    fits = input.dim() >= 2 and (input.shape[-1] == dim or (at_least and input.shape[-1] > dim))
    if not fits:
        expected = f"[..., length, {'at least ' if at_least else ''}{dim}]"
        raise ShapeError(f"input must be {expected}; it has shape {list(input.shape)}")
