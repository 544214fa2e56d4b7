"""Pointing accuracy: whether a captioner attends to an object at the word that names it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from regard.data import images as image_data
from regard.tasks.lazy import np
from regard.tasks.outputs.text_metrics import plain_words

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from regard.data.images.image_rows import Box, NamedObject


@dataclass(frozen=True)
class Pointing:
    """How often a captioner attends to what it names, over ``names`` names in the captions.

    ``accuracy``: the share for which the middle of the cell with the largest weight is inside of the box of the object,
    0 to 1; a name of something that the image does not show is a miss. ``shown``: the share whose object the image
    shows. ``chance``: the accuracy of cells drawn at random. ``weight``: mean share of the weight inside of the box.
    """

    accuracy: float
    shown: float
    chance: float
    weight: float
    names: int


@dataclass(frozen=True)
class AttendedCaption:
    """The words of a caption, without spaces, and the weights ``[words, rows · columns]`` for each over a grid of rows
    and columns, which covers ``box``, in pixels of the image."""

    words: Sequence[str]
    weights: NDArray[np.floating]
    grid: tuple[int, int]
    box: Box


def pointing(captions: Sequence[AttendedCaption], objects: Sequence[Sequence[NamedObject]]) -> Pointing | None:
    """Computes the pointing accuracy of captions (Zhang et al. 2016, section 4.2, no tolerance); None: no name is said.

    The names are those of all objects of the data set. The weights of a name are those of its last word, such as
    ``circle`` in ``red circle``. A longer name counts and not a shorter one inside of it.
    """
    known = {tuple(plain_words(one.name).split()) for shown_objects in objects for one in shown_objects} - {()}
    hits, shown, chance, weight, names = 0, 0, 0.0, 0.0, 0
    for caption, shown_objects in zip(captions, objects, strict=True):
        boxes: dict[tuple[str, ...], list[Box]] = {}
        for one in shown_objects:
            boxes.setdefault(tuple(plain_words(one.name).split()), []).append(one.box)
        for name, word in names_said(caption.words, known):
            names += 1
            if name not in boxes:
                continue
            shown += 1
            inside = image_data.image_rows.cells_inside(boxes[name], caption.grid, caption.box)
            row = np.asarray(caption.weights[word], np.float64)
            hits += bool(inside[int(row.argmax())])
            chance += float(inside.mean())
            weight += float(row[inside].sum() / max(row.sum(), 1e-12))
    if not names:
        return None
    return Pointing(hits / names, shown / names, chance / max(1, shown), weight / max(1, shown), names)


def names_said(words: Sequence[str], known: set[tuple[str, ...]]) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yields the names in a caption, of ``known`` ones in lower case, each with the position of its last word."""
    plain = [plain_words(word) for word in words]
    longest = max(map(len, known), default=0)
    position = 0
    while position < len(plain):
        for length in range(min(longest, len(plain) - position), 0, -1):
            name = tuple(plain[position : position + length])
            if name in known:
                yield name, position + length - 1
                position += length - 1
                break
        position += 1
