"""What a model that listens is given: sounds of files, of memory, or features, and their spectrograms."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.speech.sounds import Sound, read_features, read_sound, resampled
from regard.data.speech.utterances import FEATURES_SUFFIX
from regard.errors import DataError, KindError, ShapeError
from regard.records import FrameAxis
from regard.tasks.sound_options import SoundDataConfig
from regard.training.task import Trained


@dataclass(frozen=True, eq=False)
class HeardSound:
    """A sound as a model hears it.

    Attributes:
        name: of the sound.
        features: float32 ``[frames, width]``.
        frame_seconds: time between two frames.
        reduction: frames of an annotation.
    """

    name: str
    features: NDArray[np.float32] = field(repr=False)
    frame_seconds: float
    reduction: int

    @property
    def annotations(self) -> int:
        """Annotations that a model makes of it."""
        return -(-len(self.features) // self.reduction)

    @property
    def seconds(self) -> float:
        """Of an annotation: annotation j stands for the time from j to j + 1 times this."""
        return self.reduction * self.frame_seconds

    def axis(self) -> FrameAxis:
        """The annotations in time, with the features as a spectrogram over exactly this time."""
        return FrameAxis(self.spectrogram(), self.seconds, self.annotations)

    def spectrogram(self) -> NDArray[np.float32]:
        """``[width, annotations · reduction]``: the features, the lowest first; silence where the sound has ended."""
        missing = self.annotations * self.reduction - len(self.features)
        return np.pad(self.features.T, ((0, 0), (0, missing)), constant_values=float(self.features.min()))


class TrainedOnSounds(Trained):
    """A trained run whose model hears; its configuration has the fields ``width`` and ``reduction``."""

    def hear(self, inputs: Sequence[Any]) -> list[HeardSound]:
        """The inputs as the model hears them; for what may be given see `heard`."""
        config: Any = self.model.config
        return heard(inputs, self.config.data, config.width, config.reduction)


def heard(inputs: Sequence[Any], data: SoundDataConfig, width: int, reduction: int) -> list[HeardSound]:
    """The inputs of a prediction, as a model hears them.

    Args:
        inputs: each a path of a sound or of a ``.npy`` file of features, the content of such a file (bytes), a
            `Sound`, features ``[frames, width]``, or what this function gave.
        data: how features are made.
        width: features that the model reads.
        reduction: frames of an annotation of the model.

    Raises:
        DataError: a file cannot be used; one line, which names it.
        KindError: something else was given.
        ShapeError: features of another width.
    """
    return [_heard(number, one, data, width, reduction) for number, one in enumerate(inputs)]


def _heard(number: int, given: Any, data: SoundDataConfig, width: int, reduction: int) -> HeardSound:
    place, name = f"inputs[{number}]", "sound"
    if isinstance(given, HeardSound):
        return given
    if isinstance(given, (str, Path)):
        place = name = str(given)
        path = Path(given)
        if not name.strip() or "\0" in name:
            raise DataError(f"inputs[{number}] names no file; give the path of a sound")
        if path.suffix.lower() == FEATURES_SUFFIX:
            features = read_features(path)
        else:
            features = data.front_end(read_sound(path, data.rate).samples)
    elif isinstance(given, (bytes, bytearray)):
        if bytes(given[:6]) == b"\x93NUMPY":
            features = _features_of_content(bytes(given), place)
        else:
            features = data.front_end(read_sound(bytes(given), data.rate, place).samples)
    elif isinstance(given, Sound):
        if given.samples.ndim != 1 or not given.samples.size or not np.isfinite(given.samples).all():
            raise ShapeError(f"{place} must have finite samples [samples], and some")
        samples = given.samples if given.rate == data.rate else resampled(given.samples, given.rate, data.rate)
        features = data.front_end(samples)
    elif isinstance(given, np.ndarray):
        features = _given_features(place, given)
    else:
        raise KindError(
            f"{place} must be a path, the bytes of a sound file, a Sound or an array of features; it is a "
            f"{type(given).__name__}"
        )
    if features.shape[1] != width:
        raise ShapeError(
            f"{place} has {features.shape[1]} features a frame, and the model reads {width}; was it trained on "
            f"{'feature files' if width != data.bands else 'sounds'}?"
        )
    return HeardSound(name, features, data.hop_seconds, reduction)


def _features_of_content(content: bytes, name: str) -> NDArray[np.float32]:
    with tempfile.TemporaryDirectory(prefix="regard-") as folder:
        path = Path(folder) / "features.npy"
        path.write_bytes(content)
        return read_features(path, name)


def _given_features(name: str, given: NDArray[Any]) -> NDArray[np.float32]:
    if given.ndim != 2 or not given.size or given.dtype.kind not in "fiu":
        raise ShapeError(f"{name} must be real numbers [frames, features]; it is {given.dtype} {list(given.shape)}")
    features = given.astype(np.float32)
    if not np.isfinite(features).all():
        raise ShapeError(f"{name} must be finite")
    return features
