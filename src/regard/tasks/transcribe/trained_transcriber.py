"""A trained transcriber, loaded from its run folder: writes what is said, and when."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from regard.data.speech.batches import SpeechBatch
from regard.data.text.tokenizers import Tokenizer
from regard.errors import ArgumentError, RunError
from regard.explanations.model_attention import ModelAttention
from regard.models.search import Hypothesis, MinimumRisk
from regard.models.speech.location_decoder import LocationDecoder
from regard.models.speech.transcriber import Transcriber
from regard.models.translator import longest_translation
from regard.records import TokenAxis
from regard.tasks.run_data import chunks, load_files_and_model, on_device
from regard.tasks.run_files import tokenizer_path
from regard.tasks.sound_inputs import HeardSound, TrainedOnSounds
from regard.tasks.transcribe.config import EvaluationConfig, PredictionConfig
from regard.tasks.transcribe.task import TASK, TranscriptionRun
from regard.tasks.translator_attention import source_attention
from regard.training.run_folder import RunFolder
from regard.training.task import Prediction

if TYPE_CHECKING:
    from regard.tasks.transcribe.evaluation import Evaluation


@dataclass(frozen=True, slots=True, repr=False)
class Transcription(Prediction):
    """A sound, what is said in it, and the attention weights.

    Attributes:
        sound: the sound as the model hears it.
        text: what is said.
        score: log-probability of the text in nats, divided by the length penalty of the search.
        tokens: labels of the tokens, without ``eos``.
        words: positions of the tokens of each word.
        word_labels: the words.
        weights: float32 ``[tokens, annotations]``.
        ids: of the tokens.
    """

    sound: HeardSound
    text: str
    score: float
    tokens: list[str]
    words: list[range]
    word_labels: list[str]
    weights: Tensor
    ids: tuple[int, ...] = field(default=(), repr=False)

    def texts(self) -> tuple[tuple[str, str], ...]:
        return ("sound", self.sound.name), ("transcription", self.text)

    def word_weights(self) -> np.ndarray:
        """float64 ``[words, annotations]``: the mean over the tokens of each word."""
        from regard.pictures import merge

        return merge(self.weights, self.words)

    def word_seconds(self) -> list[float]:
        """The time of each word: the mean time of its attention weights."""
        return mean_seconds(self.word_weights(), self.sound.seconds).tolist()

    def to_dict(self) -> dict[str, Any]:
        """Sound, text, score in nats, words and their times, tokens, seconds of a column, weights ``[token][time]``."""
        words = zip(self.word_labels, self.word_seconds(), strict=True)
        return {
            "sound": self.sound.name,
            "transcription": self.text,
            "score": round(self.score, 4),
            "words": [{"word": word, "seconds": round(seconds, 3)} for word, seconds in words],
            "tokens": self.tokens,
            "seconds": self.sound.seconds,
            "weights": [[round(float(weight), 4) for weight in row] for row in self.weights],
        }


def mean_seconds(weights: np.ndarray, seconds: float) -> np.ndarray:
    """The mean time of each row of weights ``[rows, annotations]``, in seconds; NaN for a row of zeros.

    Args:
        weights: at least 0.
        seconds: of an annotation; its time is the middle of it.
    """
    times = (np.arange(weights.shape[1]) + 0.5) * seconds
    with np.errstate(invalid="ignore"):
        return (weights @ times) / weights.sum(axis=1)


CTC_WEIGHT = 0.3
"""Weight of the alignment head in a search that is told none."""


class TrainedTranscriber(TrainedOnSounds):
    """The best model of a run with its tokenizer.

    Args:
        folder: the run folder, or its path. Only safetensors, JSON and safe YAML are read.
        device: PyTorch device of the model.

    Raises:
        RunError: the folder is not a run folder, or its files are missing, damaged or from different runs.
    """

    def __init__(self, folder: RunFolder | str, device: str = "cpu"):
        self.task = TASK
        self.folder = folder if isinstance(folder, RunFolder) else RunFolder.open(folder)
        self.config: TranscriptionRun = self.folder.read_config(TASK)
        (self.tokenizer,), model = load_files_and_model(
            self.folder, {tokenizer_path(self.folder): Tokenizer.load}, Transcriber, "which does not transcribe"
        )
        if len(self.tokenizer) != model.config.target_vocabulary:
            raise RunError(f"{self.folder.path}: the vocabulary sizes of the tokenizer and of the model differ")
        self.model: Transcriber = on_device(model, device)  # pyright: ignore[reportIncompatibleVariableOverride]
        self.device = device

    @property
    def tokenizers(self) -> Mapping[str, Tokenizer]:
        return {"text": self.tokenizer}

    def predict_with(self, inputs: Sequence[Any], options: PredictionConfig) -> list[Transcription]:
        return self.transcribe(
            self.hear(inputs),
            width=options.beam,
            length_penalty=options.length_penalty,
            risk=options.minimum_risk,
            window=options.window,
            ctc_weight=options.ctc_weight,
            batch_size=options.batch_size,
        )

    def transcribe(
        self,
        sounds: Sequence[HeardSound],
        *,
        width: int = 5,
        length_penalty: float = 0.5,
        risk: MinimumRisk | None = None,
        window: float = 0.0,
        ctc_weight: float | None = None,
        batch_size: int = 32,
        on_batch: Callable[[int], None] | None = None,
    ) -> list[Transcription]:
        """Transcribe sounds.

        Args:
            sounds: what `hear` gives.
            width: beam width, hypotheses for each sound; 1: greedy search.
            length_penalty: exponent α of the beam's length normalization.
            risk: choose from samples, instead of a beam: `regard.models.search.minimum_risk`.
            window: half-width in seconds of the window around the median of the last weights (`LocationDecoder`); 0:
                none.
            ctc_weight: of the alignment head in the search, 0 to 1 (`JointDecoder`); None: `CTC_WEIGHT` for a model
                that has one.
            batch_size: sounds, of similar length, that are transcribed at once.
            on_batch: called after each batch with the number of sounds transcribed so far.

        Returns:
            the transcriptions, in the order of ``sounds``.

        Raises:
            ArgumentError: a window for a Transformer, whose steps know no weights of the step before; a
                ``ctc_weight`` for a model without an alignment head.
        """
        weight = self.ctc_weight(ctc_weight)
        found: dict[int, Transcription] = {}
        order = sorted(range(len(sounds)), key=lambda row: len(sounds[row].features))
        with torch.inference_mode(), _windowed(self.model, window, self.seconds):
            for rows in chunks(order, batch_size):
                hypotheses = self._search([sounds[row] for row in rows], width, length_penalty, risk, weight)
                for row, hypothesis in zip(rows, hypotheses, strict=True):
                    found[row] = self._transcription(sounds[row], hypothesis)
                if on_batch:
                    on_batch(len(found))
        return [found[row] for row in range(len(sounds))]

    def ctc_weight(self, asked: float | None) -> float:
        """The weight of the alignment head in a search, if this one or none was asked for."""
        if asked is not None:
            return asked
        return 0.0 if self.model.alignment_head is None else CTC_WEIGHT

    @property
    def seconds(self) -> float:
        """Of an annotation."""
        return self.model.config.reduction * self.config.data.hop_seconds

    def _search(
        self,
        sounds: list[HeardSound],
        width: int,
        length_penalty: float,
        risk: MinimumRisk | None,
        ctc_weight: float,
    ) -> list[Hypothesis]:
        batch = SpeechBatch.of([one.features for one in sounds]).to(self.device)
        longest = [min(self.config.data.max_length, longest_translation(one.annotations)) for one in sounds]
        return self.model.translate(
            batch.source,
            batch.source_lengths,
            width=width,
            length_penalty=length_penalty,
            risk=risk,
            max_length=longest,
            decoder=self.model.searched(ctc_weight),
        )

    def _transcription(self, sound: HeardSound, hypothesis: Hypothesis) -> Transcription:
        assert hypothesis.weights is not None
        tokens = hypothesis.tokens
        words = self.tokenizer.word_groups(tokens)
        return Transcription(
            sound=sound,
            text=self.tokenizer.decode(tokens),
            score=hypothesis.score,
            tokens=self.tokenizer.tokens(tokens),
            words=words,
            word_labels=self.tokenizer.words(tokens),
            weights=hypothesis.weights,
            ids=tuple(tokens),
        )

    def evaluate_with(self, data: Any, options: EvaluationConfig) -> Evaluation:
        from regard.tasks.run_files import bundled_path
        from regard.tasks.transcribe.evaluation import evaluate

        trained_on = self.config.data
        columns = options.sound_column or trained_on.sound_column, options.text_column or trained_on.text_column
        if isinstance(data, str) and data == "bundled" and not Path(data).exists():
            # The test part does not depend on the number of training sounds, so a run on other data makes it again.
            from regard.tasks.transcribe.experiment import write_bundled_test

            with tempfile.TemporaryDirectory(prefix="regard-") as folder:
                test = write_bundled_test(folder)
                columns = {"sound_column": "audio", "text_column": "text"}
                return replace(self.evaluate_with(test, replace(options, **columns)), data="bundled")
        if isinstance(data, (str, Path)) and Path(data) == bundled_path(self.folder, "test"):
            columns = "audio", "text"
        return evaluate(self, data, *columns, options)

    def draw(self, predictions: Sequence[Prediction], folder: Path) -> list[Path]:
        from regard.tasks.transcribe.pictures import draw_transcriptions

        return draw_transcriptions(folder, [found for found in predictions if isinstance(found, Transcription)])

    def attentions(self, prediction: Prediction) -> list[ModelAttention]:
        assert isinstance(prediction, Transcription)
        return source_attention(
            self.model,
            torch.from_numpy(prediction.sound.features.copy())[None],
            prediction.ids,
            prediction.sound.axis(),
            TokenAxis(tuple(prediction.tokens), words=tuple(prediction.words)),
        )


class _windowed:  # noqa: N801 (a context)
    """In this context the decoder of a model attends to a window of so many seconds on each side."""

    def __init__(self, model: Transcriber, window: float, seconds: float):
        self._decoder = getattr(model, "decoder", None)
        self._width = round(window / seconds) if window else None
        if window and not isinstance(self._decoder, LocationDecoder):
            raise ArgumentError(
                "window is for a recurrent decoder; this model's decoder is a Transformer, whose steps do not know the "
                "weights of the step before"
            )

    def __enter__(self) -> None:
        if isinstance(self._decoder, LocationDecoder):
            self._before, self._decoder.window = self._decoder.window, self._width

    def __exit__(self, *_: object) -> None:
        if isinstance(self._decoder, LocationDecoder):
            self._decoder.window = self._before
