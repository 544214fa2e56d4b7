"""One prepared training of a transcriber: its data, its model, its loss and its validation."""

import itertools
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from regard.data.batches import Batches
from regard.data.speech.batches import SpeechBatch, Variation, speech_batches
from regard.data.text.tokenizers import Tokenizer
from regard.errors import ArgumentError, DataError
from regard.models.checkpoint import save_model
from regard.models.speech.transcriber import (
    RecurrentTranscriber,
    RecurrentTranscriberConfig,
    Transcriber,
    TransformerTranscriber,
    TransformerTranscriberConfig,
)
from regard.models.translator import longest_translation
from regard.tasks.greedy_validation import GreedyValidation
from regard.tasks.run_data import run_tokenizer
from regard.tasks.run_files import bundled_path, tokenizer_path
from regard.tasks.sound_data import SoundPart, check_width, feature_batches, open_training, sound_part
from regard.tasks.transcribe.task import TranscriptionRun
from regard.tasks.transcribe.word_errors import error_rates
from regard.training.randomness import seed_step
from regard.training.run_folder import RunFolder
from regard.training.task import Experiment, StepLoss, ValidationResult

log = logging.getLogger("regard")

SAMPLES = 4
BUNDLED_SEED = 1
BUNDLED_VALIDATION, BUNDLED_TEST = 100, 200


@dataclass(frozen=True, slots=True)
class Corpora:
    """The training and validation data of a run."""

    train: SoundPart
    validation: SoundPart
    tokenizer: Tokenizer


def open_corpora(run: TranscriptionRun, folder: RunFolder) -> Corpora:
    """List, tokenize and compute the features of the training and validation data of a run.

    The tokenizer is trained on the training texts and saved in the run folder; a saved one is loaded instead. A run
    that starts from the model of another run takes its tokenizer. The bundled corpus is written into the run folder.

    Raises:
        DataError: the data cannot be used.
        RunError: the tokenizer of ``init_from`` does not fit.
    """
    config = run.data
    if config.bundled:
        write_bundled(folder, config.bundled)
    listed, held = open_training(config, folder, lowercase=config.lowercase)
    train, validation = sound_part(config, listed, overlong=False), sound_part(config, held, overlong=True)
    check_width(validation.features, train.features.width, validation.utterances[0].name)
    texts = [one.text for one in train.utterances]
    tokenizer = run_tokenizer(
        tokenizer_path(folder),
        run.training.init_from,
        config.tokenizer,
        config.lowercase,
        lambda: Tokenizer.train(texts, config.tokenizer, config.vocabulary, config.lowercase),
    )
    lengths = np.array([len(ids) for ids in tokenizer.encode_batch(texts)])
    kept = np.flatnonzero((lengths >= 1) & (lengths <= config.max_length))
    if not len(kept):
        raise DataError(f"none of {len(texts)} texts has at most {config.max_length} tokens; raise max_length")
    if len(kept) < len(texts):
        left = len(texts) - len(kept)
        log.warning("left out %d of %d sounds whose text has more than %d tokens", left, len(texts), config.max_length)
        train = train.select(kept.tolist())
    return Corpora(train, validation, tokenizer)


def write_bundled(folder: RunFolder, sounds: int) -> None:
    """Write the generated speech into the run folder, unless it is already there.

    Args:
        folder: the run folder.
        sounds: training utterances. The validation part has 100, the test part 200.
    """
    from regard.data.speech.voices import write_speech

    if not bundled_path(folder, "train").is_file():
        sizes = {"train": sounds, "validation": BUNDLED_VALIDATION, "test": BUNDLED_TEST}
        write_speech(folder.tree("corpus"), sizes, BUNDLED_SEED)


def write_bundled_test(folder: str) -> str:
    """Write the test part of the generated speech into a folder, and return its table."""
    from regard.data.speech.voices import write_speech

    return str(write_speech(folder, {"validation": BUNDLED_VALIDATION, "test": BUNDLED_TEST}, BUNDLED_SEED)["test"])


class TranscriptionExperiment(Experiment):
    """A transcriber and its data.

    Args:
        config: the configuration of the run.
        folder: the run folder, in which the tokenizer and the bundled corpus are.
    """

    unit = "tokens"

    def __init__(self, config: TranscriptionRun, folder: RunFolder):
        self.config = config.training
        if config.model.encoder == "transformer" and self.config.scheduled_sampling:
            raise ArgumentError("scheduled_sampling must be 0 with encoder 'transformer', which has no steps")
        self.corpora = open_corpora(config, folder)
        validation = self.corpora.validation
        self.references = [one.text for one in validation.utterances]
        # The libraries that opened the data may have drawn random numbers.
        seed_step(self.config.seed, -1)
        self.model: Transcriber = build_model(config, self.corpora)  # pyright: ignore[reportIncompatibleVariableOverride]
        if config.model.normalization == "corpus":
            self.model.encoder.input.fit(feature_batches(self.corpora.train.features))
        reduction = self.model.config.reduction
        self.validation = GreedyValidation(
            speech_batches(validation.features, self._target(validation), self.config.batch_size),
            len(self.references),
            lambda row, tokens: self.corpora.tokenizer.decode(tokens),
            config.data.max_length,
            longest=lambda frames: longest_translation(-(-frames // reduction)),
        )
        seconds = float(self.corpora.train.features.lengths.sum()) * config.data.hop_seconds
        self.description = (
            f"{len(self.corpora.train.features)} sounds, {seconds / 60:.1f} min · "
            f"{self.corpora.train.features.width} features · vocabulary {len(self.corpora.tokenizer)}"
        )

    def _target(self, part: SoundPart) -> "Target":
        return Target(self.corpora.tokenizer, [one.text for one in part.utterances])

    def batches(self, rank: int, world_size: int) -> Batches[Any, SpeechBatch]:
        return speech_batches(
            self.corpora.train.features,
            self._target(self.corpora.train),
            self.config.batch_size,
            Variation(self.config.join, self.config.stretch),
            seed=self.config.seed,
            rank=rank,
            world_size=world_size,
        )

    def loss(self, batch: SpeechBatch) -> StepLoss:
        loss = self.model.loss(
            batch.source,
            batch.source_lengths,
            batch.target,
            batch.target_lengths,
            label_smoothing=self.config.label_smoothing,
            sampling_probability=self.config.scheduled_sampling,
        )
        return StepLoss(loss.total, float(loss.nll), batch.target_tokens)

    def validate(self, rank: int, world_size: int) -> ValidationResult:
        found = self.validation.run(self.model, rank, world_size)
        rates = error_rates(found.texts, self.references)
        utterances = self.corpora.validation.utterances
        samples = [
            {"source": str(one.path), "reference": one.text, "transcription": text}
            for one, text in itertools.islice(zip(utterances, found.texts, strict=True), SAMPLES)
        ]
        return ValidationResult(found.loss, {"wer": rates.wer, "cer": rates.cer}, samples)

    def save_model(self, path: Path) -> None:
        save_model(path, self.model)


class Target:
    """The ids of the texts of utterances, one after the other.

    Args:
        tokenizer: encodes the texts.
        texts: of all utterances.
    """

    def __init__(self, tokenizer: Tokenizer, texts: Sequence[str]):
        self._tokenizer, self._texts = tokenizer, texts

    def __call__(self, numbers: Sequence[int]) -> list[int]:
        return self._tokenizer.encode(" ".join(self._texts[number] for number in numbers))


def build_model(config: TranscriptionRun, corpora: Corpora) -> Transcriber:
    """A new model: with the configuration of the run, and the sizes that the data decide."""
    model = config.model
    assert model.decoder_layers is not None
    fields = model.encoder_fields(corpora.train.features.width) | {
        "target_vocabulary": len(corpora.tokenizer),
        "decoder_layers": model.decoder_layers,
        "ctc_weight": model.ctc_weight,
    }
    if model.encoder == "transformer":
        return TransformerTranscriber(TransformerTranscriberConfig(**fields))
    return RecurrentTranscriber(
        RecurrentTranscriberConfig(
            **fields,
            embedding_dim=model.embedding,
            decoder_dim=model.decoder_hidden,
            score=model.score,
            score_dim=model.score_features,
            location_channels=model.location_channels,
            location_width=model.location_width,
            normalizer=model.normalizer,
        )
    )
