"""One prepared training of a captioner: its data, its model, its loss and its validation."""

from pathlib import Path
from typing import Any

import torch

from regard.data.batches import Batches
from regard.data.images.augmentation import Augmentation
from regard.data.images.caption_batches import CaptionBatch
from regard.models.checkpoint import save_model
from regard.models.vision.captioner import Captioner
from regard.models.vision.recurrent_captioner import RecurrentCaptioner, RecurrentCaptionerConfig
from regard.models.vision.transformer_captioner import TransformerCaptioner, TransformerCaptionerConfig
from regard.tasks.caption.caption_metrics import caption_scores
from regard.tasks.caption.corpora import open_corpora
from regard.tasks.caption.task import CaptionRun
from regard.tasks.image_config import patch_size
from regard.tasks.run_data import chunks
from regard.training.randomness import seed_step
from regard.training.run_folder import RunFolder
from regard.training.task import Experiment, StepLoss, ValidationResult

SAMPLES = 4


class CaptionExperiment(Experiment):
    """A captioner and its data.

    Args:
        config: the configuration of the run.
        folder: the run folder, in which the tokenizer and the bundled corpus are.
    """

    unit = "tokens"

    def __init__(self, config: CaptionRun, folder: RunFolder):
        self.config = config.training
        self.corpora = open_corpora(config, folder)
        self.max_length = config.data.max_length
        self.references = [row.texts for row in self.corpora.validation_rows]
        self.augmentation = Augmentation(self.config.zoom, self.config.flip, self.config.jitter)
        # The libraries that opened the data may have drawn random numbers.
        seed_step(self.config.seed, -1)
        self.model: Captioner = build_model(config, len(self.corpora.tokenizer))  # pyright: ignore[reportIncompatibleVariableOverride]
        if config.model.backbone_weights is not None and not folder.model.is_file():
            self.model.encoder.load_backbone(folder.manifest.resolve(config.model.backbone_weights))
        if config.model.freeze_backbone:
            self.model.encoder.freeze_backbone()
        captions = sum(len(example.captions) for example in self.corpora.train)
        rows, columns = self.model.grid
        self.description = (
            f"{len(self.corpora.train)} images · {captions} captions · vocabulary {len(self.corpora.tokenizer)} · "
            f"grid {rows} × {columns}"
        )

    def batches(self, rank: int, world_size: int) -> Batches[Any, Any]:
        pixels = self.corpora.train_pixels
        return Batches(
            self.corpora.train,
            self.config.batch_size,
            lambda examples: CaptionBatch.of(examples, pixels),
            seed=self.config.seed,
            rank=rank,
            world_size=world_size,
        )

    def loss(self, batch: CaptionBatch) -> StepLoss:
        loss = self.model.loss(
            self.augmentation(batch.images),
            batch.owners,
            batch.target,
            batch.target_lengths,
            label_smoothing=self.config.label_smoothing,
        )
        return StepLoss(loss.total, float(loss.nll), batch.target_tokens)

    def validate(self, rank: int, world_size: int) -> ValidationResult:
        total, tokens, found = self._predict(rank, world_size)
        if world_size > 1:
            parts: list[Any] = [None] * world_size
            torch.distributed.all_gather_object(parts, (total, tokens, found))
            total, tokens = sum(part[0] for part in parts), sum(part[1] for part in parts)
            found = {row: text for part in parts for row, text in part[2].items()}
        texts = [found[row] for row in range(len(self.references))]
        scores = caption_scores(texts, self.references)
        samples = [
            {"image": row.picture.name, "caption": text, "true": list(row.texts)}
            for row, text in zip(self.corpora.validation_rows[:SAMPLES], texts, strict=False)
        ]
        metrics = {"cider": scores.cider, "bleu4": scores.bleu[3], "bleu1": scores.bleu[0]}
        return ValidationResult(total / max(1, tokens), metrics, samples)

    def _predict(self, rank: int, world_size: int) -> tuple[float, int, dict[int, str]]:
        # Returns the loss summed over the true tokens, their number, and the caption of each image.
        device = next(self.model.parameters()).device
        examples = self.corpora.validation
        total, tokens, found = 0.0, 0, {}
        for number, rows in enumerate(chunks(list(range(len(examples))), self.config.batch_size)):
            if number % world_size != rank:
                continue
            batch = CaptionBatch.of([examples[row] for row in rows], self.corpora.validation_pixels).to(device)
            encoded = self.model.encode(batch.images)
            predicted = self.model.decode(encoded.select(batch.owners), batch.target, batch.target_lengths)
            loss = self.model.loss_of(predicted, batch.target, batch.target_lengths)
            total += float(loss.nll) * batch.target_tokens
            tokens += batch.target_tokens
            longest = self.model.longest(self.max_length)
            for row, hypothesis in zip(rows, self.model.search(encoded, max_length=longest), strict=True):
                found[row] = self.corpora.tokenizer.decode(hypothesis.tokens)
        return total, tokens, found

    def save_model(self, path: Path) -> None:
        save_model(path, self.model)


def build_model(config: CaptionRun, vocabulary: int) -> Captioner:
    """A new model: with the configuration of the run, and the sizes that the data decide.

    Args:
        config: the configuration of the run.
        vocabulary: tokens of the captions.
    """
    data, model = config.data, config.model
    assert model.embedding is not None
    assert model.layers is not None
    shared = {
        "image_height": data.image_size,
        "image_width": data.image_size,
        "grid_dim": model.grid,
        "stages": model.stages,
        "blocks": model.blocks,
        "patch": patch_size(model, data.image_size),
        "weigh": model.weigh,
        "backbone": model.backbone,
        "target_vocabulary": vocabulary,
        "dropout": model.dropout,
        "tied_embeddings": model.tied,
        "layers": model.layers,
    }
    if model.attention == "transformer":
        return TransformerCaptioner(
            TransformerCaptionerConfig(
                **shared,
                dim=model.hidden,
                heads=model.heads,
                feedforward=model.feedforward,
                score=model.score or "scaled_dot",
            )
        )
    recurrent = RecurrentCaptionerConfig(
        **shared,
        attention=model.attention,
        embedding_dim=model.embedding,
        hidden_dim=model.hidden,
        cell=model.cell,
        readout=model.readout,
        score=model.score or "additive",
        gated=model.gated,
        query_token=model.query_token,
        hard_estimator=model.hard_estimator,
        entropy_weight=model.entropy_weight,
        doubly_stochastic=model.doubly_stochastic,
    )
    return RecurrentCaptioner(recurrent)
