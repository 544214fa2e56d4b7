"""What a model attended to, in words: the words of a text, the regions of an image, the times of a sound."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from regard.tasks.lazy import fonts, np, numbers
from regard.training.results import AttendedParts, RankedPrediction

if TYPE_CHECKING:
    from regard.records import Document
    from regard.training.results import Prediction
    from regard.training.task import Trained

SHOWN_PARTS = 3
"""The most parts of an input that a line names."""

LONGEST_PART = 24
"""The most characters of a part in a line."""

SOUND_PARTS = 8
"""The number of equal parts that a sound is divided into."""

HEIGHTS, SIDES = ("top", "middle", "bottom"), ("left", "", "right")


class AttendedPrediction(RankedPrediction):
    """A prediction whose picture is that of its view; a subclass is a dataclass."""

    def figure(self) -> Any:
        """Returns the picture that ``View(prediction).save("x.png")`` writes; None without weights."""
        return None if self.record() is None else document_figure(self.document())


def document_figure(document: Document, layer: int | None = None) -> Any:
    """Returns the picture of a document: that of its view, or a map of the weights where too many tokens have names."""
    from regard.viewer.shown_head import MOST_TOKENS
    from regard.viewer.static_pictures import figure
    from regard.viewer.view import views_of

    view = views_of(document)[0]
    longest = max(len(axis) for record in document.records for axis in (record.queries, record.keys))
    most = {"pattern": MOST_TOKENS, "sound": 4 * MOST_TOKENS}.get(view, longest)
    return figure(document, view if longest <= most else "long", layer)


def attended_words(words: Sequence[str], weights: Any) -> AttendedParts:
    """Returns the words of a text that got the largest weights, ``[..., words]``, of any number of heads or answers,
    which count alike."""
    return AttendedParts() if weights is None else _attended(zip(words, _total(weights), strict=True))


def attended_regions(grid: tuple[int, int], weights: Any, origin: str = "") -> AttendedParts:
    """Returns the regions of an image, of three by three, that got the largest weights: ``top left``, ``middle``."""
    if weights is None:
        return AttendedParts()
    rows, columns = grid
    names = [
        f"{_third(row, rows, HEIGHTS)} {_third(column, columns, SIDES)}".strip()
        for row in range(rows)
        for column in range(columns)
    ]
    return _attended(zip(names, _total(weights), strict=True), origin)


def attended_times(seconds: float, weights: Any) -> AttendedParts:
    """Returns the times of a sound, of eight equal parts, that got the largest weights: ``0.4–0.8 s``."""
    if weights is None:
        return AttendedParts()
    total = _total(weights)
    edges = np.unique(np.linspace(0, len(total), SOUND_PARTS + 1).round().astype(int)).tolist()
    parts = itertools.pairwise(edges)
    return _attended((f"{start * seconds:.2f}–{end * seconds:.2f} s", total[start:end].sum()) for start, end in parts)


def attended_line(trained: Trained, prediction: Prediction) -> str:
    """Returns the parts that a prediction attended to most, in one line: ``"dog 41 %, sleeps 22 %"``."""
    if trained.task.input_kind == "text" and not prediction.input_text.strip():
        return "nothing: the text is empty"
    parts, origin = trained.attended(prediction)
    if not parts:
        return "nothing: " + ("the answer is empty" if prediction.is_empty else "the model has no attention weights")
    shown = ", ".join(
        f"{fonts.visible_token(name, LONGEST_PART)} {numbers.plain_percent(share)}"
        for name, share in parts[:SHOWN_PARTS]
    )
    return f"{shown} (from {origin})" if origin else shown


def _third(number: int, count: int, names: Sequence[str]) -> str:
    return names[int(3 * (number + 0.5) / count)]


def _total(weights: Any) -> Any:
    """Returns the sum over all axes but the last; float64."""
    array = np.asarray(weights, dtype=np.float64)
    return array.sum(axis=tuple(range(array.ndim - 1)))


def _attended(parts: Iterable[tuple[str, Any]], origin: str = "") -> AttendedParts:
    """Returns the parts with their shares, the largest first; adds up parts of the same name."""
    total: dict[str, float] = {}
    for name, weight in parts:
        total[name] = total.get(name, 0.0) + float(weight)
    whole = sum(total.values())
    if whole <= 0:
        return AttendedParts()
    ranked = sorted(total.items(), key=lambda part: part[1], reverse=True)
    return AttendedParts(tuple((name, weight / whole) for name, weight in ranked if weight > 0), origin)
