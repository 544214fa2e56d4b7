"""The Lightning module: a translator, its loss and its optimizer."""

import dataclasses
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn

from regard.data.batches import PairBatch
from regard.errors import RunError, TrainingError
from regard.models.translator import RecurrentTranslator
from regard.training.config import TrainingConfig
from regard.training.progress import Progress
from regard.training.randomness import seed_step
from regard.training.schedule import Schedule

FORMAT = 1


class TranslationModule(LightningModule):
    """Trains a translator.

    Args:
        model: the translator to train.
        config: the configuration of the training.
        progress: the counters of the run; `RunCallback` updates them, and this module saves and restores them.
        total_steps: steps of the whole run, for learning rates that decay to 0.
    """

    def __init__(self, model: RecurrentTranslator, config: TrainingConfig, progress: Progress, total_steps: int):
        super().__init__()
        self.model = model
        self.config = config
        self.progress = progress
        self.schedule = Schedule(config.schedule, config.warmup, total_steps, config.plateau_patience)

    def configure_optimizers(self) -> Any:
        kind = torch.optim.AdamW if self.config.optimizer == "adamw" else torch.optim.Adam
        decay: Any = {"weight_decay": self.config.weight_decay} if self.config.optimizer == "adamw" else {}
        # With 16-mixed a fused optimizer unscales the gradients itself, after the clipping, which needs them unscaled.
        fused = self.config.precision != "16-mixed"
        optimizer = kind(self.parameters(), lr=self.config.learning_rate, betas=(0.9, 0.98), fused=fused, **decay)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, self.schedule)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def training_step(self, batch: PairBatch, batch_idx: int) -> Tensor:
        seed_step(self.config.seed, self.progress.step, self.global_rank)
        loss = self.model.loss(
            batch.source,
            batch.source_lengths,
            batch.target,
            batch.target_lengths,
            label_smoothing=self.config.label_smoothing,
            sampling_probability=self.config.scheduled_sampling,
        )
        if not torch.isfinite(loss.total):
            raise TrainingError(
                f"the loss is {loss.total.item()} at step {self.progress.step + 1}; the last good checkpoint is kept. "
                "Start again with a lower --learning-rate, a smaller --clip or --precision 32"
            )
        self.progress.loss_sum += float(loss.nll) * batch.target_tokens
        self.progress.tokens += batch.target_tokens
        return loss.total

    def configure_gradient_clipping(
        self, optimizer: Any, gradient_clip_val: float | None = None, gradient_clip_algorithm: str | None = None
    ) -> None:
        # Under autocast Lightning does not clip for a fused optimizer, since that may unscale the gradients later.
        # bfloat16 gradients are not scaled.
        if self.config.precision == "bf16-mixed" and gradient_clip_val:
            nn.utils.clip_grad_norm_(self.parameters(), gradient_clip_val)
        else:
            super().configure_gradient_clipping(optimizer, gradient_clip_val, gradient_clip_algorithm)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        if not all(torch.isfinite(parameter).all() for parameter in self.parameters()):
            raise TrainingError(
                f"a weight is not a finite number after step {self.progress.step}; the last good checkpoint is kept. "
                "Start again with a lower --learning-rate or a smaller --clip"
            )
        checkpoint["regard"] = {"format": FORMAT, "progress": dataclasses.asdict(self.progress)}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        content = checkpoint["regard"]
        if content.get("format") != FORMAT:
            raise RunError(
                f"the checkpoint has format {content.get('format')!r}; this version of regard reads {FORMAT}"
            )
        for name, value in content["progress"].items():
            setattr(self.progress, name, value)
