"""One prepared training of a language model: its text, its model, its loss and its validation."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.data.batches import Batches
from regard.data.text.running_text import window_batches
from regard.models.checkpoint import save_model
from regard.models.language_model import LanguageModel, LanguageModelConfig
from regard.models.search import TokenChoice
from regard.models.text_continuation import continue_tokens
from regard.tasks.language.config import ModelConfig
from regard.tasks.language.corpus import open_corpus
from regard.tasks.language.task import LanguageRun
from regard.tasks.language.text_loss import text_loss
from regard.training.randomness import seed_step
from regard.training.run_folder import RunFolder
from regard.training.task import Experiment, StepLoss, ValidationResult

SAMPLE_PROMPT, SAMPLE_TOKENS = 16, 100
"""Tokens of the validation text that a sample continues, and of the sample."""


class LanguageExperiment(Experiment):
    """A language model and its text.

    Args:
        config: the configuration of the run.
        folder: the run folder, in which the tokenizer and the bundled text are.
    """

    unit = "tokens"

    def __init__(self, config: LanguageRun, folder: RunFolder):
        self.config = config.training
        self.context = config.model.context
        self.corpus = open_corpus(config, folder)
        self.batches(0, 1)  # a text that is too short is an error now
        # The libraries that opened the text may have drawn random numbers.
        seed_step(self.config.seed, -1)
        self.model: LanguageModel = LanguageModel(  # pyright: ignore[reportIncompatibleVariableOverride]
            language_model_config(config.model, len(self.corpus.tokenizer))
        )
        self.description = (
            f"{len(self.corpus.train):,} tokens to train on, {len(self.corpus.validation) - 1:,} to validate on · "
            f"vocabulary {len(self.corpus.tokenizer)}"
        )

    def batches(self, rank: int, world_size: int) -> Batches[Any, Tensor]:
        training = self.config
        return window_batches(
            self.corpus.train,
            training.batch_size,
            self.context,
            order=training.windows,
            steps=training.steps_per_epoch,
            seed=training.seed,
            rank=rank,
            world_size=world_size,
        )

    def loss(self, batch: Tensor) -> StepLoss:
        found = self.model.loss(batch, label_smoothing=self.config.label_smoothing)
        return StepLoss(found.total, float(found.nll.mean()), found.nll.numel())

    def validate(self, rank: int, world_size: int) -> ValidationResult:
        found = text_loss(
            self.model,
            self.corpus.validation,
            self.corpus.tokenizer,
            limit=self.config.validation_tokens,
            rank=rank,
            world_size=world_size,
        )
        metrics = {"bits_per_byte": found.bits_per_byte, "perplexity": found.perplexity}
        return ValidationResult(found.loss, metrics, [self._sample()])

    def save_model(self, path: Path) -> None:
        save_model(path, self.model)

    def _sample(self) -> dict[str, Any]:
        tokenizer = self.corpus.tokenizer
        given = self.corpus.validation.ids(0, 1 + SAMPLE_PROMPT).tolist()
        # The same draws at every validation, and none of the training's.
        generator = torch.Generator(next(self.model.parameters()).device).manual_seed(1)
        found = continue_tokens(
            self.model,
            given,
            SAMPLE_TOKENS,
            TokenChoice(temperature=0.8),
            end=tokenizer.END,
            forbidden=(tokenizer.UNK,),
            generator=generator,
        )
        return {"prompt": tokenizer.decode(given), "continuation": tokenizer.decode(found.tokens)}


def language_model_config(model: ModelConfig, vocabulary: int) -> LanguageModelConfig:
    """The configuration of the model: that of the run, with the size of the vocabulary."""
    return LanguageModelConfig(
        vocabulary=vocabulary,
        context=model.context,
        dim=model.hidden,
        layers=model.layers,
        heads=model.heads,
        kv_heads=model.kv_heads,
        feedforward=model.feedforward or 4 * model.hidden,
        norm_first=model.norm == "pre",
        activation=model.activation,
        position=model.position,
        score=model.score,
        normalizer=model.normalizer,
        dropout=model.dropout,
        tied=model.tied,
        feedforward_chunk=model.feedforward_chunk,
        activation_checkpointing=model.activation_checkpointing,
    )
