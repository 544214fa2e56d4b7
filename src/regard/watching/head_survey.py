"""The result of a survey: the statistics of each head, as table, picture and file; and heads that may do little."""

import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.errors import ArgumentError, DataError, KindError
from regard.files.atomic import AtomicFile
from regard.files.regular import LARGEST_TEXT, read_text
from regard.names.missing_names import hinted
from regard.pictures.numbers import plain_percent
from regard.records import Document, HeadGrid
from regard.shapes.checks import type_text
from regard.watching.head_statistics import GROUPS, HeadSums, statistic_names
from regard.watching.head_tables import (
    HeadStatistics,
    drawn_statistics,
    shown_number,
    statistic_grid,
    statistics_table,
    table_statistics,
    unit_of,
)
from regard.watching.survey_difference import SurveyDifference, difference_of
from regard.watching.survey_state import SurveyPart

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

FILE_VERSION = 1
"""The version of the files of `Survey.save`; those without one, of earlier versions of regard, have no sums."""

MOST_HEADS = 1 << 16
"""Heads of a module in a file have lower numbers."""


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
        [(3, '97 % of its weight goes to the first token')]
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
        corpus: a digest of the tokens that were read, in their order; "" if it is not known.
        sums: the sums of each module's heads by its name, from which the noise of a difference follows.

    Two surveys subtract: ``after - before`` is a `SurveyDifference`.

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
        >>> path = result.save("survey.json")
        >>> type(result).load(path).heads[3].values["entropy"] == result.heads[3].values["entropy"]
        True
    """

    heads: tuple[HeadStatistics, ...]
    texts: int
    tokens: int
    cut: int
    ignored: dict[str, str]
    offsets: int
    corpus: str = ""
    sums: dict[str, HeadSums] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, part: SurveyPart, offsets: int) -> "Survey":
        """Returns the means that follow from the sums of all texts."""
        heads, names = [], statistic_names(offsets)
        for name, sums in sorted(part.heads.items(), key=lambda item: (item[1].layer, item[0])):
            numbers = zip(sums.means().tolist(), sums.errors().tolist(), strict=True)
            for head, (means, errors) in enumerate(numbers):
                # Surveys with one object for NaN are equal if their numbers are.
                values, noise = (
                    {name: math.nan if number != number else number for name, number in zip(names, row, strict=True)}
                    for row in (means, errors)
                )
                heads.append(HeadStatistics(name, sums.layer, sums.kind, head, values, noise))
        corpus = f"{part.corpus:064x}"
        return cls(tuple(heads), part.texts, part.tokens, part.cut, part.ignored, offsets, corpus, part.heads)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Survey":
        """Reads a survey that `save` wrote, with every bit of its numbers. No code in a file is run.

        Raises:
            DataError: the file cannot be read, is no survey, is damaged, or is of a later version of regard.
        """
        try:
            stored = json.loads(read_text(path, LARGEST_TEXT))
            version = stored.get("version", 0)
            if version in (0, FILE_VERSION):
                return cls._of_file(stored, version)
        except OSError as error:
            raise DataError(f"cannot read {path}: {error.strerror or error}") from error
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise DataError(f"{path} is no survey, or is damaged: {error!r:.300}") from error
        raise DataError(f"{path} was written by another version of regard, as version {version!r:.40} of its files")

    @classmethod
    def _of_file(cls, stored: dict[str, Any], version: int) -> "Survey":
        """Returns the survey whose `to_json` is ``stored``; raises an error of Python if there is none."""
        offsets = stored["offsets"]
        if type(offsets) is not int or not 0 <= offsets <= 64:
            raise ValueError("offsets must be from 0 to 64")
        sums = {
            name: HeadSums.from_json(numbers, len(statistic_names(offsets)))
            for name, numbers in stored.get("sums", {}).items()
        }
        heads = tuple(
            HeadStatistics(
                str(head["name"]),
                int(head["layer"]),
                str(head["kind"]),
                int(head["head"]),
                *(_with_nan(head.get(name, {})) for name in ("values", "noise")),
            )
            for head in stored["heads"]
        )
        texts, tokens, cut = (int(stored[name]) for name in ("texts", "tokens", "cut"))
        corpus = str(stored.get("corpus", ""))
        survey = cls(heads, texts, tokens, cut, dict(stored["ignored"]), offsets, corpus, sums)
        # Whatever has another type, is missing or is too much is written in another way.
        written = json.loads(survey.to_json())
        if version and written != stored:
            raise ValueError("an entry is not as regard writes it")
        followed = cls.of(SurveyPart(heads=sums), offsets).heads if sums else heads
        if len(followed) != len(heads) or not all(map(_is_alike, heads, followed)):
            raise ValueError("the statistics do not follow from the sums")
        if min(texts, tokens, cut) < 0 or len({(head.name, head.head) for head in heads}) < len(heads):
            raise ValueError("a number is below 0, or a head is there twice")
        if not all(0 <= head.head < MOST_HEADS for head in heads):
            raise ValueError(f"a head is not from 0 to {MOST_HEADS - 1}")
        return survey

    def difference(self, before: "Survey") -> SurveyDifference:
        """Returns what changed since another survey, such as that of the checkpoint before fine-tuning.

        Heads are matched by their module's name and their number. A prefix that all modules of one model have, as
        wrappers and adapters add one, does not count. What the surveys do not share is in `SurveyDifference.notes`:
        other texts, heads that only one of them has, and statistics at other offsets.

        Raises:
            KindError: not a survey.
            ArgumentError: the surveys have no head in common.
        """
        if not isinstance(before, Survey):
            raise KindError(f"before must be the result of regard.survey; it is {type_text(before)}")
        is_same = self.corpus != "" and self.corpus == before.corpus
        texts = f"after {self.title}, before {before.title}"
        known = (
            "other texts or tokens"
            if self.corpus and before.corpus
            else "the texts may be others, as a file has no digest"
        )
        lines = [] if is_same else [f"{known}: {texts}"]
        if self.offsets != before.offsets:
            lines.append(
                f"offsets up to {self.offsets} after and {before.offsets} before: the smaller ones are compared"
            )
        if min(self.texts, before.texts) < GROUPS:
            lines.append(f"the standard errors are rough: a survey has fewer than {GROUPS} texts")
        for name, left_out in (("after", self.ignored), ("before", before.ignored)):
            lines += [f"{name} has no statistics of {module!r}: {reason}" for module, reason in left_out.items()]
        title = f"after − before{f', the same {self.title}' if is_same else ''}"
        sums = (self.sums, before.sums) if is_same else ({}, {})
        return difference_of(title, lines, (self.heads, before.heads), sums, min(self.offsets, before.offsets))

    def __sub__(self, before: "Survey") -> SurveyDifference:
        return self.difference(before)

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
                prunable.append(Prunable(head, f"{plain_percent(max(first, special))} of its weight goes to {where}"))
            elif entropy >= uniform:
                prunable.append(Prunable(head, f"its entropy is {plain_percent(entropy)} of that of uniform weights"))
        return prunable

    def table(self, statistics: Sequence[str] | None = None) -> "Table":
        """Returns a table of Rich, a row for each head.

        Args:
            statistics: its columns; None: the usual ones.

        Raises:
            UnknownNameError: no statistic of this name.
        """
        names = table_statistics(statistics, self.offsets)
        rows = (
            (head, [shown_number(head.values.get(name, math.nan), ".3f") for name in names], head.pattern)
            for head in self.heads
        )
        return statistics_table(self.title, names, self.offsets, rows)

    @property
    def title(self) -> str:
        """The numbers of texts and tokens."""
        return f"{self.texts:,} texts, {self.tokens:,} counted tokens" + (f", {self.cut:,} cut" if self.cut else "")

    def __str__(self) -> str:
        from regard.explanations.tables import as_text

        return as_text(self.table())

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
        from regard.pictures import head_grid

        return head_grid([self.grid(name) for name in drawn_statistics(statistics, self.offsets)], self.title)

    def grid(self, statistic: str) -> HeadGrid:
        """Returns one statistic of all heads × layers, with its noise.

        Raises:
            UnknownNameError: no statistic of this name.
        """
        unit = unit_of(statistic, self.offsets)
        high = 1.0 if unit in ("share", "weight") else None
        return statistic_grid(statistic, self.heads, unit, signed=False, high=high)

    def document(self) -> Document:
        """Returns the numbers of all statistics, for `regard.View`."""
        grids = tuple(self.grid(name) for name in statistic_names(self.offsets))
        return Document(f"survey of {self.title}", (), grids=grids)

    def to_json(self) -> str:
        """Returns all statistics as JSON, which `load` reads; NaN is null."""
        stored = {each.name: getattr(self, each.name) for each in fields(self)}
        stored["heads"] = _without_nan([asdict(head) for head in self.heads])
        stored["sums"] = {name: sums.to_json() for name, sums in self.sums.items()}
        return json.dumps({"version": FILE_VERSION} | stored, indent=1)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes `to_json` to a file.

        Raises:
            WriteError: the file cannot be written.
        """
        with AtomicFile(path) as temporary:
            temporary.write_text(self.to_json(), encoding="utf-8")
        return Path(path)


def _is_alike(head: HeadStatistics, other: HeadStatistics) -> bool:
    """Whether two are one head, with the same statistics up to rounding, which differs between machines."""
    names = ("name", "layer", "kind", "head")
    pairs = [(getattr(head, side), getattr(other, side)) for side in ("values", "noise")]
    return all(getattr(head, name) == getattr(other, name) for name in names) and all(
        own.keys() >= others.keys()  # a user may add statistics
        and np.allclose([own[name] for name in others], list(others.values()), 1e-6, 1e-9, equal_nan=True)
        for own, others in pairs
    )


def _with_nan(numbers: dict[str, Any]) -> dict[str, float]:
    return {str(name): math.nan if value is None else float(value) for name, value in numbers.items()}


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(entry) for entry in value]
    return None if isinstance(value, float) and math.isnan(value) else value
