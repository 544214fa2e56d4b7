"""Opens images with class maps: a folder of both, a table of their paths, or a table of generated scenes."""

from collections.abc import Iterator
from pathlib import Path

from regard.data.class_folders import example_files, warn_of_left_out
from regard.data.images.masked_image import MaskedFiles, MaskedImage
from regard.data.images.reading import SUFFIXES
from regard.data.images.streets import COLUMN, MOST_SCENES, Street
from regard.data.text.readers import READERS, column_names, text_lines
from regard.errors import ArgumentError, DataError

IMAGES, MASKS = "images", ("labels", "masks")
"""The folder of the images, and the possible names of the folder of the class maps."""

TABLES = (".tsv", ".csv", ".jsonl", ".json", ".parquet")
"""Suffixes of tables."""


def open_masked(source: str | Path, *, limit: int | None = None) -> list[MaskedImage]:
    """The images of a source, each with its class map, sorted by name or in the order of the table.

    Nothing is decoded yet.

    Args:
        source: a folder with the folders ``images`` and ``labels`` (or ``masks``), in which files of the same name but
            for the suffix belong together; or a table (``.tsv``, ``.csv``, ``.jsonl``, ``.json``, ``.parquet``) with
            the columns ``image`` and ``mask``, paths relative to the folder of the table; or a ``.tsv`` file with the
            one column ``scene``, numbers of generated scenes.
        limit: largest number of images, from the first; None: all.

    Returns:
        the images; at least one.

    Raises:
        DataError: the source cannot be read or is empty, or a file is missing; the message names it.
        ArgumentError: ``limit`` is below 1.
    """
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise ArgumentError(f"limit must be a whole number of at least 1; it is {limit!r}")
    path = Path(source)
    if path.is_dir():
        return _of_folder(path)[:limit]
    if path.suffix.lower() not in TABLES:
        missing = "" if path.exists() else "no such file or folder; "
        raise DataError(
            f"{path}: {missing}give a folder with {IMAGES} and {' or '.join(MASKS)}, or a table ({', '.join(TABLES)})"
        )
    if not path.exists():
        raise DataError(f"{path}: no such file; check the path")
    try:
        rows = _scenes(path) if _is_of_scenes(path) else _of_table(path)
        found = [row for _, row in zip(range(limit), rows, strict=False)] if limit is not None else list(rows)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check the file") from error
    if not found:
        raise DataError(f"{path}: there are no rows; it should hold an image a row")
    return found


def source_files(source: str | Path) -> list[Path]:
    """Every file that decides the content of a source: tables, images and class maps."""
    path = Path(source)
    files = [] if path.is_dir() else [path]
    for row in open_masked(source):
        if isinstance(row, MaskedFiles):
            files += [Path(row.image), Path(row.mask)]
    return files


def _of_folder(folder: Path) -> list[MaskedImage]:
    images, left_out = _named_files(folder / IMAGES)
    masks = next((folder / name for name in MASKS if (folder / name).is_dir()), None)
    if masks is None:
        raise DataError(f"{folder}: has no folder {' or '.join(MASKS)} with the class maps of its {IMAGES}")
    classes, others = _named_files(masks)
    warn_of_left_out(folder, left_out + others, "images")
    for name in images.keys() - classes.keys():
        raise DataError(f"{images[name]}: there is no class map of this name in {masks}")
    for name in classes.keys() - images.keys():
        raise DataError(f"{classes[name]}: there is no image of this name in {folder / IMAGES}")
    return [MaskedFiles(str(images[name]), str(classes[name])) for name in sorted(images)]


def _named_files(folder: Path) -> tuple[dict[str, Path], list[Path]]:
    """The images in a folder, by their names without suffixes, and its other entries."""
    if not folder.is_dir():
        raise DataError(
            f"{folder.parent}: has no folder {folder.name}; it should hold {IMAGES} and {' or '.join(MASKS)}"
        )
    found: dict[str, Path] = {}
    try:
        files, others = example_files(folder, SUFFIXES)
    except OSError as error:
        raise DataError(f"{folder}: cannot be read ({error.strerror}); check its permissions") from error
    for file in files:
        if file.stem in found:
            raise DataError(f"{file}: {found[file.stem].name} has the same name; remove one of them")
        found[file.stem] = file
    if not found:
        raise DataError(f"{folder}: there is no image in it ({', '.join(SUFFIXES)})")
    return found, others


def _is_of_scenes(path: Path) -> bool:
    return path.suffix.lower() == ".tsv" and column_names(path) == [COLUMN]


def _scenes(path: Path) -> Iterator[MaskedImage]:
    lines = text_lines(path)
    next(lines, "")
    for number, text in enumerate(lines, start=2):
        if not text.strip():
            continue
        if not (text.isascii() and text.isdigit()) or len(text) > 9 or int(text) >= 3 * MOST_SCENES:
            raise DataError(f"{path}: line {number} must be the number of a scene, below {3 * MOST_SCENES:,}")
        yield Street(int(text))


def _of_table(path: Path) -> Iterator[MaskedImage]:
    pairs = READERS[path.suffix.lower()](path, "image", "mask", False)
    for number, (image, mask) in enumerate(pairs, start=1):
        place = f"{path}: row {number}"
        for column, text in (("image", image), ("mask", mask)):
            if not text.strip():
                raise DataError(f"{place}: {column} is empty; it must be the path of a file")
        row = MaskedFiles(str(path.parent / image.strip()), str(path.parent / mask.strip()), place)
        row.state()  # a file that is missing is an error now
        yield row
