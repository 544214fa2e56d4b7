"""Training the model of any task, from a configuration to a run folder."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from regard.configuration.options import option_fields
from regard.errors import RegardError, RunError
from regard.exports.export import formats_of, formats_text
from regard.kernels.availability import kernels_awaited
from regard.models.checkpoint import load_weights
from regard.names.counted import counted
from regard.training.checkpoints import last_checkpoint, load_checkpoint, require_space
from regard.training.config import RunConfig, TrainingConfig
from regard.training.loggers import make_loggers
from regard.training.metrics import Baseline, Metric, comparison_with_rule
from regard.training.model_card import write_card
from regard.training.processes import hardware_kind, is_first_process, make_fabric
from regard.training.progress import Progress
from regard.training.randomness import seed_step
from regard.training.reporter import Reporter, default_reporter
from regard.training.resident_memory import bound_primitive_caches, return_large_blocks
from regard.training.run_folder import RunFolder
from regard.training.run_session import RunSession
from regard.training.task import Experiment, Task
from regard.training.training_facts import TrainingFacts

if TYPE_CHECKING:
    from lightning.fabric import Fabric


@dataclass(frozen=True)
class TrainingResult:
    """The result of a training."""

    folder: RunFolder
    progress: Progress
    interrupted: int
    """The number of the signal that stopped the training, or 0."""
    parameters: int
    """Number of trained parameters of the model."""
    baseline: Baseline | None = None
    """The result of a simple rule on the validation data; None if there is none or the training has not ended."""

    def lines(self, metric: Metric) -> list[str]:
        """Returns why the training ended, how good its best model is, and how good the simple rule.

        Args:
            metric: the task's first metric.
        """
        progress, rule = self.progress, self.baseline
        best = "" if progress.best is None else (
            f"; best validation {metric.text(progress.best)} at step {progress.best_step}"
        )  # fmt: skip
        against = "" if rule is None else f"; {rule.rule}: {rule.value:.{metric.digits}f}"
        lines = [f"{progress.finished}{best}{against} · {self.folder.path}"]
        if progress.best is not None and rule is not None:
            lines += filter(None, [comparison_with_rule(metric, progress.best, rule.value, progress.finished)])
        return lines


# So that no step depends on when a kernel was compiled.
@kernels_awaited()
def train_run(
    task: Task,
    config: RunConfig,
    folder: RunFolder,
    resume: bool = False,
    reporter: Reporter | None = None,
    allow_changed_data: bool = False,
    chosen: str = "",
) -> TrainingResult:
    """Trains the model of a run.

    The training writes into the run folder: the configuration and the files of the task at the start; a row of metrics,
    samples and the model, if it is the best so far, at each validation; and checkpoints. Two runs with the same
    configuration, data, machine and number of threads give the same weights bit for bit, however often each is
    interrupted and resumed. This does not hold for runs that ``max_minutes`` ends.

    Args:
        config: the configuration of the run.
        folder: the run folder, from `RunFolder.create`, or from `RunFolder.open` to resume. In a distributed run the
            folder of the first process counts.
        resume: continue from the last checkpoint in the folder, or from the start if there is none.
        reporter: prints the progress; None: a progress bar in a terminal or a notebook, lines elsewhere.
        allow_changed_data: resume on data that have changed since the run began.
        chosen: the options that the data decided, for a line at the start.

    Raises:
        DataError: the data cannot be used.
        RunError: the run is in use, a file of it or its data have changed, the checkpoint cannot be used, the disk has
            no room, or the model of ``init_from`` does not fit.
        TrainingError: the loss or a weight is no longer a finite number.
    """
    reporter = reporter or default_reporter()
    bound_primitive_caches()
    if getattr(config.model, "activation_checkpointing", False):
        return_large_blocks()
    _set_threads(config.training)
    fabric = make_fabric(config.training)
    joined_before = torch.distributed.is_initialized()
    try:
        if not is_first_process():
            fabric.launch()  # waits for the first process, which has made the folder and prepared the data by then
            folder = RunFolder(fabric.broadcast(str(folder.path)))
            config = folder.read_config(task)  # with the decisions of the data
            return _train_in_process(task, config, folder, fabric, resume, reporter)
        with RunSession(folder, task, config, resume) as session:
            if resume:
                folder.manifest.verify_all()
            folder.manifest.record_data(task.data_files(folder, config), allow_changed=allow_changed_data)
            result = _train_in_process(task, config, folder, fabric, resume, reporter, chosen)
            if result.progress.finished:
                result = dataclasses.replace(result, folder=session.complete())
            _write_card(task, result.folder, reporter)
            return result
    finally:
        if torch.distributed.is_initialized() and not joined_before:
            torch.distributed.destroy_process_group()  # its threads can block the end of the interpreter


def _train_in_process(
    task: Task,
    config: RunConfig,
    folder: RunFolder,
    fabric: "Fabric",
    resume: bool,
    reporter: Reporter,
    chosen: str = "",
) -> TrainingResult:
    from regard.training.loop import TrainingLoop

    training, first = config.training, is_first_process()
    path = last_checkpoint(folder) if resume else None
    checkpoint = load_checkpoint(path, folder.manifest) if path else None
    initial = initial_run(task, training.init_from) if training.init_from is not None and not path else None
    if first:
        fabric.loggers.extend(make_loggers(training.loggers, folder))
    seed_step(training.seed, -1)
    experiment = task.prepare(config, folder)
    parameters = sum(parameter.numel() for parameter in experiment.model.parameters())
    if initial:
        copy_weights(initial, task, config, experiment)
    if first and training.for_export is not None and not path:
        reporter.print_line(f"trying the export of the untrained model to {training.for_export}")
        experiment.try_export(training.for_export)
    if first:
        folder.manifest.record(folder.file(name) for name in task.files)
        require_space(folder.path, experiment.model)
        fabric.launch()
        fabric.broadcast(str(folder.path))
    exports, formats = _exports(experiment) if first else ("", [])
    _set_threads(training)  # the launcher sets a number of its own
    try:
        loop = TrainingLoop(fabric, experiment, task.metrics, training, folder, reporter, checkpoint)
    except (AttributeError, KeyError, IndexError, TypeError, ValueError, RuntimeError) as error:
        if not checkpoint or isinstance(error, RegardError):
            raise
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise RunError(
            f"{path} does not fit this run ({reason}); delete it to resume from the checkpoint before it"
        ) from error
    if first:
        if chosen:
            reporter.print_line(f"from the data: {chosen} (--dry-run says why)")
        sizes = f"{experiment.description} · {counted(loop.batches, 'batch', ' an epoch')} · {parameters:,} parameters"
        reporter.print_line(" · ".join(filter(None, (sizes, exports, str(folder.path)))))
        if path:
            reporter.print_line(f"resuming from {path}")
    over = checkpoint is not None and bool(loop.reason_to_end())
    del checkpoint  # as large as the model and its optimizer
    interrupted = loop.end() if over else loop.run()
    baseline = _baseline(experiment, reporter) if first and loop.progress.finished else None
    if first:
        progress, earlier_facts = loop.progress, TrainingFacts.read(folder.facts)
        TrainingFacts(
            description=experiment.description,
            model=type(experiment.model).__name__,
            parameters=parameters,
            hardware=hardware_kind(fabric.device, fabric.world_size),
            steps=progress.step,
            epochs=round(progress.epoch + progress.position / max(1, loop.batches), 2),
            seconds=round(progress.seconds, 1),
            best_step=progress.best_step,
            finished=progress.finished,
            baseline=baseline._asdict() if baseline else {},
            exports=formats,
            evaluations=earlier_facts.evaluations if earlier_facts else {},
        ).write(folder.facts)
    return TrainingResult(folder, loop.progress, interrupted, parameters, baseline)


def _exports(experiment: Experiment) -> tuple[str, Sequence[str]]:
    """Returns the formats of which the model has an export, as text for a line and as a list."""
    try:
        return formats_text(experiment.model), formats_of(experiment.model)[0]
    except Exception:  # a model of another package
        return "", []


def _baseline(experiment: Experiment, reporter: Reporter) -> Baseline | None:
    try:
        return experiment.baseline()
    except Exception as error:  # the training is complete without its scale
        reporter.print_line(f"no simple rule was measured beside the model: {type(error).__name__}: {error}")
        return None


def _write_card(task: Task, folder: RunFolder, reporter: Reporter) -> None:
    try:
        if write_card(task, folder) is None and folder.model.is_file():
            reporter.print_line(f"{folder.path} has a README.md that regard did not write; it stays as it is")
    except RegardError as error:  # the training is complete without its card
        reporter.print_line(f"the model card was not written: {error}")


def _set_threads(training: TrainingConfig) -> None:
    if training.threads:
        torch.set_num_threads(training.threads)


def initial_run(task: Task, path: str) -> RunFolder:
    """Returns the run of ``init_from``, which is checked before anything is made from it.

    Raises:
        RunError: there is no such run, it has no model, or it is one of another task.
    """
    folder = RunFolder.open(path)
    if (other := folder.read_sections()["task"]) != task.name:
        raise RunError(
            f"--init-from: {path} is a run of the task {other!r}; its model cannot start one of {task.name!r}"
        )
    folder.require()
    return folder


def copy_weights(initial: RunFolder, task: Task, config: RunConfig, experiment: Experiment) -> None:
    """Copies the weights of the model of ``init_from``.

    Raises:
        RunError: they do not fit the model.
    """
    try:
        load_weights(initial.model, experiment.model)
    except RunError as error:
        other = initial.read_config(task)
        differences = _differences(other.model, config.model) or _differences(other.data, config.data)
        reason = f"{', '.join(differences)}; give the same" if differences else error
        raise RunError(f"--init-from: the model of {initial.path} does not fit this run's options: {reason}") from error


def _differences(other: Any, own: Any) -> list[str]:
    """Returns the options of a section that differ, without paths and numbers of examples, which shape no model."""
    fields = [field.name for field in option_fields(own) if field.name not in ("bundled", "held_out")]
    values = [(name, getattr(other, name), getattr(own, name)) for name in fields]
    return [
        f"--{name.replace('_', '-')} is {there!r} there and {here!r} here"
        for name, there, here in values
        if there != here and not name.endswith(("train", "validation", "test", "column"))
    ]
