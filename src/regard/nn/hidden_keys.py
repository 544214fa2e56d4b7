"""Removal of hidden annotations before their projection."""

from torch import Tensor

from regard.distributed.sequence_parts import own_part, whole_length
from regard.masks import Mask, lengths
from regard.shapes.grid import Grid
from regard.tracing.transforms import can_read, is_finite


def visible_annotations(mask: Mask, annotations: Tensor) -> Tensor:
    """Returns which annotations ``[batch, keys, features]`` are visible, bool ``[batch, keys]`` of whole sequences.

    Raises:
        ShapeError, KindError, ArgumentError: as in `Mask.check`.
    """
    keys = whole_length(annotations.shape[1], "annotations")
    grid = Grid.whole(annotations.shape[0], 1, 1, keys, annotations.device)
    mask.check(grid)
    return mask.dense(grid)[:, 0, 0]


def without_hidden(annotations: Tensor, value: Tensor, visible: Tensor) -> tuple[Tensor, Tensor]:
    """Replaces hidden annotations and values by zeros, unless all elements are finite.

    Hidden keys and values must affect neither products nor gradients, even if they are NaN (contract 10). Finite ones
    need no replacement, since their weight and gradient are 0.
    """
    same = value is annotations
    if can_read(annotations, value) and is_finite(annotations) and (same or is_finite(value)):
        return annotations, value
    clean = annotations.masked_fill(~visible[..., None], 0.0)
    return clean, clean if same else value.masked_fill(~visible[..., None], 0.0)


def without_padding(annotations: Tensor, ends: Tensor | None) -> Tensor:
    """Replaces padding after the end of each row by zeros; ``ends`` None: there is no padding.

    Finite elements too: layers that return a row for each annotation give the rows of zeros there, compiled or not.
    """
    if ends is None:
        return annotations
    visible = own_part(visible_annotations(lengths(ends), annotations), 1, annotations.shape[1], "annotations")
    return annotations.masked_fill(~visible[..., None], 0.0)
