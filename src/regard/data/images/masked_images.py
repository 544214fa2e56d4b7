"""Images with the class of each pixel: their sources (folders, tables, generated scenes), and one table of them all."""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.cache import cached_pixels, fingerprint
from regard.data.class_folders import IMAGE_SUFFIXES, example_files, warn_of_left_out
from regard.data.column_roles import IMAGE, MASK, choose_columns
from regard.data.images.pictures import PictureFile
from regard.data.images.reading import fit_image, image_name, read_class_map, read_image
from regard.data.images.streets import COLUMN, MOST_SCENES, MaskedPixels, Street
from regard.data.records import StoredFile, check_limit, file_errors, text_rows
from regard.data.tables import READERS, open_records
from regard.errors import DataError
from regard.names.counted import counted

log = logging.getLogger("regard")

IMAGES, MASKS = "images", ("labels", "masks")
"""The folder of the images, and the possible names of the folder of the class maps."""

MOST_CLASSES = 255
IGNORED_NUMBER = 255
"""The number of pixels in a table whose class is not counted."""

WHITE_LEVEL = 255
"""The level of the second class in class maps that are black and white."""


@dataclass(frozen=True)
class MaskedFiles:
    """An image and its class map in two files.

    Attributes:
        image: the file of the image.
        mask: the file of the class map: grey levels or indices of a palette.
        origin: where both are named, for messages: ``"train.tsv: row 7"``; None: nowhere.
    """

    image: str | StoredFile
    mask: str | StoredFile
    origin: str | None = None

    @property
    def name(self) -> str:
        return str(self.image)

    def state(self) -> tuple[object, ...]:
        return PictureFile(self.image, self.origin).state(), PictureFile(self.mask, self.origin).state()

    @property
    def mask_name(self) -> str:
        """Names the class map in messages."""
        return image_name(self.mask, self.origin)

    def classes(self) -> NDArray[Any]:
        """Returns the class map as its file has it."""
        return read_class_map(self.mask, self.origin)

    def load(self) -> MaskedPixels:
        pixels, classes = read_image(self.image, self.origin), self.classes()
        if pixels.shape[:2] != classes.shape:
            (height, width), (rows, columns) = pixels.shape[:2], classes.shape
            where = "" if self.origin is None else f"{self.origin}: "
            raise DataError(
                f"{where}{self.mask}: has {columns} × {rows} pixels, and its image {self.image} has "
                f"{width} × {height}; they must have the same size"
            )
        return MaskedPixels(pixels, classes)


MaskedImage = MaskedFiles | Street
"""A source of pixels and of their classes."""


def open_masked(
    source: str | Path, image_column: str | None = None, mask_column: str | None = None, *, limit: int | None = None
) -> list[MaskedImage]:
    """Opens the images of a source, each with its class map, sorted by name or in the order of the table.

    Nothing is decoded yet.

    Args:
        source: a folder with the folders ``images`` and ``labels`` (or ``masks``), in which files of the same name but
            for the suffix belong together; or a table (``.tsv``, ``.csv``, ``.jsonl``, ``.json``, ``.parquet``) with
            the columns ``image`` and ``mask``, paths relative to the folder of the table; or a ``.tsv`` file with the
            one column ``scene``, numbers of generated scenes.
        image_column: the column with the images; None: ``image``, or the only one of a usual name.
        mask_column: the column with the class maps; None: ``mask``, or the only one of a usual name.
        limit: largest number of images, from the first; None: all.

    Returns:
        the images; at least one.

    Raises:
        DataError: the source cannot be read or is empty, or a file is missing; the message names it.
        ArgumentError: ``limit`` is below 1.
    """
    check_limit(limit)
    path = Path(source)
    if path.is_dir():
        return _of_folder(path)[:limit]
    if path.suffix.lower() not in READERS:
        missing = "" if path.exists() else "no such file or folder; "
        raise DataError(
            f"{path}: {missing}give a folder with {IMAGES} and {' or '.join(MASKS)}, or a table ({', '.join(READERS)})"
        )
    if not path.exists():
        raise DataError(f"{path}: no such file; check the path")
    with file_errors(path):
        images = list(islice(_of_table(path, (image_column, mask_column)), limit))
    if not images:
        raise DataError(f"{path}: there are no rows; it should hold an image a row")
    return images


def source_files(source: str | Path, columns: Sequence[str | None] = (None, None)) -> list[Path]:
    """Returns every file that decides the content of a source: tables, images and class maps."""
    path = Path(source)
    files = [] if path.is_dir() else [path]
    for row in open_masked(source, *columns):
        if isinstance(row, MaskedFiles):
            files += [Path(one) for one in (row.image, row.mask) if isinstance(one, str)]
    return files


def _of_folder(folder: Path) -> list[MaskedImage]:
    images, left_out = _named_files(folder / IMAGES)
    masks = next((folder / name for name in MASKS if (folder / name).is_dir()), None)
    if masks is None:
        raise DataError(f"{folder}: has no folder {' or '.join(MASKS)} with the class maps of its {IMAGES}")
    classes, others = _named_files(masks)
    warn_of_left_out(folder, left_out + others, "images", IMAGE_SUFFIXES)
    for name in images.keys() - classes.keys():
        raise DataError(f"{images[name]}: there is no class map of this name in {masks}")
    for name in classes.keys() - images.keys():
        raise DataError(f"{classes[name]}: there is no image of this name in {folder / IMAGES}")
    return [MaskedFiles(str(images[name]), str(classes[name])) for name in sorted(images)]


def _named_files(folder: Path) -> tuple[dict[str, Path], list[Path]]:
    """Returns the images in a folder by their names without suffixes, and its other entries."""
    if not folder.is_dir():
        raise DataError(
            f"{folder.parent}: has no folder {folder.name}; it should hold {IMAGES} and {' or '.join(MASKS)}"
        )
    named: dict[str, Path] = {}
    with file_errors(folder, "check its permissions"):
        files, others = example_files(folder, IMAGE_SUFFIXES)
    for file in files:
        if file.stem in named:
            raise DataError(f"{file}: {named[file.stem].name} has the same name; remove one of them")
        named[file.stem] = file
    if not named:
        raise DataError(f"{folder}: there is no image in it ({', '.join(IMAGE_SUFFIXES)})")
    return named, others


def _of_table(path: Path, named: Sequence[str | None]) -> Iterator[MaskedImage]:
    records = open_records(path)
    if records.columns == [COLUMN]:
        for position, record in records.rows(None):
            yield street_of(record[COLUMN], f"{records.name}: {position}")
    if not records.columns or records.columns == [COLUMN]:
        return
    columns = choose_columns(records, (IMAGE, MASK), named)
    left_out: list[int] = []
    number = 0
    for number, cells in enumerate(text_rows(records, columns, files=columns), start=1):
        image, mask = (
            one if isinstance(one, StoredFile) else one.strip() and str(path.parent / one.strip()) for one in cells
        )
        if "" in (image, mask):
            left_out.append(number)
            continue
        row = MaskedFiles(image, mask, f"{path}: row {number}")
        row.state()  # a file that is missing is an error now
        yield row
    if left_out and len(left_out) == number:
        raise DataError(f"{path}: row 1 has no image and mask, and so has no other; check the columns and the file")
    if left_out:
        rows, left = counted(len(left_out), "row"), number - len(left_out)
        log.warning("%s: left out %s without an image or a mask; %d are left", path, rows, left)


def street_of(value: Any, origin: str) -> Street:
    """Returns the generated scene whose number is in a cell of a table."""
    text = str(value)
    if not (text.isascii() and text.isdigit()) or len(text) > 9 or int(text) >= 3 * MOST_SCENES:
        raise DataError(f"{origin} must be the number of a scene, below {3 * MOST_SCENES:,}")
    return Street(int(text))


def masked_table(
    images: Sequence[MaskedImage], size: tuple[int, int], ignore: int | None, numbers: Sequence[int]
) -> NDArray[np.uint8]:
    """Returns all images with their classes: uint8 ``[images, height, width, 4]``, red, green, blue and class.

    Every image is read once; one that cannot be read is an error here, before a training starts. An image of another
    size is resized, its class map by the nearest pixel. The table is a file in the cache folder of Hugging Face
    ``datasets``, and images that have not changed are not read again.

    Args:
        images: where pixels and classes come from; at least one.
        size: height and width of the table.
        ignore: the number in the files that becomes `IGNORED_NUMBER`; None: none.
        numbers: those in the files of the classes 0, 1, ...

    Raises:
        DataError: an image cannot be read, a class is none of ``numbers``, or the cache cannot be written.
        MissingPartError: Pillow or ``datasets`` is not installed.
    """
    states = tuple(image.state() for image in images)
    key = fingerprint("masked", 2, states, size, ignore, tuple(numbers))
    return cached_pixels(key, (len(images), *size, 4), (_row(image, size, ignore, numbers) for image in images))


_UNNAMED_ADVICE = "; name all with --classes, or those that do not count with --ignore"


def known_classes(
    classes: NDArray[Any], ignore: int | None, numbers: Sequence[int], name: str, advice: str = ""
) -> NDArray[np.uint8]:
    """Returns a class map with the classes 0, 1, ... for their numbers, and `IGNORED_NUMBER` for ignored pixels.

    Raises:
        DataError: a number is none of ``numbers``.
    """
    table = np.full(1 << 16, -1, np.int16)
    table[list(numbers)] = np.arange(len(numbers))
    if ignore is not None:
        table[ignore] = IGNORED_NUMBER
    known = table[classes]
    unknown = classes[known < 0]
    if unknown.size:
        classes_are = f"the classes are {_ranges(numbers)}{advice}"
        raise DataError(f"{name}: a pixel has the class {int(unknown.max())}, and {classes_are}")
    return known.astype(np.uint8)


def class_numbers_of(
    images: Sequence[MaskedImage], ignore: int | None, seen: Counter[int] | None = None
) -> tuple[int, ...]:
    """Returns the numbers of the classes in class maps: from 0 to the largest but the ignored one, or 0 and 255.

    Args:
        images: the images.
        ignore: the number that does not count.
        seen: gets the number of images in which each class occurs.

    Raises:
        DataError: a number is above 254, a class map cannot be read, or no pixel counts.
    """
    counts: Counter[int] = Counter() if seen is None else seen
    largest = -1, ""
    for image in images:
        numbers = set(np.unique(image.classes()).tolist()) - {ignore}
        counts.update(numbers)
        largest = max(largest, (max(numbers, default=-1), image.mask_name))
    if counts.keys() == {0, WHITE_LEVEL}:
        return 0, WHITE_LEVEL
    number, name = largest
    if number >= MOST_CLASSES:
        raise DataError(
            f"{name}: a pixel has the class {number}, and classes go from 0 to {MOST_CLASSES - 1} (or all class maps "
            f"have 0 and {WHITE_LEVEL} alone); if it marks pixels that do not count, write --ignore {number}, else "
            "write the classes as 0, 1, 2, ..."
        )
    return tuple(one for one in range(number + 1) if one != ignore)


def _ranges(numbers: Sequence[int]) -> str:
    """Returns numbers for a message: ``"0 to 4, 6"``."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(f"{part[0]} to {part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)


def resized_classes(classes: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """Resizes a class map: each pixel has the class of the nearest one."""
    rows, columns = (
        np.minimum(((np.arange(wanted) + 0.5) * (original / wanted)).astype(np.int64), original - 1)
        for wanted, original in zip(size, classes.shape, strict=True)
    )
    return classes[rows[:, None], columns]


def _row(image: MaskedImage, size: tuple[int, int], ignore: int | None, numbers: Sequence[int]) -> NDArray[np.uint8]:
    loaded = image.load()
    pixels = fit_image(loaded.pixels, size, "stretch", image.name).pixels
    known = known_classes(loaded.classes, ignore, numbers, image.mask_name, _UNNAMED_ADVICE)
    classes = resized_classes(known, size)
    return np.concatenate((pixels, classes[..., None]), axis=2)
