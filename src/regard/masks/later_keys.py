"""Which queries see keys after their own although a part of the mask is causal, as a window that is joined to a prefix.

A part is causal if it is a `Band` that shows no key after the query's own, or another mask of which its pairs say so.
Where a mask cannot be wider than its causal parts, nothing is computed; any other is looked at, by its runs of keys or
pair by pair.
"""

from collections.abc import Iterator
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from regard.masks.mask import And, Combination, Mask, Not, Or
from regard.masks.positional import Align, Band
from regard.shapes.grid import Grid, span_length
from regard.tracing.transforms import has_data

PAIRS_SEARCHED = 1 << 24
"""Most pairs that are looked at of a mask that has no runs."""

BLOCK_PAIRS = 1 << 20
"""Pairs that are looked at at once."""


class LaterKeys(NamedTuple):
    """The keys after a query's own that a mask shows.

    Attributes:
        contains: whether the mask shows all that ``causal`` shows, by its form.
        leaking: number of queries that see a later key, in any batch row and head.
        examined: number of queries that were looked at, the first ones.
        batch_row, head: of the first pair of a query and a later key; None: it is so in all.
        query, key: of the first pair.
    """

    causal: Band
    contains: bool
    leaking: int
    examined: int
    batch_row: int | None
    head: int | None
    query: int
    key: int


def later_keys(mask: Mask, grid: Grid) -> LaterKeys | None:
    """Returns which queries see a later key; None if no part is causal, no query does, or it cannot be known.

    Positions are those of the causal part; of several, those by which the fewest keys are later ones.

    Example:
        >>> from regard import masks
        >>> from regard.masks.later_keys import later_keys
        >>> from regard.shapes import Grid
        >>> seen = later_keys(masks.window(2, 0) | masks.prefix(4), Grid.whole(1, 1, 9, 9))
        >>> seen.leaking, seen.query, seen.key
        (3, 0, 1)
    """
    mask = _with_inner_negations(mask)
    if not isinstance(mask, Combination) or 0 in grid.shape:
        return None
    bands = [band for part in _parts(mask) if (band := _band_of(part)) is not None]
    if _is_within_bands(mask) or not (bands := bands or _equal_bands(mask, grid)):
        return None
    positions = [_own_positions(band, grid) for band in bands]
    own = reduce(torch.maximum, positions) if all(map(has_data, positions)) else None
    if own is None or (first := _first_later_keys(mask, grid, own)) is None:
        return None
    leaks = first < grid.keys  # B H Q
    if not bool(leaks.any()):
        return None
    of_queries = leaks.any(0).any(0)
    query = int(of_queries.int().argmax())
    row, head = leaks[:, :, query].nonzero()[0].tolist()
    return LaterKeys(
        causal=bands[max(range(len(bands)), key=lambda index: int(positions[index].sum()))],
        contains=isinstance(mask, Or) and any(isinstance(part, Band) and part.is_causal for part in mask.parts),
        leaking=int(of_queries.sum()),
        examined=len(of_queries),
        batch_row=row if bool((leaks != leaks[:1]).any()) else None,
        head=head if bool((leaks != leaks[:, :1]).any()) else None,
        query=query,
        key=int(first[row, head, query]),
    )


def _with_inner_negations(mask: Mask) -> Mask:
    """Returns the same mask, in which only single masks are negated: ``~(a & b)`` is ``~a | ~b``."""
    if isinstance(mask, Combination):
        return type(mask)(*map(_with_inner_negations, mask.parts))
    if not isinstance(mask, Not) or not isinstance(mask.mask, (Combination, Not)):
        return mask
    if isinstance(mask.mask, Not):
        return _with_inner_negations(mask.mask.mask)
    opposite = Or if isinstance(mask.mask, And) else And
    return opposite(*(_with_inner_negations(~part) for part in mask.mask.parts))


def _parts(mask: Mask) -> Iterator[Mask]:
    """Yields the masks of a combination, at all levels."""
    if isinstance(mask, Combination):
        for part in mask.parts:
            yield from _parts(part)
    else:
        yield mask


def _band_of(part: Mask) -> Band | None:
    """Returns the causal mask with the positions of a part that is causal by its form.

    ``window(0, 0)`` is not: it shows as much before a query as after it.
    """
    band = part.mask if isinstance(part, Not) else part
    if not isinstance(band, Band):
        return None
    past = band.after is None and band.before is not None if band is not part else band.after == 0 != band.before
    return Band(None, 0, band.align, None if band.offset is None else band.offset.value) if past else None


def _is_within_bands(mask: Mask) -> bool:
    """Whether a mask certainly shows no more than its causal parts do."""
    if isinstance(mask, Combination):
        return (any if isinstance(mask, And) else all)(map(_is_within_bands, mask.parts))
    return _band_of(mask) is not None


def _equal_bands(mask: Mask, grid: Grid) -> list[Band]:
    """Returns the causal masks with the positions of the parts that are causal by their pairs, as ``where(j <= i)``.

    Such a part shows no later key, some earlier ones, and most queries their own key.
    """
    alignments: list[Align] = ["end"] if grid.offset == 0 else ["end", "start"]
    bands = []
    for part in _parts(mask):
        for band in (Band(None, 0, align) for align in alignments):
            own = _own_positions(band, grid)
            if not isinstance(part, Band) and _is_causal(part, grid, own):
                bands.append(band)
    return bands


def _is_causal(part: Mask, grid: Grid, own: Tensor) -> bool:
    first = _first_later_keys(part, grid, own)
    if first is None or bool((first < grid.keys).any()):
        return False
    before = _first_later_keys(part, grid, own - 1)
    anywhere = _first_later_keys(part, grid, torch.full_like(own, -1))
    if before is None or anywhere is None or not first.shape[2] == before.shape[2] == anywhere.shape[2] == grid.queries:
        return False
    shows_own = (before < grid.keys).float().mean() > 0.5
    return bool(shows_own) and bool((anywhere < own.clamp(max=grid.keys)).any())


def _own_positions(band: Band, grid: Grid) -> Tensor:
    """Returns the key position of each query, ``int64 [batch or 1, 1, queries]`` on the CPU, unless it has no data."""
    offset = band.offset_on(grid)
    query = torch.arange(grid.queries, device="cpu")
    if isinstance(offset, int):
        return (query + offset)[None, None]
    return query + offset.cpu()[..., 0] if has_data(offset) else offset


def _first_later_keys(mask: Mask, grid: Grid, own: Tensor) -> Tensor | None:
    """Returns the first visible key after each query's own, ``[batch or 1, heads or 1, queries]`` on the CPU.

    Where there is none it is the number of keys. There are fewer queries, the first ones, if the mask is large; the
    result is None if the mask cannot be read.
    """
    if not has_data(own):
        return None
    spans = mask.spans(grid)
    if spans is not None:
        start = torch.maximum(spans.start, own[..., None] + 1)
        return torch.where(start < spans.stop, start, grid.keys).amin(-1)
    blocks, first, searched = [], 0, 0
    rows = max(1, BLOCK_PAIRS // (grid.keys * grid.batch * grid.heads))
    while first < grid.queries and searched < PAIRS_SEARCHED:
        tile = grid.tile(queries=range(first, min(first + rows, grid.queries)))
        allowed = mask.with_four_axes(tile)
        if not has_data(allowed):
            return None
        of_rows = own[..., first : tile.query_span.stop, None].to(grid.device)
        seen = allowed & (tile.key_index > of_rows)
        blocks.append(torch.where(seen, tile.key_index, grid.keys).amin(-1).cpu())
        first, searched = tile.query_span.stop, searched + seen.numel()
        # A mask that is the same for all batch rows or heads is looked at once, in larger blocks.
        rows = max(1, BLOCK_PAIRS * span_length(tile.query_span) // seen.numel())
    return torch.cat(blocks, dim=2)
