"""The difference of two surveys: what fine-tuning, or anything else, changed in each head, and how sure that is."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.errors import ArgumentError
from regard.names.counted import counted
from regard.records import Document, HeadGrid
from regard.shapes.checks import whole_number
from regard.watching.head_statistics import HeadSums, statistic_names
from regard.watching.head_tables import (
    TABLE_STATISTICS,
    HeadStatistics,
    drawn_statistics,
    printed,
    shown_number,
    statistic_grid,
    statistics_table,
    unit_of,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

CLEAR = 2.0
"""A difference is clear if it is larger than so many standard errors."""

BY_CHANCE = 0.063
"""The share of differences that are clear by chance alone: of Student's t with 15 degrees of freedom."""

MOST_NAMED = 4
"""The most modules that a note names."""


class HeadDifference(NamedTuple):
    """The difference of one head.

    Attributes:
        before, after: its statistics in both surveys.
        change: those after minus those before, each with its standard error; name, layer and kind are those after.

    Example:
        >>> from regard import watching
        >>> surveys = [
        ...     watching.Survey((watching.HeadStatistics("attn", 0, "self", 0, {"first": first}),), 50, 900, 0, {}, 0)
        ...     for first in (0.25, 0.75)
        ... ]
        >>> (head,) = (surveys[1] - surveys[0]).heads
        >>> head.before.values["first"], head.after.values["first"], head.change.values["first"]
        (0.25, 0.75, 0.5)
    """

    before: HeadStatistics
    after: HeadStatistics
    change: HeadStatistics


class StatisticDifference(NamedTuple):
    """The difference of one statistic of one head.

    Attributes:
        layer, head: the numbers of the layer and of the head, from 0.
        statistic: its name, as in `HeadStatistics.values`.
        before, after: its values.
        value: ``after - before``.
        noise: the standard error of the difference, or NaN.

    Example:
        >>> from regard import watching
        >>> watching.StatisticDifference(3, 1, "peak", 0.5, 0.75, value=0.25, noise=0.01).value
        0.25
    """

    layer: int
    head: int
    statistic: str
    before: float
    after: float
    value: float
    noise: float


@dataclass(frozen=True, repr=False)
class SurveyDifference:
    """What changed in each head from one survey to another: ``after - before``, or `Survey.difference`.

    Where both read the same tokens, the standard errors are those of the difference itself, text by text: that some
    texts are harder than others is no noise of it. Else they are those of two independent surveys.

    Attributes:
        heads: those that both surveys have, in the order of the one after.
        only_before, only_after: the (module, head) pairs that only one of them has.
        notes: all else in which the surveys differ, one line each.
        title: one line.
        offsets: the largest distance that both surveys have.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import models
        >>> _ = torch.manual_seed(0)
        >>> model = models.LanguageModel(models.LanguageModelConfig(50, context=8, hidden=12, layers=2, heads=2))
        >>> texts = torch.randint(50, (20, 8))
        >>> before = regard.survey(model, texts)
        >>> with torch.no_grad():  # a training would be here
        ...     _ = model.stack.layers[1].self_attn.in_proj_weight.mul_(40)
        >>> change = regard.survey(model, texts) - before
        >>> change
        <SurveyDifference of 4 heads in 2 modules>
        >>> [(one.layer, one.head, round(one.value, 2)) for one in change.largest(2, "peak")]
        [(1, 1, 0.56), (1, 0, 0.47)]
        >>> print(change.grid("peak"))
        peak [weight]
        2 of 4 heads changed by more than 2 standard errors; about 0 would by chance alone
        layer  head 0     1
            0    0.00  0.00
            1    0.47  0.56
    """

    heads: tuple[HeadDifference, ...]
    only_before: tuple[tuple[str, int], ...]
    only_after: tuple[tuple[str, int], ...]
    notes: tuple[str, ...]
    title: str
    offsets: int

    def largest(self, count: int = 10, statistic: str | None = None) -> list[StatisticDifference]:
        """Returns the largest differences, the largest first.

        Args:
            count: at most so many; at least 1.
            statistic: which; None: all that are shares of weight or of entropy, which have one scale from 0 to 1.

        Raises:
            UnknownNameError: no statistic of this name.
            ArgumentError: ``count`` is below 1.
        """
        whole_number("count", count, low=1)
        names = [name for name in statistic_names(self.offsets) if unit_of(name, self.offsets) in ("share", "weight")]
        if statistic is not None:
            unit_of(statistic, self.offsets)
            names = [statistic]
        rows = [
            StatisticDifference(
                head.after.layer, head.after.head, name, head.before.values[name], head.after.values[name],
                head.change.values[name], head.change.noise[name],
            )
            for head in self.heads
            for name in names
            if not math.isnan(head.change.values[name])
        ]  # fmt: skip
        return sorted(rows, key=lambda row: -abs(row.value))[:count]

    def grid(self, statistic: str) -> HeadGrid:
        """Returns the differences of one statistic, heads × layers, with their noise.

        Raises:
            UnknownNameError: no statistic of this name.
        """
        unit = unit_of(statistic, self.offsets)
        changes = [head.change for head in self.heads]
        known = [one for one in changes if not math.isnan(one.noise[statistic])]
        clear = sum(is_clear(one, statistic) for one in known)
        note = (
            f"{clear} of {counted(len(known), 'head')} changed by more than {CLEAR:g} standard errors; about "
            f"{BY_CHANCE * len(known):.0f} would by chance alone"
        )
        notes = [*self.notes, note] if known else self.notes
        return statistic_grid(statistic, changes, unit, signed=True, notes=notes)

    def figure(self, statistics: Sequence[str] | None = None) -> "Figure":
        """Draws a map of heads × layers for each statistic: blue where it grew, red where it fell.

        Args:
            statistics: which; None: all but the shares at offsets beyond ±1.

        Raises:
            UnknownNameError: no statistic of this name.
            MissingPartError: matplotlib is not installed.
        """
        from regard.pictures import head_grid

        grids = [self.grid(name) for name in drawn_statistics(statistics, self.offsets)]
        return head_grid(grids, (), "\n".join([self.title, *(self.notes if len(grids) > 1 else [])]))

    def document(self) -> Document:
        """Returns the differences of all statistics, for `regard.View`; the one that changed most is first."""
        first = next((row.statistic for row in self.largest(1)), "entropy")
        names = sorted(statistic_names(self.offsets), key=lambda name: name != first)
        return Document(self.title, (), grids=tuple(self.grid(name) for name in names))

    def table(self, statistics: Sequence[str] = TABLE_STATISTICS) -> "Table":
        """Returns a table of Rich, a row for each head; what is not clear beside the noise is in parentheses.

        Args:
            statistics: its columns.

        Raises:
            UnknownNameError: no statistic of this name.
        """
        shared = statistic_names(self.offsets)
        names = [name for name in statistics if statistics is not TABLE_STATISTICS or name in shared]
        rows = []
        for before, after, change in self.heads:
            texts = [_cell(change, name) for name in names]
            patterns = before.pattern or "–", after.pattern or "–"
            rows.append((after, texts, " → ".join(patterns) if len(set(patterns)) == 2 else after.pattern))
        note = f"in parentheses: at most {CLEAR:g} standard errors"
        return statistics_table("\n".join([self.title, *self.notes, note]), names, self.offsets, rows)

    def __str__(self) -> str:
        return printed(self.table())

    def __repr__(self) -> str:
        modules = counted(len({head.after.name for head in self.heads}), "module")
        return f"<SurveyDifference of {counted(len(self.heads), 'head')} in {modules}>"

    def _repr_html_(self) -> str:
        document = self.document()
        rows = "".join(f"<div>{escape(_line(row))}</div>" for row in self.largest())
        return f"<div><b>{escape(self.title)}</b></div>{document.grids[0]._repr_html_()}{rows}"


def is_clear(change: HeadStatistics, statistic: str) -> bool:
    """Whether a difference is larger than its noise, or its noise is not known."""
    noise = change.noise.get(statistic, math.nan)
    return math.isnan(noise) or abs(change.values[statistic]) > CLEAR * noise


def _cell(change: HeadStatistics, statistic: str) -> str:
    """Returns the text of one difference: 0 where nothing changed, in parentheses where the noise is as large."""
    text = shown_number(change.values[statistic], "+.3f")
    if not change.values[statistic]:
        return "0"
    text = text if text.strip("+−.0") else text[1:]  # what is written as zero has no sign
    return text if is_clear(change, statistic) else f"({text})"


def difference_of(
    title: str,
    notes: Sequence[str],
    heads: tuple[Sequence[HeadStatistics], Sequence[HeadStatistics]],
    sums: tuple[Mapping[str, HeadSums], Mapping[str, HeadSums]],
    offsets: int,
    *,
    paired: bool,
) -> SurveyDifference:
    """Returns the difference of two surveys, each pair being that after and that before.

    Args:
        paired: whether both read the same tokens.
    """
    prefixes = [_prefix(*({head.name for head in side} for side in sides)) for sides in (heads, heads[::-1])]
    if any(prefixes):
        named = " and ".join(f"{one!r} {when}" for one, when in zip(prefixes, ("after", "before"), strict=True) if one)
        notes = [*notes, f"the names of all modules begin with {named}, which does not count"]
    after, before = (
        {(head.name.removeprefix(prefix), head.head): head for head in side}
        for side, prefix in zip(heads, prefixes, strict=True)
    )
    both = [key for key in after if key in before]
    if not both:
        names = [sorted({head.name for head in side})[:MOST_NAMED] for side in heads]
        raise ArgumentError(
            f"the surveys must have heads in common, by their modules' names; after has {names[0]}, before {names[1]}"
        )
    kinds = {after[key].name for key in both if after[key].kind != before[key].kind}
    if kinds:
        notes = [*notes, f"causal in one survey alone: {_named(sorted(map(repr, kinds)))}"]
    only_after, only_before = (
        tuple((head.name, head.head) for key, head in one.items() if key not in other)
        for one, other in ((after, before), (before, after))
    )
    for when, pairs in (("after", only_after), ("before", only_before)):
        if pairs:
            numbers: dict[str, list[str]] = {}
            for name, head in pairs:
                numbers.setdefault(name, []).append(str(head))
            texts = [f"{name!r} {', '.join(of_module)}" for name, of_module in numbers.items()]
            notes = [*notes, f"heads that only the survey {when} has: {_named(texts)}"]
    shared = statistic_names(offsets)
    errors: dict[tuple[str, str], NDArray[np.float64]] = {}
    differences = []
    for key in both:
        one, other = after[key], before[key]
        values = {name: one.values.get(name, math.nan) - other.values.get(name, math.nan) for name in shared}
        noise = {name: math.hypot(one.noise.get(name, math.nan), other.noise.get(name, math.nan)) for name in shared}
        if paired and one.name in sums[0] and other.name in sums[1]:
            pair = one.name, other.name
            if pair not in errors:
                of_module = sums[0][one.name], sums[1][other.name]
                common = min(each.total.shape[1] for each in of_module)
                first, second = (each.part(common, offsets) for each in of_module)
                errors[pair] = first.errors(second)
            noise = dict(zip(shared, errors[pair][one.head].tolist(), strict=True))
        change = HeadStatistics(one.name, one.layer, one.kind, one.head, values, noise)
        differences.append(HeadDifference(other, one, change))
    return SurveyDifference(tuple(differences), only_before, only_after, tuple(notes), title, offsets)


def _prefix(names: set[str], others: set[str]) -> str:
    """Returns what stands before the names of one model alone, such as a wrapper's; "" if nothing does, or several."""
    prefixes = {name[: -len(other)] for name in names for other in others if name.endswith(f".{other}")}
    return prefixes.pop() if len(prefixes) == 1 and not names & others else ""


def _named(texts: Sequence[str]) -> str:
    """Returns the first of some texts, and how many more there are."""
    more = f" and {len(texts) - MOST_NAMED} more" if len(texts) > MOST_NAMED else ""
    return "; ".join(texts[:MOST_NAMED]) + more


def _line(row: StatisticDifference) -> str:
    """Returns a difference in words."""
    before, after, value, noise = (
        shown_number(number, form) for number, form in zip(row[3:], (".3f", ".3f", "+.3f", ".1g"), strict=True)
    )
    return (
        f"layer {row.layer}, head {row.head}, {row.statistic.replace('_', ' ')}: {before} → {after}, {value} ± {noise}"
    )
