"""Tables of utterances: sounds, or files of features, with what is said in them; and one table of their features."""

import itertools
import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from regard.data.cache import cached_table, file_state, fingerprint, require_datasets
from regard.data.class_folders import FEATURE_SUFFIX, SOUND_SUFFIXES, class_files, warn_of_left_out
from regard.data.column_roles import SOUND, SPOKEN_TEXT, Roles, choose_columns
from regard.data.ragged import Ragged
from regard.data.records import StoredFile, check_file, text_rows
from regard.data.speech.log_mel import LogMel
from regard.data.speech.sounds import is_features, read_features, read_sound
from regard.data.tables import READERS, open_records
from regard.errors import DataError
from regard.names.counted import counted

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("regard")

SEGMENTS = "segments"
"""The column with the true time of each word: ``0.12-0.48 0.51-0.90``, in seconds."""


@dataclass(frozen=True)
class Utterance:
    """A sound, or the features of one, and its text.

    Attributes:
        path: of the file, or a cell of a table that holds it.
        text: what is said, or a label.
        origin: where it is listed, for messages: ``"a.tsv: row 3"``.
        segments: the true (start, end) of each word in seconds; None where they are not known.
    """

    path: Path | StoredFile
    text: str
    origin: str
    segments: tuple[tuple[float, float], ...] | None = None

    @property
    def name(self) -> str:
        """Its name in messages: the row, and the file that it names."""
        return str(self.path) if isinstance(self.path, StoredFile) else f"{self.origin}: {self.path}"

    def state(self) -> tuple[object, ...]:
        """Returns the values on which its features depend; raises DataError if there is no such file."""
        return self.path.state() if isinstance(self.path, StoredFile) else file_state(self.path, self.name)


def open_utterances(
    source: str | Path,
    sound_column: str | None = None,
    text_column: str | None = None,
    *,
    lowercase: bool = False,
    limit: int | None = None,
    roles: Roles = (SOUND, SPOKEN_TEXT),
) -> list[Utterance]:
    """Returns the utterances that a table or a folder lists; the sounds themselves are not read.

    Args:
        source: a ``.tsv``, ``.csv``, ``.jsonl``, ``.json`` or ``.parquet`` file with a column of paths and one of
            texts, or a folder with a folder of sounds for each label. Paths are relative to the table's folder. In
            ``.parquet``, the column may hold the sounds themselves, as data sets of Hugging Face have them.
        sound_column: the column of the paths; None: the only one of sound files or of a usual name, or the first of
            two.
        text_column: the column of the texts; numbers become texts; None: the only one of a usual name, or the second of
            two.
        lowercase: whether to turn the texts into lower case.
        limit: largest number of utterances, from the first; None: all.
        roles: what the two columns have.

    Returns:
        the utterances in their order; not empty. Rows without a text are left out, and the logger ``regard`` warns.

    Raises:
        DataError: the table cannot be used, a row names no file, or times are not of the form above.
    """
    path = Path(source)
    if path.is_dir():
        utterances = list(itertools.islice(_of_folder(path), limit))
    else:
        utterances = _of_table(path, roles, (sound_column, text_column), limit)
    if lowercase:
        utterances = [Utterance(one.path, one.text.lower(), one.origin, one.segments) for one in utterances]
    return utterances


def _of_table(path: Path, roles: Roles, named: Sequence[str | None], limit: int | None) -> list[Utterance]:
    if path.suffix.lower() not in READERS:
        raise DataError(
            f"{path}: unknown kind of file {path.suffix!r}; give {', '.join(READERS)}, or a folder with a "
            "folder of sounds for each label"
        )
    check_file(path, "sounds and texts")
    records = open_records(path)
    columns = choose_columns(records, roles, named)
    timed = [SEGMENTS] if SEGMENTS in records.columns else []
    utterances, empty, first = [], 0, ""
    rows = text_rows(records, [*columns, *timed], columns[1:], columns[:1])
    for number, (file, text, *times) in enumerate(rows, start=1):
        position = f"{path}: row {number}"
        if not text.strip() or (isinstance(file, str) and not file.strip()):
            empty, first = empty + 1, first or position
            continue
        if isinstance(file, str) and "\0" in file:
            raise DataError(f"{position} names no file; correct or remove it")
        if limit is not None and len(utterances) >= limit:
            break
        segments = parsed_segments(times[0], position) if times else None
        sound = path.parent / file.strip() if isinstance(file, str) else file
        utterances.append(Utterance(sound, text.strip(), position, segments))
    if not utterances:
        first = f" (the first without them is {first.removeprefix(f'{path}: ')})" if first else ""
        raise DataError(f"{path}: no row has a sound and a text{first}; check the columns and the file")
    if empty:
        log.warning(
            "%s: left out %s without a sound or a text; %d are left", path, counted(empty, "row"), len(utterances)
        )
    return utterances


def parsed_segments(text: str, origin: str) -> tuple[tuple[float, float], ...]:
    """Returns the times that ``"0.12-0.48 0.51-0.90"`` lists.

    Raises:
        DataError: it is of another form, or an end is not after its start.
    """
    segments = []
    for part in text.split():
        try:
            start, _, end = part.partition("-")
            pair = float(start), float(end)
        except ValueError:
            pair = (0.0, 0.0)
        if not 0 <= pair[0] < pair[1] < math.inf:
            raise DataError(
                f"{origin}: the column {SEGMENTS!r} must list times as start-end in seconds; one is {part!r}"
            )
        segments.append(pair)
    return tuple(segments)


def _of_folder(folder: Path) -> Iterator[Utterance]:
    suffixes = (*SOUND_SUFFIXES, FEATURE_SUFFIX)
    files, left_out = class_files(folder, suffixes, "sounds")
    warn_of_left_out(folder, left_out, "sounds", suffixes)
    return (Utterance(path, path.parent.name, str(folder)) for path in files)


_VERSION = 2
"""Increased when the features of the same files change."""

_BLOCK = 256  # utterances whose features are in memory at once


class FeatureTable:
    """The features of utterances, by their number.

    Args:
        rows: the numbers of each utterance, frame after frame.
        width: features of a frame.

    Attributes:
        lengths: int64 ``[utterances]``, the frames of each.
        width: features of a frame.
    """

    def __init__(self, rows: Ragged, width: int):
        self._rows, self.width = rows, width
        self.lengths: NDArray[np.int64] = rows.lengths(np.arange(len(rows))) // width

    @classmethod
    def of(cls, features: Sequence[NDArray[np.float32]]) -> "FeatureTable":
        """Returns the table of features in memory, each ``[frames, width]``; at least one."""
        offsets = np.cumsum([0, *(one.size for one in features)])
        return cls(Ragged([(offsets, np.concatenate([one.ravel() for one in features]))]), features[0].shape[1])

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, number: int) -> NDArray[np.float32]:
        """Returns float32 ``[frames, width]``, not to be written to."""
        return self._rows[number].reshape(-1, self.width)


def utterance_features(utterance: Utterance, front_end: LogMel) -> NDArray[np.float32]:
    """Reads the features of an utterance from its file or computes those of its sound: float32 ``[frames, features]``.

    Raises:
        DataError: the file cannot be used; one line, which names its row.
    """
    source = utterance.path.content() if isinstance(utterance.path, StoredFile) else utterance.path
    if is_features(source) if isinstance(source, bytes) else source.suffix.lower() == FEATURE_SUFFIX:
        return read_features(source, utterance.name)
    return front_end(read_sound(source, front_end.rate, utterance.name).samples)


def feature_table(utterances: Sequence[Utterance], front_end: LogMel) -> FeatureTable:
    """Returns the features of utterances, stored in the cache folder of Hugging Face ``datasets``.

    A file that has not changed is not read again.

    Args:
        utterances: at least one.
        front_end: makes features of sounds.

    Raises:
        DataError: a file cannot be used, or has another number of features than those before it.
    """
    require_datasets()
    import pyarrow as pa

    schema = pa.schema([("features", pa.list_(pa.float32()))])
    state = tuple(one.state() for one in utterances)
    key = fingerprint("speech", _VERSION, state, astuple(front_end))

    def batches(counts: dict[str, int]) -> Iterator["pa.RecordBatch"]:
        for first in range(0, len(utterances), _BLOCK):
            block = []
            for one in utterances[first : first + _BLOCK]:
                features = utterance_features(one, front_end)
                width = counts.setdefault("width", features.shape[1])
                if features.shape[1] != width:
                    raise DataError(
                        f"{one.name}: has {features.shape[1]} features a frame, the first utterance has {width}; "
                        "all must have the same number"
                    )
                block.append(features.ravel())
            yield pa.record_batch([pa.array(block, pa.list_(pa.float32()))], schema=schema)

    table, counts = cached_table(key, schema, batches)
    column = table.with_format("arrow")[:].column("features")  # pyright: ignore
    return FeatureTable(Ragged.from_column(column), counts["width"])
