"""Metrics of a trained classifier of sounds on a data set."""

import time
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F

from regard.data.speech.utterances import feature_table, open_utterances
from regard.tasks.label_evaluation import LabelEvaluation
from regard.tasks.label_lines import confusion_lines, table_lines
from regard.tasks.label_metrics import LabelScores, label_metrics
from regard.tasks.sound_data import check_width
from regard.tasks.sound_inputs import HeardSound
from regard.tasks.sounds.config import EvaluationConfig
from regard.tasks.sounds.experiment import require_labels
from regard.tasks.sounds.trained_listener import TrainedListener


@dataclass(frozen=True, slots=True, repr=False)
class Evaluation(LabelEvaluation):
    """How good a classifier of sounds is on a data set."""

    example = "sound"

    data: str
    """Name of the data set."""
    sounds: int
    """Evaluated sounds."""
    seconds_of_sound: float
    accuracy: float
    """0 to 1."""
    macro_precision: float
    """Mean over labels, 0 to 1."""
    macro_recall: float
    macro_f1: float
    loss: float
    """Mean −log p of the true label, in nats."""
    seconds: float
    """Duration of the classification."""
    labels: list[str]
    by_label: list[LabelScores]
    confusion: list[list[int]]
    """``[true][found]``: numbers of sounds."""
    predictions: list[tuple[str, str, str, float]]
    """Sound, true label, found label and its probability."""

    def lines(self) -> list[str]:
        first = (
            f"{self.data}: {self.sounds} sounds, {self.seconds_of_sound / 60:.1f} min · accuracy {self.accuracy:.4f} · "
            f"macro F1 {self.macro_f1:.4f} · loss {self.loss:.4f}"
        )
        return [first, *table_lines(self.by_label, "sounds"), *confusion_lines(self.confusion, self.labels)]

    def predicted(self) -> list[tuple[str, str, str, float]]:
        return self.predictions


def evaluate(
    listener: TrainedListener,
    data: Any,
    sound_column: str | None,
    text_column: str | None,
    options: EvaluationConfig,
) -> Evaluation:
    """Measure a classifier of sounds on a data set.

    Args:
        listener: the trained model.
        data: a source of `regard.data.speech.utterances.open_utterances`.
        sound_column: column of the paths; None: the first of two.
        text_column: column of the labels; None: the second of two.
        options: how many sounds.

    Raises:
        DataError: the data cannot be used, or a label was not among the training data.
    """
    config, labels = listener.config.data, listener.labels
    utterances = open_utterances(data, sound_column, text_column, limit=options.limit)
    require_labels(labels, utterances, str(data))
    features = feature_table(utterances, config.front_end)
    check_width(features, listener.model.config.width, utterances[0].name)
    reduction = listener.model.config.reduction
    sounds = [
        HeardSound(str(one.path), features[number], config.hop_seconds, reduction)
        for number, one in enumerate(utterances)
    ]
    true = [labels.number(one.text) for one in utterances]
    start = time.monotonic()
    logits, _ = listener.outputs(sounds, options.batch_size)
    seconds = time.monotonic() - start
    best = logits.double().softmax(-1).max(-1)
    found = best.indices.tolist()
    metrics = label_metrics(true, found, labels.names)
    return Evaluation(
        data=str(data),
        sounds=len(sounds),
        seconds_of_sound=float(features.lengths.sum()) * config.hop_seconds,
        accuracy=metrics.accuracy,
        macro_precision=metrics.macro_precision,
        macro_recall=metrics.macro_recall,
        macro_f1=metrics.macro_f1,
        loss=float(F.cross_entropy(logits.double(), torch.tensor(true))),
        seconds=seconds,
        labels=list(labels.names),
        by_label=metrics.by_label,
        confusion=metrics.confusion,
        predictions=[
            (str(one.path), labels.names[own], labels.names[given], probability)
            for one, own, given, probability in zip(utterances, true, found, best.values.tolist(), strict=True)
        ],
    )
