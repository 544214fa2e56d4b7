"""Sounds as input: tables and folders of sounds, their features, the encoder that hears them, and their batches."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from regard.configuration import RATE, Range, option
from regard.data import speech as sound_data
from regard.data.class_folders import FEATURE_SUFFIX, SOUND_SUFFIXES
from regard.data.records import StoredFile
from regard.errors import DataError, KindError, ShapeError
from regard.tasks.attended import attended_times
from regard.tasks.inputs.input import Examples, Generated, Input, drawn_rows, some_rows
from regard.tasks.lazy import np, records, torch
from regard.tasks.memory_rows import column_values
from regard.tasks.options import BATCH, DataOptions
from regard.training.config import TrainingConfig
from regard.training.results import AttendedParts, Prediction
from regard.training.task import Trained

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from regard.data.batches import Batches
    from regard.data.speech.batches import SpeechBatch
    from regard.data.speech.log_mel import LogMel
    from regard.data.speech.sounds import Sound
    from regard.data.speech.utterances import FeatureTable, Utterance
    from regard.data.text.batches import IdEncoder
    from regard.records import FrameAxis
    from regard.shapes.checks import Requested
    from regard.training.run_folder import RunFolder

log = logging.getLogger("regard")

MEASURED_SOUNDS = 20
"""The most sounds whose lengths are measured before a training."""

MOST_SECONDS = 120.0
"""The duration of the longest sound that is read while somebody waits."""


FREQUENCY = Range(0, 384_000)
"""Limits of mel bands, in Hz."""


@dataclass(frozen=True)
class SoundOptions(DataOptions):
    """The sounds of a run, and their features."""

    train: str | None = None
    """Training sounds: a .tsv, .csv, .jsonl or .parquet file with a column of paths (relative to it) and one of texts,
    or 'bundled' for generated speech. A path is a sound (.wav, .flac, ...) or a .npy file of features [frames,
    features]."""
    bundled: int = option(0, within=Range(0, 100_000))
    held_out: float = 200
    sound_column: str | None = None
    """Column of the paths. Default: the only one of sound files or of a usual name, or the first of a table with two
    columns."""
    rate: int = option(16000, within=Range(1_000, 768_000))
    """Samples a second; sounds of another rate are resampled."""
    bands: int = option(40, within=Range(1, 1024))
    """Mel bands of the features of sounds."""
    window_seconds: float = option(0.025, within=Range(0.001, 1.0))
    """Length of the windows of the spectrum, in seconds."""
    hop_seconds: float = option(0.010, within=Range(0.001, 1.0))
    """Time between two frames in seconds, in feature files too."""
    lowest: float = option(20.0, within=FREQUENCY)
    """Lower limit of the first mel band, in Hz."""
    highest: float = option(0.0, within=FREQUENCY)
    """Upper limit of the last mel band, in Hz; 0: half the rate."""
    max_seconds: float = option(30.0, within=Range(0.01, 3600))
    """Longer training sounds are left out."""

    default_bundled = 1000
    generated = "generated sounds"

    def check(self) -> None:
        super().check()
        self.front_end  # noqa: B018 (checks that the bands fit the rate)

    @property
    def front_end(self) -> LogMel:
        """What makes features of sounds."""
        return sound_data.log_mel.LogMel(
            self.rate, self.bands, self.window_seconds, self.hop_seconds, self.lowest, self.highest
        )


@dataclass(frozen=True)
class SoundTraining(TrainingConfig):
    """How a model that hears is trained, and for how long."""

    batch_size: int = option(16, within=BATCH)
    """Sounds of a batch, on each device."""
    label_smoothing: float = option(0.1, within=RATE)
    """Probability that is distributed over all labels or tokens, 0 to below 1 (Szegedy et al. 2016, section 7)."""
    stretch: float = option(0.0, within=RATE)
    """The speed of each training example varies at random by this share, 0 to below 1: 0.1 is 0.9 to 1.1 times."""

    joined: ClassVar[int] = 1
    """Largest number of random sounds that follow each other in a training example."""


@dataclass(frozen=True, eq=False)
class HeardSound:
    """A sound as a model hears it.

    Attributes:
        name: of the sound.
        features: float32 ``[frames, width]``.
        frame_seconds: time between two frames.
        reduction: frames of an annotation.
        source: what the sound was read from.
        sound: its samples; None where there are features alone.
    """

    name: str
    features: NDArray[np.float32] = field(repr=False)
    frame_seconds: float
    reduction: int
    source: Any = field(default=None, repr=False, compare=False)
    sound: Sound | None = field(default=None, repr=False, compare=False)

    @property
    def duration(self) -> float:
        """Seconds of the sound."""
        return len(self.features) * self.frame_seconds

    @property
    def annotations(self) -> int:
        """Annotations that a model makes of it."""
        return -(-len(self.features) // self.reduction)

    @property
    def seconds(self) -> float:
        """Seconds between two annotations: annotation j stands for the time from j to j + 1 times this."""
        return self.reduction * self.frame_seconds

    def axis(self) -> FrameAxis:
        """Returns the annotations in time, with the features as a spectrogram of the same duration."""
        axis = records.FrameAxis(self.spectrogram(), self.seconds, self.annotations)
        if self.sound is None or not self.sound.samples.size:
            return axis
        samples = np.rint(32767 * np.clip(self.sound.samples, -1, 1)).astype(np.int16)
        return replace(axis, sound=samples, rate=self.sound.rate)

    def spectrogram(self) -> NDArray[np.float32]:
        """Returns the features ``[width, annotations · reduction]``, the lowest first, with silence after the end."""
        missing = self.annotations * self.reduction - len(self.features)
        return np.pad(self.features.T, ((0, 0), (0, missing)), constant_values=float(self.features.min()))


class SoundPrediction(Prediction):
    """A prediction for a sound; a subclass is a dataclass.

    Attributes:
        sound: the sound as the model hears it.
        weights: ``[..., annotations]``; None for a model without attention.
    """

    sound: HeardSound
    weights: Requested[Tensor]

    @property
    def source(self) -> Any:
        return self.sound.source

    @property
    def input_text(self) -> str:
        return self.sound.name

    @property
    def model_input(self) -> Any:
        """The input as the run reads it again."""
        return self.sound

    @property
    def axis(self) -> FrameAxis:
        """The annotations in time, for records."""
        return self.sound.axis()

    def attended(self) -> AttendedParts:
        return attended_times(self.sound.seconds, self.weights)


class TrainedSounds(Trained):
    """A trained run whose input is a sound."""

    model: Any

    def facts(self) -> str:
        config = self.model.config
        encoder = "Transformer" if config.architecture == "transformer" else f"pyramidal {config.architecture.upper()}"
        return f"{encoder}, {config.reduction} frames an annotation"

    def delay(self, source: HeardSound) -> str | None:
        if source.duration <= MOST_SECONDS:
            return None
        return f"the sound lasts {source.duration:,.0f} s, more than the {MOST_SECONDS:g} s that are read here; cut it"

    def attention_size(self, source: HeardSound) -> tuple[int, int]:
        config = self.model.config
        layers = config.encoder_layers if config.architecture == "transformer" else 0
        return source.annotations, layers * config.heads * source.annotations**2


class SoundExamples(Examples):
    """The features of sounds and their encoded targets, in batches of similar lengths."""

    def __init__(self, utterances: list[Utterance], features: FeatureTable, target: IdEncoder, hop_seconds: float):
        self.utterances, self.features, self._target = utterances, features, target
        seconds = float(features.lengths.sum()) * hop_seconds
        self.description = f"{len(features)} sounds, {seconds / 60:.1f} min · {features.width} features"

    def __len__(self) -> int:
        return len(self.features)

    def lengths(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        ids = self._target.encode_batch([one.text for one in self.utterances])
        return self.features.lengths, np.array([len(each) for each in ids])

    def epochs(self, training: Any, rank: int, world_size: int) -> Batches[Any, SpeechBatch]:
        return sound_data.batches.speech_batches(
            self.features,
            self._ids,
            training.batch_size,
            sound_data.batches.Variation(training.joined, training.stretch),
            seed=training.seed,
            rank=rank,
            world_size=world_size,
        )

    def in_order(self, training: Any) -> Iterator[SpeechBatch]:
        return iter(sound_data.batches.speech_batches(self.features, self._ids, training.batch_size))

    def _ids(self, numbers: Sequence[int]) -> list[int]:
        (ids,) = self._target.encode_batch([" ".join(self.utterances[number].text for number in numbers)])
        return ids


class SoundInput(Input):
    """Sounds with what is said in them, or with labels.

    Args:
        generated: the generated corpus.
        labelled: whether the sounds have labels; else they have texts.
    """

    kind = "sound"
    examples = "sounds"
    labelled_unit = "sound"
    plain = "the mean and deviation of each band"

    def __init__(self, generated: Generated | None = None, labelled: bool = False):
        super().__init__(generated)
        self.roles = ("SOUND", "HEARD_LABEL" if labelled else "SPOKEN_TEXT")
        self.stored_columns = ("sound", "label" if labelled else "text")

    @property
    def results(self) -> tuple[str, ...]:
        return ("corpus/sounds/*.wav",)

    @property
    def sample_name(self) -> str:
        return "source"

    @property
    def suffixes(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]

        return (*SOUND_SUFFIXES, FEATURE_SUFFIX)

    def of_cell(self, value: Any, column: str, folder: Path, origin: str) -> Any:
        if isinstance(value, StoredFile):
            return value
        return str(folder / super().of_cell(value, column, folder, origin).strip())

    def class_files(self, folder: Path) -> Sequence[Path]:
        return [path for one in sound_data.utterances.open_utterances(folder) if isinstance(path := one.path, Path)]

    def open(self, source: Any, columns: Sequence[str | None], data: Any, limit: int | None = None) -> list[Utterance]:
        lowercase = getattr(data, "lowercase", False)
        return sound_data.utterances.open_utterances(
            source, *columns, lowercase=lowercase, limit=limit, roles=self.column_roles()
        )

    def check_rows(self, rows: list[Utterance]) -> None:
        for one in rows:
            if isinstance(one.path, Path) and not one.path.is_file():
                raise DataError(f"{one.name}: no such file; check the path")

    def targets(self, rows: list[Utterance]) -> list[str]:
        return [one.text for one in rows]

    def names(self, rows: list[Utterance]) -> list[str]:
        return [str(one.path) for one in rows]

    def labelled_contents(
        self, rows: list[Utterance], examples: Callable[[], Examples], most: int
    ) -> tuple[Sequence[Any], list[str]]:
        encoded = examples()  # without those that are too long
        assert isinstance(encoded, SoundExamples)
        numbers = drawn_rows(len(encoded), most)
        contents = [encoded.features[number] for number in numbers.tolist()]
        return contents, self.targets([encoded.utterances[number] for number in numbers])

    def content(self, one: HeardSound) -> NDArray[np.float32]:
        return one.features

    def plain_features(self, content: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.concatenate((content.mean(0), content.std(0)))

    def inputs(self, rows: list[Utterance], trained: Any) -> list[HeardSound]:
        data, config = trained.config.data, trained.model.config
        features = sound_data.utterances.feature_table(rows, data.front_end)
        check_width(features.width, config.width, rows[0].name)
        return [
            HeardSound(str(one.path), features[number], data.hop_seconds, config.reduction, one.path)
            for number, one in enumerate(rows)
        ]

    def encode(
        self, rows: list[Utterance], run: Any, learnt: Mapping[str, Any], target: IdEncoder, training: bool
    ) -> SoundExamples:
        data = run.data
        features = sound_data.utterances.feature_table(rows, data.front_end)
        if training:
            short_enough = np.flatnonzero(features.lengths * data.hop_seconds <= data.max_seconds)
            if not len(short_enough):
                raise DataError(f"none of {len(rows)} training sounds lasts at most {data.max_seconds:g} s; raise it")
            if len(short_enough) < len(rows):
                left = len(rows) - len(short_enough)
                log.warning("left out %d of %d sounds of more than %g s", left, len(rows), data.max_seconds)
                rows = self.select(rows, short_enough)
                features = sound_data.utterances.FeatureTable.of([features[number] for number in short_enough.tolist()])
        return SoundExamples(list(rows), features, target, data.hop_seconds)

    def check_examples(self, train: Examples, validation: Examples) -> None:
        assert isinstance(train, SoundExamples)
        assert isinstance(validation, SoundExamples)
        check_width(validation.features.width, train.features.width, validation.utterances[0].name)

    def prepare_model(self, model: Any, run: Any, folder: RunFolder, train: Examples) -> None:
        assert isinstance(train, SoundExamples)
        if getattr(run.model, "normalization", None) == "corpus":
            model.encoder.input.fit(_batches_of_one(train.features))

    def mean_lengths(self, rows: list[Utterance], data: Any) -> tuple[float, float]:
        some = [rows[number] for number in some_rows(len(rows), MEASURED_SOUNDS)]
        return sum(len(sound_data.utterances.utterance_features(one, data.front_end)) for one in some) / len(some), 0.0

    def front_end(self, trained: Any) -> LogMel | None:
        data = trained.config.data
        return data.front_end if trained.model.config.width == data.bands else None

    def arguments(self, batch: SpeechBatch, training: Any = None) -> tuple[Tensor, ...]:
        return batch.source, batch.source_lengths

    def read(self, inputs: Sequence[Any], trained: Any) -> list[HeardSound]:
        """Returns the sounds of a prediction as a model hears them.

        Args:
            inputs: each a path of a sound or of a ``.npy`` file of features, the content of such a file (bytes), a
                `Sound`, features ``[frames, width]``, or what this method gave.

        Raises:
            DataError: a file cannot be used; one line, which names it.
            KindError: something else was given.
            ShapeError: features of another width.
        """
        data, config = trained.config.data, trained.model.config
        sounds = enumerate(column_values(inputs))
        return [heard(number, one, data, config.width, config.reduction) for number, one in sounds]

    def batch(self, inputs: Sequence[HeardSound], targets: Sequence[Sequence[int]] | None = None) -> SpeechBatch:
        return sound_data.batches.SpeechBatch.of([one.features for one in inputs], targets)

    def batch_annotations(self, batch: SpeechBatch, config: Any) -> list[int]:
        return [-(-frames // config.reduction) for frames in batch.source_lengths.tolist()]

    def annotations(self, one: HeardSound) -> int:
        return one.annotations


def generated_speech(seed: int, words: int | None = None) -> Generated:
    """Returns the corpus of generated speech.

    Args:
        words: words of each sound; None: several.
    """

    def write(folder: Any, sizes: dict[str, int]) -> Mapping[str, Path]:
        return sound_data.voices.write_speech(folder, sizes, seed, words=words)

    return Generated(
        write, validation=100, test=200, columns=("audio", "text"), lengths=(76.0 if words == 1 else 213.0, 0.0)
    )


def check_width(width: int, expected: int, name: str) -> None:
    """Raises DataError if features do not have the width of the training's features."""
    if width != expected:
        raise DataError(
            f"{name}: has {width} features a frame, and the training data have {expected}; all must have equally many"
        )


def heard(number: int, source: Any, data: SoundOptions, width: int, reduction: int) -> HeardSound:
    """Returns the input of a number as `SoundInput.read` gives it."""
    content: sound_data.sounds.Sound | NDArray[np.float32]
    where, name, original = f"inputs[{number}]", "sound", source
    if isinstance(source, HeardSound):
        return source
    if isinstance(source, StoredFile):
        where = name = source.name
        source = source.content()
    elif not isinstance(source, (str, Path, sound_data.sounds.Sound)):
        known = sound_data.sounds.sound_of(source, where)
        source = source if known is None else known
    if isinstance(source, (str, Path)):
        where = name = str(source)
        path = Path(source)
        if not name.strip() or "\0" in name:
            raise DataError(f"inputs[{number}] names no file; give the path of a sound")
        has_features = path.suffix.lower() == FEATURE_SUFFIX
        content = (
            sound_data.sounds.read_features(path) if has_features else sound_data.sounds.read_sound(path, data.rate)
        )
    elif isinstance(source, bytes):
        content = (
            sound_data.sounds.read_features(source, where)
            if sound_data.sounds.is_features(source)
            else sound_data.sounds.read_sound(source, data.rate, where)
        )
    elif isinstance(source, sound_data.sounds.Sound):
        if source.samples.ndim != 1 or not source.samples.size or not np.isfinite(source.samples).all():
            raise ShapeError(f"{where} must have finite samples [samples], and some")
        samples = (
            source.samples
            if source.rate == data.rate
            else sound_data.sounds.resampled(source.samples, source.rate, data.rate)
        )
        content = sound_data.sounds.Sound(samples, data.rate)
    elif isinstance(source, np.ndarray):
        content = _checked_features(where, source)
    else:
        raise KindError(
            f"{where} must be a path, the bytes of a sound file, {{'array': samples, 'sampling_rate': rate}}, a Sound "
            f"or an array of features; it is a {type(source).__name__}"
        )
    sound, features = (
        (content, data.front_end(content.samples)) if isinstance(content, sound_data.sounds.Sound) else (None, content)
    )
    if features.shape[1] != width:
        raise ShapeError(
            f"{where} has {features.shape[1]} features a frame, and the model reads {width}; was it trained on "
            f"{'feature files' if width != data.bands else 'sounds'}?"
        )
    return HeardSound(name, features, data.hop_seconds, reduction, original, sound)


def _checked_features(name: str, source: NDArray[Any]) -> NDArray[np.float32]:
    if source.ndim != 2 or not source.size or source.dtype.kind not in "fiu":
        raise ShapeError(f"{name} must be real numbers [frames, features]; it is {source.dtype} {list(source.shape)}")
    features = source.astype(np.float32)
    if not np.isfinite(features).all():
        raise ShapeError(f"{name} must be finite")
    return features


def _batches_of_one(features: FeatureTable) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields the features of each sound as a batch of one, and its length."""
    for number in range(len(features)):
        batch = torch.from_numpy(features[number].copy())[None]
        yield batch, torch.tensor([batch.shape[1]])
