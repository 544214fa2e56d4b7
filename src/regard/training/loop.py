"""The training loop: for each step, batch, forward, backward, clip, optimizer, schedule, validation, checkpoint."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from lightning.fabric import Fabric
from torch import nn

from regard.errors import RunError, TrainingError
from regard.files.atomic import AtomicFile
from regard.tracing.transforms import is_on_host, moved
from regard.training.checkpoints import checkpoint_path, prune_checkpoints, save_checkpoint
from regard.training.config import TrainingConfig
from regard.training.metrics import TIME_LIMIT_REASON, Metric
from regard.training.progress import Progress
from regard.training.randomness import seed_step
from regard.training.reporter import Estimate, Reporter, Throughput, duration
from regard.training.resident_memory import MemoryRelease
from regard.training.run_folder import RunFolder
from regard.training.schedule import Schedule
from regard.training.sharding import in_parameter_order, load_optimizer_state, whole_states, whole_weights
from regard.training.signal_handler import SignalHandler
from regard.training.task import Experiment, StepLoss, ValidationResult

LONG_TRAINING, ESTIMATE_AFTER = 15 * 60, 10
"""Seconds. A training that will take longer than the first is announced as long, after the second."""

DIVERGED_LOSS = 1e12
"""A mean loss above this means that the training has diverged, though all weights are still finite."""

STEPS_PER_READING = 16
"""The steps between two readings of the losses from an accelerator, for which the host waits; on a CPU, 1."""

PERFECT_VALIDATIONS, TELLING_EXAMPLES = 3, 10
"""A training ends after this many validations from the first one with a perfect metric on. With fewer validation
examples than the second number, a perfect metric can be chance, and only validations without a lower loss count."""


class LossModule(nn.Module):
    """The loss of an experiment as a module, whose call DDP and FSDP can wrap."""

    def __init__(self, experiment: Experiment):
        super().__init__()
        self.model = experiment.model
        self._loss = experiment.loss

    def forward(self, batch: Any) -> StepLoss:
        return self._loss(batch)


class TrainingLoop:
    """Trains the model of an experiment.

    The first process writes all files into the run folder; the loggers of ``fabric``, whose processes have been
    launched, get each row of metrics, of which the first decides which model is the best. ``checkpoint`` is the content
    of the one from which to continue; RunError is raised if it is of another model, or of another version of regard.
    ``earlier_seconds`` are those of the run before it was resumed, and ``batches`` those of an epoch in each process.
    """

    def __init__(
        self,
        fabric: Fabric,
        experiment: Experiment,
        metrics: tuple[Metric, ...],
        config: TrainingConfig,
        folder: RunFolder,
        reporter: Reporter,
        checkpoint: dict[str, Any] | None,
    ):
        self.fabric, self.experiment, self.metrics = fabric, experiment, metrics
        self.config, self.folder, self.reporter = config, folder, reporter
        self.progress, self.shows_perfection = Progress(), experiment.validated >= TELLING_EXAMPLES
        self.loader = experiment.batches(fabric.global_rank, fabric.world_size)
        self.batches = len(self.loader)
        self.schedule = Schedule(config.schedule, config.warmup, config.epochs * self.batches, config.plateau_patience)
        module = LossModule(experiment)
        states: Any = None
        if checkpoint:
            self.progress.restore(checkpoint["regard"])
            _load_weights(module, checkpoint["state_dict"])
            states = in_parameter_order(checkpoint["optimizer_states"][0], checkpoint["state_dict"], module)
        self.earlier_seconds = self.progress.seconds
        self.module = fabric.strategy.setup_module(fabric.to_device(module))
        self.optimizer = _make_optimizer(self.module, config)
        self._set_learning_rate(self.progress.step)
        if checkpoint:
            load_optimizer_state(self.module, self.optimizer, states)
            self._load_schedule(checkpoint)
        self._clock = 0.0  # time of the last update of progress.seconds
        self._epoch_loss, self._epoch_units = 0.0, 0  # of the epoch, since the run was resumed; only printed
        self._unread: list[tuple[int, StepLoss]] = []  # the steps whose losses have not been read, each with its number
        self._read_every = 1 if all(map(is_on_host, module.parameters())) else STEPS_PER_READING
        self._throughput = Throughput()
        self._speed: float | None = None  # units a second; None in the first steps

    def run(self) -> int:
        """Trains until the run ends or a signal arrives; returns the number of the signal, 0 if there was none."""
        config, progress = self.config, self.progress
        if self.fabric.is_global_zero:
            self._delete_later_rows()
        self._clock = saved_at = time.monotonic()
        signals, memory, signal, end, unsaved = SignalHandler(), MemoryRelease(), 0.0, "", 0.0
        status = "failed"
        signals.install()
        self.reporter.start(self.fraction)
        estimate, announced = Estimate(self.fraction), False
        try:
            for batch in self._batches():
                self._take_step(batch)
                epoch_over = self._count_step()
                validated = progress.step % config.validate_every == 0 if config.validate_every else epoch_over
                due = validated or epoch_over or progress.step % self._read_every == 0
                if due:
                    self._read_losses()
                if due or self.fabric.world_size == 1:
                    # Signals and clocks differ between processes, but all processes must decide alike.
                    signal, progress.seconds, unsaved = self._largest(
                        signals.received or 0, progress.seconds, self._clock - saved_at
                    )
                    end = self.reason_to_end()
                saves = (
                    validated or end or signal
                    or (config.checkpoint_minutes > 0 and unsaved >= 60 * config.checkpoint_minutes)
                    or (config.checkpoint_steps > 0 and progress.step % config.checkpoint_steps == 0)
                )  # fmt: skip
                if saves:
                    self._read_losses()
                self._speed = self._throughput.step(progress.units, progress.training_seconds)
                if validated or end:
                    self._validate()
                    end = end or self.reason_to_end()
                self._report_step()
                estimate.step(self.fraction)
                if not announced and estimate.measured > ESTIMATE_AFTER:
                    announced = True
                    self._announce(estimate.seconds() or 0.0)
                if epoch_over:
                    self._epoch_loss, self._epoch_units = 0.0, 0
                memory.step()
                progress.finished = end
                if saves:
                    self._save_checkpoint()
                    saved_at, unsaved = time.monotonic(), 0.0
                if end or signal:
                    break
            status = "success"
        finally:
            signals.remove()
            self.reporter.stop()
            for logger in self.fabric.loggers:
                logger.finalize(status)
        return int(signal or signals.received or 0)

    def end(self) -> int:
        """Validates and saves a run that was resumed with a limit that it has already reached; returns 0, as `run`."""
        progress, reason = self.progress, self.reason_to_end()
        if not progress.finished:
            self._clock = time.monotonic()
            if progress.last_validation != progress.step:
                self._validate()
            progress.finished = reason
            self._save_checkpoint()
        return 0

    def reason_to_end(self) -> str:
        """Returns why the run ends after this step; "" if it continues."""
        config, progress = self.config, self.progress
        if progress.epoch >= config.epochs:
            return f"{config.epochs} epochs are done" if config.epochs > 1 else "1 epoch is done"
        limit = 60 * config.max_minutes
        if limit and progress.seconds - self.earlier_seconds + self.reserved_seconds() >= limit:
            return f"{config.max_minutes:g} {TIME_LIMIT_REASON}"
        if not config.patience:
            return ""
        label, waited, enough = self.metrics[0].label, progress.waited, min(config.patience, PERFECT_VALIDATIONS)
        perfect = progress.perfect if self.shows_perfection else min(progress.perfect, waited)
        if perfect >= enough:
            return f"validation {label} is perfect: no model has a better one (patience 0 goes on)"
        if waited >= config.patience:
            return f"validation {label} and loss have not improved {waited} times"
        return ""

    def reserved_seconds(self) -> float:
        """Returns the seconds that a limit of minutes reserves for the last validation."""
        progress = self.progress
        if progress.last_validation == progress.step:
            return 0.0
        return progress.validation_seconds or 0.1 * progress.seconds

    @property
    def fraction(self) -> float:
        """The completed fraction of the run, in [0, 1]: of its epochs or of its minutes, whichever is larger."""
        epochs = (self.progress.epoch + self.progress.position / max(1, self.batches)) / self.config.epochs
        seconds = self.progress.seconds - self.earlier_seconds
        minutes = seconds / 60 / self.config.max_minutes if self.config.max_minutes else 0.0
        return min(1.0, max(epochs, minutes))

    # A step

    def _batches(self) -> Iterator[Any]:
        """Yields the batches of all epochs, from the epoch and the position of ``progress`` on."""
        progress = self.progress
        if progress.position > self.batches:  # the run was resumed on fewer data, with --allow-changed-data
            progress.epoch, progress.position = progress.epoch + 1, 0
        self.loader.load_state_dict({"epoch": progress.epoch, "position": progress.position})
        while True:
            yield from self.loader

    def _take_step(self, batch: Any) -> None:
        """Updates the weights by the gradient of a batch's loss; the host does not wait for an accelerator."""
        progress = self.progress
        seed_step(self.config.seed, progress.step, self.fabric.global_rank)
        with self._autocast():
            loss: StepLoss = self.module(self._on_device(batch))
        mean = loss.mean.detach() if isinstance(loss.mean, torch.Tensor) else loss.mean
        self._unread.append((progress.step + 1, StepLoss(loss.total.detach(), mean, loss.units)))
        if self._read_every == 1:
            self._read_losses()  # a loss that is no number changes no weight
        progress.units += loss.units
        total = loss.total * self._share(loss.units)
        self.fabric.backward(total)
        self._update_weights()
        self._set_learning_rate(progress.step + 1)

    def _on_device(self, batch: Any) -> Any:
        """Returns a batch on the device of the model, if possible without waiting for the copy."""
        if isinstance(batch, torch.Tensor):
            return moved(batch, self.fabric.device)
        return self.fabric.to_device(batch)

    def _read_losses(self) -> None:
        """Reads the losses of the steps since the last reading, with one copy from the device; raises TrainingError if
        one is not finite. The checkpoints are from before it."""
        unread, self._unread = self._unread, []
        if not unread:
            return
        scalars = [value for _, loss in unread for value in loss[:2] if isinstance(value, torch.Tensor)]
        numbers: Iterator[float] = iter(torch.stack(scalars).tolist())
        for step, loss in unread:
            total = next(numbers)
            mean = next(numbers) if isinstance(loss.mean, torch.Tensor) else loss.mean
            if not math.isfinite(total) or abs(mean) > DIVERGED_LOSS:
                raise TrainingError(
                    f"the loss is {total:.4g} at step {step}; the last good checkpoint is kept. Start again with a "
                    "lower --learning-rate, a smaller --clip or --precision 32"
                )
            self.progress.loss_sum += mean * loss.units
            self._epoch_loss += mean * loss.units
            self._epoch_units += loss.units
        # The host has waited for the steps themselves.
        self.progress.training_seconds += self._count_seconds()

    @contextmanager
    def _autocast(self) -> Iterator[None]:
        caches = torch.is_autocast_cache_enabled()
        with self.fabric.autocast():
            # With cached half-precision copies of weights, the gradients of all uses of a weight would be summed in
            # half precision.
            torch.set_autocast_cache_enabled(False)
            try:
                yield
            finally:
                torch.set_autocast_cache_enabled(caches)

    def _share(self, units: int) -> float | torch.Tensor:
        """Returns the factor that makes the mean of all processes' gradients that of one process with the joined batch:
        the loss of each process is the mean over its own units, whose number differs between processes."""
        if self.fabric.world_size == 1:
            return 1.0
        own_units = torch.full((), float(units), device=self.fabric.device)
        total: Any = self.fabric.all_reduce(own_units, reduce_op="sum")
        return self.fabric.world_size * units / total.clamp(min=1.0)

    def _update_weights(self) -> None:
        if self.config.clip:
            self.fabric.clip_gradients(self.module, self.optimizer, max_norm=self.config.clip, error_if_nonfinite=False)
        self.fabric.strategy.optimizer_step(self.optimizer)
        self.optimizer.zero_grad()

    def _set_learning_rate(self, step: int) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.learning_rate * self.schedule(step)

    def _count_step(self) -> bool:
        """Updates the counters after a step; returns whether an epoch has ended."""
        progress = self.progress
        progress.step += 1
        progress.position += 1
        epoch_over = progress.position >= self.batches
        if epoch_over:
            progress.epoch, progress.position = progress.epoch + 1, 0
        progress.training_seconds += self._count_seconds()
        return epoch_over

    def _count_seconds(self) -> float:
        seconds = time.monotonic() - self._clock
        self._clock += seconds
        self.progress.seconds += seconds
        return seconds

    def _largest(self, *values: float) -> list[float]:
        """Returns the largest of each value over all processes."""
        if self.fabric.world_size == 1:
            return list(values)
        largest: Any = self.fabric.all_reduce(torch.tensor(values, dtype=torch.float64), reduce_op="max")
        return largest.tolist()

    def _report_step(self) -> None:
        epoch = self.progress.epoch + (self.progress.position > 0)
        text = f"step {self.progress.step} · epoch {epoch}/{self.config.epochs}"
        if self._epoch_units:
            text += f" · loss {self._epoch_loss / self._epoch_units:.3f}"
        self.reporter.step(
            self.fraction, text + (f" · {self._speed:.0f} {self.experiment.unit}/s" if self._speed else "")
        )

    def _announce(self, seconds: float) -> None:
        """Prints that the training takes long, and how to shorten it."""
        if seconds > LONG_TRAINING and self.fabric.is_global_zero:
            self.reporter.print_line(
                f"this training takes about {duration(seconds)}, and its validations; --max-minutes 15 ends it earlier "
                "with the best model so far; so does Ctrl-C, after which --resume continues; a smaller model is faster"
            )

    # A validation

    def _validate(self) -> None:
        """Measures the model, saves it if it is the best, and records the results."""
        progress, primary = self.progress, self.metrics[0]
        began = progress.seconds
        with whole_weights(self.module):
            result = self._measure()
            # A model whose loss or metrics are not numbers is never the best one.
            numbers = all(map(math.isfinite, (result.loss, *result.metrics.values())))
            value = result.metrics[primary.name] if numbers else math.nan
            better = progress.observe(primary, value, result.loss, progress.step >= self.config.patience_after)
            if better and self.fabric.is_global_zero:
                path = self.folder.model
                with self.folder.manifest.recording(path) as record, AtomicFile(path, record) as temporary:
                    self.experiment.save_model(temporary)
        self.schedule.observe(result.loss)
        self._count_seconds()
        (progress.seconds,) = self._largest(progress.seconds)
        progress.validation_seconds, progress.last_validation = progress.seconds - began, progress.step
        if self.fabric.is_global_zero:
            self._record(result, better)
        progress.loss_sum, progress.units, progress.training_seconds = 0.0, 0, 0.0

    def _measure(self) -> ValidationResult:
        model = self.experiment.model
        was_training = model.training
        model.eval()
        try:
            with torch.inference_mode(), self._autocast():
                return self.experiment.validate(self.fabric.global_rank, self.fabric.world_size)
        finally:
            model.train(was_training)

    def _record(self, result: ValidationResult, better: bool) -> None:
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
            f"{unit}_per_second": round(self.fabric.world_size * (self._speed or overall)),
            "learning_rate": self.optimizer.param_groups[0]["lr"],
        }
        self.folder.write_metrics([*self.folder.read_metrics(), row])
        samples = [{"step": progress.step, **sample} for sample in result.samples]
        self.folder.write_samples([*self.folder.read_samples(), *samples])
        for logger in self.fabric.loggers:
            logger.log_metrics({name: float(value) for name, value in row.items()}, step=progress.step)
            logger.save()
        measured = "".join(f" · {metric.text(result.metrics[metric.name])}" for metric in self.metrics)
        self.reporter.print_line(
            f"step {progress.step} · epoch {row['epoch']:g} · {duration(progress.seconds)} · "
            f"train loss {row['train_loss']:.3f} · val loss {result.loss:.3f}{measured} · "
            f"{row[f'{unit}_per_second']} {unit}/s{' · best so far' if better else ''}"
        )

    def _delete_later_rows(self) -> None:
        # A run that was killed after its last checkpoint has already written rows that it will write again.
        step = self.progress.step
        self.folder.write_metrics([row for row in self.folder.read_metrics() if row["step"] <= step])
        self.folder.write_samples([row for row in self.folder.read_samples() if row["step"] <= step])

    # A checkpoint

    def _save_checkpoint(self) -> None:
        finite = torch.stack([weight.isfinite().all() for weight in self.module.parameters()]).all()
        (is_broken,) = self._largest(not bool(finite))
        if is_broken:
            raise TrainingError(
                f"a weight is not a finite number after step {self.progress.step}; the last good checkpoint is kept. "
                "Start again with a lower --learning-rate or a smaller --clip"
            )
        weights, optimizer = whole_states(self.module, self.optimizer)
        if not self.fabric.is_global_zero:
            return
        content = {
            "state_dict": weights,
            "optimizer_states": [optimizer],
            "schedule": vars(self.schedule),
            "precision": self.fabric.strategy.precision.state_dict(),
            "regard": self.progress.to_dict(),
        }
        path = checkpoint_path(self.folder.checkpoints, self.progress.step)
        save_checkpoint(path, content, self.folder.manifest)
        prune_checkpoints(self.folder.checkpoints, self.folder.manifest)

    def _load_schedule(self, checkpoint: dict[str, Any]) -> None:
        # Earlier runs were trained by Lightning's Trainer, whose checkpoints have these states elsewhere.
        old = "lr_schedulers" in checkpoint
        schedule = checkpoint["lr_schedulers"][0]["lr_lambdas"][0] if old else checkpoint["schedule"]
        if schedule.keys() != vars(self.schedule).keys():
            raise RunError(f"its schedule has other fields: {', '.join(map(str, schedule))}")
        vars(self.schedule).update(schedule)
        precision = checkpoint.get("MixedPrecision", {}) if old else checkpoint["precision"]
        if precision:
            self.fabric.strategy.precision.load_state_dict(precision)


def _make_optimizer(module: nn.Module, config: TrainingConfig) -> torch.optim.Optimizer:
    # FSDP's scaler of 16-mixed clips gradients for an optimizer that leaves their unscaling to it.
    options: dict[str, Any] = {
        "lr": config.learning_rate,
        "betas": (0.9, 0.98),
        "fused": config.precision != "16-mixed" or config.strategy != "fsdp",
    }
    if config.optimizer == "adamw":
        return torch.optim.AdamW(module.parameters(), **options, weight_decay=config.weight_decay)
    return torch.optim.Adam(module.parameters(), **options)


def _load_weights(module: nn.Module, saved: dict[str, torch.Tensor]) -> None:
    tensors = module.state_dict()
    for name in [*(tensors.keys() - saved.keys()), *(saved.keys() - tensors.keys())]:
        raise RunError(f"the checkpoint {'lacks' if name in tensors else 'has an unknown'} tensor {name}")
    for name, tensor in tensors.items():
        if saved[name].shape != tensor.shape:
            raise RunError(
                f"the checkpoint is of another model: {name} has shape {list(saved[name].shape)} in it, and "
                f"{list(tensor.shape)} in this run"
            )
    module.load_state_dict(saved)
