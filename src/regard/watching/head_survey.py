"""The result of a survey: the statistics of each head, as a table, a picture and JSON; and heads that may do little."""

import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import ArgumentError, UnknownNameError
from regard.files.atomic import AtomicFile
from regard.names.missing_names import hinted
from regard.watching.head_statistics import STATISTICS, offset_name, statistic_names
from regard.watching.survey_state import SurveyPart

if TYPE_CHECKING:
    from matplotlib.figure import Figure
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

    @property
    def pattern(self) -> str:
        """The pattern that takes at least half of the head's weight, if there is one."""
        offsets = {name: value for name, value in self.values.items() if name.startswith("offset ")}
        shares = {name: self.values[name] for name in ("first", "special", "induction", "same_token")} | offsets
        name, share = max(shares.items(), key=lambda item: -1.0 if math.isnan(item[1]) else item[1])
        return _PATTERN_NAMES.get(name, name.replace("offset ", "token at ")) if share >= PATTERN_SHARE else ""


_PATTERN_NAMES = {
    "first": "first token", "special": "special tokens", "same_token": "same token", "offset -1": "previous token",
    "offset 0": "own token", "offset +1": "next token",
}  # fmt: skip


@dataclass(frozen=True)
class Prunable:
    """A head that may do little, and the statistic that suggests it.

    Attributes:
        head: the head.
        reason: the statistic, in words.

    Example:
        >>> from regard import watching
        >>> values = {"first": 0.97, "special": 0.0, "relative_entropy": 0.1}
        >>> head = watching.HeadStatistics("layers.0.self_attn", 0, "causal", head=3, values=values)
        >>> found = watching.Survey((head,), texts=9, tokens=180, cut=0, ignored={}, offsets=0).prunable()
        >>> [(one.head.head, one.reason) for one in found]
        [(3, '97.0% of its weight goes to the first token')]
    """

    head: HeadStatistics
    reason: str


@hinted
@dataclass(frozen=True, repr=False)
class Survey:
    """The statistics of all heads over a corpus.

    Attributes:
        heads: in the order of the model's calls.
        texts: the number of texts that were read.
        tokens: the number of tokens that were counted as queries: all but special ones.
        cut: the number of texts that were cut to ``max_length``.
        ignored: how the calls of modules without statistics differ from others, by the module's name.
        offsets: the largest distance for which the share of weight was taken.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import models
        >>> _ = torch.manual_seed(0)
        >>> model = models.LanguageModel(models.LanguageModelConfig(50, context=8, hidden=12, layers=2, heads=2))
        >>> result = regard.survey(model, [[5, 6, 7, 8], [9, 5, 6]])
        >>> result
        <Survey of 4 heads in 2 modules over 2 texts>
        >>> len(result.prunable(uniform=0.9))  # the weights of an untrained model are nearly uniform
        4
        >>> result.save("survey.json").stat().st_size > 1000
        True
    """

    heads: tuple[HeadStatistics, ...]
    texts: int
    tokens: int
    cut: int
    ignored: dict[str, str]
    offsets: int

    @classmethod
    def of(cls, part: SurveyPart, offsets: int) -> "Survey":
        """Returns the means that follow from the sums of all texts."""
        heads = []
        for name, sums in sorted(part.heads.items(), key=lambda item: (item[1].layer, item[0])):
            for head, (totals, counts) in enumerate(zip(sums.total, sums.count, strict=True)):
                values = {
                    statistic: float(total / count) if count else math.nan
                    for statistic, total, count in zip(statistic_names(offsets), totals, counts, strict=True)
                }
                heads.append(HeadStatistics(name, sums.layer, sums.kind, head, values))
        return cls(tuple(heads), part.texts, part.tokens, part.cut, part.ignored, offsets)

    def prunable(self, *, sink: float = 0.9, uniform: float = 0.95) -> list[Prunable]:
        """Returns the heads whose weights suggest that they do little, with the reason.

        A head that gives nearly all weight to the first or to special tokens is often idle (Clark et al. 2019,
        "What Does BERT Look At?", section 3.2; Xiao et al. 2024, "Efficient Streaming Language Models with Attention
        Sinks"); one whose weights are nearly uniform averages its values. Weights alone do not prove it: a head's value
        vectors may be short or long. Measure the change of loss with `Watch.ablate` before a head is removed (Michel et
        al. 2019, "Are Sixteen Heads Really Better than One?").

        Args:
            sink: the least share of weight on the first token, or on special tokens, for which a head is named.
            uniform: the least entropy, relative to that of uniform weights, for which a head is named.

        Raises:
            ArgumentError: a limit that is not from 0 to 1.
        """
        for name, limit in (("sink", sink), ("uniform", uniform)):
            if isinstance(limit, bool) or not isinstance(limit, (int, float)) or not 0 <= limit <= 1:
                raise ArgumentError(f"{name} must be a number from 0 to 1; it is {limit!r}")
        prunable = []
        for head in self.heads:
            first, special = head.values["first"], head.values["special"]
            entropy = head.values["relative_entropy"]
            if max(first, special) >= sink:
                where = "the first token" if first >= special else "special tokens"
                prunable.append(Prunable(head, f"{max(first, special):.1%} of its weight goes to {where}"))
            elif entropy >= uniform:
                prunable.append(Prunable(head, f"its entropy is {entropy:.1%} of that of uniform weights"))
        return prunable

    def table(self, statistics: Sequence[str] = TABLE_STATISTICS) -> "Table":
        """Returns a table of Rich, a row for each head.

        Args:
            statistics: its columns.

        Raises:
            UnknownNameError: no statistic of this name.
        """
        from rich.table import Table

        title = f"{self.texts:,} texts, {self.tokens:,} counted tokens" + (f", {self.cut:,} cut" if self.cut else "")
        table = Table(title=title, title_justify="left")
        for column in ("layer", "head", "kind"):
            table.add_column(column, justify="left" if column == "kind" else "right")
        for name in statistics:
            heading = f"{name.replace('_', ' ')}\n[{_unit(name, self.offsets)}]"
            table.add_column(heading.replace("[", r"\["), justify="right")
        table.add_column("mostly")
        for head in self.heads:
            values = (head.values[name] for name in statistics)
            shown = ("–" if math.isnan(value) else f"{value:.3f}" for value in values)
            table.add_row(str(head.layer), str(head.head), head.kind, *shown, head.pattern)
        return table

    def __str__(self) -> str:
        from rich.console import Console

        console = Console(width=160, color_system=None, force_terminal=False, force_jupyter=False, legacy_windows=False)
        with console.capture() as captured:
            console.print(self.table())
        return captured.get()

    def __repr__(self) -> str:
        modules = len({head.name for head in self.heads})
        return f"<Survey of {len(self.heads)} heads in {modules} modules over {self.texts:,} texts>"

    def figure(self, statistics: Sequence[str] | None = None) -> "Figure":
        """Draws one map of heads × layers for each statistic.

        Args:
            statistics: which; None: all but the shares at offsets beyond ±1.

        Raises:
            UnknownNameError: no statistic of this name.
            MissingPartError: matplotlib is not installed.
        """
        from regard.pictures.head_grid import HeadMap, head_grid

        around = [offset_name(offset) for offset in (-1, 0, 1) if abs(offset) <= self.offsets]
        chosen = [statistic.name for statistic in STATISTICS] + around if statistics is None else list(statistics)
        modules = list(dict.fromkeys(head.name for head in self.heads))
        rows = [f"{next(head.layer for head in self.heads if head.name == name)}" for name in modules]
        maps = []
        for name in chosen:
            unit = _unit(name, self.offsets)
            values = [[head.values[name] for head in self.heads if head.name == module] for module in modules]
            maps.append(HeadMap(name.replace("_", " "), unit, values, 1.0 if unit in ("share", "weight") else None))
        return head_grid(maps, rows, f"{self.texts:,} texts, {self.tokens:,} counted tokens")

    def to_json(self) -> str:
        """Returns all statistics as JSON; NaN is null."""
        return json.dumps(_without_nan(asdict(self)), indent=1)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes `to_json` to a file.

        Raises:
            WriteError: the file cannot be written.
        """
        with AtomicFile(path) as temporary:
            temporary.write_text(self.to_json(), encoding="utf-8")
        return Path(path)


def _unit(name: str, offsets: int) -> str:
    known = statistic_names(offsets)
    if name not in known:
        raise UnknownNameError("statistic", name, known)
    return next((statistic.unit for statistic in STATISTICS if statistic.name == name), "share")


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(entry) for entry in value]
    return None if isinstance(value, float) and math.isnan(value) else value
