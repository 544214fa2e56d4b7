"""The readings of attention weights, and how they are gathered tile by tile without the whole matrix in memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal, NamedTuple, cast

import torch
from torch import Tensor

from regard.attention.problem import Along, Problem
from regard.errors import ArgumentError, KindError, RegardError, ShapeError
from regard.masks.mask import Mask
from regard.names.answered import answered
from regard.records.shaded_table import readings_html
from regard.shapes.checks import Requested, check_integers, type_text, whole_number
from regard.shapes.grid import Grid, span_length
from regard.shapes.layout import Pairs, pairs_by_batch
from regard.summaries import summarized, value_summary
from regard.tracing.transforms import has_data, sent


@answered
@dataclass(frozen=True)
class Readings:
    """The readings that `observe` takes, all of the weights before dropout; by default none.

    The values are checked by the call that takes them, which knows the sizes of the problem; it raises KindError,
    ShapeError or ArgumentError.

    Attributes:
        entropy: whether to read −Σ p ln p of each row, in nats; NaN for a row with a negative weight. Peaks, maxima and
            the largest weights are those above 0.
        peak: whether to read the largest weight of each row.
        top_k: number of largest weights of each row to read, with the indices of their keys.
        received: whether to read the sum of each column: the attention that each key receives from all queries.
        distance: whether to read ``Σ p · |key − query|`` of each row, in positions; ends are aligned when lengths
            differ (contract 3).
        pooled: ``(rows, columns)``: the mean and the maximum of the weights in each cell of a coarse map.
        rows: indices of queries whose whole rows are read.
        tile: ``((first query, end), (first key, end))``: a rectangle of the weights; ends exclusive.
        weights: whether to read the whole matrix, in quadratic memory.
        shares: masks; for each mask, the weight of the keys that it allows is read for each row, whatever the problem's
            own mask is.
        recall: a mask of selected keys; for each row, the share of its weight on them is read, as of the keys that an
            indexer, a choice of blocks or a shortened cache would keep. True: the lists of keys in the call's own mask
            (`regard.masks.columns`) are the selection, and the weights are those of the same call without them: what
            the selection kept of dense attention. False: it is not read.

    Example:
        >>> import torch
        >>> import regard
        >>> query = torch.zeros(3, 4)  # so that each query sees all keys alike
        >>> read = regard.Readings(distance=True, rows=[2], shares=[regard.masks.causal()])
        >>> read
        Readings(distance=True, rows=[2], shares=[causal()])
        >>> seen = regard.observe(query, query, query, read=read)
        >>> seen.distance  # (0 + 1 + 2) / 3, (1 + 0 + 1) / 3, (2 + 1 + 0) / 3
        tensor([1.0000, 0.6667, 1.0000])
        >>> seen.rows
        tensor([[0.3333, 0.3333, 0.3333]])
        >>> seen.shares  # the weight of the query's own key and of earlier ones
        tensor([[0.3333],
                [0.6667],
                [1.0000]])
    """

    entropy: bool = False
    peak: bool = False
    top_k: int = 0
    received: bool = False
    distance: bool = False
    pooled: tuple[int, int] | None = None
    rows: Sequence[int] | Tensor | None = None
    tile: tuple[tuple[int, int], tuple[int, int]] | None = None
    weights: bool = False
    shares: Sequence[Mask] = ()
    recall: Mask | bool = False

    @property
    def by_masks(self) -> bool:
        """Whether masks say which weights are read."""
        return bool(self.shares) or self.recall is not False

    def __repr__(self) -> str:
        options = ((field, getattr(self, field.name)) for field in fields(self))
        shown = (f"{field.name}={value_summary(value)}" for field, value in options if value is not field.default)
        return f"Readings({', '.join(shown)})"


ReadingName = Literal["view"]
"""Names of readings: ``"view"`` is what `regard.View` shows."""

NAMED_READINGS: dict[str, Readings] = {"view": Readings(entropy=True, peak=True, received=True, weights=True)}
"""The readings of each name: the viewer shows weights, and of each head the entropy, peaks and received attention."""

WATCHING_LINE = 'with regard.watch(model, read="view") as watched: model(**inputs)'
"""The line for messages about weights that `regard.watch` did not read."""


def as_readings(read: object, default: Readings) -> Readings:
    """Returns the readings that a name stands for, the default for None, and any other value as it is.

    `checked_readings` refuses what are no readings.
    """
    if read is None:
        return default
    return NAMED_READINGS.get(read, cast(Readings, read)) if isinstance(read, str) else cast(Readings, read)


@summarized
class Observed(NamedTuple):
    """The output, and one field for each reading; None if it was not requested. Readings carry no gradient.

    A reading lacks the axis of heads, or of batch and heads, that the query lacks.

    Attributes:
        output: exactly what `attend` returns, ``[batch, heads, queries, value_dim]``.
        lse: log-sum-exp of each row's scores, ``[batch, heads, queries]``; −inf for a row that sees no key, NaN
            for a row that sees a score of NaN, otherwise +inf for a row that sees a score of +inf.
        entropy: ``[batch, heads, queries]``, nats.
        peak: ``[batch, heads, queries]``.
        top_weights: ``[batch, heads, queries, k]``, NaN first, then the largest; 0 where a row has fewer
            than k keys of any weight.
        top_indices: ``[batch, heads, queries, k]``, int64; −1 where the weight is 0 or NaN.
        received: ``[batch, heads, keys]``.
        distance: ``[batch, heads, queries]``, positions.
        pooled_mean: ``[batch, heads, rows, columns]``.
        pooled_max: ``[batch, heads, rows, columns]``.
        rows: ``[batch, heads, chosen, keys]``.
        tile: ``[batch, heads, queries, keys]`` of the rectangle.
        weights: ``[batch, heads, queries, keys]``.
        shares: ``[batch, heads, queries, masks]``.
        recall: ``[batch, heads, queries]``, in [0, 1] for weights of one sign; 0 for a row without weight.

    Example:
        >>> import torch
        >>> import regard
        >>> query, key = torch.zeros(2, 8, 5, 16), torch.zeros(2, 8, 3, 16)
        >>> seen = regard.observe(query, key, key, read=regard.Readings(peak=True, top_k=2))
        >>> seen
        Observed(
          output: [2, 8, 5, 16] float32, 0
          lse: [2, 8, 5] float32, 1.099
          peak: [2, 8, 5] float32, 0.3333
          top_weights: [2, 8, 5, 2] float32, 0.3333
          top_indices: [2, 8, 5, 2] int64, 0 to 1
        )
        >>> seen.entropy is None  # it was not asked for
        True
    """

    output: Tensor
    lse: Tensor
    entropy: Requested[Tensor] = None
    peak: Requested[Tensor] = None
    top_weights: Requested[Tensor] = None
    top_indices: Requested[Tensor] = None
    received: Requested[Tensor] = None
    distance: Requested[Tensor] = None
    pooled_mean: Requested[Tensor] = None
    pooled_max: Requested[Tensor] = None
    rows: Requested[Tensor] = None
    tile: Requested[Tensor] = None
    weights: Requested[Tensor] = None
    shares: Requested[Tensor] = None
    recall: Requested[Tensor] = None

    def _repr_html_(self) -> str:
        return readings_html("Observed", self._fields_read(), "regard.View(observed, tokens)")

    def _fields_read(self) -> list[tuple[str, Tensor]]:
        """Returns the fields that were read, by name."""
        return [(name, value) for name, value in self._asdict().items() if value is not None]


FIELDS = (
    "lse", "entropy", "peak", "top_weights", "top_indices", "received", "distance", "pooled_sum", "pooled_max", "rows",
    "tile", "weights", "shares",
)  # fmt: skip
"""The tensors of a `Gatherer`; those that are not read are empty."""


class Gatherer:
    """Gathers the readings of one problem from tiles of weights.

    A tile has every key that its queries may see; keys outside it have weight 0. Tiles may be added in any order, and
    are not stored. A backend that gathers by itself fills the attributes instead.

    Attributes:
        read: which readings are taken; the tensors of others are empty.
        lse, entropy, peak, top_weights, top_indices, received, distance, rows, tile, weights, shares: as in `Observed`,
            with all axes; they begin as the readings of rows that see no key.
        area: the part of the problem whose readings are gathered; all of it, unless one is named.
        cells: rows and columns of the coarse map.
        pooled_sum, pooled_max: ``[batch, heads, rows, columns]`` of the coarse map.
        chosen: indices of the queries whose rows are read, ascending; ``rows`` has them in this order.
    """

    def __init__(self, problem: Problem, read: Readings, area: Grid | None = None):
        grid = problem.grid
        try:
            read = checked_readings(read, grid)
        except RegardError as error:
            if problem.placed is not None:
                problem.placed.refuse(error)
            raise
        self.read = read
        self.normalizer = problem.normalizer
        self.grid = grid
        self.area = grid if area is None else area
        self.dtype = torch.float64 if problem.query.dtype == torch.float64 else torch.float32
        self.cells = _cells(read.pooled, grid)
        self.chosen = sorted(set(_chosen(read.rows, grid)))
        self.rectangle = read.tile or ((0, 0), (0, 0))
        # A sharded call gathers this process's readings elsewhere, and fills this gatherer with them.
        if problem.placed is None or area is not None:
            self.clear()

    def clear(self) -> None:
        """Forgets all tiles that were added."""
        read, device, dtype = self.read, self.grid.device, self.dtype
        B, H, Q, K = self.area.shape

        def zeros(*shape: int, needed: object = True) -> Tensor:
            return torch.zeros(shape if needed else (0,), dtype=dtype, device=device)

        self.lse = torch.full((B, H, Q), -torch.inf, dtype=dtype, device=device)
        self.entropy = zeros(B, H, Q, needed=read.entropy)
        self.peak = zeros(B, H, Q, needed=read.peak)
        self.top_weights = zeros(B, H, Q, read.top_k)
        self.top_indices = torch.full((B, H, Q, read.top_k), -1, dtype=torch.int64, device=device)
        self.received = zeros(B, H, K, needed=read.received)
        self.distance = zeros(B, H, Q, needed=read.distance)
        self.pooled_sum = zeros(B, H, *self.cells)
        self.pooled_max = zeros(B, H, *self.cells)
        self.rows = zeros(B, H, len(self.chosen), K)
        (q0, q1), (k0, k1) = self.rectangle
        self.tile = zeros(B, H, q1 - q0, k1 - k0)
        self.weights = zeros(B, H, Q, K, needed=read.weights)
        self.shares = zeros(B, H, Q, len(read.shares), needed=read.shares)

    def tensors(self) -> list[Tensor]:
        """Returns the tensors in the order of `FIELDS`, as `fill` takes them."""
        return [getattr(self, name) for name in FIELDS]

    def fill(self, tensors: Sequence[Tensor]) -> None:
        """Takes the tensors of another gatherer of the same readings."""
        for name, tensor in zip(FIELDS, tensors, strict=True):
            setattr(self, name, tensor)

    @torch.no_grad()
    def add(self, masked: Pairs, weights: Pairs, grid: Grid) -> None:
        """Reads one tile.

        Args:
            masked: scores of the tile, −inf where the mask hides the pair, ``[batch, heads, queries, keys]``.
            weights: its weights before dropout.
            grid: the tile.
        """
        if grid.key_span:
            self.add_rows(masked, weights, grid)
            self.add_columns(weights, grid)

    def add_rows(self, masked: Tensor, weights: Tensor, grid: Grid) -> None:
        """Reads what one tile says of its queries, as `add`, but leaves it to the caller to track no gradients."""
        read = self.read
        b, q, k = self._places(grid)
        self.lse[b, :, q] = self.normalizer.log_sum_exp(masked)
        if read.entropy:
            # `torch.special.entr` is not vectorized. A weight of 0 adds 0, and the logarithm of a negative one is NaN.
            terms = weights.masked_fill(weights == 0, 1.0).log_().mul_(weights)
            # A sum of 0 gives 0, and not −0.
            self.entropy[b, :, q] = 0.0 - terms.sum(-1)
        if read.peak:
            self.peak[b, :, q] = weights.amax(-1).clamp_min_(0.0)
        if read.top_k:
            self._add_top(weights, grid, b, q)
        if read.distance:
            gap = (grid.query_index + grid.offset - grid.key_index).abs().to(weights.dtype)
            self.distance[b, :, q] = (weights * gap).sum(-1)
        if read.weights:
            self.weights[b, :, q, k] = weights
        if read.shares:
            self.add_shares(weights, grid)

    def add_columns(self, weights: Tensor, grid: Grid) -> None:
        """Reads what one tile says of its keys and of the map, as `add_rows`."""
        read = self.read
        b, _, k = self._places(grid)
        if read.received:
            self.received[b, :, k] += weights.sum(-2)
        if read.pooled is not None:
            self._add_pooled(weights, grid, b)
        for index, row in enumerate(self.chosen):
            if grid.query_span.start <= row < grid.query_span.stop:
                self.rows[b, :, index, k] = weights[:, :, row - grid.query_span.start]
        if read.tile is not None:
            self._add_rectangle(weights, grid, b)

    def _places(self, grid: Grid) -> tuple[slice, slice, slice]:
        """Returns where a tile lies in the tensors of batch rows, queries and keys."""
        tile, area = (grid.batch_span, grid.query_span, grid.key_span), self.area
        first = area.batch_span.start, area.query_span.start, area.key_span.start
        b, q, k = (slice(span.start - at, span.stop - at) for span, at in zip(tile, first, strict=True))
        return b, q, k

    @torch.no_grad()
    def add_shares(self, weights: Pairs, grid: Grid) -> None:
        """Reads the shares of one tile: the sum over keys of each row's weights where a mask allows the pair."""
        b, q, _ = self._places(grid)
        weights = weights.to(self.shares.dtype)
        for index, mask in enumerate(self.read.shares):
            # No product with the mask: 0 · NaN is NaN.
            self.shares[b, :, q, index] = torch.where(mask.allows(grid), weights, 0.0).sum(-1)

    def _add_top(self, weights: Tensor, grid: Grid, b: slice, q: slice) -> None:
        k = min(self.read.top_k, span_length(grid.key_span))
        top, index = weights.topk(k, dim=-1)
        self.top_weights[b, :, q, :k] = top.clamp_min(0.0)
        self.top_indices[b, :, q, :k] = torch.where(top > 0, index + grid.key_span.start, -1)

    def _add_pooled(self, weights: Tensor, grid: Grid, b: slice) -> None:
        rows, columns = self.cells
        B, H, Q, K = weights.shape
        row = (grid.query_index * rows).div(grid.queries, rounding_mode="floor").expand(B, H, Q, columns)
        column = (grid.key_index * columns).div(grid.keys, rounding_mode="floor").expand(B, H, Q, K)
        weights = weights.to(self.pooled_sum.dtype)
        zeros = weights.new_zeros(B, H, Q, columns)
        self.pooled_sum[b].scatter_reduce_(-2, row, zeros.scatter_reduce(-1, column, weights, "sum"), "sum")
        self.pooled_max[b].scatter_reduce_(-2, row, zeros.scatter_reduce(-1, column, weights, "amax"), "amax")

    def _add_rectangle(self, weights: Tensor, grid: Grid, b: slice) -> None:
        (q0, q1), (k0, k1) = self.rectangle
        queries = range(max(q0, grid.query_span.start), min(q1, grid.query_span.stop))
        keys = range(max(k0, grid.key_span.start), min(k1, grid.key_span.stop))
        if queries and keys:
            cut = weights[
                :,
                :,
                queries.start - grid.query_span.start : queries.stop - grid.query_span.start,
                keys.start - grid.key_span.start : keys.stop - grid.key_span.start,
            ]
            self.tile[b, :, queries.start - q0 : queries.stop - q0, keys.start - k0 : keys.stop - k0] = cut

    def observed(self, output: Tensor, problem: Problem) -> Observed:
        """Returns the readings of all tiles that were added, with the axes of the user's tensors."""
        read = self.read
        pooled_mean = self.pooled_sum
        if read.pooled is not None:
            pooled_mean = self.pooled_sum / _cell_sizes(self.cells, self.grid)
        return Observed(
            output=output,
            lse=problem.restore(self.lse),
            entropy=_restored(problem, read.entropy, self.entropy),
            peak=_restored(problem, read.peak, self.peak),
            top_weights=_restored(problem, read.top_k, self.top_weights),
            top_indices=_restored(problem, read.top_k, self.top_indices),
            received=_restored(problem, read.received, self.received, "keys"),
            distance=_restored(problem, read.distance, self.distance),
            pooled_mean=_restored(problem, read.pooled is not None, pooled_mean, None),
            pooled_max=_restored(problem, read.pooled is not None, self.pooled_max, None),
            rows=None if read.rows is None else problem.restore(self._in_order(), "keys", 3),
            tile=_restored(problem, read.tile is not None, self.tile, None),
            weights=_restored(problem, read.weights, self.weights),
            shares=_restored(problem, read.shares, self.shares),
        )

    def _in_order(self) -> Tensor:
        """Returns the rows in the order of ``read.rows``, a row more than once if its index is repeated."""
        order = [self.chosen.index(row) for row in _chosen(self.read.rows, self.grid)]
        index = torch.tensor(order, dtype=torch.int64, device="cpu")
        return self.rows.index_select(2, sent(index, self.grid.device))


TOP_LIMIT = 2**16
"""Limit of ``top_k`` where there are fewer keys; its other entries are 0."""


def readings_line(options: Mapping[str, object]) -> str:
    """Returns how these readings are requested, for messages; empty if there are none of these names."""
    values: dict[str, object] = {}
    for field in fields(Readings):
        if field.name in options:
            value = options[field.name]
            is_shown = isinstance(field.default, bool) if value is True else type(value) is int
            values[field.name] = value if is_shown else field.name
    return f"read=regard.Readings({', '.join(f'{name}={value}' for name, value in values.items())})" if values else ""


def checked_readings(read: Readings, grid: Grid) -> Readings:
    """Returns the readings with masks that have the axes of the problem, if they can be taken of one of this size.

    Raises:
        KindError: a field has a value of the wrong type.
        ArgumentError: integers are out of range, or there are too many or too few.
    """
    if not isinstance(read, Readings):
        names = (read,) if isinstance(read, str) else read if isinstance(read, (list, tuple, set)) else ()
        line = readings_line({name: True for name in names if isinstance(name, str)})
        value = repr(read) if isinstance(read, str) else type_text(read)
        raise KindError(f'read must be a Readings or "view"; it is {value}{line and f"; write {line}"}')
    for name in ("entropy", "peak", "received", "distance", "weights"):
        if not isinstance(option := getattr(read, name), bool):
            raise KindError(f"{name} must be True or False; it is {type_text(option)}")
    if whole_number("top_k", read.top_k) < 0:
        raise ArgumentError(f"top_k must be 0 or more; it is {read.top_k}")
    whole_number("top_k", read.top_k, high=max(grid.keys, TOP_LIMIT))
    if read.pooled is not None and min(_pair("pooled", read.pooled, "(rows, columns)")) < 1:
        raise ArgumentError(f"pooled must be (rows, columns), each 1 or more; it is {read.pooled}")
    if read.rows is not None:
        _check_rows(read.rows, grid)
    if read.tile is not None:
        _check_tile(read.tile, grid)
    shares, recall = _checked_shares(read.shares, grid), read.recall
    if not isinstance(recall, bool):
        recall = _checked_mask("recall", recall, grid, "a Mask, True or False")
    return replace(read, shares=shares, recall=recall) if shares or recall is not read.recall else read


def _check_rows(rows: object, grid: Grid) -> None:
    if isinstance(rows, Tensor):
        check_integers("rows", rows)
        if rows.dim() != 1:
            raise ShapeError(f"rows must have one axis; it has shape {list(rows.shape)}")
        if not has_data(rows):
            raise KindError("rows must hold integers that can be read; give a list where the tensor is meta or traced")
    # Tensors and NumPy arrays become lists.
    chosen = getattr(rows, "tolist", lambda: rows)()
    if isinstance(chosen, (str, bytes)) or not isinstance(chosen, Sequence):
        raise KindError(f"rows must be a sequence of integers or an integer tensor; it is {type_text(rows)}")
    for index, value in enumerate(chosen):
        row = whole_number(f"rows[{index}]", value)
        if not -grid.queries <= row < grid.queries:
            raise ArgumentError(f"rows must be indices of the {grid.queries} queries; got {row}")


def _checked_shares(shares: object, grid: Grid) -> list[Mask]:
    """Returns the masks with an axis of heads, which those of a call with 3 axes lack."""
    if not isinstance(shares, (list, tuple)):
        raise KindError(f"shares must be a list or a tuple of masks; it is {type_text(shares)}")
    return [_checked_mask(f"shares[{index}]", mask, grid) for index, mask in enumerate(shares)]


def _checked_mask(name: str, mask: object, grid: Grid, expected: str = "a Mask") -> Mask:
    if not isinstance(mask, Mask):
        raise KindError(f"{name} must be {expected}; it is {type_text(mask)}")
    mask = mask.map_tensors(pairs_by_batch) if grid.rank == 3 else mask
    mask.check(grid)
    return mask


def _check_tile(tile: object, grid: Grid) -> None:
    axes = "((first query, end), (first key, end))"
    queries, keys = _two("tile", tile, axes)
    (q0, q1), (k0, k1) = _pair("tile", queries, axes), _pair("tile", keys, axes)
    if not (0 <= q0 <= q1 <= grid.queries and 0 <= k0 <= k1 <= grid.keys):
        raise ArgumentError(f"tile must be {axes} within {grid.queries} queries and {grid.keys} keys; it is {tile}")


def _pair(name: str, value: object, meaning: str) -> tuple[int, int]:
    first, second = _two(name, value, meaning)
    return whole_number(f"each entry of {name}", first), whole_number(f"each entry of {name}", second)


def _two(name: str, value: object, meaning: str) -> Sequence[object]:
    """Returns the value if it is a list or a tuple of two; raises KindError or ArgumentError otherwise."""
    if not isinstance(value, (list, tuple)):
        raise KindError(f"{name} must be {meaning}; it is {type_text(value)}")
    if len(value) != 2:
        raise ArgumentError(f"{name} must be {meaning}; it has {len(value)} entries")
    return value


def _cells(pooled: tuple[int, int] | None, grid: Grid) -> tuple[int, int]:
    """Returns rows and columns of the coarse map, which has no more of them than queries and keys."""
    return (0, 0) if pooled is None else (min(pooled[0], grid.queries), min(pooled[1], grid.keys))


def _cell_sizes(cells: tuple[int, int], grid: Grid) -> Tensor:
    """Returns the number of pairs in each cell of the coarse map."""
    rows, columns = cells
    return _sizes(rows, grid.queries, grid.device)[:, None] * _sizes(columns, grid.keys, grid.device)


def _sizes(cells: int, length: int, device: torch.device) -> Tensor:
    """Returns how many of ``length`` positions lie in each cell; position i lies in cell i · cells // length."""
    first = (torch.arange(cells + 1, device=device) * length + cells - 1).div(max(cells, 1), rounding_mode="floor")
    return first.diff()


def _chosen(rows: Sequence[int] | Tensor | None, grid: Grid) -> list[int]:
    return [] if rows is None else [int(row) % grid.queries for row in rows]


def _restored(problem: Problem, is_read: object, tensor: Tensor, along: Along = "queries") -> Tensor | None:
    """Returns a reading with the axes of the user's tensors; None if it was not read."""
    return problem.restore(tensor, along) if is_read else None
