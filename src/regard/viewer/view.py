"""A document as a notebook's output, an HTML file, a picture, or JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from regard.atomic_file import write_atomically
from regard.errors import ArgumentError, KindError, UnknownNameError
from regard.explanations import Explanation
from regard.records import AttentionRecord, Document, FrameAxis, GridAxis, StepsRecord, TokenAxis
from regard.records.document import ORDER
from regard.viewer.html_file import html_page, iframe
from regard.viewer.payload import BUDGET, carried_whole, payload

VIEWS = ("alignment", "heads", "model", "steps", "text", "image", "sound", "long")
THEMES = ("auto", "light", "dark")
HEIGHT = 640
SUFFIXES = (".html", ".png", ".svg", ".json")

Viewable = Document | AttentionRecord | StepsRecord | Explanation


class View:
    """What the viewer shows of a document.

    In a notebook a view is its own output: a sandboxed frame that needs no network and stays in the file that nbconvert
    writes.

    Args:
        document: a `Document`, a record, an `Explanation`, or a sequence of them.
        view: one of ``"alignment"``, ``"heads"``, ``"model"``, ``"steps"``, ``"text"``, ``"image"``, ``"sound"``,
            ``"long"``; None: the one that suits the first record.
        layer: the index of the record that is shown first, from 0.
        head: from 0; None: the mean over all heads.
        theme: ``"auto"`` (as the system is), ``"light"`` or ``"dark"``.
        height: of the notebook's frame in pixels; None: 640.
        budget_bytes: the most bytes of exact weights in the file (see `payload`).

    Raises:
        UnknownNameError: an unknown view or theme.
        ArgumentError: the view cannot show the document, or a number is out of its range.
        KindError: a document of another type.
    """

    def __init__(
        self,
        document: Viewable | Iterable[Viewable],
        *,
        view: str | None = None,
        layer: int = 0,
        head: int | None = None,
        theme: str = "auto",
        height: int | None = None,
        budget_bytes: int = BUDGET,
    ):
        self.document = as_document(document)
        if view is not None and view not in VIEWS:
            raise UnknownNameError("view", view, VIEWS)
        if theme not in THEMES:
            raise UnknownNameError("theme", theme, THEMES)
        if height is not None and (isinstance(height, bool) or not isinstance(height, int) or height < 200):
            raise ArgumentError(f"height must be an integer of at least 200 pixels; it is {height!r}")
        known = views_of(self.document)
        if view is not None and view not in known:
            raise ArgumentError(f"view {view!r} cannot show this document; it can be shown as {', '.join(known)}")
        _check_selection(self.document, layer, head)
        self.view, self.theme, self.height, self.budget_bytes = view, theme, height, budget_bytes
        self.layer, self.head = layer, head
        self._payload: dict[str, Any] | None = None

    def payload(self) -> dict[str, Any]:
        """The payload of the viewer's module, ready for JSON; computed once."""
        if self._payload is None:
            self._payload = payload(self.document, budget_bytes=self.budget_bytes)
        return self._payload

    def options(self) -> dict[str, Any]:
        """The options of the module's ``mount`` for this view."""
        selection: dict[str, Any] = {"head": self.head}
        if self.document.records:
            selection["record"] = self.layer
        return {"view": self.view, "theme": self.theme, "selection": selection}

    def to_html(self) -> str:
        """One page that needs nothing else, with a content security policy that lets it load nothing."""
        return html_page(self.payload(), self.options())

    def _repr_html_(self) -> str:
        return iframe(self.to_html(), self.height or HEIGHT, f"attention weights: {self.document.title}")

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the view; the suffix decides: ``.html``, ``.json`` (the payload), ``.png`` or ``.svg``.

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
            # Imported here, because only pictures need matplotlib.
            from regard.pictures import save
            from regard.viewer.static_pictures import figure

            drawn = figure(self.document, self.view or views_of(self.document)[0], self.layer, self.head)
            save(drawn, target)
        return target

    def __repr__(self) -> str:
        return f"View({self.document.title!r}, {len(self.document.records)} records, view={self.view!r})"


def as_document(content: Viewable | Iterable[Viewable]) -> Document:
    """A document of anything that a view can show; KindError or ArgumentError for other values."""
    if isinstance(content, Document):
        return content
    one = isinstance(content, (AttentionRecord, StepsRecord, Explanation))
    if not one and (isinstance(content, (str, bytes)) or not isinstance(content, Iterable)):
        raise KindError(f"document must be a Document, a record or a sequence of them; it is {type(content).__name__}")
    parts = [content] if one else list(content)  # pyright: ignore[reportArgumentType]
    records, steps = [], []
    for number, part in enumerate(parts):
        if isinstance(part, AttentionRecord):
            records.append(part)
        elif isinstance(part, StepsRecord):
            steps.append(part)
        elif isinstance(part, Explanation):
            steps += [steps_record(part, batch=batch, head=head) for batch, head in part.slices]
        else:
            raise KindError(f"document must hold records; number {number} is of type {type(part).__name__}")
    if not parts:
        raise ArgumentError("document must not be empty")
    names = [record.name for record in records] or [record.name for record in steps]
    return Document(names[0] if len(names) == 1 else "attention", tuple(records), tuple(steps))


def steps_record(
    explanation: Explanation,
    *,
    batch: int = 0,
    head: int = 0,
    name: str | None = None,
    normalizer: str | None = None,
) -> StepsRecord:
    """The worked calculation of one head, with the steps that it has.

    Args:
        explanation: the result of `regard.explain`.
        batch: the batch row, from 0.
        head: the query head, from 0.
        name: shown to the reader; None: the number of the head, or of the batch row where there are no heads.
        normalizer: its name; None: ``"softmax"`` if the weights are those of a softmax, else ``"normalizer"``.

    Raises:
        KindError: not an `Explanation`.
        ArgumentError: there is no such batch row or head.
    """
    if not isinstance(explanation, Explanation):
        raise KindError(f"explanation must be a regard.Explanation; it is of type {type(explanation).__name__}")
    if (batch, head) not in explanation.slices:
        raise ArgumentError(f"batch and head must be one of {len(explanation.slices)} pairs; they are {batch}, {head}")
    names = [step for step in explanation.step_names if step in ORDER]
    tensors = {step: explanation.matrix(step, batch, head).double() for step in names}
    products = tensors["query"] @ tensors["key"].T if _one_dim(tensors) else None
    dot = products is not None and torch.allclose(products, tensors["scores"], rtol=1e-4, atol=1e-5, equal_nan=True)
    last = next(tensors[step] for step in reversed(names) if step not in ("weights", "output", "value", "key", "query"))
    softmax = torch.allclose(last.softmax(-1).nan_to_num(0), tensors["weights"].nan_to_num(0), rtol=1e-4, atol=1e-6)
    return StepsRecord(
        name or (f"batch row {batch}" if explanation.scores.dim() == 3 else f"head {head}"),
        {step: tensor.cpu().numpy() for step, tensor in tensors.items()},
        tuple(explanation.row_labels("query")),
        tuple(explanation.row_labels("key")),
        score="dot" if dot else "score",
        normalizer=normalizer or ("softmax" if softmax else "normalizer"),
        head=head,
    )


def _one_dim(tensors: dict[str, torch.Tensor]) -> bool:
    return tensors["query"].shape[-1] == tensors["key"].shape[-1]


def views_of(document: Document) -> list[str]:
    """The views that can show a document, the best one first."""
    whole = carried_whole(document.records)
    records = [document.records[number] for number in sorted(whole)]
    kinds = {type(record.keys) for record in records}
    possible = {
        "image": GridAxis in kinds,
        "sound": FrameAxis in kinds,
        "alignment": bool(records),
        "heads": bool(records),
        "model": len(document.records) > 1 or any(record.heads > 1 for record in document.records),
        "text": TokenAxis in kinds,
        "long": len(whole) < len(document.records),
        "steps": bool(document.steps),
    }
    # As in the module: the first record decides which view comes first.
    keys = type(document.records[0].keys) if document.records else None
    best = "steps" if keys is None else {GridAxis: "image", FrameAxis: "sound"}.get(keys, "alignment")
    best = "long" if document.records and 0 not in whole else best
    return sorted((name for name in possible if possible[name]), key=lambda name: name != best)


def _check_selection(document: Document, layer: int, head: int | None) -> None:
    count = max(1, len(document.records))
    if isinstance(layer, bool) or not isinstance(layer, int) or not 0 <= layer < count:
        raise ArgumentError(f"layer must be the position of a record, from 0 to {count - 1}; it is {layer!r}")
    if head is None:
        return
    heads = document.records[layer].heads if document.records else 1
    if isinstance(head, bool) or not isinstance(head, int) or not 0 <= head < heads:
        raise ArgumentError(f"head must be from 0 to {heads - 1}, or None for the mean; it is {head!r}")
