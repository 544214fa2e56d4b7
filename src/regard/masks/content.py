"""Masks that follow from what stands in the sequences: their lengths, and the documents packed into them."""

from collections.abc import Hashable
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.axes import Bool, Float
from regard.errors import KindError, ShapeError
from regard.masks.batch_integers import BatchInteger, Integers
from regard.masks.mask import Mask, Visibility
from regard.masks.spans import RUNS_LIMIT, Spans
from regard.shapes import Grid, check_device, check_integers, kind_of
from regard.transforms import has_data


class Lengths(Mask):
    """Positions before the end of each sequence. See `lengths`."""

    def __init__(self, keys: Integers, queries: Integers | None = None):
        self.keys = BatchInteger("keys", keys)
        self.queries = None if queries is None else BatchInteger("queries", queries)
        self._added: tuple[int, int, Tensor | None] = (-1, -1, None)

    def check(self, grid: Grid) -> None:
        self.keys.check(grid, low=0, high=grid.keys)
        if self.queries is not None:
            self.queries.check(grid, low=0, high=grid.queries)

    def allows(self, grid: Grid) -> Bool[Tensor, "..."]:
        allowed = grid.key_index < self.keys.on(grid)
        return allowed if self.queries is None else allowed & (grid.query_index < self.queries.on(grid))

    @property
    def _is_known(self) -> bool:
        return self.keys.is_known and (self.queries is None or self.queries.is_known)

    def visibility(self, grid: Grid) -> Visibility:
        if 0 in grid.shape:
            return Visibility.EMPTY
        if not self._is_known:
            return Visibility.PARTIAL
        least, greatest = self.keys.bounds(grid)
        full, empty = grid.key_span[-1] < least, grid.key_span[0] >= greatest
        if self.queries is not None:
            least, greatest = self.queries.bounds(grid)
            full, empty = full and grid.query_span[-1] < least, empty or grid.query_span[0] >= greatest
        if empty:
            return Visibility.EMPTY
        return Visibility.FULL if full else Visibility.PARTIAL

    def hides_nothing(self, grid: Grid) -> bool:
        return self._is_known and self.visibility(grid) is Visibility.FULL

    def added_keys(self, batch: int, keys: int) -> Float[Tensor, "#batch 1 1 keys"] | None:
        """What is added to scores on a CPU: 0 for what a query sees, else −∞. Kept for the next call.

        None with lengths of queries, and where all or nothing of a batch row is seen.

        Raises:
            ShapeError, KindError, ArgumentError: as `check`.
        """
        if self.queries is not None:
            return None
        if self._added[:2] != (batch, keys):
            grid = Grid.whole(batch, 1, 1, keys)
            self.check(grid)
            added = None
            if self._is_known and not self.hides_nothing(grid) and self.keys.bounds(grid)[0] > 0:
                added = torch.where(self.allows(grid), 0.0, -torch.inf)
            self._added = batch, keys, added
        return self._added[2]

    def spans(self, grid: Grid) -> Spans | None:
        if not self._is_known:
            return None
        stop = self.keys.on_host(grid)
        if self.queries is not None:
            query = torch.arange(grid.query_span.start, grid.query_span.stop)[None, None]
            stop = stop * (query < self.queries.on_host(grid))
        return Spans.within(grid, 0, stop)

    def identity(self) -> Hashable:
        return self.keys.identity, None if self.queries is None else self.queries.identity

    def __repr__(self) -> str:
        return f"lengths({self.keys!r}{'' if self.queries is None else f', queries={self.queries!r}'})"


def lengths(keys: Integers, queries: Integers | None = None) -> Lengths:
    """Sequences of different lengths, padded at their ends to one.

        query i sees key j of batch row b  ⇔  j < keys[b]  and  i < queries[b]

    Args:
        keys: how many keys of each batch row are not padding, 0..keys: an integer tensor ``[batch]``, a list, or one
            integer for all rows.
        queries: the same for queries; those past it see nothing, and their output is 0. None: all queries see.
    """
    return Lengths(keys, queries)


class Documents(Mask):
    """Pairs within one document. See `documents`."""

    def __init__(self, query_ids: Tensor, key_ids: Tensor | None = None):
        self.query_ids = _ids("query_ids", query_ids)
        self.key_ids = None if key_ids is None else _ids("key_ids", key_ids)
        self._found: tuple[Grid, Spans | None] | None = None

    def check(self, grid: Grid) -> None:
        if self.key_ids is None and grid.queries != grid.keys:
            raise ShapeError(
                f"documents needs key_ids where queries and keys differ in number; "
                f"there are {grid.queries} queries and {grid.keys} keys"
            )
        given = (("query_ids", "queries", self.query_ids, grid.queries), ("key_ids", "keys", self.key_ids, grid.keys))
        for name, axis, ids, length in given:
            if ids is None:
                continue
            if list(ids.shape) not in ([length], [grid.batch, length]):
                raise ShapeError(
                    f"{name} must be [{axis}] = [{length}] or [batch, {axis}] = [{grid.batch}, {length}]; "
                    f"it has shape {list(ids.shape)}"
                )
            check_device(name, ids, grid)

    def allows(self, grid: Grid) -> Bool[Tensor, "..."]:
        query_ids = self.query_ids
        key_ids = query_ids if self.key_ids is None else self.key_ids
        query = _part(query_ids, grid.batch_span, grid.query_span)[:, None, :, None]  # B 1 Q 1
        key = _part(key_ids, grid.batch_span, grid.key_span)[:, None, None, :]  # B 1 1 K
        return (query == key) & (query >= 0)

    @property
    def _is_known(self) -> bool:
        return has_data(self.query_ids) and (self.key_ids is None or has_data(self.key_ids))

    @cached_property
    def _on_host(self) -> tuple[Tensor, Tensor]:
        query_ids = self.query_ids.cpu()
        return query_ids, query_ids if self.key_ids is None else self.key_ids.cpu()

    def visibility(self, grid: Grid) -> Visibility:
        """From the least and greatest id of each batch row: exact when ids ascend, as in packed sequences."""
        if 0 in grid.shape:
            return Visibility.EMPTY
        if not self._is_known:
            return Visibility.PARTIAL
        query_ids, key_ids = self._on_host
        query = _part(query_ids, grid.batch_span, grid.query_span)
        key = _part(key_ids, grid.batch_span, grid.key_span)
        query_high, key_high = query.amax(-1), key.amax(-1)
        if bool(((query_high < _least_document(key)) | (key_high < _least_document(query))).all()):
            return Visibility.EMPTY
        query_low, key_low = query.amin(-1), key.amin(-1)
        one_document = (query_low == query_high) & (key_low == key_high) & (query_low == key_low) & (query_low >= 0)
        return Visibility.FULL if bool(one_document.all()) else Visibility.PARTIAL

    def spans(self, grid: Grid) -> Spans | None:
        if not self._is_known:
            return None
        found = self._found
        if found is None or found[0] != grid:
            # Kept for the next layer, which asks the same: ids are sorted once for a batch.
            self._found = found = grid, self._find_spans(grid)
        return found[1]

    def _find_spans(self, grid: Grid) -> Spans | None:
        """From the keys sorted by id: which runs of keys have a query's id, and where those begin and end."""
        if 0 in grid.shape:
            return Spans.within(grid, 0, 0)
        query_ids, key_ids = self._on_host
        query = _part(query_ids, grid.batch_span, grid.query_span)
        # Stable: the keys of one id stay in the order of their positions.
        ids, order = _part(key_ids, grid.batch_span, grid.key_span).sort(stable=True, dim=-1)
        rows, keys = max(len(query), len(ids)), ids.shape[-1]
        query, ids, order = (x.expand(rows, -1).contiguous() for x in (query, ids, order))  # B Q, B K, B K
        low, high = torch.searchsorted(ids, query), torch.searchsorted(ids, query, right=True)
        # Runs in the order of their ids: the number of each key's run, and where in this order each run begins.
        begins = torch.ones_like(ids, dtype=torch.bool)
        begins[:, 1:] = (ids[:, 1:] != ids[:, :-1]) | (order[:, 1:] != order[:, :-1] + 1)
        run = begins.cumsum(-1) - 1
        place = torch.where(begins, torch.arange(keys), keys).sort(-1).values
        place = F.pad(place, (0, 1), value=keys)
        first = run.gather(-1, low.clamp(max=keys - 1))
        count = (run.gather(-1, (high - 1).clamp(min=0)) - first + 1) * ((low < high) & (query >= 0))
        most = int(count.amax())
        if most > RUNS_LIMIT:
            return None
        start, stop = [], []
        for number in range(max(most, 1)):
            at = (first + number).clamp(max=keys - 1)
            begin, end = place.gather(-1, at).clamp(max=keys - 1), place.gather(-1, at + 1)
            exists = number < count
            start.append((order.gather(-1, begin) + grid.key_span.start) * exists)
            stop.append((order.gather(-1, end - 1) + 1 + grid.key_span.start) * exists)
        ends = (torch.stack(ends, dim=-1).to(torch.int32)[:, None] for ends in (start, stop))  # B 1 Q runs
        return Spans.of_runs(*ends)

    def __repr__(self) -> str:
        of_keys = "" if self.key_ids is None else f", key_ids=<{list(self.key_ids.shape)}>"
        return f"documents(<{list(self.query_ids.shape)}>{of_keys})"


def documents(query_ids: Tensor, key_ids: Tensor | None = None) -> Documents:
    """Several documents packed into one sequence, each seeing only itself.

        query i sees key j of batch row b  ⇔  query_ids[b, i] = key_ids[b, j] >= 0

    Args:
        query_ids: which document each query belongs to, integers ``[batch, queries]``, or ``[queries]`` for all batch
            rows. Negative: padding, which sees nothing and is seen by none. Ids need not ascend; where they do, tiles
            that lie between documents are skipped.
        key_ids: the same for keys, ``[batch, keys]`` or ``[keys]``; None where keys are the queries' own tokens.
    """
    return Documents(query_ids, key_ids)


def _ids(name: str, ids: object) -> Tensor:
    if not isinstance(ids, Tensor):
        raise KindError(f"{name} must be a tensor of integers; it is {kind_of(ids)}")
    check_integers(name, ids)
    if ids.dim() not in (1, 2):
        raise ShapeError(f"{name} must be [length] or [batch, length]; it has shape {list(ids.shape)}")
    # A copy: a mask stays the value it was when it was made.
    return ids.detach().to(torch.int64, copy=True)


def _part(ids: Tensor, rows: range, span: range) -> Tensor:
    ids = ids[None] if ids.dim() == 1 else ids[rows.start : rows.stop]
    return ids[:, span.start : span.stop]


def _least_document(ids: Tensor) -> Tensor:
    # Padding counts as greater than any document, so that a row of nothing else overlaps with none.
    return ids.masked_fill(ids < 0, torch.iinfo(ids.dtype).max).amin(-1)
