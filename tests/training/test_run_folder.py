"""Run folders: made once, read safely, written whole."""

import os
import shlex

import pytest
import torch
import yaml

from regard.errors import ArgumentError, RunError, UnknownNameError
from regard.tasks.translate import TASK, TranslateData, TranslationTrainingConfig
from regard.training.config import RunConfig, TrainingConfig
from regard.training.manifest import Manifest
from regard.training.run_folder import RunFolder


def test_a_configuration_comes_back(tiny, tmp_path):
    folder = RunFolder.create(tmp_path / "run")
    config = tiny(model={"score": None, "attention": "luong"}, max_minutes=1.5)
    folder.write_config(config)
    assert RunFolder.open(tmp_path / "run").read_config(TASK) == config


def test_a_folder_with_something_in_it_is_left_alone(tiny, tmp_path):
    RunFolder.create(tmp_path / "run").write_config(tiny())
    with pytest.raises(RunError, match="--resume"):
        RunFolder.create(tmp_path / "run")
    RunFolder(tmp_path / "run").manifest.write(Manifest(began_in="/"))
    before = sorted(os.listdir(tmp_path / "run"))
    new = RunFolder.create(tmp_path / "run", overwrite=True)
    assert (new.path, new.replaces) == (tmp_path / "run.new", tmp_path / "run")
    assert sorted(os.listdir(tmp_path / "run")) == before
    assert os.listdir(tmp_path) == ["run"], "create writes nothing"


def test_a_run_without_a_model_says_the_command_that_continues_it(tiny, tmp_path, run_command):
    """Several runs are there, so that ``--resume`` alone does not say which one."""
    for name in ("a b", "c"):
        RunFolder.create(tmp_path / "my runs" / name).write_config(tiny())
    code, _, error = run_command("predict", tmp_path / "my runs" / "a b", "A text.")
    assert code == 2
    assert "has not come to its first validation" in error
    command = shlex.split(error.partition("continue with: ")[2])
    code, output, error = run_command(*command[1:], "--print-config")
    assert code == 0, error
    assert "task: translate" in output


def test_a_folder_that_is_no_run_is_never_deleted(tmp_path):
    (tmp_path / "letters.txt").write_text("dear")
    with pytest.raises(RunError, match="isn't a run"):
        RunFolder.create(tmp_path, overwrite=True)
    with pytest.raises(RunError, match="is a file"):
        RunFolder.create(tmp_path / "letters.txt", overwrite=True)
    assert (tmp_path / "letters.txt").read_text() == "dear"


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[1, 2]",
        "data: {}",
        "{",
        "data: {train: x}\nmodel: {}\ntraining: {epochs: many}",
        "data: {train: x}\nmodel: {}\ntraining: {speed: 3}",
        "data: {train: x}\nmodel: {}\ntraining: {epochs: 0}",
        "data: {train: x, lowercase: 3}\nmodel: {}\ntraining: {}",
        "!!python/object/apply:os.system ['true']",
    ],
)
def test_a_foreign_configuration_is_an_error_of_one_line(tmp_path, content):
    folder = RunFolder(tmp_path)
    folder.config.write_text(content)
    with pytest.raises(RunError, match=r"config\.yaml") as caught:
        folder.read_config(TASK)
    assert "\n" not in str(caught.value)


def test_metrics_come_back(tmp_path):
    folder = RunFolder(tmp_path)
    assert folder.read_metrics() == []
    rows = [{"step": 3, "val_loss": 1.25}, {"step": 1_234_567, "val_loss": 0.5}]
    folder.write_metrics(rows)
    assert folder.read_metrics() == rows
    folder.metrics.write_text("step,val_loss\n3,much\n")
    with pytest.raises(RunError, match="damaged"):
        folder.read_metrics()


@pytest.mark.parametrize(
    "content",
    [b"\xff", b"step\n1,2\n", b"steps,val_loss\n3,1\n", b"step,val_loss\n3\n"],
    ids=["bytes", "fields", "no step", "short"],
)
def test_damaged_metrics_are_named(tmp_path, content):
    folder = RunFolder(tmp_path)
    folder.metrics.write_bytes(content)
    with pytest.raises(RunError, match=r"metrics\.csv is damaged") as caught:
        folder.read_metrics()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content", [b"\xff", b"{", b"[1]\n", b"{}\n", b'{"step": "3"}\n', b"[" * 100_000], ids=range(6)
)
def test_damaged_samples_are_named(tmp_path, content):
    folder = RunFolder(tmp_path)
    folder.samples.write_bytes(content)
    with pytest.raises(RunError, match=r"samples\.jsonl is damaged") as caught:
        folder.read_samples()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["config.yaml", "metrics.csv", "samples.jsonl", "manifest.json"])
def test_a_folder_in_place_of_a_file(tmp_path, name):
    (tmp_path / name).mkdir()
    folder = RunFolder(tmp_path)
    read = {"config": folder.read_sections, "metrics": folder.read_metrics, "samples": folder.read_samples,
            "manifest": folder.manifest.read}  # fmt: skip
    with pytest.raises(RunError, match=name):
        read[name.partition(".")[0]]()


def test_versions_are_in_the_configuration(tiny, tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.write_config(tiny())
    versions = yaml.safe_load(folder.config.read_text())["versions"]
    assert versions["torch"] == torch.__version__.partition("+")[0] or versions["torch"] == torch.__version__
    assert {"regard", "lightning", "tokenizers", "numpy", "python"} <= versions.keys()
    folder.config.write_text(folder.config.read_text() + "  something: '3'\n")
    assert folder.read_config(TASK) == tiny()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"clip": -1.0}, "clip must be at least 0"),
        ({"learning_rate": float("nan")}, "learning_rate must be a finite number"),
        ({"label_smoothing": 1.0}, "label_smoothing must be in"),
        ({"tokens_per_batch": 0}, "tokens_per_batch must be from 1 to"),
        ({"max_minutes": float("nan")}, "max_minutes"),
    ],
)
def test_training_options_out_of_range(options, error):
    with pytest.raises(ArgumentError, match=error):
        TranslationTrainingConfig(**options)


def test_unknown_names_and_contradictions():
    with pytest.raises(UnknownNameError, match="did you mean 'cosine'"):
        TrainingConfig(schedule="cosin")
    with pytest.raises(UnknownNameError, match="precision"):
        TrainingConfig(precision="64")
    with pytest.raises(ArgumentError, match="nothing to train on"):
        TranslateData()
    with pytest.raises(ArgumentError, match="--bundled"):
        TranslateData(train="pairs.tsv", bundled=3)
    with pytest.raises(RunError, match="must have data"):
        RunConfig.from_dict(None, "here", TASK)


def test_a_folder_is_a_path(tiny, tmp_path):
    folder = RunFolder.create(tmp_path / "run")
    folder.write_config(tiny())
    again = RunFolder.open(folder)
    assert os.fspath(again) == str(again) == str(tmp_path / "run")
    assert again.read_config(TASK) == folder.read_config(TASK)
