"""Views as matplotlib figures: the head, the pair of words and the sentence on which the browser opens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from regard.errors import ArgumentError
from regard.pictures import Panel, alignment, calculation, head_grid, image_overlays, sound_alignment, word_weights
from regard.pictures.fonts import visible_token
from regard.pictures.numbers import adds_up, percent, short_weight, subtraction
from regard.records import Document, FrameAxis, GridAxis
from regard.records.document import STEP_ORDER
from regard.viewer.line_picture import line_picture
from regard.viewer.map_pictures import grid_picture, long_picture
from regard.viewer.opening import GAP, opening
from regard.viewer.shown_head import MOST_TOKENS, Shown, check_length, head_text, shown_head
from regard.viewer.words import say, which_one

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_IMAGES, SHORT_TEXT = 12, 60
"""The most queries whose weights are drawn over the picture, and words of a text that is as wide as a column."""


def figure(
    document: Document, view: str, layer: int | None = None, head: int | str | None = None, language: str = "en"
) -> Figure:
    """Draws one view of a document, as the viewer in the browser opens it.

    Views that show all heads ignore the head. ArgumentError is raised if the record is too long for the view.

    Args:
        layer: the index of the record that is shown; None, or one that the view cannot draw: the one of `opening`.
        head: its position in the record, or ``"mean"`` of all; None: the one of `opening`.
        language: ``"en"`` or ``"zh"``.
    """
    if view == "walk":
        return _steps(document, layer, head)
    if view == "numbers":
        return head_grid(document.grids, document.title)
    if view == "grid":
        return grid_picture(document, language)
    shown = shown_head(document, view, layer, head, language)
    drawn = {
        "pattern": _pattern, "lines": line_picture, "words": _words, "image": _image, "sound": _sound, "long": _long,
        "difference": _difference,
    }  # fmt: skip
    return drawn[view](shown)


def _pattern(shown: Shown) -> Figure:
    check_length(shown.record)
    queries, keys = shown.labels
    return alignment(shown.matrix(), keys, queries, title=shown.caption, maximum=None, marked=shown.marked)


def _difference(shown: Shown) -> Figure:
    """Draws a head minus the one of its record whose weights differ most from it; after the mean, minus the first."""
    record, language = shown.record, shown.caption.language
    check_length(record)
    if record.heads < 2:
        raise ArgumentError("a picture of a difference needs a record of several heads; save the view as .html")
    mine = shown.matrix()
    single = [_unmasked(shown._replace(record=shown.single, head=one).matrix()) for one in range(record.heads)]
    distances = np.array([np.nansum(np.abs(single[shown.head or 0] - one)) for one in single])
    distances[shown.head] = -1.0  # of the mean, whose other head is the first: all of them
    other = int(np.argmax(distances))
    theirs = shown._replace(head=other).matrix()
    matrix = np.where(np.isneginf(mine) & np.isneginf(theirs), -np.inf, _unmasked(mine) - _unmasked(theirs))
    names = {"one": head_text(record, shown.head, language), "other": head_text(record, other, language)}
    title = shown.caption.title.replace(names["one"], say("differenceOf", language, **names))
    shares = _compared(shown, _unmasked(mine), _unmasked(theirs), names)
    caption = shown.caption._replace(title=title, shares=shares, note=say("differenceSides", language, **names))
    queries, keys = shown.labels
    special = [getattr(axis, "known_special", None) or (False,) * len(axis) for axis in (record.queries, record.keys)]
    size = np.where(np.isfinite(matrix), np.abs(matrix), 0.0)
    row, column = divmod(int((size - np.logical_or.outer(*special)).argmax()), matrix.shape[1])
    marked = None
    if size[row, column]:
        marked = row, column
        pair = {
            "query": which_one(queries, row, f"“{queries[row]}”", language),
            "key": which_one(keys, column, f"“{keys[column]}”", language),
            "difference": short_weight(size[row, column]),
        }
        order = ("one", "other") if matrix[row, column] > 0 else ("other", "one")
        said = say("differenceMore", language, **pair, one=names[order[0]], other=names[order[1]])
        calculation = subtraction(mine[row, column], theirs[row, column])
        caption = caption._replace(shares=GAP.join(filter(None, (calculation, shares))))
    else:
        said = say("differenceSame", language, **names)
        caption = caption._replace(note=say("differenceZero", language))
    caption = caption._replace(sentence=said, scale=say("differenceBar", language), even=(None, None))
    caption = caption._replace(bars=((names["one"], mine[row]), (names["other"], theirs[row])))
    return alignment(matrix, keys, queries, title=caption, maximum=None, marked=marked)


def _compared(shown: Shown, mine: NDArray[np.float64], theirs: NDArray[np.float64], names: dict[str, str]) -> str:
    """Returns at which keys each of two heads looks more over all queries, and how much of a query's weight differs."""
    language, labels = shown.caption.language, shown.labels[1]
    sums = np.nan_to_num(mine - theirs).mean(0)
    listed = []
    for own in (sums, -sums):
        keys = [key for key in np.argsort(-own, kind="stable").tolist() if own[key] > max(0.05, own.max() / 2)]
        texts = dict.fromkeys(which_one(labels, key, f"“{labels[key]}”", language) for key in keys)
        listed.append(say("listedLast", language).join(list(texts)[:2]))
    parts = [say("differenceLook", language, **names, keys=listed[0], otherKeys=listed[1])] if all(listed) else []
    if not shown.record.signed and all(bool(adds_up(one).all()) for one in (mine, theirs)):
        moved = float(np.abs(mine - theirs).sum(1).mean()) / 2
        parts.append(say("differenceMoved", language, percent=percent(moved, language)))
    return GAP.join(parts)


def _unmasked(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(np.isneginf(matrix), 0.0, matrix)


def _words(shown: Shown) -> Figure:
    """Draws the text, shaded by what the word that asks looks at."""
    queries, keys = shown.labels
    matrix = shown.matrix()
    row, axes = shown.row or 0, (shown.record.queries, shown.record.keys)
    special = [getattr(axis, "known_special", None) or (False,) * len(axis) for axis in axes]
    asking = None
    if axes[0] != axes[1]:
        pooled = "Pooled" if shown.record.name == "pooling" and len(queries) == 1 else ""
        asks, looked_at = (
            say(f"{name}{pooled}", shown.caption.language, query=queries[row]) for name in ("wordsAsking", "whatOne")
        )
        asking = queries, asks, looked_at
    return word_weights(
        keys, matrix[row : row + 1], title=shown.caption, width=4.5 if len(keys) <= SHORT_TEXT else 7.5, marked=row,
        special=np.flatnonzero([*(special[0] if asking else ()), *special[1]]).tolist(), asking=asking,
    )  # fmt: skip


def _image(shown: Shown) -> Figure:
    """Draws the picture, and for some queries the picture under a veil, thin at large weights."""
    grid = shown.record.keys
    assert isinstance(grid, GridAxis), "checked by _shown"
    names = [visible_token(text) for text in shown.labels[0]]
    first = max(0, (shown.row or 0) - MOST_IMAGES + 1)
    rows = slice(first, first + MOST_IMAGES)
    part = {"shown": len(names[rows]), "count": f"{len(names):,}"}
    note = say("imagesPart", shown.caption.language, **part) if len(names) > MOST_IMAGES else ""
    return image_overlays(
        grid.image, shown.matrix()[rows, grid.leading :], names[rows], (grid.rows, grid.columns), box=grid.box,
        title=shown.caption._replace(note=note), marked=None if shown.row is None else shown.row - first,
    )  # fmt: skip


def _sound(shown: Shown) -> Figure:
    """Draws the spectrogram, and below it the weights over the same time."""
    frames = shown.record.keys
    assert isinstance(frames, FrameAxis), "checked by _shown"
    check_length(shown.record, 4 * MOST_TOKENS)
    return sound_alignment(
        shown.matrix(), frames.spectrogram, shown.labels[0], frames.seconds, title=shown.caption, marked=shown.row
    )


def _long(shown: Shown) -> Figure:
    """Draws a map of bins; all weights if each has its bin."""
    whole = shown.unpooled()
    return long_picture(shown) if whole is None else _pattern(whole)


def _steps(document: Document, layer: int | None, head: int | str | None) -> Figure:
    """Draws every matrix of the first worked calculation, or of the head of `opening`, with all its numbers."""
    if document.steps:
        steps = document.steps[0]
    else:
        numbers = [number for number, one in enumerate(document.records) if one.worked and layer in (None, number)]
        first = opening(document, numbers, head if isinstance(head, int) else None)
        worked = None if first is None else document.records[first.record].worked
        if first is None or worked is None:
            raise ArgumentError(f"layer {layer} has no calculation that can be drawn")
        steps = worked(first.head or 0)
    keyed: dict[str, Sequence[str]] = {"key": steps.key_labels, "value": steps.key_labels}
    panels = []
    for name, matrix in steps.matrices.items():
        if name not in STEP_ORDER:
            continue
        features = name in ("query", "key", "value", "output")
        columns = [str(d) for d in range(matrix.shape[1])] if features else steps.key_labels
        rows = keyed.get(name, steps.query_labels)
        panels.append(
            Panel(name, matrix, tuple(rows), tuple(columns), kind="weights" if name == "weights" else "heatmap")
        )
    return calculation(panels, title=steps.name)
