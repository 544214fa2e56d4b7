"""The task ``transcribe``: what is said in a sound, by an encoder of sounds and a decoder that attends to time."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from regard.configuration import Range, option
from regard.errors import ArgumentError, DataError
from regard.models.speech.configs import TranscriberConfig
from regard.tasks.inputs.sound import (
    HeardSound,
    SoundExamples,
    SoundInput,
    SoundOptions,
    SoundPrediction,
    SoundTraining,
    TrainedSounds,
    generated_speech,
)
from regard.tasks.lazy import np, pictures, records
from regard.tasks.options import EvaluationOptions, NBestOptions, SearchOptions, SoundColumn, TextColumn, TokenOptions
from regard.tasks.outputs.text import (
    AttendedText,
    SampledTextTraining,
    TextEvaluation,
    TextExperiment,
    TextTask,
    TrainedText,
    WrittenTexts,
    length_ratio,
)
from regard.tasks.outputs.text_metrics import ErrorRates, error_rates
from regard.tasks.registry import BUILT_IN_TASKS
from regard.tasks.rules import TRANSCRIBE
from regard.training.metrics import Metric
from regard.training.results import rounded

if TYPE_CHECKING:
    from torch import Tensor

    from regard.data.speech.utterances import Utterance
    from regard.data.text.batches import IdEncoder
    from regard.models.search import Hypothesis
    from regard.records import FrameAxis, TokenAxis
    from regard.training.run_folder import RunFolder

log = logging.getLogger("regard")

CTC_WEIGHT = 0.3
"""Weight of the alignment head in a search whose options do not give one."""


@dataclass(frozen=True)
class TranscribeData(SoundOptions, TokenOptions):
    """The sounds of a run, their features, and how texts are split into tokens."""

    text_column: str | None = None
    """Column of the texts. Default: the only one of a usual name, or the second of a table with two columns."""
    tokenizer: Literal["char", "word", "bpe"] = "char"
    """char, word or bpe (sub-words)."""
    vocabulary: int = 4000
    max_length: int = 400
    """Largest number of tokens of a text; sounds with longer training texts are left out."""

    columns = ("sound_column", "text_column")


@dataclass(frozen=True)
class TranscriptionTrainingConfig(SoundTraining, SampledTextTraining):
    """How a transcriber is trained, and for how long."""

    join: int = option(1, within=Range(1, 1000))
    """Each training example is made of 1 to so many random sounds, one after the other."""

    @property
    def joined(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.join


@dataclass(frozen=True)
class TranscriptionSearch(SearchOptions):
    """How a transcription is searched for."""

    batch_size: int = 32
    length_penalty: float = 0.5
    window: float = option(0.0, within=Range(0, 3600))
    """Recurrent decoder: seconds before and after the median of the last weights that a step attends to; 0: all."""
    ctc_weight: float | None = option(None, within=Range(0, 1))
    """Weight of the alignment head in the search beside the decoder, 0 to 1. Default: 0.3 where the model has one."""


@dataclass(frozen=True)
class TranscribePredictionOptions(NBestOptions, TranscriptionSearch):
    """How sounds are transcribed."""


@dataclass(frozen=True)
class TranscribeEvaluationOptions(TextColumn, SoundColumn, TranscriptionSearch, EvaluationOptions):
    """How a transcriber is measured on a data set."""


class SpokenTexts(SoundInput):
    """Sounds with what is said in them; those with too long a text are not trained on."""

    def encode(
        self, rows: list[Utterance], run: Any, learnt: Mapping[str, Any], target: IdEncoder, training: bool
    ) -> SoundExamples:
        if training:
            longest = run.data.max_length
            lengths = [len(ids) for ids in target.encode_batch(self.targets(rows))]
            short_enough = [row for row, length in enumerate(lengths) if 1 <= length <= longest]
            if not short_enough:
                raise DataError(f"none of {len(rows)} texts has at most {longest} tokens; raise max_length")
            if len(short_enough) < len(rows):
                left = len(rows) - len(short_enough)
                log.warning("left out %d of %d sounds whose text has more than %d tokens", left, len(rows), longest)
            rows = self.select(rows, short_enough)
        examples = super().encode(rows, run, learnt, target, training)
        if training and run.model.ctc_weight:
            ids = target.encode_batch(self.targets(examples.utterances))
            annotations = -(-examples.features.lengths // run.model.reduction)
            if count := too_short(annotations.tolist(), ids):
                log.warning(
                    "%d of %d sounds are too short for their text: the alignment head (ctc_weight) learns nothing from "
                    "them, since it needs an annotation, one every %g s, for each token of a text, and one more "
                    "between two equal tokens; check the texts, or give fewer convolutions or pyramid_layers",
                    count,
                    len(examples),
                    run.model.reduction * run.data.hop_seconds,
                )
        return examples


def too_short(annotations: Sequence[int], texts: Sequence[Sequence[int]]) -> int:
    """Returns the number of sounds that have too few annotations for an alignment with the tokens of their text."""
    from regard.models.speech.ctc import fewest_annotations

    return sum(has < fewest_annotations(ids) for has, ids in zip(annotations, texts, strict=True))


@dataclass(frozen=True, repr=False)
class Transcription(SoundPrediction, AttendedText):
    """A sound, what is said in it, and the attention weights.

    Attributes:
        sound: the sound as the model hears it.
        text: what is said.
        score: log-probability of the text in nats, divided by the length penalty of the search.
        tokens: labels of the tokens, without ``eos``.
        words: positions of the tokens of each word.
        word_labels: the words.
        weights: float32 ``[tokens, annotations]``.
        target_ids: ids of the tokens.
    """

    sound: HeardSound
    text: str
    score: float
    tokens: list[str]
    words: list[range]
    word_labels: list[str]
    weights: Tensor
    target_ids: tuple[int, ...] = field(default=(), repr=False)

    attended_input: ClassVar[str] = "sound"

    @property
    def ids(self) -> tuple[int, ...]:
        """`target_ids` by its name in version 0.2."""
        return self.target_ids

    def texts(self) -> tuple[tuple[str, str], ...]:
        return ("sound", self.sound.name), ("transcription", self.text)

    def axes(self) -> tuple[FrameAxis, TokenAxis]:
        return self.axis, records.TokenAxis(tuple(self.tokens), words=tuple(self.words))

    def word_weights(self) -> np.ndarray:
        """Returns the mean of the weights over the tokens of each word, float64 ``[words, annotations]``."""
        return pictures.merge(self.weights, self.words)

    def word_seconds(self) -> list[float]:
        """Returns the time of each word: the mean time of its attention weights."""
        return mean_seconds(self.word_weights(), self.sound.seconds).tolist()

    def details(self) -> dict[str, Any]:
        """Returns the words with their times, the tokens, the seconds of a column and the weights ``[token][time]``."""
        words = zip(self.word_labels, self.word_seconds(), strict=True)
        return {
            "words": [{"word": word, "seconds": round(seconds, 3)} for word, seconds in words],
            "tokens": self.tokens,
            "seconds": self.sound.seconds,
            "weights": rounded(self.weights),
        }


def mean_seconds(weights: np.ndarray, seconds: float) -> np.ndarray:
    """Returns the mean time of each row of weights ``[rows, annotations]``, in seconds; NaN for a row of zeros.

    Args:
        seconds: of an annotation; its time is the middle of it.
    """
    times = (np.arange(weights.shape[1]) + 0.5) * seconds
    with np.errstate(invalid="ignore"):
        return (weights @ times) / weights.sum(axis=1)


@dataclass(frozen=True, repr=False, kw_only=True)
class TranscribeEvaluation(ErrorRates, TextEvaluation):
    """How good a transcriber is on a data set."""

    sounds: int
    """Evaluated sounds."""
    seconds_of_sound: float
    whole: float
    """Share of the sounds whose transcription has no error, 0 to 1."""
    alignment_error: float | None
    """Mean distance in seconds between the mean time of a word's attention weights and the middle of the word; None if
    the data do not say when words are said."""
    attention_on_words: float | None
    """Share of a word's attention weights that are within its true time, 0 to 1; None likewise."""
    window: float
    """Half-width of the attention's window in seconds; 0: none."""
    ctc_weight: float
    """Weight of the alignment head in the search."""
    too_short: int
    """Sounds with too few annotations for an alignment with their text, which the alignment head cannot give."""
    references: list[str]
    transcriptions: list[Transcription]

    examples: ClassVar[tuple[str, ...]] = ("references", "transcriptions")

    def lines(self) -> list[str]:
        first = (
            f"{self.data}: {self.sounds} sounds, {self.seconds_of_sound / 60:.1f} min · WER {self.wer:.4f} · "
            f"CER {self.cer:.4f} · without an error {self.whole:.4f} · loss {self.loss:.4f}"
        )
        counts = (
            f"  {self.words} words: {self.substitutions} substituted, {self.deletions} deleted, "
            f"{self.insertions} inserted"
        )
        others = [f"CTC weight {self.ctc_weight:g}"] * (self.ctc_weight > 0)
        others += [f"window {self.window:g} s"] * (self.window > 0)
        lines = [first, self.search_line(*others), counts]
        if self.too_short and self.ctc_weight:
            lines.append(
                f"  {self.too_short} of {self.sounds} sounds have too few annotations for their text, which the "
                "alignment head cannot give; --ctc-weight 0 searches without it"
            )
        if self.alignment_error is not None and self.attention_on_words is not None:
            lines.append(
                f"  alignment error {self.alignment_error:.3f} s · attention within the true time "
                f"{self.attention_on_words:.3f}"
            )
        return lines

    def write(self, folder: RunFolder, name: str) -> list[Path]:
        """Writes the numbers, and the transcriptions with their references (``evaluation-<name>.txt``)."""
        references = (re.sub(r"[\t\r\n]+", " ", text) for text in self.references)
        rows = [
            f"{one.sound.name}\t{reference}\t{one.text}"
            for reference, one in zip(references, self.transcriptions, strict=True)
        ]
        lines = ["sound\treference\ttranscription", *rows]
        return self.write_table(folder, f"evaluation-{name}.txt", lines, name)


class TrainedTranscriber(TrainedSounds, TrainedText):
    """The best model of a run with its tokenizer."""

    def predict_with(self, inputs: Sequence[Any], options: TranscribePredictionOptions) -> list[Transcription]:
        return super().predict_with(inputs, options)

    def write_texts(self, inputs: Sequence[HeardSound], options: Any) -> list[Transcription]:
        with self._windowed(options.window):
            return super().write_texts(inputs, options)

    @contextmanager
    def _windowed(self, window: float) -> Iterator[None]:
        """Limits the decoder's attention to a window of seconds on each side while the context lasts; 0 is no limit."""
        config, decoder = self.model.config, self.model.decoder
        if not window:
            yield
        elif config.architecture != "transformer" and config.attention == "soft":
            before, decoder.window = decoder.window, round(window / self.seconds)
            try:
                yield
            finally:
                decoder.window = before
        else:
            raise ArgumentError(
                "window is for a recurrent decoder with soft attention: it follows the weights of the step before; "
                f"this model has architecture {config.architecture!r} and attention {config.attention!r}"
            )

    @property
    def seconds(self) -> float:
        """Seconds between two annotations."""
        return self.model.config.reduction * self.config.data.hop_seconds

    def ctc_weight(self, options: Any) -> float:
        """Returns the weight of the alignment head in a search."""
        if options.ctc_weight is not None:
            return options.ctc_weight
        return 0.0 if self.model.alignment_head is None else CTC_WEIGHT

    def decoder(self, options: Any) -> Any:
        return self.model.searched(self.ctc_weight(options))

    def longest(self, inputs: Sequence[HeardSound], options: Any) -> list[int]:
        return self.bounded(inputs, self.config.data.max_length)

    def predictions(self, inputs: Sequence[HeardSound], hypotheses: Sequence[Hypothesis]) -> list[Transcription]:
        written = []
        for sound, hypothesis in zip(inputs, hypotheses, strict=True):
            assert hypothesis.weights is not None
            tokens = hypothesis.tokens
            written.append(
                Transcription(
                    sound=sound,
                    text=self.tokenizer.decode(tokens),
                    score=hypothesis.score,
                    tokens=self.tokenizer.tokens(tokens),
                    words=self.tokenizer.word_groups(tokens),
                    word_labels=self.tokenizer.words(tokens),
                    weights=hypothesis.weights,
                    target_ids=tuple(tokens),
                )
            )
        return written

    def evaluation(self, written: WrittenTexts, options: TranscribeEvaluationOptions) -> TranscribeEvaluation:
        rows, inputs, predictions = written.rows, written.inputs, written.predictions

        texts, references = written.texts, [text for (text,) in written.references]
        rates = error_rates(texts, references)
        ids = self.tokenizer.encode_batch(references)
        loss, weights = self.known_texts(inputs, ids, options.batch_size, need_weights=True)
        word_weights = [
            pictures.merge(of_sound, spoken_words(self.tokenizer.word_groups(tokens), reference, self.tokenizer))
            for of_sound, tokens, reference in zip(weights, ids, references, strict=True)
        ]
        error, share = alignment_times(rows, word_weights, self.seconds) or (None, None)
        whole = sum(one.split() == text.split() for one, text in zip(texts, references, strict=True))
        return TranscribeEvaluation(
            **written.fields,
            sounds=len(inputs),
            seconds_of_sound=sum(one.duration for one in inputs),
            **vars(rates),
            whole=whole / max(1, len(inputs)),
            loss=loss,
            alignment_error=error,
            attention_on_words=share,
            window=options.window,
            ctc_weight=self.ctc_weight(options),
            too_short=too_short([one.annotations for one in inputs], ids),
            references=self.input.targets(rows),
            transcriptions=predictions,
        )


def spoken_words(groups: list[range], text: str, tokenizer: Any) -> list[range]:
    """Returns the tokens of each word between white space; a space that is a token belongs to the word before it."""
    spans, word_of = tokenizer.spans(text), []
    for word, part in enumerate(text.split(" ")):
        word_of += [word] * (len(part) + 1)
    owners = [word_of[min(span.start, len(word_of) - 1)] for span in spans]
    words: list[range] = []
    start = 0
    while start < len(owners):
        stop = start + 1
        while stop < len(owners) and (owners[stop] == owners[start] or not len(spans[stop])):
            stop += 1
        words.append(range(start, stop))
        start = stop
    return words


def alignment_times(
    utterances: Sequence[Utterance], word_weights: Sequence[np.ndarray], seconds: float
) -> tuple[float, float] | None:
    """Returns the mean distance of attention from the middles of words in seconds, and its share within their times.

    Returns:
        None if the times of an utterance are not known.

    Raises:
        DataError: an utterance has not one time for each word.
    """
    if any(one.segments is None for one in utterances):
        return None
    distances, shares = [], []
    for one, weights in zip(utterances, word_weights, strict=True):
        assert one.segments is not None
        if len(one.segments) != len(weights):
            raise DataError(
                f"{one.name}: the column 'segments' has {len(one.segments)} times for {len(weights)} words; one is "
                "needed for each"
            )
        starts, ends = np.array(one.segments).T
        edges = np.arange(weights.shape[1] + 1) * seconds
        within = np.minimum(ends[:, None], edges[1:]) - np.maximum(starts[:, None], edges[:-1])
        share = (weights * np.clip(within / seconds, 0.0, 1.0)).sum(axis=1) / np.maximum(weights.sum(axis=1), 1e-12)
        distances += np.abs(mean_seconds(weights, seconds) - (starts + ends) / 2).tolist()
        shares += share.tolist()
    return float(np.mean(distances)), float(np.mean(shares))


class TranscribeTask(TextTask):
    """Writing what is said."""

    name = "transcribe"
    hub_task = "automatic-speech-recognition"
    summary = BUILT_IN_TASKS[name]
    input = SpokenTexts(generated_speech(seed=1))
    input_hint = "A sound to transcribe"
    answer_name = "Transcription"
    metrics = (
        Metric(
            "wer",
            "WER",
            higher_is_better=False,
            digits=4,
            trivial=0.9,
            perfect=0.0,
            unit="errors per word or character",
        ),
        Metric("cer", "CER", higher_is_better=False, digits=4, perfect=0.0, unit="errors per word or character"),
    )
    data_config = TranscribeData
    model_config = TranscriberConfig
    training_config = TranscriptionTrainingConfig
    rules = TRANSCRIBE
    prediction_config = TranscribePredictionOptions
    evaluation_config = TranscribeEvaluationOptions
    experiment = TextExperiment
    trained = TrainedTranscriber
    model_class = "regard.models.speech.transcriber:Transcriber"
    variant = ("model", "architecture")
    picture_prefix = "sound"
    sample_names = ("source", "reference", "transcription")
    reports = ("evaluation-*.txt",)
    lack = "which does not transcribe"

    def check_run(self, run: Any) -> None:
        super().check_run(run)
        run.training.check_architecture(run.model)

    def scores(self, texts: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
        rates = error_rates(texts, [text for (text,) in references])
        return {"wer": rates.wer, "cer": rates.cer}

    def data_fields(self, run: Any, files: Mapping[str, Any], train: Any) -> dict[str, Any]:
        return {
            "width": train.features.width,
            "target_vocabulary": len(files["tokenizer"]),
            "length_ratio": length_ratio(train, run.model.reduction),
        }


TASK = TranscribeTask()
