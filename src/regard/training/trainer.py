"""Lightning's trainer for a run, with as little of its own behaviour as possible."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from regard.errors import ArgumentError, MissingPartError
from regard.training.config import TrainingConfig
from regard.training.run_folder import RunFolder


def make_trainer(training: TrainingConfig, folder: RunFolder) -> Any:
    """The trainer of a run, without its loggers, which write into the folder when they begin.

    Raises:
        ArgumentError: this machine has no such accelerator, devices or strategy.
        MissingPartError: Lightning is not installed.
    """
    _require_lightning()
    with lightning_silenced():
        from lightning.pytorch import Trainer
        from lightning.pytorch.utilities.exceptions import MisconfigurationException

        from regard.training.checkpoint_io import SafeCheckpointIO
        from regard.training.sharding import ShardedPrecision, ShardedStrategy

        sharded = training.strategy == "fsdp"
        precision: Any = {"32": "32-true"}.get(training.precision, training.precision)

        try:
            return Trainer(
                accelerator=training.accelerator,
                devices=_devices(training.devices, training.accelerator),
                num_nodes=training.nodes,
                strategy=ShardedStrategy() if sharded else training.strategy,
                precision=None if sharded else precision,
                max_epochs=-1,
                gradient_clip_val=training.clip or None,
                logger=False,
                plugins=[SafeCheckpointIO(folder.manifest), *([ShardedPrecision(precision)] if sharded else [])],
                default_root_dir=folder.path,
                num_sanity_val_steps=0,
                use_distributed_sampler=False,
                enable_checkpointing=False,
                enable_progress_bar=False,
                enable_model_summary=False,
            )
        except (MisconfigurationException, ImportError, RuntimeError, TypeError, ValueError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise ArgumentError(
                f"--accelerator {training.accelerator}, --devices {training.devices} and --strategy "
                f"{training.strategy} cannot be used together here: {reason}"
            ) from error


@contextmanager
def lightning_silenced() -> Iterator[None]:
    """Suppress Lightning's warnings and log messages, which are advice for programmers."""
    with warnings.catch_warnings():
        for name in ("lightning.pytorch", "lightning.fabric", "lightning.pytorch.utilities.rank_zero"):
            logging.getLogger(name).setLevel(logging.ERROR)
        warnings.filterwarnings("ignore", module="lightning")
        warnings.filterwarnings("ignore", module="torch.jit")
        yield


def _devices(devices: str, accelerator: str) -> Any:
    if devices == "auto":
        return 1 if accelerator == "cpu" else "auto"
    return int(devices) if devices.isdigit() else devices


def _require_lightning() -> None:
    try:
        import lightning.pytorch  # noqa: F401
    except ImportError as error:
        raise MissingPartError("lightning", "train") from error
