"""What happens between two steps: validation, the best model, checkpoints, the end."""

import math
import time
from collections.abc import Sequence
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch import Callback

from regard.models.checkpoint import save_model
from regard.training.batch_stream import Progress
from regard.training.checkpoint_io import checkpoint_path, prune_checkpoints
from regard.training.config import TrainingConfig
from regard.training.interruption import Interruption
from regard.training.module import TranslationModule
from regard.training.progress import Reporter, duration
from regard.training.run_folder import RunFolder
from regard.training.validation import Validated, Validation

SAMPLES = 4


class Conductor(Callback):
    """Decides after each step, in this order: count, validate, keep the best model, save a checkpoint, stop.

    Args:
        folder: where everything is written.
        config: of the training.
        progress: of the run; counted here.
        batches: of an epoch.
        validation: what is validated on.
        pairs: source and target of the first validation sentences, for ``samples.jsonl``.
        reporter: shows what happens.
    """

    def __init__(
        self,
        folder: RunFolder,
        config: TrainingConfig,
        progress: Progress,
        batches: int,
        validation: Validation,
        pairs: Sequence[tuple[str, str]],
        reporter: Reporter,
    ):
        self.folder = folder
        self.config = config
        self.progress = progress
        self.batches = batches
        self.validation = validation
        self.pairs = pairs
        self.reporter = reporter
        self.interruption = Interruption()
        self._clock = 0.0  # when progress.seconds was last brought up to date
        self._saved_at = 0.0
        self._loss = math.nan  # running mean, for display

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.is_global_zero:
            self._forget_what_follows()
        self._clock = self._saved_at = time.monotonic()
        self.interruption.install()
        self.reporter.start(self.fraction)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(pl_module, TranslationModule)
        progress, config = self.progress, self.config
        progress.step += 1
        progress.position += 1
        epoch_over = progress.position == self.batches
        if epoch_over:
            progress.epoch, progress.position = progress.epoch + 1, 0
        now = time.monotonic()
        progress.seconds += now - self._clock
        progress.training_seconds += now - self._clock
        self._clock = now

        out_of_time = config.max_minutes > 0 and progress.seconds >= 60 * config.max_minutes
        wished = self.interruption.received is not None
        save_due = config.checkpoint_minutes > 0 and now - self._saved_at >= 60 * config.checkpoint_minutes
        if trainer.world_size > 1:  # clocks and signals differ between processes; what they decide must not
            out_of_time, wished, save_due = (
                trainer.strategy.reduce_boolean_decision(decision, all=False)
                for decision in (out_of_time, wished, save_due)
            )
        save_due = save_due or (config.checkpoint_steps > 0 and progress.step % config.checkpoint_steps == 0)

        reason = ""
        if epoch_over and progress.epoch >= config.epochs:
            reason = f"{config.epochs} epochs are done"
        elif out_of_time:
            reason = f"{config.max_minutes:g} minutes are over"
        validate_due = progress.step % config.validate_every == 0 if config.validate_every else epoch_over
        if validate_due or reason:
            reason = self._validate(trainer, pl_module) or reason
            save_due = True
        self._show(outputs)
        progress.finished = reason
        if save_due or wished:
            self._save(trainer)
        if reason or wished:
            trainer.should_stop = True

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        self._release()

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._release()

    @property
    def fraction(self) -> float:
        """How much of the run is done at least: of its epochs, or of its minutes if they end first."""
        epochs = (self.progress.epoch + self.progress.position / max(1, self.batches)) / self.config.epochs
        minutes = self.progress.seconds / 60 / self.config.max_minutes if self.config.max_minutes else 0.0
        return min(1.0, max(epochs, minutes))

    def _validate(self, trainer: pl.Trainer, module: TranslationModule) -> str:
        # Returns why the run should end, if it should.
        progress = self.progress
        found = self.validation.run(module.model, trainer.precision_plugin.forward_context)
        module.schedule.observe(found.loss)
        progress.seconds += time.monotonic() - self._clock
        self._clock = time.monotonic()
        better = found.scores.bleu > progress.best_bleu
        if better:
            progress.best_bleu, progress.best_step, progress.waited = found.scores.bleu, progress.step, 0
        else:
            progress.waited += 1
        if trainer.is_global_zero:
            if better:
                save_model(self.folder.path, module.model)
            self._record(trainer, found, better)
        progress.loss_sum, progress.tokens, progress.training_seconds = 0.0, 0, 0.0
        if self.config.patience and progress.waited >= self.config.patience:
            return f"validation BLEU has not improved {progress.waited} times"
        return ""

    def _record(self, trainer: pl.Trainer, found: Validated, better: bool) -> None:
        progress = self.progress
        row = {
            "step": progress.step,
            "epoch": round(progress.epoch + progress.position / self.batches, 4),
            "seconds": round(progress.seconds, 1),
            "train_loss": progress.loss_sum / max(1, progress.tokens),
            "val_loss": found.loss,
            "val_bleu": found.scores.bleu,
            "val_chrf": found.scores.chrf,
            "tokens_per_second": round(trainer.world_size * progress.tokens / max(1e-9, progress.training_seconds)),
            "learning_rate": trainer.optimizers[0].param_groups[0]["lr"],
        }
        self.folder.write_metrics([*self.folder.read_metrics(), row])
        samples = [
            {"step": progress.step, "source": source, "reference": reference, "translation": translation}
            for (source, reference), translation in zip(self.pairs, found.translations, strict=False)
        ]
        self.folder.write_samples([*self.folder.read_samples(), *samples])
        for logger in trainer.loggers:
            logger.log_metrics({name: float(value) for name, value in row.items()}, step=progress.step)
        self.reporter.say(
            f"step {progress.step} · epoch {row['epoch']:g} · {duration(progress.seconds)} · "
            f"train loss {row['train_loss']:.3f} · val loss {found.loss:.3f} · BLEU {found.scores.bleu:.2f} · "
            f"chrF {found.scores.chrf:.2f} · {row['tokens_per_second']} tokens/s{' · best so far' if better else ''}"
        )

    def _save(self, trainer: pl.Trainer) -> None:
        trainer.save_checkpoint(checkpoint_path(self.folder.checkpoints, self.progress.step))
        if trainer.is_global_zero:
            prune_checkpoints(self.folder.checkpoints)
        self._saved_at = time.monotonic()

    def _show(self, outputs: Any) -> None:
        loss = float(outputs["loss"] if isinstance(outputs, dict) else outputs)
        self._loss = loss if math.isnan(self._loss) else 0.98 * self._loss + 0.02 * loss
        speed = self.progress.tokens / max(1e-9, self.progress.training_seconds)
        text = (
            f"step {self.progress.step} · epoch {self.progress.epoch + 1}/{self.config.epochs} · loss {self._loss:.3f}"
        )
        self.reporter.step(self.fraction, text + (f" · {speed:.0f} tokens/s" if self.progress.tokens else ""))

    def _forget_what_follows(self) -> None:
        # A run that was killed after its last checkpoint has written rows that it is about to write again.
        step = self.progress.step
        self.folder.write_metrics([row for row in self.folder.read_metrics() if row["step"] <= step])
        self.folder.write_samples([row for row in self.folder.read_samples() if row["step"] <= step])

    def _release(self) -> None:
        self.interruption.remove()
        self.reporter.stop()
