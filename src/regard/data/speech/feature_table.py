"""The features of many utterances, computed once and memory-mapped from then on."""

from collections.abc import Iterator, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from regard.data.cache import cached_table, fingerprint, require_datasets
from regard.data.speech.feature_files import read_features
from regard.data.speech.log_mel import LogMel
from regard.data.speech.sounds import read_sound
from regard.data.speech.utterances import FEATURES_SUFFIX, Utterance
from regard.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

_BLOCK = 256  # utterances whose features are in memory at once


class FeatureTable:
    """The features of utterances, by their number.

    Args:
        pieces: for each array of numbers the offsets of its rows, one more than it has rows.
        width: features of a frame.

    Attributes:
        lengths: int64 ``[utterances]``, the frames of each.
        width: features of a frame.
    """

    def __init__(self, pieces: Sequence[tuple[NDArray[np.int64], NDArray[np.float32]]], width: int):
        self._pieces = [piece for piece in pieces if len(piece[0]) > 1]
        self._first = np.cumsum([0, *(len(offsets) - 1 for offsets, _ in self._pieces)])
        self.width = width
        numbers = [np.diff(offsets) for offsets, _ in self._pieces]
        self.lengths: NDArray[np.int64] = (
            np.concatenate(numbers).astype(np.int64) // width if numbers else np.zeros(0, np.int64)
        )

    @classmethod
    def of(cls, features: Sequence[NDArray[np.float32]]) -> "FeatureTable":
        """The table of features in memory, each ``[frames, width]``; at least one."""
        offsets = np.cumsum([0, *(one.size for one in features)])
        return cls([(offsets, np.concatenate([one.ravel() for one in features]))], features[0].shape[1])

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, number: int) -> NDArray[np.float32]:
        """float32 ``[frames, width]``, not to be written to."""
        piece = int(np.searchsorted(self._first, number, side="right")) - 1
        offsets, values = self._pieces[piece]
        local = number - self._first[piece]
        return values[offsets[local] : offsets[local + 1]].reshape(-1, self.width)


def utterance_features(utterance: Utterance, front_end: LogMel) -> NDArray[np.float32]:
    """The features of an utterance, float32 ``[frames, features]``: those of its file, or those of its sound.

    Raises:
        DataError: the file cannot be used; one line, which names its row.
    """
    if utterance.path.suffix.lower() == FEATURES_SUFFIX:
        return read_features(utterance.path, utterance.name)
    return front_end(read_sound(utterance.path, front_end.rate, utterance.name).samples)


def feature_table(utterances: Sequence[Utterance], front_end: LogMel) -> FeatureTable:
    """The features of utterances. They are stored in the cache folder of Hugging Face ``datasets``.

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
    state = tuple((str(one.path.resolve()), *_state(one)) for one in utterances)
    key = fingerprint("speech", state, astuple(front_end))

    def batches(counted: dict[str, int]) -> Iterator["pa.RecordBatch"]:
        for first in range(0, len(utterances), _BLOCK):
            block = []
            for one in utterances[first : first + _BLOCK]:
                features = utterance_features(one, front_end)
                width = counted.setdefault("width", features.shape[1])
                if features.shape[1] != width:
                    raise DataError(
                        f"{one.name}: has {features.shape[1]} features a frame, the first utterance has {width}; "
                        "all must have equally many"
                    )
                block.append(features.ravel())
            yield pa.record_batch([pa.array(block, pa.list_(pa.float32()))], schema=schema)

    table, counted = cached_table(key, schema, batches)
    column = table.with_format("arrow")[:].column("features")  # pyright: ignore
    pieces = [(chunk.offsets.to_numpy(), chunk.values.to_numpy()) for chunk in column.chunks]
    return FeatureTable(pieces, counted["width"])


def _state(utterance: Utterance) -> tuple[int, int]:
    path: Path = utterance.path
    try:
        found = path.stat()
    except FileNotFoundError as error:
        raise DataError(f"{utterance.name}: no such file; check the path") from error
    except (OSError, ValueError) as error:
        raise DataError(f"{utterance.name}: cannot be read ({getattr(error, 'strerror', None) or error})") from error
    return found.st_size, found.st_mtime_ns
