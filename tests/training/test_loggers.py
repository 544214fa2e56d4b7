"""Lightning's loggers by name: they get every row of metrics, and an absent one is one line."""

import csv
import importlib
import sqlite3
import sys
from contextlib import closing

import pytest

from regard.errors import ArgumentError, MissingPartError, RunError
from regard.tasks.translate import TASK
from regard.training import loggers
from regard.training.config import LOGGERS, TrainingConfig
from regard.training.reporter import SilentReporter
from regard.training.run import train_run
from regard.training.run_folder import RunFolder
from regard.training.run_replacement import foreign_files


def test_the_logger_has_the_rows_of_the_metrics(tiny, tmp_path):
    folder = RunFolder.create(tmp_path / "run")
    train_run(TASK, tiny(epochs=2, logger="csv, csv"), folder, reporter=SilentReporter())
    (file,) = (tmp_path / "run" / "csv").rglob("metrics.csv")
    with file.open() as opened:
        logged = [row for row in csv.DictReader(opened) if row["val_loss"]]
    rows = folder.read_metrics()
    assert [int(row["step"]) for row in logged] == [row["step"] for row in rows]
    assert [float(row["val_bleu"]) for row in logged] == pytest.approx([row["val_bleu"] for row in rows], rel=1e-4)
    assert foreign_files(folder.path) == []  # --overwrite may delete what the logger wrote


def test_mlflow_writes_a_database_into_the_run_folder(tiny, tmp_path, monkeypatch):
    pytest.importorskip("mlflow", reason="mlflow is not installed (regard[mlflow])")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    folder = RunFolder.create(tmp_path / "run")
    train_run(TASK, tiny(epochs=1, logger="mlflow"), folder, reporter=SilentReporter())
    with closing(sqlite3.connect(folder.path / "mlflow.db")) as database:
        found = dict(database.execute("select key, value from metrics").fetchall())
    assert found["val_bleu"] == pytest.approx(folder.read_metrics()[-1]["val_bleu"])
    assert foreign_files(folder.path) == []


def test_names_are_checked_at_once():
    assert TrainingConfig(logger=" csv ,wandb").loggers == ["csv", "wandb"]
    assert TrainingConfig().loggers == []
    with pytest.raises(ArgumentError, match=r"logger must be of csv, tensorboard, mlflow, wandb.* 'tensorbord'"):
        TrainingConfig(logger="csv,tensorbord")


@pytest.mark.parametrize("name", LOGGERS[1:])
def test_an_absent_package_is_one_line(monkeypatch, tmp_path, name):
    def absent(module):
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(loggers, "import_module", absent)
    with pytest.raises(MissingPartError, match=f"{name} is not installed") as caught:
        loggers.make_loggers([name], RunFolder(tmp_path))
    assert "\n" not in str(caught.value)


def test_a_logger_that_cannot_begin_is_one_line(monkeypatch, tmp_path):
    class Refusing:
        def __init__(self, **arguments):
            pass

        @property
        def experiment(self):
            raise OSError("no login\nat all")

    module = importlib.util.module_from_spec(importlib.machinery.ModuleSpec("refusing", None))
    module.WandbLogger = Refusing
    monkeypatch.setitem(sys.modules, "refusing", module)
    monkeypatch.setitem(loggers._CLASSES, "wandb", ("refusing", "WandbLogger"))
    with pytest.raises(RunError, match=r"the logger wandb cannot be used .no login.") as caught:
        loggers.make_loggers(["wandb"], RunFolder(tmp_path))
    assert "\n" not in str(caught.value)
