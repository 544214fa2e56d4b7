"""Padding: the keys and queries that a mask hides from all others, and their removal before a projection."""

from functools import reduce
from operator import and_
from typing import NamedTuple

from torch import Tensor

from regard.distributed.sequence_parts import own_part, whole_length
from regard.errors import ArgumentError
from regard.masks import And, Band, Documents, Mask, Not, Or, keep, lengths
from regard.masks.content import Lengths
from regard.masks.explicit import Keep
from regard.masks.mask import joined_masks
from regard.masks.positional import AlignedMask
from regard.normalizers import Normalizer
from regard.shapes.grid import Grid
from regard.tracing.transforms import can_read, is_finite


class Padding(NamedTuple):
    """The parts of a mask: the keys that queries may see, bool ``[batch or 1, heads or 1, 1, keys]``; the queries that
    may see keys, bool ``[batch or 1, 1, queries, 1]``; and the parts that are no padding. None: all, and nothing."""

    keys: Tensor | None
    queries: Tensor | None
    rest: Mask | None


def padding_of(mask: Mask | None, grid: Grid) -> Padding:
    """Separates padding from the other parts of a mask: lengths, and what has one row for all queries."""
    keys: list[Tensor] = []
    queries: list[Tensor] = []
    rest: list[Mask] = []
    for part in joined_masks(mask):
        if isinstance(part, Band):
            rest.append(part)
            continue
        part.check(grid)
        if isinstance(part, Documents):
            rest.append(part)
        elif isinstance(part, Lengths):
            keys.append(part.of_keys.with_four_axes(grid))
            if part.queries is not None:
                queries.append(grid.query_index < part.queries.on(grid))
        elif (allowed := part.with_four_axes(grid)).shape[2] == 1:
            keys.append(allowed.expand(-1, -1, -1, grid.keys))
        else:
            rest.append(part)
    of_keys, of_queries = (reduce(and_, parts) if parts else None for parts in (keys, queries))
    return Padding(of_keys, of_queries, reduce(and_, rest) if rest else None)


def check_coupled(normalizer: Normalizer, mask: Mask | None) -> None:
    """Raises ArgumentError if a mask hides later keys and each weight depends on the scores of later queries too."""
    if normalizer.couples == "queries" and mask is not None and _hides_later_keys(mask):
        raise ArgumentError(
            f"with the normalizer {type(normalizer).__name__} each weight of a token depends on later tokens, which a "
            "causal mask should hide; leave the mask out, or write another normalizer"
        )


def present_queries(mask: Mask | None, grid: Grid) -> Mask | None:
    """Returns a mask of self-attention that hides queries of padding as well as its keys.

    Padding is what `masks.lengths` and tensors with one row for all queries hide.
    """
    padding = [part for part in joined_masks(mask) if isinstance(part, Lengths) or _tensor_of(part) is not None]
    keys = padding_of(reduce(and_, padding), grid).keys if padding else None
    if mask is None or keys is None or grid.queries != grid.keys or grid.queries == 1:
        return mask
    return mask & keep(keys.mT)


def _hides_later_keys(mask: Mask) -> bool:
    """Whether a mask, or one of which it is combined, is causal, or a window that ends somewhere after each query."""
    tensor = _tensor_of(mask)
    if tensor is not None:
        is_square = tensor.dim() >= 2 and tensor.shape[-1] == tensor.shape[-2] > 1
        return is_square and can_read(tensor) and not bool(tensor.triu(1).any())
    if isinstance(mask, And | Or):
        return any(map(_hides_later_keys, mask.parts))
    if isinstance(mask, Not):
        return _hides_later_keys(mask.mask)
    return isinstance(mask, AlignedMask) and mask.after is not None


def _tensor_of(mask: Mask | None) -> Tensor | None:
    """Returns the tensor of which a mask is made, True: may attend; None: of something else."""
    if isinstance(mask, Not):
        tensor = _tensor_of(mask.mask)
        return None if tensor is None else ~tensor
    return mask.tensor if isinstance(mask, Keep) else None


def visible_annotations(mask: Mask, annotations: Tensor) -> Tensor:
    """Returns which annotations ``[batch, keys, features]`` are visible, bool ``[batch, keys]`` of whole sequences;
    raises what `Mask.check` does."""
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
