"""A document, which one view or page shows: the attention of a model's run on one input, and worked calculations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape

import numpy as np
from numpy.typing import NDArray

from regard.errors import ArgumentError, KindError, ShapeError, UnknownNameError
from regard.names.counted import counted
from regard.records.attention_record import AttentionRecord
from regard.records.axis import as_number, as_numbers
from regard.records.head_grid import HeadGrid
from regard.records.score_parts import ScoreParts
from regard.records.shaded_table import LONGEST_LINE
from regard.shapes.checks import type_text

PAIR_STEPS = ("scores", "scaled", "capped", "biased", "masked", "weights")
"""Steps with an element for each (query, key), in the order of the calculation."""

STEP_ORDER = ("query", "key", "value", *PAIR_STEPS, "output")
INPUT_MATRICES = ("query_input", "key_input", "value_input", "w_query", "w_key", "w_value", "w_score")
"""The inputs of queries, keys and values, the matrices that projected them, and the weights of an additive score."""

MOST_RECORDS = 3
"""The most records of a document that a notebook shows."""

PARAMETERS = {"temperature": 0.0, "sink": None, "alpha": 1.0, "bias": None}
"""The parameters of normalizers, and the lower bound of each; None: any number."""

REQUIRED_MATRICES = ("query", "key", "value", "scores", "weights", "output")


@dataclass(frozen=True, eq=False, repr=False)
class StepsRecord:
    """The worked calculation of one head, step by step; the names are those of `regard.Explanation`.

    Attributes:
        name: such as ``"layer 0, head 3"``.
        matrices: float64 matrices by name. ``query [queries, dim]``, ``key [keys, dim]``, ``value [keys, value_dim]``,
            ``scores``, ``weights`` ``[queries, keys]`` and ``output [queries, value_dim]`` are required; ``scaled``,
            ``capped``, ``biased`` and ``masked`` ``[queries, keys]`` are present if the calculation has the step
            (``masked`` is −inf where the mask hides a key). ``query_input [queries, features]``, ``key_input`` and
            ``value_input [keys, features]`` with ``w_query [features, dim]``, ``w_key`` and ``w_value`` may be present:
            ``query = query_input · w_query``, and so on; and for ``scores = tanh(query + key) · w_score`` the weights
            ``w_score [dim, 1]``.
        query_labels: one for each query.
        key_labels: one for each key.
        score: ``"dot"`` if ``scores = query · keyᵀ``, else another name.
        comparison: the class of the score that compares queries and keys, such as ``"General"``, whose scores are inner
            products of projected queries; "" if it is not known.
        normalizer: such as ``"softmax"``. The viewer computes ``softmax``, ``softmax_with_sink``, ``entmax``,
            ``sparsemax`` and ``sigmoid`` itself.
        layer: the number of the model's layer; None if there is none.
        head: the number of the head, from 0; None if there is none.
        parameters: numbers of the normalizer by name: ``temperature``, ``sink``, ``alpha``, ``bias``.
        scale: the factor of the scores; None if unknown.
        cap: c if ``capped = c · tanh(scaled / c)``, else None.
        function: the name of another function that turns ``scaled`` into ``capped``, or None.
        attention: the name of the `AttentionRecord` of the same document that has this head; "" if there is none.
        parts: what wrote the parts of the scaled scores, ``[sources, queries, keys]``; None: unknown.

    Raises:
        UnknownNameError: a matrix or a parameter of another name.
        KindError: a parameter, the scale or the cap is no number, or ``attention`` no text.
        ArgumentError: a matrix is missing, or a number is not finite or out of its range.
        ShapeError: the shapes do not match one another or the labels.

    Example:
        >>> import regard
        >>> from regard import records
        >>> steps = regard.explain([[1, 0], [0, 1]], [[1, 0], [0, 1]], [[10], [20]], score="dot")
        >>> matrices = {name: steps.matrix(name) for name in ("query", "key", "value", "scores", "weights", "output")}
        >>> record = records.StepsRecord("a lesson", matrices, ("le", "chat"), ("the", "cat"))
        >>> record
        StepsRecord('a lesson', 2 queries, 2 keys)
        >>> record.matrices["weights"]
        array([[0.7310586 , 0.26894143],
               [0.26894143, 0.7310586 ]])
    """

    name: str
    matrices: Mapping[str, NDArray[np.float64]]
    query_labels: tuple[str, ...]
    key_labels: tuple[str, ...]
    score: str = "dot"
    normalizer: str = "softmax"
    layer: int | None = None
    head: int | None = None
    parameters: Mapping[str, float] = field(default_factory=dict)
    scale: float | None = None
    cap: float | None = None
    function: str | None = None
    attention: str = ""
    parts: ScoreParts | None = None
    comparison: str = ""

    def __post_init__(self) -> None:
        for name in self.matrices:
            if name not in (*STEP_ORDER, *INPUT_MATRICES):
                raise UnknownNameError("matrix", name, (*STEP_ORDER, *INPUT_MATRICES))
        for name in REQUIRED_MATRICES:
            if name not in self.matrices:
                raise ArgumentError(f"matrices must have {', '.join(REQUIRED_MATRICES)}; {name} is missing")
        matrices = {
            name: as_numbers(f"matrices[{name!r}]", self.matrices[name]).astype(np.float64)
            for name in (*STEP_ORDER, *INPUT_MATRICES)
            if name in self.matrices
        }
        queries, keys = len(self.query_labels), len(self.key_labels)
        dim, value_dim = matrices["query"].shape[-1:], matrices["value"].shape[-1:]
        expected = dict.fromkeys(PAIR_STEPS, (queries, keys)) | {
            "query": (queries, *dim),
            "key": (keys, *(dim if self.score == "dot" else matrices["key"].shape[-1:])),
            "value": (keys, *value_dim),
            "output": (queries, *value_dim),
            "w_score": (*dim, 1),
        }
        for name, rows in (("query", queries), ("key", keys), ("value", keys)):
            features = matrices[f"w_{name}"].shape[:1] if f"w_{name}" in matrices else ()
            expected |= {f"{name}_input": (rows, *features), f"w_{name}": (*features, *matrices[name].shape[-1:])}
        for name, matrix in matrices.items():
            if matrix.ndim != 2 or matrix.shape != expected[name]:
                raise ShapeError(
                    f"matrices[{name!r}] must be {list(expected[name])} for {queries} query labels and {keys} key "
                    f"labels; its shape is {list(matrix.shape)}"
                )
        if self.parts is not None and self.parts.of_query.shape[1:] != (queries, keys):
            raise ShapeError(
                f"parts must have {queries} queries and {keys} keys; they have {self.parts.of_query.shape[1:]}"
            )
        object.__setattr__(self, "matrices", matrices)
        self._check_settings()
        object.__setattr__(self, "query_labels", tuple(map(str, self.query_labels)))
        object.__setattr__(self, "key_labels", tuple(map(str, self.key_labels)))

    def _check_settings(self) -> None:
        """Checks the settings with which the viewer computes, besides the matrices, and makes its numbers floats."""
        if not isinstance(self.parameters, Mapping):
            raise KindError(
                'parameters must be a dictionary of numbers, such as parameters={"temperature": 2.0}; it is of type '
                f"{type(self.parameters).__name__}"
            )
        for name in self.parameters:
            if name not in PARAMETERS:
                raise UnknownNameError("parameter", name, PARAMETERS)
        parameters = {
            name: _checked_number(f"parameters[{name!r}]", value, PARAMETERS[name])
            for name, value in self.parameters.items()
        }
        object.__setattr__(self, "parameters", parameters)
        for name, above in (("scale", None), ("cap", 0.0)):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, _checked_number(name, value, above))
        if not isinstance(self.attention, str):
            raise KindError(
                'attention must be the name of an AttentionRecord, or "" if there is none; it is of type '
                f"{type(self.attention).__name__}"
            )

    def __repr__(self) -> str:
        queries, keys = counted(len(self.query_labels), "query"), counted(len(self.key_labels), "key")
        return f"StepsRecord({self.name!r}, {queries}, {keys})"


def _checked_number(name: str, value: object, above: float | None) -> float:
    """Returns a finite number, above a bound if there is one."""
    number = as_number(name, value)
    if not math.isfinite(number) or (above is not None and number <= above):
        raise ArgumentError(f"{name} must be finite{'' if above is None else f' and above {above:g}'}; it is {number}")
    return number


@dataclass(frozen=True, eq=False)
class Document:
    """Records that are displayed together.

    Attributes:
        title: one line.
        records: the attention calls.
        steps: worked calculations.
        texts: (name, text), such as ``("input", ...)`` and ``("output", ...)``.
        grids: numbers of heads × layers.

    Raises:
        KindError: an entry of another type.
        ArgumentError: the document is empty.

    Example:
        >>> import regard
        >>> from regard import records
        >>> axis = records.TokenAxis(("a", "cat"))
        >>> record = records.AttentionRecord("encoder", 0, "self", axis, axis, [[[0.5, 0.5], [0.1, 0.9]]])
        >>> document = records.Document("a cat", (record,), texts=(("input", "a cat"),))
        >>> regard.View(document)
        View('a cat', 1 record, view=None)
    """

    title: str
    records: tuple[AttentionRecord, ...]
    steps: tuple[StepsRecord, ...] = ()
    texts: tuple[tuple[str, str], ...] = ()
    grids: tuple[HeadGrid, ...] = ()

    def __post_init__(self) -> None:
        for name, expected in (("records", AttentionRecord), ("steps", StepsRecord), ("grids", HeadGrid)):
            entries = tuple(getattr(self, name))
            for position, entry in enumerate(entries):
                if not isinstance(entry, expected):
                    raise KindError(f"{name} must hold {expected.__name__}; {name}[{position}] is {type_text(entry)}")
            object.__setattr__(self, name, entries)
        texts = tuple((str(name), str(text)) for name, text in self.texts)
        object.__setattr__(self, "texts", texts)
        if not self.records and not self.steps and not texts and not self.grids:
            raise ArgumentError("records must not be empty where there are no steps, grids and texts")

    @property
    def text_numbers(self) -> tuple[int, ...] | None:
        """The number of each record's text, from 0, where one model read several texts; None for one.

        Records of one module are of as many texts, if those of a text follow each other; so are records of one layer
        and kind whose tokens all differ.
        """
        for by_name in (True, False):
            groups: dict[tuple[object, ...], list[AttentionRecord]] = {}
            numbers = []
            for one in self.records:
                key = (one.layer, one.kind, type(one.queries), type(one.keys), one.name if by_name else "")
                groups.setdefault(key, []).append(one)
                numbers.append(len(groups[key]) - 1)
            if len({len(group) for group in groups.values()}) != 1 or max(numbers) == 0 or numbers != sorted(numbers):
                continue
            tokens = [{(one.queries.labels, one.keys.labels) for one in group} for group in groups.values()]
            if by_name or all(len(texts) == max(numbers) + 1 for texts in tokens):
                return tuple(numbers)
        return None

    def _repr_html_(self) -> str:
        texts = "".join(
            f"<div><b>{escape(name)}</b> <bdi>{escape(text[:LONGEST_LINE])}</bdi></div>" for name, text in self.texts
        )
        shown = "".join(record.html("") for record in self.records[:MOST_RECORDS])
        others = len(self.records) - MOST_RECORDS
        counts = [counted(others, "more record")] if others > 0 else []
        counts += [counted(len(self.steps), "worked calculation")] if self.steps else []
        shown += "".join(grid._repr_html_() for grid in self.grids[:MOST_RECORDS])
        rest = f"{' and '.join(counts)}; " if counts else ""
        title = f"<div><b>{escape(self.title[:LONGEST_LINE])}</b></div>"
        return f"<div>{title}{texts}{shown}<div>{rest}<code>View(document)</code> shows all</div></div>"
