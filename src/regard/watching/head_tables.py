"""The statistics of single heads, and what tables and pictures of them have in common."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.records import HeadGrid
from regard.shapes.checks import known_name
from regard.watching.head_statistics import STATISTICS, offset_name, statistic_names

if TYPE_CHECKING:
    from rich.table import Table

TABLE_STATISTICS = (
    "entropy",
    "distance",
    "first",
    "special",
    "offset -1",
    "offset 0",
    "offset +1",
    "same_token",
    "induction",
)
"""The statistics in the table; `Survey.heads` has all."""

PATTERN_SHARE = 0.5
"""The least share of a head's weight that names the head after a pattern."""


@dataclass(frozen=True)
class HeadStatistics:
    """The statistics of one head.

    Attributes:
        name: the module's name, as in ``named_modules``.
        layer: the number of the layer, from 0.
        kind: ``"self"`` or ``"causal"``.
        head: the number of the head, from 0.
        values: each statistic by its name (`regard.watching.STATISTICS`; ``"offset -1"`` is the share of the previous
            token); NaN if there is no query to average.
        noise: the standard error of each value over texts (`HeadSums.errors`); NaN for a single text, and without an
            entry if it is not known.

    Example:
        >>> from regard import watching
        >>> values = {"first": 0.1, "special": 0.0, "same_token": 0.05, "induction": 0.0, "offset -1": 0.8}
        >>> watching.HeadStatistics("layers.0.self_attn", 0, "causal", head=3, values=values).pattern
        'previous token'
    """

    name: str
    layer: int
    kind: str
    head: int
    values: dict[str, float]
    noise: dict[str, float] = field(default_factory=dict)

    @property
    def pattern(self) -> str:
        """The pattern that takes at least half of the head's weight, if there is one."""
        offsets = {name: value for name, value in self.values.items() if name.startswith("offset ")}
        names = ("first", "special", "induction", "same_token")
        shares = {name: self.values.get(name, math.nan) for name in names} | offsets
        name, share = max(shares.items(), key=lambda item: -1.0 if math.isnan(item[1]) else item[1])
        return _PATTERN_NAMES.get(name, name.replace("offset ", "token at ")) if share >= PATTERN_SHARE else ""


_PATTERN_NAMES = {
    "first": "first token", "special": "special tokens", "same_token": "same token", "offset -1": "previous token",
    "offset 0": "own token", "offset +1": "next token",
}  # fmt: skip


def unit_of(statistic: str, offsets: int) -> str:
    """Returns the unit of a statistic; raises UnknownNameError if there is none of this name."""
    known_name("statistic", statistic, statistic_names(offsets))
    return next((one.unit for one in STATISTICS if one.name == statistic), "share")


def table_statistics(statistics: Sequence[str] | None, offsets: int) -> list[str]:
    """Returns the statistics of a table; None: the usual ones that there are."""
    known = statistic_names(offsets)
    return [name for name in TABLE_STATISTICS if name in known] if statistics is None else list(statistics)


def drawn_statistics(statistics: Sequence[str] | None, offsets: int) -> list[str]:
    """Returns the statistics of a picture; None: all but the shares at offsets beyond ±1."""
    around = [offset_name(offset) for offset in (-1, 0, 1) if abs(offset) <= offsets]
    return [one.name for one in STATISTICS] + around if statistics is None else list(statistics)


def statistic_grid(statistic: str, heads: Sequence[HeadStatistics], unit: str, **options: Any) -> HeadGrid:
    """Returns one statistic of heads, a row for each module; ``options`` are of `HeadGrid`."""
    rows = {name: row for row, name in enumerate(dict.fromkeys(head.name for head in heads))}
    values, noise = np.full((2, len(rows), 1 + max(head.head for head in heads)), np.nan)
    for head in heads:
        cell = rows[head.name], head.head
        values[cell], noise[cell] = (numbers.get(statistic, np.nan) for numbers in (head.values, head.noise))
    layers = {head.name: str(head.layer) for head in heads}
    known = None if np.isnan(noise).all() else noise
    return HeadGrid(statistic.replace("_", " "), values, [*layers.values()], unit=unit, noise=known, **options)


def statistics_table(
    title: str, statistics: Sequence[str], offsets: int, rows: Iterable[tuple[HeadStatistics, list[str], str]]
) -> "Table":
    """Returns a table of Rich: a row has a head, the texts of its statistics, and what it mostly does."""
    from rich.table import Table

    table = Table(title=title.replace("[", r"\["), title_justify="left")
    for column in ("layer", "head", "kind"):
        table.add_column(column, justify="left" if column == "kind" else "right")
    for name in statistics:
        heading = f"{name.replace('_', ' ')}\n[{unit_of(name, offsets)}]"
        table.add_column(heading.replace("[", r"\["), justify="right")
    table.add_column("mostly")
    for head, texts, pattern in rows:
        table.add_row(str(head.layer), str(head.head), head.kind, *texts, pattern)
    return table


def shown_number(value: float, form: str) -> str:
    """Returns a number of a table; a dash for NaN."""
    return "–" if math.isnan(value) else format(value, form).replace("-", "−")
