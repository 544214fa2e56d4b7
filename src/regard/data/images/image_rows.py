"""Tables of images: files or descriptions of scenes, with captions or a label, and the boxes of named objects."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.class_folders import ClassFiles, class_files, warn_of_left_out
from regard.data.images.pictures import Picture, PictureFile
from regard.data.images.reading import SUFFIXES
from regard.data.images.scenes import Box, Scene
from regard.data.records import check_limit, checked_text, label_text, nearest_column, record_places, shortened
from regard.errors import DataError

IMAGE, CAPTIONS, CAPTION, LABEL, OBJECTS = "image", "captions", "caption", "label", "objects"


@dataclass(frozen=True)
class NamedObject:
    """Something that an image shows, and where.

    Attributes:
        name: the words that name it, such as ``"red circle"``.
        box: x0, y0, x1, y1, in pixels of the image.
    """

    name: str
    box: Box


@dataclass(frozen=True)
class ImageRow:
    """An image, its captions or its label, and the objects that it shows.

    Attributes:
        picture: where the pixels come from.
        texts: its captions, or its one label.
        objects: what it shows; () if that is not known.
        origin: where the row is, for messages: ``"train.jsonl: line 7"``.
    """

    picture: Picture
    texts: tuple[str, ...]
    objects: tuple[NamedObject, ...]
    origin: str


def captioned_images(
    source: str | Path, image_column: str | None = None, text_column: str | None = None, *, limit: int | None = None
) -> list[ImageRow]:
    """The images of a table with their captions, in their order.

    Args:
        source: a ``.jsonl`` or ``.json`` file of objects with ``image`` and ``captions`` (a list of texts) or
            ``caption`` (a text), or a ``.tsv``, ``.csv`` or ``.parquet`` file with the columns ``image`` and
            ``caption``. Rows with the same image are joined. ``image`` is a path, relative to the folder of the table,
            or the description of a scene (`regard.data.images.scenes`). ``objects``, a list of
            ``{"name": words, "box": [x0, y0, x1, y1]}``, is only needed for the pointing accuracy.
        image_column: the column with the images, if its name is not ``image``.
        text_column: the column with the captions, if its name is neither ``captions`` nor ``caption``.
        limit: largest number of images, from the first; None: all.

    Raises:
        DataError: the table cannot be read, or a row is not of this form; the message names it.
        ArgumentError: ``limit`` is below 1.
    """
    check_limit(limit)
    rows: dict[object, ImageRow] = {}
    for origin, record in table_records(source):
        record = _renamed(origin, record, {IMAGE: image_column, CAPTION: text_column})
        row = _row(source, origin, record, _captions(origin, record))
        key = row.picture.path if isinstance(row.picture, PictureFile) else row.picture
        if key in rows:
            before = rows[key]
            row = ImageRow(before.picture, before.texts + row.texts, before.objects or row.objects, before.origin)
        elif limit is not None and len(rows) == limit:
            break
        rows[key] = row
    return list(rows.values())


def labelled_images(
    source: str | Path, image_column: str | None = None, label_column: str | None = None, *, limit: int | None = None
) -> list[ImageRow]:
    """The images of a folder of classes, or of a table with a label for each.

    Args:
        source: a folder with a folder of images for each label, or a table as for `captioned_images` with ``image`` and
            ``label``.
        image_column: the column with the images, if its name is not ``image``.
        label_column: the column with the labels, if its name is not ``label``.
        limit: largest number of images, from the first; None: all.

    Returns:
        the rows; those of a folder so that the classes take turns, and a limit keeps some of each.

    Raises:
        DataError: the source cannot be read, or a row is not of this form; the message names it.
        ArgumentError: ``limit`` is below 1.
    """
    check_limit(limit)
    if Path(source).is_dir():
        files, left_out = class_images(Path(source))
        warn_of_left_out(Path(source), left_out, "images")
        return [ImageRow(PictureFile(str(path)), (path.parent.name,), (), str(path)) for path in files[:limit]]
    rows = []
    for origin, record in table_records(source):
        record = _renamed(origin, record, {IMAGE: image_column, LABEL: label_column})
        label = label_text(record.get(LABEL))
        if not label:
            raise DataError(
                f"{origin}: {LABEL!r} must be text that is not empty, or a finite number; it is "
                f"{shortened(record.get(LABEL))}{_hint(LABEL, record)}"
            )
        rows.append(_row(source, origin, record, (checked_text(label, f"{origin}: {LABEL!r}"),)))
        if len(rows) == limit:
            break
    return rows


def class_images(folder: Path) -> ClassFiles:
    """The images in the folders of a folder.

    Raises:
        DataError: there is none, a class has none, or the folder cannot be read.
    """
    entries = class_files(folder, SUFFIXES, "images")
    for path in entries.left_out:
        if path.parent == folder and path.is_dir() and not path.name.startswith("."):
            raise DataError(f"{path}: there is no image in this folder of a class ({', '.join(SUFFIXES)}); remove it")
    return entries


def table_records(source: str | Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The rows of a table, each after its origin such as ``"train.jsonl: line 7"``; there is at least one.

    Raises:
        DataError: the table cannot be read, or has no rows.
    """
    path, empty = Path(source), True
    for position, record in record_places(path):
        empty = False
        yield f"{path}: {position}", record
    if empty:
        raise DataError(f"{path}: there are no rows; it should hold an image a row")


def _row(source: str | Path, origin: str, record: Mapping[str, Any], texts: tuple[str, ...]) -> ImageRow:
    image = record.get(IMAGE)
    picture: Picture
    if isinstance(image, Mapping):
        picture = Scene.from_dict(image, origin)
    elif isinstance(image, str) and image.strip():
        image = checked_text(image.strip(), f"{origin}: {IMAGE!r}")
        picture = PictureFile(str(Path(source).parent / image), origin)
    else:
        raise DataError(
            f"{origin}: {IMAGE!r} must be the path of an image; it is {shortened(image)}{_hint(IMAGE, record)}"
        )
    return ImageRow(picture, texts, tuple(_objects(origin, record.get(OBJECTS))), origin)


def _renamed(origin: str, record: Mapping[str, Any], columns: Mapping[str, str | None]) -> Mapping[str, Any]:
    """The row with the columns that a user named under the names of this file; other columns of these names go."""
    named = {name: column for name, column in columns.items() if column is not None and column != name}
    for column in named.values():
        if column not in record:
            raise DataError(f"{origin}: there is no column {shortened(column)}{_hint(column, record)}")
    gone = {*named, *((CAPTIONS,) if CAPTION in named else ()), *named.values()}
    rest = {name: value for name, value in record.items() if name not in gone}
    return rest | {name: record[column] for name, column in named.items()}


def _hint(name: str, record: Mapping[str, Any]) -> str:
    """What a message adds where a column is missing: the name that is most like it."""
    nearest = None if name in record else nearest_column(name, record)
    return "" if nearest is None else f"; did you mean the column {shortened(nearest)}?"


def _captions(origin: str, record: Mapping[str, Any]) -> tuple[str, ...]:
    columns = [record[name] for name in (CAPTIONS, CAPTION) if record.get(name) not in (None, "")]
    if len(columns) > 1:
        raise DataError(f"{origin}: has {CAPTIONS!r} and {CAPTION!r}; name one of them")
    content = columns[0] if columns else record.get(CAPTIONS, record.get(CAPTION))
    texts = [content] if isinstance(content, str) else content
    if not isinstance(texts, list) or not texts:
        hint = "" if CAPTIONS in record else _hint(CAPTION, record)
        raise DataError(f"{origin}: there must be {CAPTIONS!r}, a list of texts, or {CAPTION!r}, a text{hint}")
    for text in texts:
        if not isinstance(text, str) or not text.strip():
            raise DataError(f"{origin}: a caption must be text that is not empty; it is {shortened(text)}")
    return tuple(checked_text(text.strip(), f"{origin}: a caption") for text in texts)


def _objects(origin: str, content: Any) -> Iterator[NamedObject]:
    if content is None:
        return
    if not isinstance(content, list):
        raise DataError(f"{origin}: {OBJECTS!r} must be a list; it is {shortened(content)}")
    for one in content:
        try:
            name, (x0, y0, x1, y1) = one["name"], (float(edge) for edge in one["box"])
            if not isinstance(name, str) or not name.split() or not (x0 < x1 and y0 < y1):
                raise ValueError
            if not all(map(math.isfinite, (x0, y0, x1, y1))):
                raise ValueError
        except (TypeError, KeyError, ValueError, OverflowError) as error:
            raise DataError(
                f"{origin}: an entry of {OBJECTS!r} must have a name and a box [x0, y0, x1, y1] with x0 < x1 and y0 < "
                f"y1; it is {shortened(one)}"
            ) from error
        yield NamedObject(checked_text(name, f"{origin}: the name of an object"), (x0, y0, x1, y1))


def cells_inside(boxes: Sequence[Box], grid: tuple[int, int], covered: Box) -> NDArray[np.bool_]:
    """Which cells of a grid have their middle inside of one of the boxes: ``[rows · columns]``.

    Args:
        boxes: x0, y0, x1, y1 of each, in pixels of the image.
        grid: rows and columns.
        covered: the part of the image that the grid covers.
    """
    rows, columns = grid
    x0, y0, x1, y1 = covered
    across = x0 + (np.arange(columns) + 0.5) * (x1 - x0) / columns
    down = y0 + (np.arange(rows) + 0.5) * (y1 - y0) / rows
    inside = np.zeros((rows, columns), np.bool_)
    for left, top, right, bottom in boxes:
        inside |= ((down >= top) & (down <= bottom))[:, None] & ((across >= left) & (across <= right))
    return inside.ravel()
