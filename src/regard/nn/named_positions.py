"""Positions of self-attention by name."""

from typing import Literal, get_args

import torch

from regard.biases import Bias, RelativeBias, RelativePosition, alibi
from regard.errors import ArgumentError, KindError
from regard.names.foreign_names import written_here
from regard.positions import Rotary
from regard.shapes.checks import known_name, type_text

RelativePositionName = Literal["none", "rotary", "alibi", "t5", "shaw"]
RELATIVE_POSITIONS: tuple[RelativePositionName, ...] = get_args(RelativePositionName)
SHAW_DISTANCE = 16
"""Distance at which ``shaw`` clips relative positions (Shaw et al. 2018, section 4.1)."""

Position = RelativePositionName | Rotary | Bias
"""A name of `RELATIVE_POSITIONS`, a `Rotary`, which rotates queries and keys, or a `Bias`, which is added to scores."""


def position_for(
    position: Position | None,
    heads: int,
    head_dim: int,
    bidirectional: bool = True,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> Rotary | Bias | None:
    """Returns the position that a name stands for, or a position or None as it is: ``rotary`` (Su et al. 2021),
    ``alibi`` (Press et al. 2022), ``t5`` (a bias for each range of distances, Raffel et al. 2020) or ``shaw`` (Shaw et
    al. 2018).

    ``heads`` are query heads of ``head_dim`` features. Unless ``bidirectional``, ``t5`` has buckets for earlier tokens
    only. Raises KindError or UnknownNameError for no position, and ArgumentError for ``rotary`` of an odd number of
    features.
    """
    if position is None or isinstance(position, (Rotary, Bias)):
        return position
    if not isinstance(position, str):
        raise KindError(
            f"position must be a name ({', '.join(RELATIVE_POSITIONS)}), a Rotary, a Bias or None; "
            f"it is {type_text(position)}"
        )
    check_position(position, head_dim)
    if position == "none":
        return None
    if position == "rotary":
        named: Rotary | Bias = Rotary(head_dim)
    elif position == "alibi":
        named = alibi(heads)
    elif position == "t5":
        named = RelativeBias(heads, bidirectional=bidirectional)
    else:
        named = RelativePosition(head_dim, SHAW_DISTANCE)
    return named.to(device=device, dtype=dtype)


def check_position(position: object, head_dim: int) -> None:
    """Raises an error unless this is a position, or the name of one that fits heads of ``head_dim`` features."""
    if isinstance(position, (Rotary, Bias)):
        return
    known_name("position", position, RELATIVE_POSITIONS, written_here("position", position))
    if position == "rotary" and head_dim % 2:
        raise ArgumentError(f"position 'rotary' needs an even number of features a head; there are {head_dim}")
