"""Tensors of layers within `regard.distributed.sequence`: parts of sequences that several processes hold.

Outside of it a length is a length, and these functions return what they are given. They import `torch.distributed` no
earlier than the user does.
"""

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from torch import Tensor

from regard.errors import ArgumentError

if TYPE_CHECKING:
    from regard.distributed.shards import Shards


def current() -> "tuple[Shards, ...]":
    """Returns the sequences of which the plain tensors of this call are a process's parts; none: they are no parts."""
    module = sys.modules.get("regard.distributed.sequences")
    return () if module is None else module.current()


def are_parts() -> bool:
    """Whether the plain tensors of this call are a process's parts of sharded sequences."""
    return bool(current())


def shards_of_part(length: int, name: str) -> "Shards | None":
    """Returns the shards of which this process holds ``length`` positions; None if tensors are no parts.

    Every process calls it alike (`regard.distributed.sequences.shards_of`).

    Args:
        length: positions of a part.
    """
    if not are_parts():
        return None
    from regard.distributed.sequences import shards_of

    return shards_of(**{name: length})[0]


def whole_length(length: int, name: str) -> int:
    """Returns the length of the whole sequence of which a part has ``length`` positions; arguments of
    `shards_of_part`."""
    shards = shards_of_part(length, name)
    return length if shards is None else shards.length


def joined(tensor: Tensor, dim: int, name: str) -> Tensor:
    """Returns the whole of a tensor that has a number for each position, from the part of each process.

    Every process must call this. The gradient reaches every part.

    Args:
        tensor: this process's part, or the whole if tensors are no parts.
        dim: the axis of positions.
    """
    shards = shards_of_part(tensor.shape[dim], name)
    return tensor if shards is None else shards.join(tensor, dim)


def own_part(tensor: Tensor, dim: int, length: int, name: str) -> Tensor:
    """Returns this process's part of a whole tensor: the inverse of `joined`."""
    shards = shards_of_part(length, name)
    return tensor if shards is None else shards.cut(tensor, dim)


def refuse_parts(owner: str) -> None:
    """Raises ArgumentError within `regard.distributed.sequence`, for what would treat a part as the whole.

    Args:
        owner: the layer or function, the beginning of a sentence.
    """
    if are_parts():
        raise ArgumentError(
            f"{owner} needs whole sequences, and within regard.distributed.sequence this process has a part of each: "
            "call it outside, on what regard.distributed.gather returns"
        )


def within(sequences: "tuple[Shards, ...]") -> AbstractContextManager[None]:
    """Returns a context with the sequences that `current` gave, for a calculation that is repeated later."""
    if not sequences and not are_parts():
        return nullcontext()
    from regard.distributed.sequences import sequence

    return sequence(*sequences)
