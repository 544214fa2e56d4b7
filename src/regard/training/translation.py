"""Training a translator, from a configuration to a run folder."""

import dataclasses
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from regard.data.batches import BatchLoader
from regard.errors import MissingPartError, RunError
from regard.models.translator import RecurrentTranslator, TranslatorConfig
from regard.training.batch_stream import BatchStream
from regard.training.config import RunConfig, TrainingConfig
from regard.training.corpora import Corpora, data_files, open_corpora
from regard.training.own_files import OF_VERSION_0_1
from regard.training.progress import Progress
from regard.training.randomness import seed_step
from regard.training.reporter import Reporter, reporter_for_terminal
from regard.training.run_folder import RunFolder

SAMPLES = 4


@dataclass(frozen=True, slots=True)
class Trained:
    """The result of a training."""

    folder: RunFolder
    progress: Progress
    interrupted: int
    """Number of the signal that stopped the training; 0: no signal."""
    parameters: int
    """Number of trained parameters of the model."""


def train_translation(
    config: RunConfig,
    folder: RunFolder,
    *,
    resume: bool = False,
    reporter: Reporter | None = None,
    allow_changed_data: bool = False,
) -> Trained:
    """Train a translator.

    The training writes into the run folder: the configuration and the tokenizers at the start; a row of metrics, sample
    translations and the model, if it is the best so far, at each validation; and checkpoints. Two runs with the same
    configuration, data, machine and number of threads give the same weights bit for bit, however often each is
    interrupted and resumed. This does not hold for runs that ``max_minutes`` ends.

    Args:
        config: the configuration of the run.
        folder: the run folder, from `RunFolder.create`, or from `RunFolder.open` to resume.
        resume: continue from the last checkpoint in the folder, or from the start if there is none.
        reporter: prints the progress; None: a progress bar in a terminal, lines elsewhere.

    Raises:
        DataError: the data cannot be used.
        RunError: the checkpoint cannot be used.
        TrainingError: the loss or a weight is no longer a finite number.
    """
    _require_lightning()
    from regard.training.run_session import RunSession

    reporter = reporter or reporter_for_terminal()
    training = config.training
    if training.threads:
        torch.set_num_threads(training.threads)
    with _lightning_silenced():
        trainer = _trainer(training, folder)
    first = trainer.global_rank == 0 and not is_child()
    with RunSession(folder, config, OF_VERSION_0_1, resume) if first else nullcontext() as session:
        trained = _train(config, folder, trainer, resume, reporter, allow_changed_data)
        if session and trained.progress.finished:
            trained = dataclasses.replace(trained, folder=session.complete())
    return trained


def _train(config, folder, trainer, resume, reporter, allow_changed_data) -> Trained:
    from regard.training.checkpoint_io import last_checkpoint
    from regard.training.disk_space import require_space
    from regard.training.module import TranslationModule
    from regard.training.run_callback import RunCallback
    from regard.training.validation import Validation

    training = config.training
    first = trainer.global_rank == 0 and not is_child()
    checkpoint = None
    if resume:
        checkpoint = last_checkpoint(folder.checkpoints, folder.manifest, len(folder.read_metrics()))
    if first:
        folder.manifest.record_data(data_files(config.data, folder), allow_changed=allow_changed_data)
    corpora = open_corpora(config.data, folder, training.validation_pairs)
    progress = Progress()
    loaders = [
        BatchLoader(
            dataset,
            training.tokens_per_batch,
            seed=training.seed,
            shuffle=shuffle,
            rank=trainer.global_rank if shuffle else 0,
            world_size=trainer.world_size if shuffle else 1,
        )
        for dataset, shuffle in ((corpora.train, True), (corpora.validation, False))
    ]
    batches = len(loaders[0])
    model = _model(config, corpora)
    module = TranslationModule(model, training, progress, training.epochs * batches)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    validation = Validation(
        loaders[1],
        corpora.validation_text["target"],
        corpora.target_tokenizer,
        config.data.max_length,
        trainer.global_rank,
        trainer.world_size,
    )
    samples = corpora.validation_text[:SAMPLES]
    pairs = list(zip(samples["source"], samples["target"], strict=True))
    callback = RunCallback(folder, training, progress, batches, validation, pairs, reporter)
    trainer.callbacks.append(callback)  # pyright: ignore
    if first:
        folder.manifest.record([folder.tokenizer_source, folder.tokenizer_target])
        require_space(folder.path, model)
        reporter.print_line(
            f"{len(corpora.train)} pairs · {batches} batches an epoch · vocabularies {len(corpora.source_tokenizer)} "
            f"and {len(corpora.target_tokenizer)} · {parameters:,} parameters · {folder.path}"
        )
        if checkpoint:
            reporter.print_line(f"resuming from {checkpoint}")
    if checkpoint and _is_over(trainer, checkpoint, progress, training):
        return Trained(folder, progress, 0, parameters)
    with _lightning_silenced():
        trainer.fit(module, BatchStream(loaders[0], progress), ckpt_path=checkpoint, weights_only=True)
    received = callback.signals.received
    return Trained(folder, progress, int(received or 0), parameters)


def _trainer(training: TrainingConfig, folder: RunFolder) -> Any:
    from lightning.pytorch import Trainer

    from regard.training.checkpoint_io import SafeCheckpointIO

    logger: Any = False
    if training.tensorboard:
        from lightning.pytorch.loggers import TensorBoardLogger

        try:
            logger = TensorBoardLogger(folder.path, name="tensorboard", version="")
        except ModuleNotFoundError as error:
            raise MissingPartError("tensorboard", "tensorboard") from error
    return Trainer(
        accelerator=training.accelerator,
        devices=_devices(training.devices, training.accelerator),
        strategy=training.strategy,
        precision={"32": "32-true"}.get(training.precision, training.precision),  # pyright: ignore
        max_epochs=-1,
        gradient_clip_val=training.clip or None,
        logger=logger,
        plugins=[SafeCheckpointIO(folder.manifest)],
        default_root_dir=folder.path,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def _devices(devices: str, accelerator: str) -> Any:
    if devices == "auto":
        return 1 if accelerator == "cpu" else "auto"
    return int(devices) if devices.isdigit() else devices


def _model(config: RunConfig, corpora: Corpora) -> RecurrentTranslator:
    known = {field.name for field in dataclasses.fields(TranslatorConfig)}
    for name in config.model:
        if name not in known:
            raise RunError(f"the model has no field {name!r}")
    sizes = {
        "source_vocabulary": len(corpora.source_tokenizer),
        "target_vocabulary": len(corpora.target_tokenizer),
    }
    seed_step(config.training.seed, -1)
    return RecurrentTranslator(TranslatorConfig(**{**config.model, **sizes}))


def _is_over(trainer: Any, checkpoint: Any, progress: Progress, training: TrainingConfig) -> bool:
    # Whether the resumed run had already ended; if so, its counters are copied into ``progress``.
    saved = trainer.strategy.checkpoint_io.load_checkpoint(checkpoint)["regard"]["progress"]
    more_epochs = saved["epoch"] < training.epochs
    more_minutes = not training.max_minutes or saved["seconds"] < 60 * training.max_minutes
    more_patience = not training.patience or saved["waited"] < training.patience
    if more_epochs and more_minutes and more_patience:
        return False
    for name, value in saved.items():
        setattr(progress, name, value)
    return True


def is_child() -> bool:
    """Whether Lightning started this process of a distributed run; it does so with a local rank above 0."""
    return int(os.environ.get("LOCAL_RANK", "0")) > 0


@contextmanager
def _lightning_silenced() -> Iterator[None]:
    """Suppress Lightning's warnings and log messages, which are advice for programmers."""
    with warnings.catch_warnings():
        for name in ("lightning.pytorch", "lightning.fabric", "lightning.pytorch.utilities.rank_zero"):
            logging.getLogger(name).setLevel(logging.ERROR)
        warnings.filterwarnings("ignore", module="lightning")
        warnings.filterwarnings("ignore", module="torch.jit")
        yield


def _require_lightning() -> None:
    try:
        import lightning.pytorch  # noqa: F401
    except ImportError as error:
        raise MissingPartError("lightning", "train") from error
