"""Files of sounds (wav, flac and whatever else libsndfile reads), and of features that another program computed."""

import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from regard.data.records import StoredFile, file_errors
from regard.data.speech.streams import sound_streams
from regard.errors import ArgumentError, DataError, KindError, MissingPartError
from regard.files.atomic import temporary_folder
from regard.files.regular import read_bytes, require_regular

if TYPE_CHECKING:
    import soundfile

LONGEST_SECONDS = 3600.0
"""Duration of the longest sound that is read."""

MOST_SAMPLES = 1 << 28
"""Samples of all channels of the largest sound that is read: 1 GiB as float32."""

LARGEST_SOUND = 8 * MOST_SAMPLES + (1 << 20)
"""Bytes of a file of sound: samples of at most 8 bytes, and a header."""

LOWEST_RATE, HIGHEST_RATE = 1_000, 768_000
"""Sampling rates that a sound may have, in Hz."""


@dataclass(frozen=True, eq=False)
class Sound:
    """A sound with one channel.

    Attributes:
        samples: float32 ``[samples]``; full scale is from −1 to 1.
        rate: samples a second.
    """

    samples: NDArray[np.float32]
    rate: int

    @property
    def seconds(self) -> float:
        """The duration."""
        return len(self.samples) / self.rate


def sound_of(value: Any, where: str) -> "Path | bytes | Sound | None":
    """Returns a sound in memory, as data sets of Hugging Face have it; None if the value is none.

    Args:
        value: ``{"array": samples, "sampling_rate": rate}``, decoded; what torchcodec decodes on demand, an
            ``AudioDecoder`` (datasets 4.0 and later); ``{"bytes": content, "path": path}``, not decoded; or the bytes
            of a file.
        where: names the value in messages.

    Raises:
        KindError: the samples are not ``[samples]``, or are no numbers; or it has neither bytes nor a path.
    """
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    if hasattr(value, "get_all_samples"):
        decoded = value.get_all_samples()  # [channels, samples]
        return _sound_of_samples(decoded.data.mean(0), decoded.sample_rate, where)
    if not isinstance(value, Mapping):
        return None
    if {"array", "sampling_rate"} <= value.keys():
        return _sound_of_samples(value["array"], value["sampling_rate"], where)
    if not {"bytes", "path"} & value.keys():
        return None
    content, path = value.get("bytes"), value.get("path")
    if isinstance(content, (bytes, bytearray)) and content:
        return bytes(content)
    if not path or not isinstance(path, (str, Path)):
        raise KindError(f"{where} has neither bytes nor a path; it has {', '.join(map(str, value))}")
    return Path(path)


def _sound_of_samples(samples: Any, rate: Any, where: str) -> Sound:
    samples = np.asarray(samples.detach().cpu() if hasattr(samples, "detach") else samples)
    if samples.ndim != 1 or samples.dtype.kind not in "fi":
        raise KindError(f"{where}: array must be samples [samples]; it is {samples.dtype} {list(samples.shape)}")
    if samples.dtype.kind == "i":
        samples = samples / -float(np.iinfo(samples.dtype).min)
    if isinstance(rate, bool) or not float(rate).is_integer() or not LOWEST_RATE <= rate <= HIGHEST_RATE:
        raise KindError(
            f"{where} cannot be a sound of {rate} samples a second; {LOWEST_RATE:,} to {HIGHEST_RATE:,} can be read"
        )
    return Sound(samples.astype(np.float32), int(rate))


def read_sound(source: "Path | bytes | StoredFile", rate: int | None = None, name: str | None = None) -> Sound:
    """Reads a sound to the end of what is there; several channels become their mean.

    What the header says about its length only tells whether a file was cut off (`regard.data.speech.streams`). Streams
    that follow each other in the file are joined, at the rate of the first one.

    Args:
        source: a file, its content, or a cell of a table that holds it.
        rate: samples a second of the result; None: those of the file. Resampled by soxr in its highest quality.
        name: of the sound, in messages. Default: the path.

    Raises:
        DataError: there is no such file, or it is no sound, truncated, damaged, empty or too long, or its samples are
            not finite; one line, which names it.
        MissingPartError: soundfile or soxr is not installed.
    """
    where = name or ("the sound" if isinstance(source, bytes) else str(source))
    if isinstance(source, StoredFile):
        source = source.content()
    content = source if isinstance(source, bytes) else _content(source, where)
    if len(content) > LARGEST_SOUND:
        raise DataError(
            f"{where}: has {len(content):,} bytes, and at most {LARGEST_SOUND:,} are read: cut it into parts"
        )
    parts: list[Sound] = []
    read = 0
    for stream in sound_streams(content, where):
        sound, channels = _read_stream(stream, where, read)
        read += len(sound.samples) * channels
        rate = rate or sound.rate
        if len(sound.samples):
            parts.append(sound if sound.rate == rate else Sound(resampled(sound.samples, sound.rate, rate), rate))
    if not parts or rate is None:
        raise DataError(f"{where}: holds no samples; leave it out")
    return parts[0] if len(parts) == 1 else Sound(np.concatenate([one.samples for one in parts]), rate)


def _read_stream(stream: bytes | bytearray, where: str, before: int) -> tuple[Sound, int]:
    """Returns one stream of a file, and its number of channels; `before` samples of other streams were read."""
    library = _soundfile()
    try:
        with library.SoundFile(io.BytesIO(stream)) as file:
            _check_size(where, file, before)
            expected, rate, channels = int(file.frames), int(file.samplerate), int(file.channels)
            # A coding that cannot be searched has no number of frames.
            frames = file.read(expected, dtype="float32", always_2d=True)
    except library.LibsndfileError as error:
        reason = str(error).removeprefix("Error opening <_io.BytesIO object").split(": ")[-1].strip().rstrip(".")
        raise DataError(
            f"{where}: is not a sound that can be read, or is damaged ({reason}); give wav or flac, or convert it"
        ) from error
    if len(frames) < expected and not stream.startswith(b"OggS"):
        raise DataError(f"{where}: is truncated: {len(frames):,} of {expected:,} samples are there; copy it again")
    if not np.isfinite(frames).all():
        raise DataError(f"{where}: holds samples that are NaN or infinite; write it again")
    return Sound(frames.mean(axis=1, dtype=np.float64).astype(np.float32), rate), channels


def resampled(samples: NDArray[np.float32], from_rate: int, to_rate: int) -> NDArray[np.float32]:
    """Returns the same sound at another rate: ``⌈samples · to_rate / from_rate⌉`` samples, band-limited.

    Args:
        samples: float32 ``[samples]``.
        from_rate: samples a second.
        to_rate: samples a second of the result.

    Raises:
        ArgumentError: a rate is not from 1 to 768 kHz.
        MissingPartError: soxr is not installed.
    """
    for name, rate in (("from_rate", from_rate), ("to_rate", to_rate)):
        if not LOWEST_RATE <= rate <= HIGHEST_RATE:
            raise ArgumentError(f"{name} must be from {LOWEST_RATE:,} to {HIGHEST_RATE:,} Hz; it is {rate:,}")
    with MissingPartError.instead("soxr", "speech"):
        import soxr
    length = math.ceil(len(samples) * to_rate / from_rate)
    converted = soxr.resample(samples, from_rate, to_rate, quality="VHQ")[:length]
    return np.pad(converted, (0, length - len(converted))).astype(np.float32)


def _content(path: Path, where: str) -> bytes:
    with file_errors(where):
        if path.is_dir():
            raise DataError(f"{where}: is a folder; name a sound in it")
        content = read_bytes(path, LARGEST_SOUND)
    if not content:
        raise DataError(f"{where}: the file is empty; it should hold a sound")
    return content


def _check_size(where: str, file: "soundfile.SoundFile", before: int) -> None:
    """Raises DataError if a stream is too long, or makes the whole sound too long after ``before`` samples."""
    rate, frames, channels = int(file.samplerate), int(file.frames), int(file.channels)
    if not LOWEST_RATE <= rate <= HIGHEST_RATE:
        raise DataError(
            f"{where}: has {rate:,} samples a second; {LOWEST_RATE:,} to {HIGHEST_RATE:,} can be read: convert it"
        )
    if frames > LONGEST_SECONDS * rate or before + frames * channels > MOST_SAMPLES:
        raise DataError(
            f"{where}: lasts {frames / rate:,.0f} s with {channels} channels; at most {LONGEST_SECONDS:,.0f} s and "
            f"{MOST_SAMPLES:,} samples are read: cut it into parts"
        )


def _soundfile() -> Any:
    try:
        import soundfile
    except (ImportError, OSError) as error:  # OSError: its library cannot be loaded
        reason = None if isinstance(error, ModuleNotFoundError) else str(error)
        raise MissingPartError("soundfile", "speech", reason) from error
    return soundfile


def write_sound(path: Path, samples: NDArray[np.float32], rate: int, *, exact: bool = False) -> None:
    """Writes a sound of one channel with 16 bits a sample; samples beyond full scale are clipped.

    Args:
        path: its suffix says the format: ``.wav`` or ``.flac``.
        samples: ``[samples]``.
        rate: samples a second.
        exact: whether float32 samples are written as they are, to a ``.wav``.

    Raises:
        DataError: the file cannot be written.
        MissingPartError: soundfile is not installed.
    """
    library = _soundfile()
    try:
        if exact:
            library.write(str(path), samples, rate, subtype="FLOAT")
        else:
            library.write(str(path), np.clip(samples, -1.0, 1.0), rate, subtype="PCM_16")
    except (library.LibsndfileError, TypeError, ValueError, OSError) as error:
        raise DataError(f"{path}: cannot be written ({error}); check the folder and the disk") from error


MOST_FRAMES = 360_000
"""Frames of the longest file that is read: an hour of 100 frames a second."""

MOST_FEATURES = 4096
"""Features of a frame, at most."""


def is_features(content: bytes) -> bool:
    """Whether a file is one of ``numpy.save``."""
    return content.startswith(b"\x93NUMPY")


def read_features(path: Path | bytes, name: str | None = None) -> NDArray[np.float32]:
    """Reads the features of a sound, float32 ``[frames, features]``.

    Args:
        path: a file of ``numpy.save`` with two axes of real numbers, or its content. Pickled objects are never read.
        name: of the file, in messages. Default: the path.

    Raises:
        DataError: there is no such file, or it is truncated or of another form, or a number is not finite.
    """
    if isinstance(path, bytes):
        with temporary_folder() as folder:
            file = folder / "features.npy"
            file.write_bytes(path)
            return read_features(file, name or "the features")
    where = name or str(path)
    try:
        # Mapped: a file that is shorter than its header says is refused before memory is taken.
        size = require_regular(path, 8 * MOST_FRAMES * MOST_FEATURES + (1 << 20))  # numbers of 8 bytes, and a header
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError as error:
        raise DataError(f"{where}: no such file; check the path") from error
    except IsADirectoryError as error:
        raise DataError(f"{where}: is a folder; name a .npy file") from error
    except (OSError, ValueError, EOFError, SyntaxError, OverflowError, MemoryError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:120]
        raise DataError(f"{where}: is not a whole .npy file of numbers ({reason}); write it again") from error
    if not isinstance(array, np.ndarray):
        raise DataError(f"{where}: is an archive of arrays; save one array [frames, features] with numpy.save")
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        raise DataError(
            f"{where}: must hold real numbers [frames, features]; it holds {array.dtype} of shape {list(array.shape)}"
        )
    frames, features = array.shape
    if not 1 <= frames <= MOST_FRAMES or not 1 <= features <= MOST_FEATURES:
        raise DataError(
            f"{where}: must have 1 to {MOST_FRAMES:,} frames of 1 to {MOST_FEATURES:,} features; its shape is "
            f"{list(array.shape)}"
        )
    behind = size - getattr(array, "offset", size) - array.nbytes
    if behind > 0:
        raise DataError(f"{where}: holds {behind:,} bytes behind its array; save all features as one array")
    with np.errstate(over="ignore"):
        values = np.ascontiguousarray(array, dtype=np.float32)
    if not np.isfinite(values).all():
        frame, feature = np.argwhere(~np.isfinite(values))[0].tolist()
        raise DataError(f"{where}: feature {feature} of frame {frame} is not a finite number; correct or remove it")
    return values
