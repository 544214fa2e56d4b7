"""Lightning's loggers, by name."""

import os
from importlib import import_module
from typing import Any

from regard.errors import MissingPartError, RunError
from regard.training.run_folder import RunFolder

_CLASSES = {
    "csv": ("lightning.pytorch.loggers.csv_logs", "CSVLogger"),
    "tensorboard": ("lightning.pytorch.loggers.tensorboard", "TensorBoardLogger"),
    "mlflow": ("lightning.pytorch.loggers.mlflow", "MLFlowLogger"),
    "wandb": ("lightning.pytorch.loggers.wandb", "WandbLogger"),
}

_OUTPUTS = {"csv": "csv", "tensorboard": "tensorboard", "mlflow": "mlflow.db", "wandb": "wandb"}
"""Logger → the file or folder that it writes into the run folder."""


def make_loggers(names: list[str], folder: RunFolder) -> list[Any]:
    """Returns the loggers of a run, by names of ``regard.training.config.LOGGERS``; those that write files write into
    its folder. Raises MissingPartError if the package of one is not installed, and RunError if one cannot start,
    because it needs a login, a server or a folder."""
    run = folder.path.name
    # MLflow writes into a database. Its own variable names a server or another database.
    database = os.environ.get("MLFLOW_TRACKING_URI", f"sqlite:///{folder.path.absolute() / 'mlflow.db'}")
    arguments: dict[str, dict[str, Any]] = {
        "csv": {"save_dir": folder.path, "name": "csv"},
        "tensorboard": {"save_dir": folder.path, "name": "tensorboard", "version": ""},
        "mlflow": {"experiment_name": "regard", "run_name": run, "tracking_uri": database},
        "wandb": {"project": "regard", "name": run, "save_dir": folder.path},
    }
    loggers = []
    for name, kind in logger_classes(names).items():
        folder.tree(_OUTPUTS[name])
        try:
            logger = kind(**arguments[name])
            _ = logger.experiment  # starts it here, not at the first validation
        except ModuleNotFoundError as error:
            raise MissingPartError(name, name) from error
        except Exception as error:  # each package has errors of its own
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise RunError(f"the logger {name} cannot be used ({reason}); choose others with --logger") from error
        loggers.append(logger)
    return loggers


def logger_classes(names: list[str]) -> dict[str, type[Any]]:
    """Returns the classes of loggers by name, each once; raises MissingPartError if the package of one is not
    installed."""
    classes = {}
    for name in names:
        module, kind = _CLASSES[name]
        try:
            classes[name] = getattr(import_module(module), kind)
        except ModuleNotFoundError as error:
            raise MissingPartError(name, name) from error
    return classes
