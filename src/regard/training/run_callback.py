"""The Lightning callback of a training run: counting, validation, the best model, checkpoints, the end."""

import math
import time
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch import Callback

from regard.atomic_file import AtomicFile
from regard.training.checkpoint_io import checkpoint_path, prune_checkpoints
from regard.training.config import TrainingConfig
from regard.training.module import TrainingModule
from regard.training.progress import Progress
from regard.training.reporter import Reporter, Throughput, duration
from regard.training.resident_memory import MemoryRelease
from regard.training.run_folder import RunFolder
from regard.training.sharding import whole_weights
from regard.training.signal_handler import SignalHandler
from regard.training.task import Experiment, Metric, ValidationResult


class RunCallback(Callback):
    """After each step, in this order: counts, validates, saves the best model, saves a checkpoint, ends the run.

    Args:
        folder: the run folder; all files are written into it.
        config: the configuration of the training.
        progress: the counters of the run; this callback updates them.
        batches: number of batches of an epoch.
        experiment: the model and its validation.
        metrics: what a validation measures; the first one decides which model is the best.
        reporter: prints the progress.
    """

    def __init__(
        self,
        folder: RunFolder,
        config: TrainingConfig,
        progress: Progress,
        batches: int,
        experiment: Experiment,
        metrics: tuple[Metric, ...],
        reporter: Reporter,
    ):
        self.folder = folder
        self.config = config
        self.progress = progress
        self.batches = batches
        self.experiment = experiment
        self.metrics = metrics
        self.reporter = reporter
        self.signals = SignalHandler()
        self.started = False
        self._memory = MemoryRelease()
        self._clock = 0.0  # time of the last update of progress.seconds
        self._saved_at = 0.0
        self._loss = math.nan  # running mean; only printed
        self._throughput = Throughput()
        self._speed: float | None = None  # units a second; None in the first steps

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.is_global_zero:
            self._delete_later_rows()
        self._clock = self._saved_at = time.monotonic()
        self.started = True
        self.signals.install()
        self.reporter.start(self.fraction)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(pl_module, TrainingModule)
        progress, config = self.progress, self.config
        progress.step += 1
        progress.position += 1
        epoch_over = progress.position >= self.batches
        if epoch_over:
            progress.epoch, progress.position = progress.epoch + 1, 0
        now = time.monotonic()
        progress.seconds += now - self._clock
        progress.training_seconds += now - self._clock
        self._clock = now
        self._speed = self._throughput.step(progress.units, progress.training_seconds)

        out_of_time = config.max_minutes > 0 and progress.seconds >= 60 * config.max_minutes
        stop_requested = self.signals.received is not None
        save_due = config.checkpoint_minutes > 0 and now - self._saved_at >= 60 * config.checkpoint_minutes
        # Clocks and signals differ between processes, but all processes must decide alike.
        if trainer.world_size > 1:
            out_of_time, stop_requested, save_due = (
                trainer.strategy.reduce_boolean_decision(decision, all=False)
                for decision in (out_of_time, stop_requested, save_due)
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
        self._report_step(outputs)
        self._memory.step()
        progress.finished = reason
        if save_due or stop_requested:
            self._save(trainer)
        if reason or stop_requested:
            trainer.should_stop = True

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        self._remove_handlers()

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._remove_handlers()

    @property
    def fraction(self) -> float:
        """The completed fraction of the run, in [0, 1]: of its epochs or of its minutes, whichever is larger."""
        epochs = (self.progress.epoch + self.progress.position / max(1, self.batches)) / self.config.epochs
        minutes = self.progress.seconds / 60 / self.config.max_minutes if self.config.max_minutes else 0.0
        return min(1.0, max(epochs, minutes))

    def _validate(self, trainer: pl.Trainer, module: TrainingModule) -> str:
        # Returns the reason to end the run, or "".
        progress = self.progress
        with whole_weights(trainer):
            result = self._measure(trainer)
            better = self._is_better(result)
            if better and trainer.is_global_zero:
                self._save_model()
        module.schedule.observe(result.loss)
        progress.seconds += time.monotonic() - self._clock
        self._clock = time.monotonic()
        primary = self.metrics[0]
        if better:
            progress.best, progress.best_step, progress.waited = result.metrics[primary.name], progress.step, 0
        else:
            progress.waited += 1
        if trainer.is_global_zero:
            self._record(trainer, result, better)
        progress.loss_sum, progress.units, progress.training_seconds = 0.0, 0, 0.0
        if self.config.patience and progress.waited >= self.config.patience:
            return f"validation {primary.label} has not improved {progress.waited} times"
        return ""

    def _is_better(self, result: ValidationResult) -> bool:
        # A model whose loss or metrics are no numbers is never the best one.
        numbers = (result.loss, *result.metrics.values())
        primary = self.metrics[0]
        return all(map(math.isfinite, numbers)) and primary.better(result.metrics[primary.name], self.progress.best)

    def _save_model(self) -> None:
        path = self.folder.model
        with self.folder.manifest.recording(path) as record, AtomicFile(path, record) as temporary:
            self.experiment.save_model(temporary)

    def _measure(self, trainer: pl.Trainer) -> ValidationResult:
        model = self.experiment.model
        was_training = model.training
        model.eval()
        try:
            with torch.inference_mode(), trainer.precision_plugin.forward_context():
                return self.experiment.validate(trainer.global_rank, trainer.world_size)
        finally:
            model.train(was_training)

    def _record(self, trainer: pl.Trainer, result: ValidationResult, better: bool) -> None:
        progress, unit = self.progress, self.experiment.unit
        # A run of few steps has no others than the first.
        overall = progress.units / max(1e-9, progress.training_seconds)
        row = {
            "step": progress.step,
            "epoch": round(progress.epoch + progress.position / self.batches, 4),
            "seconds": round(progress.seconds, 1),
            "train_loss": progress.loss_sum / max(1, progress.units),
            "val_loss": result.loss,
            **{f"val_{metric.name}": result.metrics[metric.name] for metric in self.metrics},
            f"{unit}_per_second": round(trainer.world_size * (self._speed or overall)),
            "learning_rate": trainer.optimizers[0].param_groups[0]["lr"],
        }
        self.folder.write_metrics([*self.folder.read_metrics(), row])
        samples = [{"step": progress.step, **sample} for sample in result.samples]
        self.folder.write_samples([*self.folder.read_samples(), *samples])
        for logger in trainer.loggers:
            logger.log_metrics({name: float(value) for name, value in row.items()}, step=progress.step)
        measured = "".join(f" · {metric.text(result.metrics[metric.name])}" for metric in self.metrics)
        self.reporter.print_line(
            f"step {progress.step} · epoch {row['epoch']:g} · {duration(progress.seconds)} · "
            f"train loss {row['train_loss']:.3f} · val loss {result.loss:.3f}{measured} · "
            f"{row[f'{unit}_per_second']} {unit}/s{' · best so far' if better else ''}"
        )

    def _save(self, trainer: pl.Trainer) -> None:
        trainer.save_checkpoint(checkpoint_path(self.folder.checkpoints, self.progress.step))
        if trainer.is_global_zero:
            prune_checkpoints(self.folder.checkpoints, self.folder.manifest)
        self._saved_at = time.monotonic()

    def _report_step(self, outputs: Any) -> None:
        loss = float(outputs["loss"] if isinstance(outputs, dict) else outputs)
        self._loss = loss if math.isnan(self._loss) else 0.98 * self._loss + 0.02 * loss
        epoch = min(self.progress.epoch + 1, self.config.epochs)
        text = f"step {self.progress.step} · epoch {epoch}/{self.config.epochs} · loss {self._loss:.3f}"
        self.reporter.step(
            self.fraction, text + (f" · {self._speed:.0f} {self.experiment.unit}/s" if self._speed else "")
        )

    def _delete_later_rows(self) -> None:
        # A run that was killed after its last checkpoint has already written rows that it will write again.
        step = self.progress.step
        self.folder.write_metrics([row for row in self.folder.read_metrics() if row["step"] <= step])
        self.folder.write_samples([row for row in self.folder.read_samples() if row["step"] <= step])

    def _remove_handlers(self) -> None:
        self.signals.remove()
        self.reporter.stop()
