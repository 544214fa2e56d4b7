"""Masks by the content of sequences: their lengths, and the documents packed into them."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.errors import KindError, ShapeError
from regard.masks.batch_integers import BatchInteger, Integers
from regard.masks.mask import Mask, Visibility, as_added
from regard.masks.spans import RUNS_LIMIT, Spans
from regard.shapes.axes import Bool
from regard.shapes.checks import check_device, check_integers, type_text
from regard.shapes.grid import Grid
from regard.tracing.transforms import has_host_data


class Lengths(Mask, fields=("keys", "queries")):
    """Allows positions before the end of each sequence; see `lengths`.

    Example:
        >>> import torch
        >>> from regard import masks
        >>> masks.Lengths(torch.tensor([2, 3]))
        lengths([2, 3])
    """

    def __init__(self, keys: Integers, queries: Integers | None = None):
        self.keys = BatchInteger("masks.lengths: keys", keys)
        self.queries = None if queries is None else BatchInteger("masks.lengths: queries", queries)
        self._added_keys: tuple[object, Tensor] | None = None

    def check(self, grid: Grid) -> None:
        self.keys.check(grid, low=0, high=grid.keys)
        if self.queries is not None:
            self.queries.check(grid, low=0, high=grid.queries)

    def allows(self, grid: Grid) -> Bool[Tensor, "..."]:
        allowed = grid.shared_key_index < self.keys.on(grid)
        return allowed if self.queries is None else allowed & (grid.shared_query_index < self.queries.on(grid))

    @property
    def _is_known(self) -> bool:
        return self.keys.is_known and (self.queries is None or self.queries.is_known)

    @property
    def of_keys(self) -> "Lengths":
        """The mask of the lengths of the keys alone."""
        if self.queries is None:
            return self
        return self._with(queries=None, _added_keys=None)

    def visibility(self, grid: Grid) -> Visibility:
        if 0 in grid.shape:
            return Visibility.EMPTY
        if not self._is_known:
            return Visibility.PARTIAL
        if self.hides_nothing(grid):
            return Visibility.FULL
        hides_queries = self.queries is not None and grid.query_span[0] >= self.queries.bounds(grid)[1]
        is_empty = hides_queries or grid.key_span[0] >= self.keys.bounds(grid)[1]
        return Visibility.EMPTY if is_empty else Visibility.PARTIAL

    def hides_nothing(self, grid: Grid) -> bool:
        # A call asks this before anything else.
        if not self._is_known or not grid.batch_span or not grid.query_span or not grid.key_span:
            return False
        shows_all_keys = grid.key_span[-1] < self.keys.bounds(grid)[0]
        return shows_all_keys and (self.queries is None or grid.query_span[-1] < self.queries.bounds(grid)[0])

    def of_keys_added(self, grid: Grid, dtype: torch.dtype | None) -> Tensor:
        """Returns the mask of keys ``[batch or 1, 1, 1, keys]`` as `as_added` does, and caches it for the next call.

        Raises:
            ShapeError, KindError, ArgumentError: as in `check`.
        """
        sizes = grid.batch, grid.keys, dtype
        if self._added_keys is None or self._added_keys[0] != sizes:
            self.check(grid)
            self._added_keys = sizes, as_added(self.of_keys.allows(grid), dtype)
        return self._added_keys[1]

    def spans(self, grid: Grid) -> Spans | None:
        if not self._is_known:
            return None
        stop = self.keys.on_host(grid)
        if self.queries is not None:
            query = torch.arange(grid.query_span.start, grid.query_span.stop, device="cpu")[None, None]
            stop = stop * (query < self.queries.on_host(grid))
        return Spans.within(grid, 0, stop)


def lengths(keys: Integers, queries: Integers | None = None) -> Lengths:
    """Hides the padding at the end of sequences of different lengths.

    .. math::

        query i sees key j of batch row b  ⇔  j < keys[b]  and  i < queries[b]

    Args:
        keys: number of keys in each batch row that are not padding, 0..keys: an integer tensor ``[batch]``, a list, or
            one integer for all rows. On a device the range is not checked: a negative length counts as 0, and one above
            the number of keys as all of them.
        queries: the same for queries; padded queries see nothing, and their output is 0. None: no query is padding.

    The integers are copied when the mask is made, so that later changes of the tensor do not change the mask.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import masks
        >>> x = torch.zeros(3, 1)
        >>> (regard.attend_with_weights(x, x, x, mask=masks.lengths(2)).weights > 0).long()
        tensor([[1, 1, 0],
                [1, 1, 0],
                [1, 1, 0]])
    """
    return Lengths(keys, queries)


class DocumentRows(NamedTuple):
    """Where the rows of each document are, in a matrix of the rows of all batch rows, one after the other.

    Attributes:
        query_starts, key_starts: the first query and the first key of each document, ``int64 [documents]``.
        query_counts, key_counts: numbers of its queries and keys, ``int64 [documents]``.
    """

    query_starts: Tensor
    query_counts: Tensor
    key_starts: Tensor
    key_counts: Tensor
    longest: int


class Documents(Mask, fields=("query_ids", "key_ids")):
    """Allows pairs within one document; see `documents`.

    Example:
        >>> import torch
        >>> from regard import masks
        >>> masks.Documents(torch.tensor([0, 0, 1]))
        documents(<[3]>)
    """

    def __init__(self, query_ids: Tensor, key_ids: Tensor | None = None):
        self.query_ids = _ids("query_ids", query_ids)
        self.key_ids = None if key_ids is None else _ids("key_ids", key_ids)
        self._cached_spans: tuple[Grid, Spans | None] | None = None
        self._cached_rows: tuple[int, DocumentRows | None] = (-1, None)
        self._cached_begins: tuple[Tensor | None] | None = None

    def check(self, grid: Grid) -> None:
        if self.key_ids is None and grid.queries != grid.keys:
            raise ShapeError(
                f"documents needs key_ids if the numbers of queries and keys differ; "
                f"there are {grid.queries} queries and {grid.keys} keys"
            )
        for name, axis, ids, length in (
            ("query_ids", "queries", self.query_ids, grid.queries),
            ("key_ids", "keys", self.key_ids, grid.keys),
        ):
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
        query, key = grid.of_queries(query_ids), grid.of_keys(key_ids)  # B 1 Q 1, B 1 1 K
        return (query == key) & (query >= 0)

    @property
    def _is_known(self) -> bool:
        return has_host_data(*(ids for ids in (self.query_ids, self.key_ids) if ids is not None))

    @property
    def _both_ids(self) -> tuple[Tensor, Tensor]:
        return self.query_ids, self.query_ids if self.key_ids is None else self.key_ids

    def visibility(self, grid: Grid) -> Visibility:
        """Compares the smallest and largest ids of each batch row; exact if ids ascend, as in packed sequences."""
        if 0 in grid.shape:
            return Visibility.EMPTY
        if not self._is_known:
            return Visibility.PARTIAL
        query_ids, key_ids = self._both_ids
        query = _part(query_ids, grid.batch_span, grid.query_span)
        key = _part(key_ids, grid.batch_span, grid.key_span)
        query_high, key_high = query.amax(-1), key.amax(-1)
        if bool(((query_high < _first_document(key)) | (key_high < _first_document(query))).all()):
            return Visibility.EMPTY
        query_low, key_low = query.amin(-1), key.amin(-1)
        one_document = (query_low == query_high) & (key_low == key_high) & (query_low == key_low) & (query_low >= 0)
        return Visibility.FULL if bool(one_document.all()) else Visibility.PARTIAL

    def spans(self, grid: Grid) -> Spans | None:
        if not self._is_known:
            return None
        if self._cached_spans is None or self._cached_spans[0] != grid:
            # The next layer of a model needs the same spans, so ids are sorted once for a batch; for a training too.
            with torch.inference_mode(False):
                self._cached_spans = grid, self._compute_spans(grid)
        return self._cached_spans[1]

    @property
    def longest(self) -> int:
        """The queries or keys of the longest document; 0 if there is padding, or ids do not ascend."""
        query, key = self._both_ids
        rows = self.rows(max(query.shape[0] if query.dim() == 2 else 1, key.shape[0] if key.dim() == 2 else 1))
        return 0 if rows is None else rows.longest

    @property
    def begins(self) -> Tensor | None:
        """Whether a document, or a run of padding, begins with a token, bool ``[batch or 1, length]``.

        None if the tokens of a document do not follow one another, or if queries and keys are not the same tokens.
        """
        if self._cached_begins is None:
            if not self._is_known:
                return None
            with torch.inference_mode(False):  # as for spans
                self._cached_begins = (self._compute_begins() if self.key_ids is None else None,)
        return self._cached_begins[0]

    def _compute_begins(self) -> Tensor | None:
        ids = self.query_ids.view(-1, self.query_ids.shape[-1])
        begins = torch.ones_like(ids, dtype=torch.bool)
        begins[:, 1:] = ids[:, 1:] != ids[:, :-1]
        runs = (begins & (ids >= 0)).sum(1)
        if bool((ids[:, 1:] >= ids[:, :-1]).all()):
            return begins
        ordered = ids.sort(1).values
        differs = torch.ones_like(begins)
        differs[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
        return begins if torch.equal((differs & (ordered >= 0)).sum(1), runs) else None

    def rows(self, batch: int) -> DocumentRows | None:
        """Returns the rows of each document of so many batch rows; None if there is padding or ids do not ascend."""
        if self._cached_rows[0] != batch:
            if not self._is_known:
                return None
            with torch.inference_mode(False):  # as for spans
                self._cached_rows = batch, self._compute_rows(batch)
        return self._cached_rows[1]

    def _compute_rows(self, batch: int) -> DocumentRows | None:
        query, key = (ids.expand(batch, -1) for ids in self._both_ids)
        for ids in (query, key):
            if not ids.numel() or bool((ids[:, :1] < 0).any()) or bool((ids[:, 1:] < ids[:, :-1]).any()):
                return None
        if batch > 1:
            # Documents of different batch rows differ.
            step = torch.arange(batch, device="cpu")[:, None] * (torch.maximum(query.amax(), key.amax()) + 1)
            query, key = query + step, key + step
        query, key = query.flatten(), key.flatten()
        documents = torch.unique_consecutive(query) if self.key_ids is None else torch.cat([query, key]).unique()
        query_starts, key_starts = (torch.searchsorted(ids, documents) for ids in (query, key))
        query_counts, key_counts = (
            torch.searchsorted(ids, documents, right=True) - starts
            for ids, starts in ((query, query_starts), (key, key_starts))
        )
        longest = int(torch.maximum(query_counts, key_counts).amax())
        return DocumentRows(query_starts, query_counts, key_starts, key_counts, longest)

    def _compute_spans(self, grid: Grid) -> Spans | None:
        """Sorts the keys by id, and returns the runs of keys that have each query's id."""
        if 0 in grid.shape:
            return Spans.within(grid, 0, 0)
        query_ids, key_ids = self._both_ids
        query = _part(query_ids, grid.batch_span, grid.query_span)
        # A stable sort keeps keys with the same id in the order of their positions.
        ids, order = _part(key_ids, grid.batch_span, grid.key_span).sort(stable=True, dim=-1)
        rows, keys = max(len(query), len(ids)), ids.shape[-1]
        query, ids, order = (x.expand(rows, -1).contiguous() for x in (query, ids, order))  # B Q, B K, B K
        low, high = torch.searchsorted(ids, query), torch.searchsorted(ids, query, right=True)
        # In the sorted order: the index of each key's run, and the sorted index at which each run begins.
        begins = torch.ones_like(ids, dtype=torch.bool)
        begins[:, 1:] = (ids[:, 1:] != ids[:, :-1]) | (order[:, 1:] != order[:, :-1] + 1)
        run = begins.cumsum(-1) - 1
        run_start = torch.where(begins, torch.arange(keys, device="cpu"), keys).sort(-1).values
        run_start = F.pad(run_start, (0, 1), value=keys)
        first = run.gather(-1, low.clamp(max=keys - 1))
        count = (run.gather(-1, (high - 1).clamp(min=0)) - first + 1) * ((low < high) & (query >= 0))
        runs = int(count.amax())
        if runs > RUNS_LIMIT:
            return None
        start, stop = [], []
        for number in range(max(runs, 1)):
            index = (first + number).clamp(max=keys - 1)
            begin, end = run_start.gather(-1, index).clamp(max=keys - 1), run_start.gather(-1, index + 1)
            exists = number < count
            start.append((order.gather(-1, begin) + grid.key_span.start) * exists)
            stop.append((order.gather(-1, end - 1) + 1 + grid.key_span.start) * exists)
        ends = (torch.stack(ends, dim=-1).to(torch.int32)[:, None] for ends in (start, stop))  # B 1 Q runs
        return Spans.of_runs(*ends)


def documents(query_ids: Tensor, key_ids: Tensor | None = None) -> Documents:
    """Separates documents that are packed into one sequence: each sees only itself.

    .. math::

        query i sees key j of batch row b  ⇔  query_ids[b, i] = key_ids[b, j] >= 0

    Krell et al. 2021, "Efficient Sequence Packing without Cross-contamination", mask so that packing changes no result.

    Args:
        query_ids: the document of each query, integers ``[batch, queries]``, or ``[queries]`` for all batch rows. A
            negative id is padding, which neither sees nor is seen. Ids need not ascend; if they do, tiles between
            documents are skipped.
        key_ids: the same for keys, ``[batch, keys]`` or ``[keys]``; None if keys and queries are the same tokens.

    The ids are copied when the mask is made, so that later changes of the tensor do not change the mask.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import masks
        >>> x = torch.zeros(3, 1)
        >>> (regard.attend_with_weights(x, x, x, mask=masks.documents(torch.tensor([0, 0, 1]))).weights > 0).long()
        tensor([[1, 1, 0],
                [1, 1, 0],
                [0, 0, 1]])
    """
    return Documents(query_ids, key_ids)


def _ids(name: str, ids: object) -> Tensor:
    if not isinstance(ids, Tensor):
        raise KindError(f"{name} must be a tensor of integers; it is {type_text(ids)}")
    check_integers(name, ids)
    if ids.dim() not in (1, 2):
        raise ShapeError(f"{name} must be [length] or [batch, length]; it has shape {list(ids.shape)}")
    # The copy keeps later changes from affecting the mask.
    return ids.detach().to(torch.int64, copy=True)


def _part(ids: Tensor, rows: range, span: range) -> Tensor:
    ids = ids[None] if ids.dim() == 1 else ids[rows.start : rows.stop]
    return ids[:, span.start : span.stop]


def _first_document(ids: Tensor) -> Tensor:
    # Padding counts as larger than any document, so that a row of only padding overlaps with no document.
    return ids.masked_fill(ids < 0, torch.iinfo(ids.dtype).max).amin(-1)
