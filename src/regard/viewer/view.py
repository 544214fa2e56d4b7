"""Attention weights as a notebook's output, an HTML file, a picture, or JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from regard.errors import ArgumentError, KindError, UnknownNameError
from regard.files.atomic import write_atomically
from regard.names.answered import answered
from regard.names.counted import counted
from regard.names.missing_names import hinted
from regard.records import AttentionRecord, Document, FrameAxis, GridAxis, TokenAxis
from regard.records.axis import is_whole_number
from regard.records.html_document import iframe
from regard.shapes.checks import type_text, whole_number
from regard.viewer.carried_steps import carried_steps, has_steps
from regard.viewer.contents import TokenLabels, as_document
from regard.viewer.html_file import html_page
from regard.viewer.opening import opening
from regard.viewer.overview import carried_whole
from regard.viewer.payload import BUDGET, payload
from regard.watching import HeadStatistics, Survey

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ViewName = Literal["pattern", "lines", "grid", "walk", "words", "image", "sound", "long", "difference", "numbers"]
VIEWS = get_args(ViewName)
FORMER_NAMES = {"alignment": "pattern", "heads": "lines", "model": "grid", "steps": "walk", "text": "words"}
"""The names of views in earlier versions; both are accepted."""

Theme = Literal["auto", "light", "dark"]
THEMES = get_args(Theme)
Language = Literal["en", "zh"]
LANGUAGES = get_args(Language)
HEIGHT = 640
SUFFIXES = (".html", ".png", ".svg", ".json")


@hinted
@answered
class View:
    """A picture of attention weights, from any form that they come in.

    ::

        View(weights, tokens)                      # [queries, keys] or [heads, queries, keys]
        View(weights, rows=target, columns=source) # tokens of queries and keys that differ
        View(outputs.attentions, tokens)           # of transformers, with output_attentions=True
        View(watched, tokenizer)                   # a result of regard.watch(model, read="view")
        View(watched, tokenizer, steps=[(3, 8)])   # and the calculation of layer 3, head 8, after watch(keep=True)
        View(observed, tokens)                     # regard.observe(..., read="view")
        View(explanation)                          # the worked calculation of regard.explain
        View(prediction)                           # of a trained run

    In a notebook a view is its own output: a sandboxed frame that needs no network and stays in the file that nbconvert
    writes. Elsewhere `save` writes it.

    Args:
        content: one of

            - weights: a tensor, an array or nested lists. ``[queries, keys]`` is one head, ``[heads, queries, keys]``
              are the heads of one layer, ``[batch, heads, queries, keys]`` is a batch, and ``[layers, batch, heads,
              queries, keys]`` are stacked layers;
            - a list or tuple of such tensors or arrays, one for each layer, as ``outputs.attentions``. So a tensor
              ``[layers, heads, queries, keys]`` is ``View(list(weights), tokens)``;
            - the result of `regard.watch`, or one of its calls; without tokens its positions have numbers. After
              ``keep=True`` the weights are read if they are few, at most 2 million of all layers together. With a
              tokenizer all texts that the model read are shown: the rows of a batch, forward passes and generations;
              with the tokens of one text it is the last;
            - an `Observed` or `Attended` with weights, an `Explanation`, a prediction, or the result of `regard.patch`;
            - a `Document`, a record, or a sequence of records and explanations; a `HeadGrid` is a record too.
        tokens: the texts of queries and keys, one for each position: a list (``range(n)`` for numbers), or an axis of
            `regard.records`; a list of such lists for several texts. For a result of `regard.watch` also the tokenizer
            of a model of transformers, whose ids it recorded.
        rows: the tokens of the queries, if those of the keys differ.
        columns: the tokens of the keys.
        example: the number of the one text that is shown, from 0; None: all for which there are tokens.
        title: one line; None: the one that the content has.
        view: one of ``"pattern"`` (a matrix), ``"lines"`` (two columns), ``"words"`` (the text, shaded), ``"grid"``
            (all heads), ``"walk"`` (the calculation), ``"image"``, ``"sound"``, ``"long"``, ``"difference"`` (one
            head minus another), ``"numbers"`` (one number for each head); None: the one that suits the first record.
        layer: the index of the record that is shown first, from 0; None: that of the head below.
        head: its number, from 0, or ``"mean"`` of all heads; None: that with the clearest pair of words.
        survey: statistics of heads over a corpus, by which the viewer names and sorts them: the result of
            `regard.survey`, or `HeadStatistics`. A statistic ``"loss"`` in their ``values`` is the change of the loss
            without the head.
        theme: ``"auto"`` (as the system is), ``"light"`` or ``"dark"``.
        language: the language of the viewer, ``"en"`` or ``"zh"``; None: that of the browser, English where it is
            neither, and in pictures. The viewer's menu changes it.
        height: the height of the notebook's frame in pixels; None: 640.
        budget_bytes: the most bytes of exact weights and of carried calculations in the file (see `payload`).
        steps: the (layer, head) pairs whose calculation the walk shows in any case, for a result of `regard.watch`
            with ``keep=True``; ``layer`` is the index of a record, as above. Without it, the file has those of as many
            heads as half of ``budget_bytes`` holds, that of the first head first. With ``inputs=True`` in place of
            ``keep=True``, the walk through at most 64 tokens also shows what wrote the parts of a score. An
            `Explanation` has those of all its heads.

    Raises:
        UnknownNameError: an unknown view, theme or language.
        ArgumentError: weights or tokens are missing or ambiguous, with the line to write; the view cannot show the
            document, or a number is out of its range.
        ShapeError: a wrong number of axes or tokens.
        KindError: a content, tokens or an option of another type.

    Example:
        >>> import regard
        >>> weights = [[0.9, 0.1, 0.0], [0.2, 0.7, 0.1]]
        >>> view = regard.View(weights, rows=["le", "chat"], columns=["the", "black", "cat"], title="a translation")
        >>> view
        View('a translation', 1 record, view=None)
        >>> record = view.document.records[0]
        >>> record.weights.shape, record.keys.tokens
        ((1, 2, 3), ('the', 'black', 'cat'))
        >>> view.save("weights.html").read_text("utf-8")[:15]
        '<!DOCTYPE html>'
    """

    def __init__(
        self,
        content: Any,
        tokens: Any = None,
        *,
        rows: Any = None,
        columns: Any = None,
        example: int | None = None,
        title: str | None = None,
        view: ViewName | None = None,
        layer: int | None = None,
        head: int | Literal["mean"] | None = None,
        survey: Survey | Iterable[HeadStatistics] | None = None,
        theme: Theme = "auto",
        language: Language | None = None,
        height: int | None = None,
        budget_bytes: int = BUDGET,
        steps: Sequence[tuple[int, int]] = (),
    ):
        self.document = as_document(content, TokenLabels(tokens, rows, columns, example), title, steps)
        if survey is not None:
            self.document = with_survey(self.document, survey)
        view = cast("ViewName | None", present_name(view))
        _check_name("theme", theme, THEMES)
        if language is not None:
            _check_name("language", language, LANGUAGES)
        if height is not None:
            whole_number("height (in pixels)", height, low=200)
        whole_number("budget_bytes", budget_bytes, low=0)
        if view is not None and view not in (known := views_of(self.document, budget_bytes)):
            raise ArgumentError(f"view {view!r} cannot show this document; it can be shown as {', '.join(known)}")
        _check_selection(self.document, layer, head)
        self.view, self.theme, self.height, self.budget_bytes = view, theme, height, budget_bytes
        self.language = language
        # An integer of NumPy is one of Python's from here on, since options are written as JSON.
        self.layer = None if layer is None else int(layer)
        self.head = head if head is None or head == "mean" else int(head)
        self._payload: dict[str, Any] | None = None

    def payload(self) -> dict[str, Any]:
        """Returns the payload of the viewer's module, ready for JSON; computed once."""
        if self._payload is None:
            walks = any(map(has_steps, self.document.records))
            first = opening(self.document, self.layer, self._position) if walks else None
            head = (self.layer or 0, self._position or 0) if first is None else (first.record, first.head or 0)
            self._payload = payload(self.document, budget_bytes=self.budget_bytes, walk_from=head)
        return self._payload

    def options(self) -> dict[str, Any]:
        """Returns the options of the module's ``mount`` for this view."""
        selection: dict[str, Any] = {}
        if self.head is not None:
            selection["head"] = self._position
        if self.layer is not None and self.document.records:
            selection["record"] = self.layer
        if self.head is not None and not self.document.records:
            selection["steps"] = [one.head for one in self.document.steps].index(self._position)
        return {"view": self.view, "theme": self.theme, "language": self.language or "auto", "selection": selection}

    @property
    def _position(self) -> int | None:
        """The position of the chosen head in its record; None: the mean, or none is chosen."""
        if not isinstance(self.head, int) or not self.document.records:
            return self.head if isinstance(self.head, int) else None
        return self.document.records[self.layer or 0].numbers_of_heads.index(self.head)

    def to_html(self) -> str:
        """Returns one page that needs nothing else, with a content security policy that lets it load nothing."""
        return html_page(self.payload(), self.options())

    def _repr_html_(self) -> str:
        return iframe(self.to_html(), self.height or HEIGHT, f"attention weights: {self.document.title}")

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the view; the suffix decides: ``.html``, ``.json`` (the payload), ``.png`` or ``.svg``.

        Pictures are drawn by matplotlib and need no browser.

        Raises:
            ArgumentError: another suffix.
            MissingPartError: a picture without matplotlib.
            WriteError: the file cannot be written.
        """
        target = Path(path)
        suffix = target.suffix.lower()
        if suffix not in SUFFIXES:
            raise ArgumentError(f"path must end in {', '.join(SUFFIXES)}; it is {str(path)[:200]!r}")
        if suffix == ".html":
            write_atomically(target, self.to_html().encode("utf-8"))
        elif suffix == ".json":
            write_atomically(target, json.dumps(self.payload(), ensure_ascii=True, allow_nan=False).encode("ascii"))
        else:
            from regard.pictures import save

            save(self.figure(), target)
        return target

    def figure(self) -> Figure:
        """Returns the picture that `save` writes as PNG or SVG: the view as the browser opens it.

        It shows the same head and marks the same pair of words, under the same sentence; ``layer``, ``head`` and
        ``view`` choose others.

        Raises:
            ArgumentError: the record is too long for the view, or has too few heads for it.
            MissingPartError: matplotlib is not installed.

        Example:
            >>> import regard
            >>> drawn = regard.View([[0.9, 0.1], [0.2, 0.8]], ["le", "chat"], title="a model").figure()
            >>> [text.get_text() for text in drawn.texts][:3]
            ['each row asks ↓', 'each column is looked at →', 'a model']
        """
        from regard.viewer.static_pictures import figure

        head = "mean" if self.head == "mean" else self._position
        return figure(self.document, self.view or views_of(self.document)[0], self.layer, head, self.language or "en")

    def __repr__(self) -> str:
        return f"View({self.document.title!r}, {counted(len(self.document.records), 'record')}, view={self.view!r})"


def present_name(view: Any) -> str | None:
    """Returns the name of a view that may have a former name; None stays."""
    if view is None:
        return None
    if isinstance(view, str):
        view = FORMER_NAMES.get(view, view)
    _check_name("view", view, VIEWS)
    return view


def _check_name(option: str, name: Any, known: Sequence[str]) -> None:
    if not isinstance(name, str):
        raise KindError(f'{option} must be a name, such as {option}="{known[0]}"; it is {type_text(name)}')
    if name not in known:
        raise UnknownNameError(option, name, known)


def views_of(document: Document, budget_bytes: int = BUDGET) -> list[str]:
    """Returns the views that can show a document in a file of so many bytes (see `payload`), the best one first."""
    whole = carried_whole(document.records)
    records = [document.records[number] for number in sorted(whole)]
    kinds = {type(record.keys) for record in records}
    possible = {
        "image": GridAxis in kinds,
        "sound": FrameAxis in kinds,
        "pattern": bool(records),
        "lines": bool(records),
        "grid": len(document.records) > 1 or any(record.heads > 1 for record in document.records),
        "words": TokenAxis in kinds,
        "long": len(whole) < len(document.records),
        "walk": bool(document.steps) or any(carried_steps(document.records, (), (0, 0), budget_bytes // 2)),
        "numbers": bool(document.grids),
        "difference": _can_differ(records),
    }
    # As in the module: the first record decides which view comes first.
    first = document.records[0] if document.records else None
    if first is None:
        best = "walk" if document.steps else "numbers"
    elif 0 not in whole:
        best = "long"
    else:
        # The words with their weights show more than a matrix of one row.
        of_words = "words" if len(first.queries) == 1 < len(first.keys) else "pattern"
        best = {GridAxis: "image", FrameAxis: "sound"}.get(type(first.keys), of_words)
    return sorted((name for name in possible if possible[name]), key=lambda name: name != best)


def _can_differ(records: Sequence[AttentionRecord]) -> bool:
    """Whether two heads can be subtracted: of one record, or of two records of one kind."""
    kinds = [(record.kind, type(record.queries), type(record.keys)) for record in records]
    return len(kinds) > len(set(kinds)) or any(record.heads > 1 for record in records)


def _check_selection(document: Document, layer: Any, head: Any) -> None:
    count = max(1, len(document.records))
    if layer is not None and (not is_whole_number(layer) or not 0 <= layer < count):
        raise ArgumentError(f"layer must be the position of a record, from 0 to {count - 1}; it is {layer!r}")
    if head is None or (isinstance(head, str) and head == "mean"):
        return
    worked = tuple(one.head for one in document.steps if one.head is not None)
    numbers = document.records[layer or 0].numbers_of_heads if document.records else worked
    if not is_whole_number(head) or int(head) not in numbers:
        known = f"from 0 to {len(numbers) - 1}"
        if numbers != tuple(range(len(numbers))):
            known = f"one of the recorded heads {', '.join(map(str, numbers))}"
        raise ArgumentError(f'head must be {known}, "mean", or None; it is {head!r}')


def with_survey(document: Document, survey: Survey | Iterable[HeadStatistics]) -> Document:
    """Returns the document with the statistics of its records' heads (`AttentionRecord.statistics`).

    A record is of the surveyed module if it has its name; where no record has a surveyed name, if it has its layer and
    both attend within one sequence.

    Raises:
        KindError: not a survey.
        ArgumentError: no record is of a surveyed module, or one has other heads.

    Example:
        >>> from regard import View, watching
        >>> heads = [watching.HeadStatistics("a", 0, "self", head, {"offset -1": 0.8}) for head in (0, 1)]
        >>> view = View([[[0.5, 0.5], [1, 0]], [[0, 1], [1, 0]]], ["the", "cat"], survey=heads)
        >>> view.document.records[0].statistics
        ({'offset -1': 0.8}, {'offset -1': 0.8})
    """
    must = "survey must be the result of regard.survey(model, texts, tokenizer), or a sequence of HeadStatistics"
    if not isinstance(survey, (Survey, Iterable)):
        raise KindError(f"{must}; it is {type_text(survey)}")
    heads = list(survey.heads if isinstance(survey, Survey) else survey)
    for head in heads:
        if not isinstance(head, HeadStatistics):
            raise KindError(f"{must}; an entry is {type_text(head)}")
    modules: dict[str, list[HeadStatistics]] = {}
    for head in heads:
        modules.setdefault(head.name, []).append(head)
    named = any(record.name in modules for record in document.records)
    records = tuple(_with_statistics(record, _heads_of_record(record, modules, named)) for record in document.records)
    if all(record.statistics is None for record in records):
        layers = sorted({record.layer for record in records if record.kind != "cross"})
        surveyed = sorted({head.layer for head in heads})
        raise ArgumentError(
            "survey has no head of this document: it must be of the same model. The document has the layers "
            f"{layers[:9]} that attend within one sequence, the survey has {surveyed[:9]}"
        )
    return replace(document, records=records)


def _heads_of_record(
    record: AttentionRecord, modules: dict[str, list[HeadStatistics]], named: bool
) -> list[HeadStatistics] | None:
    if named:
        return modules.get(record.name)
    if record.kind == "cross":
        return None
    return next((heads for heads in modules.values() if heads[0].layer == record.layer), None)


def _with_statistics(record: AttentionRecord, heads: list[HeadStatistics] | None) -> AttentionRecord:
    if heads is None:
        return record
    by_number = {head.head: head.values for head in heads}
    numbers = record.numbers_of_heads
    if not by_number.keys() >= set(numbers) or (record.head_numbers is None and len(by_number) > record.heads):
        raise ArgumentError(
            f"survey must have the {record.heads} heads of {record.name!r}; it has the heads {sorted(by_number)[:16]}"
        )
    return replace(record, statistics=tuple(by_number[number] for number in numbers))
