"""Tables of utterances: sounds, or files of features, with what is said in them."""

import itertools
import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from regard.data.class_folders import class_files, warn_of_left_out
from regard.data.text import readers
from regard.errors import DataError
from regard.regular_file import LARGEST_DATA, require_regular

log = logging.getLogger("regard")

FEATURES_SUFFIX = ".npy"
SOUND_SUFFIXES = (".wav", ".flac", ".ogg", ".mp3", ".aiff", ".aif", ".au", ".w64", ".caf")
"""Files of a folder that are sounds."""

SEGMENTS = "segments"
"""The column with the true time of each word: ``0.12-0.48 0.51-0.90``, in seconds."""


@dataclass(frozen=True, slots=True)
class Utterance:
    """A sound, or the features of one, and its text.

    Attributes:
        path: of the file.
        text: what is said, or a label.
        place: where it is listed, for messages: ``"a.tsv: row 3"``.
        segments: the true (start, end) of each word in seconds; None where they are not known.
    """

    path: Path
    text: str
    place: str
    segments: tuple[tuple[float, float], ...] | None = None

    @property
    def name(self) -> str:
        """For messages: the row, and the file that it names."""
        return f"{self.place}: {self.path}"


def open_utterances(
    source: str | Path,
    sound_column: str | None = None,
    text_column: str | None = None,
    *,
    lowercase: bool = False,
    limit: int | None = None,
) -> list[Utterance]:
    """The utterances that a table or a folder lists; the sounds themselves are not read.

    Args:
        source: a ``.tsv``, ``.csv``, ``.jsonl``, ``.json`` or ``.parquet`` file with a column of paths and one of
            texts, or a folder with a folder of sounds for each label. Paths are relative to the table's folder.
        sound_column: the column of the paths; None: the first of two.
        text_column: the column of the texts; numbers become texts; None: the second of two.
        lowercase: whether to turn the texts into lower case.
        limit: largest number of utterances, from the first; None: all.

    Returns:
        the utterances in their order; not empty. Rows without a text are left out, and the logger ``regard`` warns.

    Raises:
        DataError: the table cannot be used, a row names no file, or times are not of the form above.
    """
    path = Path(source)
    if path.is_dir():
        found = list(itertools.islice(_of_folder(path), limit))
    else:
        found = _of_table(path, sound_column, text_column, limit)
    if lowercase:
        found = [Utterance(one.path, one.text.lower(), one.place, one.segments) for one in found]
    return found


def _of_table(path: Path, sound_column: str | None, text_column: str | None, limit: int | None) -> list[Utterance]:
    rows = _rows(path, sound_column, text_column)
    segments = _segments(path, sound_column or _first_column(path))
    found, empty = [], 0
    for number, (file, text) in enumerate(rows, start=1):
        times = next(segments, None) if segments is not None else None
        if not text.strip():
            empty += 1
            continue
        place = f"{path}: row {number}"
        if not file.strip() or "\0" in file:
            raise DataError(f"{place} names no file; correct or remove it")
        if limit is not None and len(found) >= limit:
            break
        parsed = None if times is None else parsed_segments(times, place)
        found.append(Utterance(path.parent / file.strip(), text.strip(), place, parsed))
    if not found:
        raise DataError(f"{path}: no row has a text; check the columns and the file")
    if empty:
        log.warning("%s: left out %d rows without a text; %d are left", path, empty, len(found))
    return found


def _rows(path: Path, first: str | None, second: str | None) -> Iterator[tuple[str, str]]:
    reader = readers.READERS.get(path.suffix.lower())
    if reader is None:
        raise DataError(
            f"{path}: unknown kind of file {path.suffix!r}; give {', '.join(readers.READERS)}, or a folder with a "
            "folder of sounds for each label"
        )
    try:
        if not require_regular(path, LARGEST_DATA):
            raise DataError(f"{path}: the file is empty; it should list sounds and texts")
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file; check the path") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check the file") from error
    names = readers.column_names(path)
    if len(names) != 2:
        for option, name in (("--sound-column", first), ("--text-column", second)):
            if name is None:
                listed = ", ".join(map(repr, names)) or "none"
                raise DataError(f"{path}: say with {option} which column it is; there are {len(names)} ({listed})")
    elif (first is None) != (second is None):
        given = first or second
        other = next((name for name in names if name != given), names[0])
        first, second = first or other, second or other
    return reader(path, first, second, True)


def _first_column(path: Path) -> str:
    return readers.column_names(path)[0]


def _segments(path: Path, sound_column: str) -> Iterator[str] | None:
    """The column of true times, row by row; None if there is none."""
    if SEGMENTS not in readers.column_names(path):
        return None
    return (times for _, times in _rows(path, sound_column, SEGMENTS))


def parsed_segments(text: str, place: str) -> tuple[tuple[float, float], ...]:
    """The times that ``"0.12-0.48 0.51-0.90"`` lists.

    Raises:
        DataError: it is of another form, or an end is not after its start.
    """
    found = []
    for part in text.split():
        try:
            start, _, end = part.partition("-")
            pair = float(start), float(end)
        except ValueError:
            pair = (0.0, 0.0)
        if not 0 <= pair[0] < pair[1] < math.inf:
            raise DataError(
                f"{place}: the column {SEGMENTS!r} must list times as start-end in seconds; one is {part!r}"
            )
        found.append(pair)
    return tuple(found)


def _of_folder(folder: Path) -> Iterator[Utterance]:
    files, left_out = class_files(folder, (*SOUND_SUFFIXES, FEATURES_SUFFIX))
    if not files:
        raise DataError(
            f"{folder}: is a folder without classes; it should hold a folder for each label, with sounds in it, or "
            "name a table"
        )
    warn_of_left_out(folder, left_out, "sounds")
    return (Utterance(path, path.parent.name, str(folder)) for path in files)
