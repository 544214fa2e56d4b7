"""What a mask hides of annotations, before they are projected."""

from torch import Tensor

from regard.masks import Mask
from regard.shapes import Grid
from regard.transforms import can_branch_on, is_finite


def seen_keys(mask: Mask, annotations: Tensor) -> Tensor:
    """Which annotations ``[batch, keys, features]`` a mask shows to a query, bool ``[batch, keys]``.

    Raises:
        ShapeError, KindError, ArgumentError: as `Mask.check`.
    """
    grid = Grid.whole(annotations.shape[0], 1, 1, annotations.shape[1], annotations.device)
    mask.check(grid)
    return mask.dense(grid)[:, 0, 0]


def without_hidden(annotations: Tensor, value: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
    """Both with zeros where a key is hidden, unless all numbers are finite anyway.

    What is hidden may hold anything, and must reach neither products nor their gradients (contract 10); a finite number
    has weight 0 and gradient 0.
    """
    one = value is annotations
    if can_branch_on(annotations, value) and is_finite(annotations) and (one or is_finite(value)):
        return annotations, value
    clean = annotations.masked_fill(~seen[..., None], 0.0)
    return clean, clean if one else value.masked_fill(~seen[..., None], 0.0)
