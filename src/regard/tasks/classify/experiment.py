"""One prepared training of a text classifier: its data, its model, its loss and its validation."""

import itertools
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from regard.data.batches import Batches
from regard.data.text.batches import LabelledBatch, labelled_batches
from regard.models.checkpoint import save_model
from regard.models.text_classifier import TextClassifier, TextClassifierConfig
from regard.tasks.classify.corpora import Corpora, open_corpora
from regard.tasks.classify.task import ClassificationRun
from regard.tasks.label_metrics import label_metrics
from regard.training.randomness import seed_step
from regard.training.run_folder import RunFolder
from regard.training.task import Experiment, StepLoss, ValidationResult

SAMPLES = 4


class ClassificationExperiment(Experiment):
    """A text classifier and its data.

    Args:
        config: the configuration of the run.
        folder: the run folder, in which the tokenizer, the labels and the bundled corpus are.
    """

    unit = "texts"

    def __init__(self, config: ClassificationRun, folder: RunFolder):
        self.config = config.training
        self.corpora = open_corpora(config, folder)
        text = self.corpora.validation_text
        self.true = [self.corpora.labels.number(label) for label in text["target"]]
        samples = text[:SAMPLES]
        self.samples = list(zip(samples["source"], samples["target"], strict=True))
        self.validation = labelled_batches(
            self.corpora.validation, self.config.batch_size, self.config.tokens_per_batch, shuffle=False
        )
        # The libraries that opened the data may have drawn random numbers.
        seed_step(self.config.seed, -1)
        self.model: TextClassifier = TextClassifier(  # pyright: ignore[reportIncompatibleVariableOverride]
            classifier_config(config, self.corpora)
        )
        balanced = self.config.class_weights == "balanced"
        self.class_weights = balanced_weights(self.corpora.counts) if balanced else None
        self.description = (
            f"{len(self.corpora.train)} texts · {len(self.corpora.labels)} labels · "
            f"vocabulary {len(self.corpora.tokenizer)}"
        )

    def batches(self, rank: int, world_size: int) -> Batches[Any, LabelledBatch]:
        return labelled_batches(
            self.corpora.train,
            self.config.batch_size,
            self.config.tokens_per_batch,
            seed=self.config.seed,
            rank=rank,
            world_size=world_size,
        )

    def loss(self, batch: LabelledBatch) -> StepLoss:
        logits = self.model(batch.tokens, batch.lengths).logits
        weight = None if self.class_weights is None else self.class_weights.to(logits)
        smoothing = self.config.label_smoothing
        total = F.cross_entropy(logits, batch.labels, weight, label_smoothing=smoothing)
        plain = F.cross_entropy(logits.detach(), batch.labels) if smoothing or weight is not None else total
        return StepLoss(total, float(plain.detach()), len(batch))

    def validate(self, rank: int, world_size: int) -> ValidationResult:
        device = next(self.model.parameters()).device
        loss, found = 0.0, {}
        self.validation.set_epoch(0)
        for batch in itertools.islice(self.validation, rank, None, world_size):
            batch = batch.to(device)
            logits = self.model(batch.tokens, batch.lengths).logits
            loss += float(F.cross_entropy(logits, batch.labels, reduction="sum"))
            found.update(zip(batch.index.tolist(), logits.argmax(-1).tolist(), strict=True))
        if world_size > 1:
            parts: list[Any] = [None] * world_size
            torch.distributed.all_gather_object(parts, (loss, found))
            loss = sum(part[0] for part in parts)
            found = {row: label for part in parts for row, label in part[1].items()}
        names = self.corpora.labels.names
        metrics = label_metrics(self.true, [found[row] for row in range(len(self.true))], names)
        samples = [
            {"text": text, "label": label, "found": names[found[row]]} for row, (text, label) in enumerate(self.samples)
        ]
        return ValidationResult(
            loss / len(self.true), {"accuracy": metrics.accuracy, "macro_f1": metrics.macro_f1}, samples
        )

    def save_model(self, path: Path) -> None:
        save_model(path, self.model)


def balanced_weights(counts: tuple[int, ...]) -> torch.Tensor:
    """Weights of labels in inverse proportion to their counts: their mean over all texts is 1."""
    number = torch.tensor(counts, dtype=torch.float64)
    present = int((number > 0).sum())
    return (number.sum() / (present * number.clamp(min=1))).float()


def classifier_config(config: ClassificationRun, corpora: Corpora) -> TextClassifierConfig:
    """The configuration of the model: that of the run, with the sizes that the data decide."""
    model = config.model
    return TextClassifierConfig(
        vocabulary=len(corpora.tokenizer),
        labels=len(corpora.labels),
        encoder=model.encoder,
        embedding_dim=model.embedding,
        hidden_dim=model.hidden,
        layers=model.layers,
        heads=model.heads,
        feedforward=model.feedforward,
        position=model.position,
        max_length=config.data.max_length,
        window=model.window,
        global_tokens=model.global_tokens,
        feedforward_chunk=model.feedforward_chunk,
        activation_checkpointing=model.activation_checkpointing,
        pooling=model.pooling,
        pooling_heads=model.pooling_heads,
        score=model.score,
        normalizer=model.normalizer,
        dropout=model.dropout,
        word_dropout=model.word_dropout,
        unknown=corpora.tokenizer.UNK,
    )
