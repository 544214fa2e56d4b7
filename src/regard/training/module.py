"""The Lightning module: a model, its loss and its optimizer."""

from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn

from regard.errors import RunError, TrainingError
from regard.training.config import TrainingConfig
from regard.training.progress import Progress
from regard.training.randomness import seed_step
from regard.training.schedule import Schedule
from regard.training.sharding import clip_sharded_gradient, is_sharded
from regard.training.task import Experiment

DIVERGED = 1e12
"""A mean loss above this is that of weights without meaning, though each is still a number."""


class TrainingModule(LightningModule):
    """Trains the model of an experiment.

    Args:
        experiment: the model and its loss.
        config: the configuration of the training.
        progress: the counters of the run; `RunCallback` updates them, and this module saves and restores them.
        total_steps: steps of the whole run, for learning rates that decay to 0.
    """

    def __init__(self, experiment: Experiment, config: TrainingConfig, progress: Progress, total_steps: int):
        super().__init__()
        self.experiment = experiment
        self.model = experiment.model
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

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        seed_step(self.config.seed, self.progress.step, self.global_rank)
        loss = self.experiment.loss(batch)
        if not torch.isfinite(loss.total) or abs(loss.mean) > DIVERGED:
            raise TrainingError(
                f"the loss is {loss.total.item():.4g} at step {self.progress.step + 1}; the last good checkpoint is "
                "kept. Start again with a lower --learning-rate, a smaller --clip or --precision 32"
            )
        self.progress.loss_sum += loss.mean * loss.units
        self.progress.units += loss.units
        return loss.total * self._share(loss.units)

    def _share(self, units: int) -> float:
        """The factor that makes the mean of all processes' gradients that of one process with all batches joined.

        Each process's loss is the mean over its own units, of which it has more or fewer than others.
        """
        if self.trainer.world_size == 1:
            return 1.0
        counted = torch.tensor(float(units), device=self.device)
        total = self.trainer.strategy.reduce(counted, reduce_op="sum")
        return self.trainer.world_size * units / max(1.0, float(total))

    def configure_gradient_clipping(
        self, optimizer: Any, gradient_clip_val: float | None = None, gradient_clip_algorithm: str | None = None
    ) -> None:
        if gradient_clip_val and is_sharded(self.trainer):
            clip_sharded_gradient(self.trainer, float(gradient_clip_val))
            return
        # Under autocast Lightning does not clip for a fused optimizer, since that may unscale the gradients later.
        # bfloat16 gradients are not scaled.
        if self.config.precision == "bf16-mixed" and gradient_clip_val:
            nn.utils.clip_grad_norm_(self.parameters(), gradient_clip_val)
        else:
            super().configure_gradient_clipping(optimizer, gradient_clip_val, gradient_clip_algorithm)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        finite = all(bool(torch.isfinite(parameter).all()) for parameter in self.parameters())
        if self.trainer.world_size > 1:
            finite = self.trainer.strategy.reduce_boolean_decision(finite)
        if not finite:
            raise TrainingError(
                f"a weight is not a finite number after step {self.progress.step}; the last good checkpoint is kept. "
                "Start again with a lower --learning-rate or a smaller --clip"
            )
        checkpoint["regard"] = self.progress.to_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        if is_sharded(self.trainer):  # the strategy has compared and loaded the weights
            self.progress.restore(checkpoint["regard"])
            return
        saved, own = checkpoint["state_dict"], self.state_dict()
        for name in [*(own.keys() - saved.keys()), *(saved.keys() - own.keys())]:
            raise RunError(f"the checkpoint {'lacks' if name in own else 'has an unknown'} tensor {name}")
        for name, tensor in own.items():
            if saved[name].shape != tensor.shape:
                raise RunError(
                    f"the checkpoint is of another model: {name} has shape {list(saved[name].shape)} in it, and "
                    f"{list(tensor.shape)} in this run"
                )
        self.progress.restore(checkpoint["regard"])
