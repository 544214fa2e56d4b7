"""Training the model of any task, from a configuration to a run folder."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from regard.errors import RegardError, RunError
from regard.kernels.availability import kernels_awaited
from regard.training.batch_stream import BatchStream
from regard.training.config import RunConfig, TrainingConfig
from regard.training.processes import Processes
from regard.training.progress import Progress
from regard.training.randomness import seed_step
from regard.training.reporter import Reporter, reporter_for_terminal
from regard.training.resident_memory import bound_primitive_caches, return_large_blocks
from regard.training.run_folder import RunFolder
from regard.training.task import Experiment, Task
from regard.training.trainer import lightning_silenced, make_trainer


@dataclass(frozen=True, slots=True)
class TrainedRun:
    """The result of a training."""

    folder: RunFolder
    progress: Progress
    interrupted: int
    """Number of the signal that stopped the training; 0: no signal."""
    parameters: int
    """Number of trained parameters of the model."""


# So that no step depends on when a kernel was compiled.
@kernels_awaited()
def train(
    task: Task,
    config: RunConfig[Any, Any, Any],
    folder: RunFolder,
    resume: bool = False,
    reporter: Reporter | None = None,
    allow_changed_data: bool = False,
) -> TrainedRun:
    """Train a model.

    The training writes into the run folder: the configuration and the files of the task at the start; a row of metrics,
    samples and the model, if it is the best so far, at each validation; and checkpoints. Two runs with the same
    configuration, data, machine and number of threads give the same weights bit for bit, however often each is
    interrupted and resumed. This does not hold for runs that ``max_minutes`` ends.

    Args:
        task: the task.
        config: the configuration of the run.
        folder: the run folder, from `RunFolder.create`, or from `RunFolder.open` to resume.
        resume: continue from the last checkpoint in the folder, or from the start if there is none.
        reporter: prints the progress; None: a progress bar in a terminal, lines elsewhere.
        allow_changed_data: resume on data that have changed since the run began.

    Raises:
        DataError: the data cannot be used.
        RunError: the run is in use, a file of it or its data have changed, the checkpoint cannot be used, the disk has
            no room, or the model of ``init_from`` does not fit.
        TrainingError: the loss or a weight is no longer a finite number.
    """
    reporter = reporter or reporter_for_terminal()
    training = config.training
    bound_primitive_caches()
    if getattr(config.model, "activation_checkpointing", False):
        return_large_blocks()
    if training.threads:
        torch.set_num_threads(training.threads)
    trainer = make_trainer(training, folder)
    processes = Processes(trainer)
    from regard.training.run_session import RunSession

    if not processes.first:
        folder = RunFolder(processes.share_folder(folder.path))
        trainer = make_trainer(training, folder)
        return _train(task, config, folder, trainer, processes, resume, reporter)
    with RunSession(folder, task, config, resume) as session:
        if resume:
            folder.manifest.verify_all()
        folder.manifest.record_data(task.data_files(folder, config), allow_changed=allow_changed_data)
        processes.share_folder(folder.path)
        trained = _train(task, config, folder, trainer, processes, resume, reporter)
        return dataclasses.replace(trained, folder=session.complete()) if trained.progress.finished else trained


def _train(
    task: Task,
    config: RunConfig[Any, Any, Any],
    folder: RunFolder,
    trainer: Any,
    processes: Processes,
    resume: bool,
    reporter: Reporter,
) -> TrainedRun:
    from regard.training.checkpoint_io import last_checkpoint
    from regard.training.disk_space import require_space
    from regard.training.loggers import make_loggers
    from regard.training.module import TrainingModule
    from regard.training.run_callback import RunCallback

    training = config.training
    checkpoint = last_checkpoint(folder) if resume else None
    initial = _initial_run(task, training.init_from) if training.init_from is not None and not checkpoint else None
    with lightning_silenced():
        trainer.loggers = make_loggers(training.loggers, folder)
    seed_step(training.seed, -1)
    processes.wait_for_first()
    experiment = task.prepare(config, folder)
    processes.release_others()
    progress = Progress()
    loader = experiment.batches(trainer.global_rank, trainer.world_size)
    batches = len(loader)
    module = TrainingModule(experiment, training, progress, training.epochs * batches)
    parameters = sum(parameter.numel() for parameter in experiment.model.parameters())
    callback = RunCallback(folder, training, progress, batches, experiment, task.metrics, reporter)
    trainer.callbacks.append(callback)
    if processes.first:
        folder.manifest.record(folder.file(name) for name in task.files)
        require_space(folder.path, experiment.model)
        sizes = experiment.description
        reporter.print_line(f"{sizes} · {batches} batches an epoch · {parameters:,} parameters · {folder.path}")
        if checkpoint:
            reporter.print_line(f"resuming from {checkpoint}")
    if checkpoint and _is_over(trainer, checkpoint, progress, training):
        return TrainedRun(folder, progress, 0, parameters)
    if initial:
        _copy_weights(initial, experiment)
    try:
        with lightning_silenced():
            trainer.fit(module, BatchStream(loader, progress), ckpt_path=checkpoint, weights_only=True)
    except (KeyError, IndexError, TypeError, ValueError, RuntimeError) as error:
        if callback.started or not checkpoint or isinstance(error, RegardError):
            raise
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise RunError(
            f"{checkpoint} does not fit this run ({reason}); delete it to resume from the checkpoint before it"
        ) from error
    received = callback.signals.received
    return TrainedRun(folder, progress, int(received or 0), parameters)


def _initial_run(task: Task, path: str) -> RunFolder:
    # The run of ``init_from``; read before anything is made from it.
    folder = RunFolder.open(path)
    if (other := folder.read_sections()["task"]) != task.name:
        raise RunError(
            f"--init-from: {path} is a run of the task {other!r}; its model cannot start one of {task.name!r}"
        )
    folder.require()
    return folder


def _copy_weights(initial: RunFolder, experiment: Experiment) -> None:
    from regard.models.checkpoint import load_weights

    try:
        load_weights(initial.model, experiment.model)
    except RunError as error:
        raise RunError(f"--init-from: the model of {initial.path} does not fit this run's options: {error}") from error


def _is_over(trainer: Any, checkpoint: Path, progress: Progress, training: TrainingConfig) -> bool:
    # Whether the resumed run had already ended; if so, its counters are copied into ``progress``.
    saved = Progress()
    saved.restore(trainer.strategy.checkpoint_io.load_checkpoint(checkpoint)["regard"])
    more_epochs = saved.epoch < training.epochs
    more_minutes = not training.max_minutes or saved.seconds < 60 * training.max_minutes
    more_patience = not training.patience or saved.waited < training.patience
    if more_epochs and more_minutes and more_patience:
        return False
    progress.restore(saved.to_dict())
    return True
