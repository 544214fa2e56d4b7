"""Metrics of a trained transcriber on a data set: word and character error rate, distance of attention from words."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.atomic_file import write_atomically
from regard.data.speech.batches import SpeechBatch
from regard.data.speech.utterances import Utterance, feature_table, open_utterances
from regard.errors import DataError
from regard.tasks.run_data import chunks
from regard.tasks.search_options import search_line
from regard.tasks.sound_data import check_width
from regard.tasks.sound_inputs import HeardSound
from regard.tasks.transcribe.config import EvaluationConfig
from regard.tasks.transcribe.trained_transcriber import TrainedTranscriber, Transcription, mean_seconds
from regard.tasks.transcribe.word_errors import error_rates
from regard.training import task
from regard.training.run_folder import RunFolder


@dataclass(frozen=True, slots=True, repr=False)
class Evaluation(task.Evaluation):
    """How good a transcriber is on a data set."""

    data: str
    """Name of the data set."""
    sounds: int
    """Evaluated sounds."""
    seconds_of_sound: float
    wer: float
    """Word error rate: (substitutions + deletions + insertions) / words of the references."""
    cer: float
    """Character error rate, spaces included."""
    substitutions: int
    """Words."""
    deletions: int
    insertions: int
    words: int
    """Words of the references."""
    whole: float
    """Share of the sounds whose transcription has no error, 0 to 1."""
    loss: float
    """Mean −log p of a reference token, in nats, given the tokens before it."""
    alignment_error: float | None
    """Mean distance in seconds between the mean time of a word's attention weights and the middle of the word; None if
    the data do not say when words are said."""
    attention_on_words: float | None
    """Share of a word's attention weights that are within its true time, 0 to 1; None likewise."""
    width: int
    """Beam width: hypotheses for each sound; samples (``risk``) need no beam."""
    length_penalty: float
    """Exponent α of the beam's length normalization."""
    risk: dict[str, Any] | None
    """How samples were drawn and compared; None: a beam search."""
    window: float
    """Half-width of the attention's window in seconds; 0: none."""
    ctc_weight: float
    """Weight of the alignment head in the search."""
    seconds: float
    """Duration of the transcription."""
    references: list[str]
    transcriptions: list[Transcription]

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
        found = [first, search_line(self.width, self.length_penalty, self.risk, *others), counts]
        if self.alignment_error is not None and self.attention_on_words is not None:
            found.append(
                f"  alignment error {self.alignment_error:.3f} s · attention within the true time "
                f"{self.attention_on_words:.3f}"
            )
        return found

    def to_dict(self) -> dict[str, Any]:
        """All fields but the texts."""
        content: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        del content["transcriptions"], content["references"]
        return content

    def write(self, folder: RunFolder, name: str) -> list[Path]:
        """Write the numbers, and the transcriptions with their references (``evaluation-<name>.txt``)."""
        paths = task.Evaluation.write(self, folder, name)
        rows = [
            f"{found.sound.name}\t{reference}\t{found.text}\n"
            for reference, found in zip(self.references, self.transcriptions, strict=True)
        ]
        path = folder.file(f"evaluation-{name}.txt")
        write_atomically(path, "".join(["sound\treference\ttranscription\n", *rows]).encode())
        return [*paths, path]


def evaluate(
    transcriber: TrainedTranscriber,
    data: Any,
    sound_column: str | None,
    text_column: str | None,
    options: EvaluationConfig,
) -> Evaluation:
    """Transcribe a data set and compare the transcriptions with the references.

    Args:
        transcriber: the trained model.
        data: a source of `regard.data.speech.utterances.open_utterances`. If it is a table with a column ``segments``
            (as the bundled corpus has it), the alignment error is measured too.
        sound_column: column of the paths; None: the first of two.
        text_column: column of the texts; None: the second of two.
        options: how to search, and how many sounds.

    Raises:
        DataError: the data cannot be used.
    """
    config = transcriber.config.data
    utterances = open_utterances(data, sound_column, text_column, lowercase=config.lowercase, limit=options.limit)
    features = feature_table(utterances, config.front_end)
    check_width(features, transcriber.model.config.width, utterances[0].name)
    reduction = transcriber.model.config.reduction
    sounds = [
        HeardSound(str(one.path), features[number], config.hop_seconds, reduction)
        for number, one in enumerate(utterances)
    ]
    start = time.monotonic()
    found = transcriber.transcribe(
        sounds,
        width=options.beam,
        length_penalty=options.length_penalty,
        risk=options.minimum_risk,
        window=options.window,
        ctc_weight=options.ctc_weight,
        batch_size=options.batch_size,
    )
    seconds = time.monotonic() - start
    references = [transcriber.tokenizer.normalize(one.text) for one in utterances]
    rates = error_rates([one.text for one in found], references)
    loss, word_weights = _teacher_forced(transcriber, sounds, references, options.batch_size)
    times = alignment_times(utterances, word_weights, transcriber.seconds)
    return Evaluation(
        data=str(data),
        sounds=len(sounds),
        seconds_of_sound=float(features.lengths.sum()) * config.hop_seconds,
        wer=rates.wer,
        cer=rates.cer,
        substitutions=rates.substitutions,
        deletions=rates.deletions,
        insertions=rates.insertions,
        words=rates.words,
        whole=float(np.mean([one.text.split() == text.split() for one, text in zip(found, references, strict=True)])),
        loss=loss,
        alignment_error=None if times is None else times[0],
        attention_on_words=None if times is None else times[1],
        width=options.beam,
        length_penalty=options.length_penalty,
        risk=None if options.minimum_risk is None else asdict(options.minimum_risk),
        window=options.window,
        ctc_weight=transcriber.ctc_weight(options.ctc_weight),
        seconds=seconds,
        references=references,
        transcriptions=found,
    )


def _teacher_forced(
    transcriber: TrainedTranscriber, sounds: Sequence[HeardSound], references: Sequence[str], batch_size: int
) -> tuple[float, list[np.ndarray]]:
    """Mean −log p of a reference token in nats, and for each sound the weights ``[words, annotations]``."""
    from regard.pictures import merge

    tokenizer, model = transcriber.tokenizer, transcriber.model
    ids = tokenizer.encode_batch(list(references))
    order = sorted(range(len(sounds)), key=lambda row: len(sounds[row].features))
    total, tokens = 0.0, 0
    found: list[np.ndarray] = [np.empty(0)] * len(sounds)
    with torch.inference_mode():
        for rows in chunks(order, batch_size):
            batch = SpeechBatch.of([sounds[row].features for row in rows], [ids[row] for row in rows])
            moved = batch.to(transcriber.device)
            predicted = model(moved.source, moved.source_lengths, moved.target, moved.target_lengths)
            loss = model.loss_of(predicted, moved.target, moved.target_lengths, 0.0)
            total += float(loss.nll) * batch.target_tokens
            tokens += batch.target_tokens
            weights = predicted.weights.float().cpu()
            for place, row in enumerate(rows):
                of_sound = weights[place, : len(ids[row]), : sounds[row].annotations]
                found[row] = merge(of_sound, _spoken(tokenizer.word_groups(ids[row]), references[row], tokenizer))
    return total / max(1, tokens), found


def _spoken(groups: list[range], text: str, tokenizer: Any) -> list[range]:
    """The tokens of each word between white space; a space that is a token belongs to the word before it."""
    spans = tokenizer.spans(text)
    word_of, place = [], 0
    for word, part in enumerate(text.split(" ")):
        word_of += [word] * (len(part) + 1)
    owners = [word_of[min(span.start, len(word_of) - 1)] for span in spans]
    found: list[range] = []
    while place < len(owners):
        stop = place + 1
        while stop < len(owners) and (owners[stop] == owners[place] or not len(spans[stop])):
            stop += 1
        found.append(range(place, stop))
        place = stop
    return found


def alignment_times(
    utterances: Sequence[Utterance], word_weights: Sequence[np.ndarray], seconds: float
) -> tuple[float, float] | None:
    """The mean distance of attention from the middle of each word in seconds, and the mean share within its time.

    Args:
        utterances: what was said, and when.
        word_weights: for each utterance ``[words, annotations]``.
        seconds: of an annotation.

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
