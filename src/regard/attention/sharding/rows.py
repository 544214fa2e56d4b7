"""The normalizers on rows of scores whose keys lie on several processes.

Each process has the scores of its own keys. `Rows.total` and `Rows.maximum` join a few numbers a row over the
processes; with them the row primitives are what they are on one process. A normalizer that is no row primitive gets
whole rows, on the process that owns the query.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from regard.attention.problem import Problem
from regard.distributed.exchange import CollectColumns, RowRoute, SendColumns, SumOverProcesses
from regard.normalizers.local import gaussian_window, windowed
from regard.normalizers.normalizer import RowPrimitive, plain_rows, tempered
from regard.normalizers.parameter import along_heads
from regard.shapes.grid import Grid

MOST_STEPS = 160
"""Steps in which the threshold of a sparse row is found at most: one of three bisects, the others are Newton's."""

STEPS_TO_AGREE = 6
"""Steps after which the processes ask each other whether all rows are done."""

ROUNDINGS = 4.0
"""A sum that differs from 1 by at most this many roundings is 1."""


class ScoredRows(NamedTuple):
    """The scores of one block of rows against the keys that this process holds.

    Attributes:
        scores: ``[batch, heads, rows, keys]``, −∞ where a pair is hidden.
        key_index: positions of these keys, int64 ``[keys]``.
        columns: the same, counted through the keys that this process holds.
        grid: the rows' tile, with all keys.
    """

    scores: Tensor
    key_index: Tensor
    columns: Tensor
    grid: Grid


class Rows:
    """The rows of one step, and what the processes know of them together.

    Args:
        route: the ways of the rows.
        pieces: the rows that this process received, in blocks.
        anchor: ``[batch, heads, 0, 1]``, through which every exchange depends on the one before: so all processes make
            the same exchanges in a backward pass, in the same order, also those that received no rows.
        own: tiles of the rows that this process owns.
    """

    def __init__(self, route: RowRoute, pieces: Sequence[ScoredRows], anchor: Tensor, own: Sequence[Grid]):
        self.route, self.pieces, self.anchor, self.own = route, pieces, anchor, own

    def total(self, parts: Sequence[Tensor], width: int = 1) -> list[Tensor]:
        """Returns the sum over all processes of numbers of each row, ``[batch, heads, rows, width]`` a block."""
        first = self.anchor.expand(*self.anchor.shape[:3], width)
        whole: Tensor = SumOverProcesses.apply(torch.cat([first, *parts], dim=2), self.route)
        self.anchor = whole[:, :, :0, :1]
        return self._split(whole)

    def maximum(self, parts: Sequence[Tensor], dtype: torch.dtype | None = None) -> list[Tensor]:
        """Returns the maximum over all processes of numbers of each row; it has no derivative."""
        with torch.no_grad():
            joined = torch.cat([self.anchor, *parts], dim=2).detach().to(dtype or self.anchor.dtype)
            return self._split(self.route.send(self.route.collect(joined, "max")))

    def _split(self, rows: Tensor) -> list[Tensor]:
        return list(rows.split([piece.scores.shape[2] for piece in self.pieces], dim=2)) if self.pieces else []

    def weigh(self, problem: Problem) -> list[Tensor]:
        """Returns the weights of each piece."""
        row = problem.row
        if row is None or row.kind not in KINDS:
            return self._weigh_whole_rows(problem)
        weights = KINDS[row.kind](self, row)
        if row.center is not None:
            weights = [_windowed(row, each, piece) for each, piece in zip(weights, self.pieces, strict=True)]
        return weights

    def collected(self, parts: Sequence[Tensor], fill: float) -> Tensor:
        """Returns to each owner its whole rows ``[batch, heads, own rows, keys]`` of what the pieces have."""
        width = self.route.keys.count()
        first = self.anchor.expand(*self.anchor.shape[:3], width)
        padded = [
            part.new_full((*part.shape[:3], width), fill).index_copy(3, piece.columns, part)
            for part, piece in zip(parts, self.pieces, strict=True)
        ]
        whole: Tensor = CollectColumns.apply(torch.cat([first, *padded], dim=2), self.route, fill)
        self.anchor = whole.sum(-1, keepdim=True)[:, :, :0]
        return whole

    def _weigh_whole_rows(self, problem: Problem) -> list[Tensor]:
        scores = self.collected([piece.scores for piece in self.pieces], -torch.inf)
        blocks = scores.split([grid.shape[2] for grid in self.own], dim=2) if self.own else ()
        with plain_rows():
            weighed = [problem.normalizer.weigh(block, grid) for block, grid in zip(blocks, self.own, strict=True)]
        whole = torch.cat([self.anchor.expand(*self.anchor.shape[:3], scores.shape[3]), *weighed], dim=2)
        columns: Tensor = SendColumns.apply(whole, self.route)
        self.anchor = columns.sum(-1, keepdim=True)[:, :, :0]
        parts = self._split(columns)
        return [part.index_select(3, piece.columns) for part, piece in zip(parts, self.pieces, strict=True)]


def log_sum_exp(rows: Rows, problem: Problem) -> list[Tensor]:
    """Returns ``log Σ exp`` of each row over all processes, ``[batch, heads, rows, 1]`` a block."""
    parts = [problem.normalizer.log_sum_exp(piece.scores)[..., None] for piece in rows.pieces]
    maxima = [each.nan_to_num(0.0, 0.0, 0.0) for each in rows.maximum(parts)]
    sums = rows.total([(part - each).exp() for part, each in zip(parts, maxima, strict=True)])
    return [each + total.log() for each, total in zip(maxima, sums, strict=True)]


def _without_infinity(maximum: Tensor) -> Tensor:
    return maximum.masked_fill(maximum == -torch.inf, 0.0)


def _row_maximum(scores: Tensor) -> Tensor:
    if not scores.shape[3]:
        return scores.new_full((*scores.shape[:3], 1), -torch.inf)
    return scores.detach().amax(-1, keepdim=True)


def _softmax(rows: Rows, row: RowPrimitive) -> list[Tensor]:
    scaled = [tempered(piece.scores, row.temperature, -1) for piece in rows.pieces]
    maxima = rows.maximum([_row_maximum(each) for each in scaled])
    sink = None if row.sink is None else [along_heads("sink", row.sink, each, -1) for each in scaled]
    if sink is not None:
        maxima = [
            torch.maximum(each, torch.as_tensor(one, dtype=each.dtype).detach())
            for each, one in zip(maxima, sink, strict=True)
        ]
    maxima = [_without_infinity(each) for each in maxima]
    powers = [(each - maximum).exp() for each, maximum in zip(scaled, maxima, strict=True)]
    totals = rows.total([each.sum(-1, keepdim=True) for each in powers])
    if sink is not None:
        totals = [
            total + (torch.as_tensor(one, dtype=total.dtype) - maximum).exp()
            for total, one, maximum in zip(totals, sink, maxima, strict=True)
        ]
    return _shares(rows, powers, totals)


def _ratio(rows: Rows, row: RowPrimitive) -> list[Tensor]:
    visible = [piece.scores.masked_fill(_hidden(piece), 0.0) for piece in rows.pieces]
    totals = rows.total([each.sum(-1, keepdim=True) for each in visible])
    empty = [total.abs() < torch.finfo(total.dtype).tiny for total in totals]
    totals = [
        torch.where(none, torch.inf, total + 0.0 * total.detach()) for none, total in zip(empty, totals, strict=True)
    ]
    return _shares(rows, visible, totals)


def _shares(rows: Rows, parts: Sequence[Tensor], totals: Sequence[Tensor]) -> list[Tensor]:
    return [
        (part / total.masked_fill(total == 0.0, 1.0)).masked_fill(_hidden(piece), 0.0)
        for part, total, piece in zip(parts, totals, rows.pieces, strict=True)
    ]


def _hidden(piece: ScoredRows) -> Tensor:
    return piece.scores == -torch.inf


def _sigmoid(rows: Rows, row: RowPrimitive) -> list[Tensor]:
    return [
        torch.sigmoid(piece.scores + along_heads("bias", row.shift, piece.scores, -1)).masked_fill(_hidden(piece), 0.0)
        for piece in rows.pieces
    ]


def _identity(rows: Rows, row: RowPrimitive) -> list[Tensor]:
    return [piece.scores.masked_fill(_hidden(piece), 0.0) for piece in rows.pieces]


def _hard(rows: Rows, row: RowPrimitive) -> list[Tensor]:
    """Returns the first key of the largest score; of a row with NaN, its first NaN."""
    maxima = rows.maximum([_row_maximum(piece.scores) for piece in rows.pieces])
    firsts = []
    for piece, maximum in zip(rows.pieces, maxima, strict=True):
        scores = piece.scores.detach()
        is_top = torch.where(maximum.isnan(), scores.isnan(), (scores == maximum) & (scores > -torch.inf))
        keys = piece.key_index.to(torch.float64).neg()
        firsts.append(_row_maximum(torch.where(is_top, keys, -torch.inf)))
    chosen = rows.maximum(firsts, torch.float64)
    return [_one_hot(piece, first, maximum) for piece, first, maximum in zip(rows.pieces, chosen, maxima, strict=True)]


def _one_hot(piece: ScoredRows, first: Tensor, maximum: Tensor) -> Tensor:
    weight = torch.where(maximum.isnan(), torch.nan, 1.0).to(piece.scores.dtype)
    return torch.where(piece.key_index == -first, weight, torch.zeros_like(weight))


def _entmax(rows: Rows, row: RowPrimitive) -> list[Tensor]:
    r"""Returns weights ``[a s − τ]₊^{1/a}`` with a = alpha − 1, whose threshold τ makes each row's sum 1.

    The threshold is found without a derivative. One step of Newton's method after it has the derivative of the
    solution: its derivative by a score is that of the sum divided by minus the sum's derivative by τ.
    """
    powers = [along_heads("alpha", row.alpha, piece.scores, -1) - 1.0 for piece in rows.pieces]
    maxima = [_without_infinity(each) for each in rows.maximum([_row_maximum(piece.scores) for piece in rows.pieces])]
    scaled = [
        torch.where(_hidden(piece), -torch.inf, (piece.scores.masked_fill(_hidden(piece), 0.0) - maximum) * a)
        for piece, maximum, a in zip(rows.pieces, maxima, powers, strict=True)
    ]
    anchor = rows.anchor
    with torch.no_grad():
        tau = _thresholds(rows, scaled, powers, maxima)
        slope = _sum_and_slope(rows, scaled, tau, powers)[1]
    rows.anchor = anchor  # that of the search has no derivative
    sums = rows.total(
        [_power(each - at, a)[0].sum(-1, keepdim=True) for each, at, a in zip(scaled, tau, powers, strict=True)]
    )
    # A row that sees no key has the sum 0 and no threshold; one whose sum is NaN has no weights that are numbers.
    exact = [
        at + torch.where(each == 0.0, 0.0, each - 1.0) / by.masked_fill(by == 0.0, 1.0)
        for at, each, by in zip(tau, sums, slope, strict=True)
    ]
    return [
        _power(each - at, a)[0].masked_fill(_hidden(piece), 0.0)
        for each, at, a, piece in zip(scaled, exact, powers, rows.pieces, strict=True)
    ]


def _thresholds(
    rows: Rows, scaled: Sequence[Tensor], powers: Sequence[float | Tensor], maxima: Sequence[Tensor]
) -> list[Tensor]:
    """Returns thresholds at which the sum of each row is 1, or at least that.

    A sum falls as the threshold rises, at most as fast as it did before if alpha is at most 2: then Newton's steps from
    a threshold that is too low stay too low, and are soon exact. One from a threshold that is too high may lead
    anywhere. So the last step from below is kept, and made where the other leaves the bracket.
    """
    low, high = [torch.full_like(each, -1.0) for each in maxima], [torch.zeros_like(each) for each in maxima]
    tau, reached, steps = low, low, low
    for step in range(1, MOST_STEPS + 1):
        sums, slopes = _sum_and_slope(rows, scaled, tau, powers)
        newton = [
            at + (each - 1.0) / by.clamp_min(torch.finfo(by.dtype).tiny)
            for at, each, by in zip(tau, sums, slopes, strict=True)
        ]
        is_below = [each >= 1.0 - _tolerance(each) for each in sums]
        low = _chosen(is_below, tau, low)
        high = [
            torch.where(each < 1.0 - _tolerance(each), at, end) for each, at, end in zip(sums, tau, high, strict=True)
        ]
        is_newer = [each | (step == 1) for each in is_below]
        reached, steps = _chosen(is_newer, sums, reached), _chosen(is_newer, newton, steps)
        if step % STEPS_TO_AGREE == 0 and rows.route.all(all(map(_is_solved, reached, low, high))):
            break
        tau = [(a + b) / 2 for a, b in zip(low, high, strict=True)]
        if step % 3:
            for candidates in (steps, newton):
                is_inside = [(each > a) & (each < b) for each, a, b in zip(candidates, low, high, strict=True)]
                tau = _chosen(is_inside, candidates, tau)
    return low


def _chosen(conditions: Sequence[Tensor], those: Sequence[Tensor], others: Sequence[Tensor]) -> list[Tensor]:
    return list(map(torch.where, conditions, those, others))


def _tolerance(total: Tensor) -> float:
    return ROUNDINGS * torch.finfo(total.dtype).eps


def _is_solved(total: Tensor, low: Tensor, high: Tensor) -> bool:
    """Whether the sums of all rows are 1, or the ends of their brackets are neighbouring numbers."""
    is_one = (total - 1.0).abs() <= _tolerance(total)
    return bool((is_one | ((high - low) <= torch.finfo(low.dtype).eps * low.abs()) | total.isnan()).all())


def _sum_and_slope(
    rows: Rows, scaled: Sequence[Tensor], tau: Sequence[Tensor], powers: Sequence[float | Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    """Returns the sum of each row's weights at a threshold, and how fast it falls."""
    parts = []
    for each, at, a in zip(scaled, tau, powers, strict=True):
        weights, derivative = _power(each - at, a)
        parts.append(torch.cat([weights.sum(-1, keepdim=True), derivative.sum(-1, keepdim=True)], dim=-1))
    both = rows.total(parts, width=2)
    return [each[..., :1] for each in both], [each[..., 1:] for each in both]


def _power(above: Tensor, a: float | Tensor) -> tuple[Tensor, Tensor]:
    """Returns ``[z]₊^{1/a}`` and its derivative by z."""
    is_kept = above > 0.0
    safe = torch.where(is_kept, above, 1.0)
    exponent = 1.0 / a
    weights = torch.where(is_kept, safe**exponent, 0.0)
    weights = torch.where(above.isnan(), torch.nan, weights)
    return weights, torch.where(is_kept, exponent * safe ** (exponent - 1.0), 0.0)


def _windowed(row: RowPrimitive, weights: Tensor, piece: ScoredRows) -> Tensor:
    """Luong's Gaussian window over the weights."""
    assert row.center is not None
    assert row.sigma is not None
    sigma = piece.grid.cut(row.sigma.unsqueeze(-1)) if isinstance(row.sigma, Tensor) else row.sigma
    center = piece.grid.cut(row.center.unsqueeze(-1))
    window = gaussian_window(piece.key_index, center, sigma, weights.dtype)
    return windowed(weights, window, piece.scores)


KINDS: dict[str, Callable[[Rows, RowPrimitive], list[Tensor]]] = {
    "softmax": _softmax,
    "entmax": _entmax,
    "sigmoid": _sigmoid,
    "hard": _hard,
    "identity": _identity,
    "ratio": _ratio,
}
