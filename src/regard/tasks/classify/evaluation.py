"""Metrics of a trained text classifier on a data set, and its attention on the words that decide."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from regard.data.records import record_places
from regard.data.text.sources import labelled_lists, open_labelled
from regard.data.text.words import word_spans
from regard.errors import DataError
from regard.tasks.classify.classification import words_of
from regard.tasks.classify.trained_classifier import Outputs, TrainedClassifier
from regard.tasks.label_evaluation import LabelEvaluation
from regard.tasks.label_lines import confusion_lines, table_lines
from regard.tasks.label_metrics import LabelScores, label_metrics

DECIDING_COLUMN = "deciding"


@dataclass(frozen=True, slots=True, repr=False)
class Evaluation(LabelEvaluation):
    """How good a text classifier is on a data set."""

    example = "text"

    data: str
    """Name of the data set."""
    texts: int
    """Evaluated texts."""
    accuracy: float
    """0 to 1."""
    macro_precision: float
    """Mean over labels, 0 to 1."""
    macro_recall: float
    macro_f1: float
    loss: float
    """Mean −log p of the true label, in nats."""
    attention_on_deciding: float | None
    """Share of the attention weights on the words that decide the label, 0 to 1; None if the data do not say which
    words decide, or the model has no attention."""
    cut: int
    """Texts that were longer than the model reads, and cut."""
    seconds: float
    """Duration of the classification."""
    labels: list[str]
    by_label: list[LabelScores]
    confusion: list[list[int]]
    """``[true][found]``: numbers of texts."""
    predictions: list[tuple[str, str, str, float]]
    """Text, true label, found label and its probability."""

    def lines(self) -> list[str]:
        share = "" if self.attention_on_deciding is None else f" · on deciding words {self.attention_on_deciding:.3f}"
        first = (
            f"{self.data}: {self.texts} texts · accuracy {self.accuracy:.4f} · macro F1 {self.macro_f1:.4f} · "
            f"loss {self.loss:.4f}{share}"
        )
        return [first, *table_lines(self.by_label, "texts"), *confusion_lines(self.confusion, self.labels)]

    def predicted(self) -> list[tuple[str, str, str, float]]:
        return self.predictions


def evaluate(
    classifier: TrainedClassifier,
    data: Any,
    text_column: str = "text",
    label_column: str = "label",
    *,
    batch_size: int = 64,
    limit: int | None = None,
) -> Evaluation:
    """Measure a classifier on a data set.

    Args:
        classifier: the trained model.
        data: a source of `regard.data.text.sources.open_labelled`, or a pair of lists: texts and labels.
        text_column: column of the texts.
        label_column: column of the labels.
        batch_size: texts classified at once.
        limit: number of texts, from the first; None: all.

    Raises:
        DataError: the data cannot be used, or a label was not among the training data.
    """
    if isinstance(data, (tuple, list)) and len(data) == 2 and not isinstance(data[0], (str, Path)):
        name, dataset = "lists", labelled_lists(*data)
        dataset = dataset if limit is None else dataset.select(range(min(limit, len(dataset))))
    else:
        name, dataset = str(data), open_labelled(data, text_column, label_column, limit=limit)
    labels = classifier.labels
    labels.require(dataset, name)
    texts = list(dataset["source"])
    true = [labels.number(label) for label in dataset["target"]]
    deciding = read_deciding(data, len(texts)) if classifier.model.attends else None
    start = time.monotonic()
    outputs = classifier.outputs(texts, batch_size, need_weights=deciding is not None)
    seconds = time.monotonic() - start
    best = outputs.logits.double().softmax(-1).max(-1)
    found = best.indices.tolist()
    metrics = label_metrics(true, found, labels.names)
    return Evaluation(
        data=name,
        texts=len(texts),
        accuracy=metrics.accuracy,
        macro_precision=metrics.macro_precision,
        macro_recall=metrics.macro_recall,
        macro_f1=metrics.macro_f1,
        loss=float(F.cross_entropy(outputs.logits.double(), torch.tensor(true))),
        attention_on_deciding=None if deciding is None else _share(classifier, texts, outputs, deciding),
        cut=sum(outputs.cut),
        seconds=seconds,
        labels=list(labels.names),
        by_label=metrics.by_label,
        confusion=metrics.confusion,
        predictions=[
            (text, labels.names[own], labels.names[given], probability)
            for text, own, given, probability in zip(texts, true, found, best.values.tolist(), strict=True)
        ],
    )


def _share(
    classifier: TrainedClassifier, texts: Sequence[str], outputs: Outputs, deciding: Sequence[frozenset[int]]
) -> float:
    # The mean over texts and heads of the share of the weights on tokens of the deciding words.
    total = 0.0
    for text, weights, words in zip(texts, outputs.weights, deciding, strict=True):
        characters = {position for number, span in enumerate(word_spans(text)) if number in words for position in span}
        groups, spans = words_of(classifier.tokenizer, text, weights.shape[1])
        tokens = [
            token
            for group, span in zip(groups, spans, strict=True)
            if not characters.isdisjoint(span)
            for token in group
        ]
        mass = weights.sum(-1).clamp(min=1e-12)
        total += float((weights[:, tokens].sum(-1) / mass).mean())
    return total / max(1, len(texts))


def read_deciding(data: Any, texts: int) -> list[frozenset[int]] | None:
    """The positions of the deciding words in a TSV file, or None if it has no column ``deciding``.

    Args:
        data: the evaluated data.
        texts: number of texts that were read from it; as many rows are read.

    Raises:
        DataError: a row does not list positions, or there are fewer rows than texts.
    """
    path = Path(data) if isinstance(data, (str, Path)) else Path()
    if path.suffix != ".tsv" or not path.is_file():
        return None
    found: list[frozenset[int]] = []
    for number, (_, row) in enumerate(record_places(path), start=1):
        if DECIDING_COLUMN not in row:
            return None
        if number > texts:
            break
        try:
            found.append(frozenset(map(int, row[DECIDING_COLUMN].split())))
        except ValueError as error:
            raise DataError(
                f"{path}: row {number}: the column {DECIDING_COLUMN!r} must list positions of words"
            ) from error
    if len(found) != texts:
        raise DataError(f"{path} has deciding words of {len(found)} of {texts} texts; correct or remove the column")
    return found
