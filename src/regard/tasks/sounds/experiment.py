"""One prepared training of a classifier of sounds: its data, its model, its loss and its validation."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from regard.data.batches import Batches
from regard.data.labels import Labels
from regard.data.speech.batches import SpeechBatch, Variation, speech_batches
from regard.data.speech.utterances import Utterance
from regard.models.checkpoint import save_model
from regard.models.speech.sound_classifier import SoundClassifier, SoundClassifierConfig
from regard.tasks.label_metrics import label_metrics
from regard.tasks.run_files import bundled_path
from regard.tasks.sound_data import (
    SoundPart,
    check_width,
    feature_batches,
    open_part,
    open_training,
    sound_part,
)
from regard.tasks.sounds.task import SoundsRun, labels_path
from regard.training.randomness import seed_step
from regard.training.run_folder import RunFolder
from regard.training.task import Experiment, StepLoss, ValidationResult

SAMPLES = 4
BUNDLED_SEED = 2
BUNDLED_VALIDATION, BUNDLED_TEST = 100, 200


@dataclass(frozen=True, slots=True)
class Corpora:
    """The training and validation data of a run."""

    train: SoundPart
    validation: SoundPart
    labels: Labels


def open_corpora(run: SoundsRun, folder: RunFolder) -> Corpora:
    """List the training and validation data of a run and compute their features.

    The labels are those of the training data; they are saved in the run folder, and saved ones are loaded instead. A
    run that starts from the model of another run takes its labels. The bundled corpus is written into the run folder.

    Raises:
        DataError: the data cannot be used, or validation or test data have a label that no training sound has.
    """
    config = run.data
    if config.bundled:
        write_bundled(folder, config.bundled)
    train, validation = open_training(config, folder)
    names = {part: str(getattr(config, part) or "the bundled corpus") for part in ("train", "validation", "test")}
    labels = _labels(run, folder, train, names["train"])
    require_labels(labels, validation, names["validation"])
    if config.test is not None:
        require_labels(labels, open_part(config, folder, "test"), names["test"])
    found = Corpora(sound_part(config, train, overlong=False), sound_part(config, validation, overlong=True), labels)
    check_width(found.validation.features, found.train.features.width, validation[0].name)
    return found


def _labels(run: SoundsRun, folder: RunFolder, train: Sequence[Utterance], name: str) -> Labels:
    path, initial = labels_path(folder), run.training.init_from
    if path.is_file():
        labels = Labels.load(path)
    elif initial is not None:
        labels = Labels.load(labels_path(RunFolder(initial)))
    else:
        labels = Labels.of(_column(train), name)
    require_labels(labels, train, name)
    if not path.is_file():
        labels.save(path)
    return labels


def require_labels(labels: Labels, utterances: Sequence[Utterance], name: str) -> None:
    """Raise DataError, which names them, if utterances have other labels."""
    labels.require(_column(utterances), name)


def _column(utterances: Sequence[Utterance]) -> Any:
    import datasets

    return datasets.Dataset.from_dict({"target": [one.text for one in utterances]})


def write_bundled(folder: RunFolder, sounds: int) -> None:
    """Write generated single words into the run folder, unless they are already there.

    Args:
        folder: the run folder.
        sounds: training sounds. The validation part has 100, the test part 200.
    """
    from regard.data.speech.voices import write_speech

    if not bundled_path(folder, "train").is_file():
        sizes = {"train": sounds, "validation": BUNDLED_VALIDATION, "test": BUNDLED_TEST}
        write_speech(folder.tree("corpus"), sizes, BUNDLED_SEED, words=1)


def write_bundled_test(folder: str) -> str:
    """Write the test part of the generated words into a folder, and return its table."""
    from regard.data.speech.voices import write_speech

    return str(write_speech(folder, {"test": BUNDLED_TEST}, BUNDLED_SEED, words=1)["test"])


class SoundsExperiment(Experiment):
    """A classifier of sounds and its data.

    Args:
        config: the configuration of the run.
        folder: the run folder, in which the labels and the bundled corpus are.
    """

    unit = "sounds"

    def __init__(self, config: SoundsRun, folder: RunFolder):
        self.config = config.training
        self.corpora = open_corpora(config, folder)
        train, validation = self.corpora.train, self.corpora.validation
        self.true = [self.corpora.labels.number(one.text) for one in validation.utterances]
        self.validation = speech_batches(validation.features, self._target(validation), self.config.batch_size)
        # The libraries that opened the data may have drawn random numbers.
        seed_step(self.config.seed, -1)
        model = config.model
        fields = model.encoder_fields(train.features.width)
        self.model: SoundClassifier = SoundClassifier(  # pyright: ignore[reportIncompatibleVariableOverride]
            SoundClassifierConfig(
                **fields,
                labels=len(self.corpora.labels),
                pooling=model.pooling,
                pooling_heads=model.pooling_heads,
                score=model.score,
                normalizer=model.normalizer,
            )
        )
        if model.normalization == "corpus":
            self.model.encoder.input.fit(feature_batches(train.features))
        seconds = float(train.features.lengths.sum()) * config.data.hop_seconds
        self.description = (
            f"{len(train.features)} sounds, {seconds / 60:.1f} min · {train.features.width} features · "
            f"{len(self.corpora.labels)} labels"
        )

    def _target(self, part: SoundPart) -> "LabelTarget":
        return LabelTarget([self.corpora.labels.number(one.text) for one in part.utterances])

    def batches(self, rank: int, world_size: int) -> Batches[Any, SpeechBatch]:
        return speech_batches(
            self.corpora.train.features,
            self._target(self.corpora.train),
            self.config.batch_size,
            Variation(stretch=self.config.stretch),
            seed=self.config.seed,
            rank=rank,
            world_size=world_size,
        )

    def loss(self, batch: SpeechBatch) -> StepLoss:
        logits = self.model(batch.source, batch.source_lengths).logits
        smoothing = self.config.label_smoothing
        total = F.cross_entropy(logits, batch.labels, label_smoothing=smoothing)
        plain = F.cross_entropy(logits.detach(), batch.labels) if smoothing else total
        return StepLoss(total, float(plain.detach()), len(batch))

    def validate(self, rank: int, world_size: int) -> ValidationResult:
        device = next(self.model.parameters()).device
        loss, found = 0.0, {}
        self.validation.set_epoch(0)
        for batch in itertools.islice(self.validation, rank, None, world_size):
            batch = batch.to(device)
            logits = self.model(batch.source, batch.source_lengths).logits
            loss += float(F.cross_entropy(logits, batch.labels, reduction="sum"))
            found.update(zip(batch.index.tolist(), logits.argmax(-1).tolist(), strict=True))
        if world_size > 1:
            parts: list[Any] = [None] * world_size
            torch.distributed.all_gather_object(parts, (loss, found))
            loss = sum(part[0] for part in parts)
            found = {row: label for part in parts for row, label in part[1].items()}
        names = self.corpora.labels.names
        metrics = label_metrics(self.true, [found[row] for row in range(len(self.true))], names)
        utterances = self.corpora.validation.utterances[:SAMPLES]
        samples = [
            {"source": str(one.path), "label": one.text, "found": names[found[row]]}
            for row, one in enumerate(utterances)
        ]
        return ValidationResult(
            loss / len(self.true), {"accuracy": metrics.accuracy, "macro_f1": metrics.macro_f1}, samples
        )

    def save_model(self, path: Path) -> None:
        save_model(path, self.model)


class LabelTarget:
    """The label of the first of some utterances, as a list of one.

    Args:
        labels: the number of each utterance's label.
    """

    def __init__(self, labels: Sequence[int]):
        self._labels = labels

    def __call__(self, numbers: Sequence[int]) -> list[int]:
        return [self._labels[numbers[0]]]
