"""The difference of two surveys: what fine-tuning, or anything else, changed in each head, and how sure that is."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from regard.errors import ArgumentError
from regard.names.counted import counted
from regard.records import Document, HeadGrid
from regard.shapes.checks import whole_number
from regard.watching.head_statistics import HeadSums, statistic_names
from regard.watching.head_tables import (
    HeadStatistics,
    drawn_statistics,
    shown_number,
    statistic_grid,
    statistics_table,
    table_statistics,
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
        heads: the differences of the heads that both surveys have, in the order of the one after, and their noise.
        before, after: the statistics of the same heads in the two surveys.
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

    heads: tuple[HeadStatistics, ...]
    before: tuple[HeadStatistics, ...]
    after: tuple[HeadStatistics, ...]
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
        units = {name: unit_of(name, self.offsets) for name in (statistic, *statistic_names(self.offsets)) if name}
        names = [
            name for name in units if (units[name] in ("share", "weight") if statistic is None else name == statistic)
        ]
        rows = [
            StatisticDifference(
                head.layer,
                head.head,
                name,
                before.values[name],
                after.values[name],
                head.values[name],
                head.noise[name],
            )
            for head, before, after in zip(self.heads, self.before, self.after, strict=True)
            for name in names
            if not math.isnan(head.values[name])
        ]
        return sorted(rows, key=lambda row: -abs(row.value))[:count]

    def grid(self, statistic: str) -> HeadGrid:
        """Returns the differences of one statistic, heads × layers, with their noise.

        Raises:
            UnknownNameError: no statistic of this name.
        """
        unit = unit_of(statistic, self.offsets)
        known = [head for head in self.heads if not math.isnan(head.noise[statistic])]
        clear = sum(is_clear(head, statistic) for head in known)
        note = (
            f"{clear} of {counted(len(known), 'head')} changed by more than {CLEAR:g} standard errors; about "
            f"{BY_CHANCE * len(known):.0f} would by chance alone"
        )
        notes = [*self.notes, note] if known else self.notes
        return statistic_grid(statistic, self.heads, unit, signed=True, notes=notes)

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
        return head_grid(grids, "\n".join([self.title, *(self.notes if len(grids) > 1 else [])]))

    def document(self) -> Document:
        """Returns the differences of all statistics, for `regard.View`; the one that changed most is first."""
        first = next((row.statistic for row in self.largest(1)), "entropy")
        names = sorted(statistic_names(self.offsets), key=lambda name: name != first)
        return Document(self.title, (), grids=tuple(self.grid(name) for name in names))

    def table(self, statistics: Sequence[str] | None = None) -> "Table":
        """Returns a table of Rich, a row for each head; what is not clear beside the noise is in parentheses.

        Args:
            statistics: its columns; None: those of `Survey.table`.

        Raises:
            UnknownNameError: no statistic of this name.
        """
        names = table_statistics(statistics, self.offsets)
        rows = []
        for head, before, after in zip(self.heads, self.before, self.after, strict=True):
            same = before.pattern == after.pattern
            pattern = after.pattern if same else f"{before.pattern or '–'} → {after.pattern or '–'}"
            rows.append((head, [_cell(head, name) for name in names], pattern))
        note = f"in parentheses: at most {CLEAR:g} standard errors"
        return statistics_table("\n".join([self.title, *self.notes, note]), names, self.offsets, rows)

    def __str__(self) -> str:
        from regard.explanations.tables import as_text

        return as_text(self.table())

    def __repr__(self) -> str:
        modules = counted(len({head.name for head in self.heads}), "module")
        return f"<SurveyDifference of {counted(len(self.heads), 'head')} in {modules}>"

    def _repr_html_(self) -> str:
        rows = (
            f"layer {row.layer}, head {row.head}, {row.statistic.replace('_', ' ')}: {row.before:.3f} → "
            f"{row.after:.3f}, {shown_number(row.value, '+.3f')} ± {shown_number(row.noise, '.1g')}"
            for row in self.largest()
        )
        lines = "".join(f"<div>{escape(row)}</div>" for row in rows)
        return f"<div><b>{escape(self.title)}</b></div>{self.document().grids[0]._repr_html_()}{lines}"


def is_clear(change: HeadStatistics, statistic: str) -> bool:
    """Whether a difference is larger than its noise, or its noise is not known."""
    noise = change.noise.get(statistic, math.nan)
    return math.isnan(noise) or abs(change.values[statistic]) > CLEAR * noise


def _cell(change: HeadStatistics, statistic: str) -> str:
    """Returns the text of one difference: 0 where nothing changed, in parentheses where the noise is as large."""
    value = change.values.get(statistic, math.nan)
    if not value:
        return "0"
    text = shown_number(value, "+.3f")
    text = text if text.strip("+−.0") else text[1:]  # what is written as zero has no sign
    return text if is_clear(change, statistic) else f"({text})"


def difference_of(
    title: str,
    notes: Sequence[str],
    heads: tuple[Sequence[HeadStatistics], Sequence[HeadStatistics]],
    sums: tuple[Mapping[str, HeadSums], Mapping[str, HeadSums]],
    offsets: int,
) -> SurveyDifference:
    """Returns the difference of two surveys; a pair has what is of the one after, and of the one before.

    Args:
        sums: those of modules that read the same tokens in both.
    """
    names = [{head.name for head in side} for side in heads]
    prefixes = [_prefix(*names), _prefix(*names[::-1])]
    lines = [*notes, *(f"{prefix!r} begins all names of modules and does not count" for prefix in prefixes if prefix)]
    after, before = (
        {(head.name.removeprefix(prefix), head.head): head for head in side}
        for side, prefix in zip(heads, prefixes, strict=True)
    )
    both = [(after[key], before[key]) for key in after if key in before]
    if not both:
        first = [sorted(side)[:MOST_NAMED] for side in names]
        raise ArgumentError(
            f"the surveys must have heads in common, by their modules' names; after has {first[0]}, before {first[1]}"
        )
    missing = {
        "heads that only the survey after has": [head for key, head in after.items() if key not in before],
        "heads that only the survey before has": [head for key, head in before.items() if key not in after],
        "heads that are causal in one survey alone": [one for one, other in both if one.kind != other.kind],
    }
    lines += [f"{what}: {_named(which)}" for what, which in missing.items() if which]
    shared, errors = statistic_names(offsets), {}
    differences = []
    for one, other in both:
        values = {name: one.values.get(name, math.nan) - other.values.get(name, math.nan) for name in shared}
        noise = {name: math.hypot(one.noise.get(name, math.nan), other.noise.get(name, math.nan)) for name in shared}
        first, second = (of_side.get(head.name) for of_side, head in zip(sums, (one, other), strict=True))
        if first is not None and second is not None and first.total.shape == second.total.shape:
            if one.name not in errors:
                errors[one.name] = first.errors(second).tolist()
            noise = dict(zip(shared, errors[one.name][one.head], strict=True))
        differences.append(HeadStatistics(one.name, one.layer, one.kind, one.head, values, noise))
    sides = (tuple(pair[number] for pair in both) for number in (1, 0))
    return SurveyDifference(tuple(differences), *sides, notes=tuple(lines), title=title, offsets=offsets)


def _prefix(names: set[str], others: set[str]) -> str:
    """Returns what stands before the names of one model alone, such as a wrapper's; "" if nothing does, or several."""
    prefixes = {name[: -len(other)] for name in names for other in others if name.endswith(f".{other}")}
    return prefixes.pop() if len(prefixes) == 1 and not names & others else ""


def _named(heads: Sequence[HeadStatistics]) -> str:
    """Returns the modules and numbers of heads; of many modules the first, and how many more there are."""
    numbers: dict[str, list[str]] = {}
    for head in heads:
        numbers.setdefault(head.name, []).append(str(head.head))
    texts = [f"{name!r} {', '.join(of_module)}" for name, of_module in numbers.items()]
    more = f" and {counted(len(texts) - MOST_NAMED, 'module')} more" if len(texts) > MOST_NAMED else ""
    return "; ".join(texts[:MOST_NAMED]) + more
