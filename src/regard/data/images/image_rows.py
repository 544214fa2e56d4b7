"""Tables of images: files or descriptions of scenes, with captions or a label, and the boxes of named objects."""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data import column_roles
from regard.data.class_folders import IMAGE_SUFFIXES, ClassFiles, class_files, examples_below, warn_of_left_out
from regard.data.images.pictures import Picture, PictureFile
from regard.data.images.scenes import Box, Scene
from regard.data.records import StoredFile, check_file, check_limit, checked_text, is_null, label_text, shortened
from regard.data.tables import open_records
from regard.errors import DataError
from regard.names.counted import counted

log = logging.getLogger("regard")

CAPTIONS, CAPTION, OBJECTS = "captions", "caption", "objects"


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
    """Returns the images of a table with their captions, in their order.

    Args:
        source: a ``.jsonl`` or ``.json`` file of objects with ``image`` and ``captions`` (a list of texts) or
            ``caption`` (a text), or a ``.tsv``, ``.csv`` or ``.parquet`` file with the columns ``image`` and
            ``caption``. Rows with the same image are joined. ``image`` is a path, relative to the folder of the table,
            or the description of a scene (`regard.data.images.scenes`). ``objects``, a list of
            ``{"name": words, "box": [x0, y0, x1, y1]}``, is only needed for the pointing accuracy.
        image_column: the column with the images; None: ``image``, or the only one of image files or of a usual name.
        text_column: the column with the captions; None: ``captions`` and ``caption``, or the only one of a usual name.
        limit: largest number of images, from the first; None: all.

    Raises:
        DataError: the table cannot be read, or a row is not of this form; the message names it.
        ArgumentError: ``limit`` is below 1.
    """
    check_limit(limit)
    table = _ImageTable(source, column_roles.CAPTION, image_column, text_column)
    columns = [CAPTIONS, CAPTION] if text_column is None and table.text in (CAPTIONS, CAPTION) else [table.text]
    rows: dict[object, ImageRow] = {}
    for origin, record in table.rows():
        texts = _captions(origin, record, columns)
        image, captions = record.get(table.image), tuple(filter(None, texts))
        table.left_out_texts += len(texts) - len(captions)
        if not table.keeps(origin, image, captions):
            continue
        row = table.row(origin, record, captions)
        key = row.picture.path if isinstance(row.picture, PictureFile) else row.picture
        if key in rows:
            before = rows[key]
            row = ImageRow(before.picture, before.texts + row.texts, before.objects or row.objects, before.origin)
        elif limit is not None and len(rows) == limit:
            break
        rows[key] = row
    table.say(len(rows))
    return list(rows.values())


def labelled_images(
    source: str | Path, image_column: str | None = None, label_column: str | None = None, *, limit: int | None = None
) -> list[ImageRow]:
    """Returns the images of a folder of classes, or of a table with a label for each.

    Args:
        source: a folder with a folder of images for each label, or a table as for `captioned_images` with ``image`` and
            ``label``.
        image_column: the column with the images; None: ``image``, or the only one of image files or of a usual name.
        label_column: the column with the labels; None: ``label``, or the only one of a usual name.
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
        warn_of_left_out(Path(source), left_out, "images", IMAGE_SUFFIXES)
        return [ImageRow(PictureFile(str(path)), (path.parent.name,), (), str(path)) for path in files[:limit]]
    table = _ImageTable(source, column_roles.LABEL, image_column, label_column)
    rows = []
    for origin, record in table.rows():
        label = record.get(table.text)
        text = "" if is_null(label) else label_text(label)
        if text is None:
            raise DataError(f"{origin}: {table.text!r} must be text or a finite number; it is {shortened(label)}")
        if table.keeps(origin, record.get(table.image), text):
            rows.append(table.row(origin, record, (checked_text(text, f"{origin}: {table.text!r}"),)))
        if len(rows) == limit:
            break
    table.say(len(rows))
    return rows


def class_images(folder: Path) -> ClassFiles:
    """Returns the images in the folders of a folder.

    Raises:
        DataError: there is none, a class has none, or the folder cannot be read.
    """
    entries = class_files(folder, IMAGE_SUFFIXES, "images")
    for path in entries.left_out:
        if path.parent == folder and path.is_dir() and not path.name.startswith("."):
            nested = examples_below(path, IMAGE_SUFFIXES)
            todo = f"{counted(len(nested), 'image')} nested deeper: move them into it" if nested else "remove it"
            raise DataError(
                f"{path}: there is no image in this folder of a class ({', '.join(IMAGE_SUFFIXES)}); {todo}"
            )
    return entries


class _ImageTable:
    """A table of images: its columns of images and of captions or labels, and the number of empty captions, left out,
    of images that have others. Raises DataError if the table cannot be read, or its columns cannot be told."""

    def __init__(self, source: str | Path, role: column_roles.Role, image: str | None, text: str | None):
        self.path = Path(source)
        check_file(self.path, "rows")
        self._records = open_records(self.path)
        roles = column_roles.IMAGE, role
        self.image, self.text = column_roles.choose_columns(self._records, roles, (image, text))
        self.left_out_texts, self._left_out, self._first = 0, 0, ""

    def rows(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yields the rows, each after its origin such as ``"train.jsonl: line 7"``; there is at least one."""
        empty = True
        for position, record in self._records.rows(None):
            empty = False
            if any(value not in (None, "") for value in record.values()):  # else an empty line of separators
                yield f"{self.path}: {position}", record
        if empty:
            raise DataError(f"{self.path}: there are no rows; it should hold an image a row")

    def keeps(self, origin: str, image: Any, texts: Any) -> bool:
        """Whether a row has an image and a text; else it is counted."""
        if texts and not is_null(image) and image != "":
            return True
        self._left_out += 1
        self._first = self._first or origin
        return False

    def row(self, origin: str, record: Mapping[str, Any], texts: tuple[str, ...]) -> ImageRow:
        """Returns the row of an image with its texts."""
        picture = table_picture(record[self.image], self.image, self.path.parent, origin)
        return ImageRow(picture, texts, tuple(_objects(origin, record.get(OBJECTS))), origin)

    def say(self, left: int) -> None:
        """Warns of the rows that were left out; raises DataError if none is left."""
        named = f"{shortened(self.image)} and {shortened(self.text)}"
        if not left and self._left_out:
            raise DataError(f"{self._first}: has no {named}, and so has no other row; check the columns and the file")
        if self._left_out:
            rows = counted(self._left_out, "row")
            log.warning("%s: left out %s without %s; %d are left", self.path, rows, named, left)
        if self.left_out_texts:
            log.warning("%s: left out %s without text", self.path, counted(self.left_out_texts, "caption"))


def table_picture(value: Any, column: str, folder: Path, origin: str) -> Picture:
    """Returns the picture of a cell of a table: a file in the table's folder or in the table itself, or a scene."""
    if isinstance(value, Mapping):
        return Scene.from_dict(value, origin)
    if isinstance(value, StoredFile):
        return PictureFile(value, origin)
    if isinstance(value, str) and value.strip():
        return PictureFile(str(folder / checked_text(value.strip(), f"{origin}: {column!r}")), origin)
    raise DataError(f"{origin}: {column!r} must be the path of an image; it is {shortened(value)}")


def _captions(origin: str, record: Mapping[str, Any], columns: Sequence[str]) -> tuple[str, ...]:
    """Returns the captions of a row; missing ones and those without text are empty."""
    contents = [record[name] for name in columns if not is_null(record.get(name)) and record[name] not in ("", [])]
    if len(contents) > 1:
        raise DataError(f"{origin}: has {' and '.join(map(repr, columns))}; name one of them")
    texts = contents[0] if contents else []
    texts = [texts] if isinstance(texts, str) else texts
    if not isinstance(texts, list):
        raise DataError(
            f"{origin}: {' or '.join(map(repr, columns))} must be a text or a list of texts; it is {shortened(texts)}"
        )
    for text in texts:
        if not is_null(text) and not isinstance(text, str):
            raise DataError(f"{origin}: a caption must be text; it is {shortened(text)}")
    return tuple("" if is_null(text) else checked_text(text.strip(), f"{origin}: a caption") for text in texts)


def _objects(origin: str, content: Any) -> Iterator[NamedObject]:
    if content is None:
        return
    if not isinstance(content, list):
        raise DataError(f"{origin}: {OBJECTS!r} must be a list; it is {shortened(content)}")
    for one in content:
        try:
            name, (x0, y0, x1, y1) = one["name"], (float(edge) for edge in one["box"])
            is_box = x0 < x1 and y0 < y1 and all(map(math.isfinite, (x0, y0, x1, y1)))
            if not isinstance(name, str) or not name.split() or not is_box:
                raise ValueError
        except (TypeError, KeyError, ValueError, OverflowError) as error:
            raise DataError(
                f"{origin}: an entry of {OBJECTS!r} must have a name and a box [x0, y0, x1, y1] with x0 < x1 and y0 < "
                f"y1; it is {shortened(one)}"
            ) from error
        yield NamedObject(checked_text(name, f"{origin}: the name of an object"), (x0, y0, x1, y1))


def cells_inside(boxes: Sequence[Box], grid: tuple[int, int], covered: Box) -> NDArray[np.bool_]:
    """Returns which cells of a grid have their middle inside one of the boxes: ``[rows · columns]``.

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
