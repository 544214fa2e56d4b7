"""Where a tile begins and ends to see something: the hull of its visible keys."""

from regard.masks.mask import Mask, Visibility
from regard.shapes import Grid


def visible_keys(mask: Mask, grid: Grid, block: int) -> range:
    """The smallest range of whole key blocks outside which a tile sees nothing.

    Key blocks are probed by `Mask.visibility`, by halves: a mask that knows its bounds is asked about
    ``log2(keys / block)`` times for each end, and no mask more often than four times for each block.

    Args:
        mask: who may see whom.
        grid: the tile: its query rows, and the keys to look among.
        block: keys of one block, counted from the first key of the tile.

    Returns:
        Positions of the whole problem, within ``grid.key_span``: it starts at a block's first key and ends with a
        block's last key or the tile's. Empty if nothing is visible.
    """
    span = grid.key_span
    if 0 in grid.shape:
        return range(span.start, span.start)

    def keys_of(first: int, stop: int) -> range:
        return range(span.start + first * block, min(span.start + stop * block, span.stop))

    def outermost(first: int, stop: int, from_left: bool) -> int | None:
        if mask.visibility(grid.tile(keys=keys_of(first, stop))) is Visibility.EMPTY:
            return None
        if stop - first == 1:
            return first
        middle = (first + stop) // 2
        halves = ((first, middle), (middle, stop))
        near, far = halves if from_left else halves[::-1]
        found = outermost(*near, from_left)
        return outermost(*far, from_left) if found is None else found

    blocks = -(-len(span) // block)
    first = outermost(0, blocks, from_left=True)
    if first is None:
        return range(span.start, span.start)
    last = outermost(first, blocks, from_left=False)
    # A mask may answer PARTIAL for a range and EMPTY for each of its blocks, but `first` was a block that it saw.
    return keys_of(first, (first if last is None else last) + 1)
