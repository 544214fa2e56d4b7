"""Faults of disks, of numbers and of files: one line, and what was good stays."""

import contextlib
import dataclasses
import hashlib
import math
import os
import re
import resource
import shutil
import stat
from pathlib import Path

import pytest
import torch

from regard.errors import DataError, RegardError, RunError, TrainingError
from regard.models.checkpoint import load_model, save_model
from regard.tasks.outputs.text import TextExperiment
from regard.tasks.translate import TASK
from regard.training.checkpoints import list_checkpoints, load_checkpoint
from regard.training.run_folder import RunFolder


@pytest.fixture(scope="module")
def made(tiny, train, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "x"
    train(tiny(checkpoint_steps=4), path)
    return path


@pytest.fixture
def run(made, tmp_path):
    """A copy of a trained run."""
    shutil.copytree(made, tmp_path / "x")
    return tmp_path / "x"


def one_line(caught, *words):
    text = str(caught.value)
    assert "\n" not in text
    for word in words:
        assert str(word) in text, text


# Numbers


def test_a_validation_without_a_number_is_never_the_best(tiny, train, tmp_path, monkeypatch):
    validate = TextExperiment.validate

    def nan(experiment, rank, world_size):
        found = validate(experiment, rank, world_size)
        return dataclasses.replace(found, loss=math.nan, metrics={**found.metrics, "bleu": 99.0})

    monkeypatch.setattr(TextExperiment, "validate", nan)
    trained = train(tiny(epochs=1), tmp_path / "x")
    assert trained.progress.best is None
    assert not trained.folder.model.exists()


def test_a_model_with_weights_that_are_no_numbers_is_neither_saved_nor_used(run):
    before = (run / "model.safetensors").read_bytes()
    model = load_model(run)
    next(model.parameters()).data[0] = math.nan
    with pytest.raises(TrainingError) as caught:
        save_model(run, model)
    one_line(caught, "NaN or infinite", "not saved", "--learning-rate")
    assert (run / "model.safetensors").read_bytes() == before
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.models.checkpoint._not_finite", lambda tensors: "")
        save_model(run, model)
    (run / "manifest.json").unlink()
    with pytest.raises(RunError) as caught:
        TASK.load(RunFolder.open(run))
    one_line(caught, "model.safetensors", "NaN or infinite")


def test_a_learning_rate_that_is_far_too_high_ends_with_one_line(run_command, corpus, tmp_path):
    arguments = ["train", "translate", "--train", corpus["train"], "--source-column", "english", "--target-column",
                 "spanish", "--embedding", 6, "--hidden", 10, "--tokenizer", "word", "--threads", 1, "--device", "cpu",
                 "--learning-rate", "1e30", "--runs", tmp_path, "--run", "x"]  # fmt: skip
    code, _, error = run_command(*arguments)
    assert code == 2
    assert len([line for line in error.splitlines() if line.startswith("regard: error: ")]) == 1
    assert "Traceback" not in error
    assert not (tmp_path / "x").exists() or load_model(tmp_path / "x")


# Files


def test_equal_models_are_equal_files(run, tmp_path):
    model = load_model(run)
    sums = {hashlib.sha256(save_model(tmp_path / f"{i}.safetensors", model).read_bytes()).digest() for i in range(6)}
    assert len(sums) == 1
    assert sums == {hashlib.sha256((run / "model.safetensors").read_bytes()).digest()}


def test_every_file_of_a_run_follows_the_umask(tiny, train, tmp_path):
    before = os.umask(0o027)
    try:
        train(tiny(epochs=1), tmp_path / "x")
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "x").rglob("*")}
    wrong = {str(path): oct(mode) for path, mode in modes.items() if mode != (0o750 if path.is_dir() else 0o640)}
    assert not wrong


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer-source.json", "tokenizer-target.json"])
def test_a_flipped_bit_is_named(run, tiny, train, name):
    flip(run / name)
    with pytest.raises(RunError) as caught:
        TASK.load(RunFolder.open(run))
    one_line(caught, run / name, "damaged")
    with pytest.raises(RunError) as caught:
        train(tiny(checkpoint_steps=4), run, resume=True)
    one_line(caught, run / name, "damaged")


def test_a_swapped_tokenizer_is_named(run):
    shutil.copy(run / "tokenizer-source.json", run / "tokenizer-target.json")
    with pytest.raises(RunError) as caught:
        TASK.load(RunFolder.open(run))
    one_line(caught, "tokenizer-target.json", "not the file of this run")


def test_a_flipped_bit_of_a_checkpoint_is_named_and_the_one_before_it_is_used(run, tiny, train):
    *_, before, last = list_checkpoints(run / "checkpoints")
    flip(last)
    config = tiny(checkpoint_steps=4, epochs=3)
    with pytest.raises(RunError) as caught:
        train(config, run, resume=True)
    one_line(caught, last, "damaged", "delete it to resume")
    last.unlink()
    assert before.exists()
    assert train(config, run, resume=True).progress.epoch == 3


def test_deleted_checkpoints_are_missed_before_anything_starts_again(run, tiny, train):
    for path in list_checkpoints(run / "checkpoints"):
        path.unlink()
    before = (run / "model.safetensors").read_bytes()
    for manifest in ("with", "without"):
        with pytest.raises(RunError) as caught:
            train(tiny(checkpoint_steps=4), run, resume=True)
        one_line(caught, "no checkpoint to resume from", "--overwrite")
        if manifest == "with":
            (run / "manifest.json").unlink()
    assert (run / "model.safetensors").read_bytes() == before


def edited(change):
    def edit(path):
        content = load_checkpoint(path)
        change(content)
        torch.save(content, path)

    return edit


@pytest.mark.parametrize(
    "change",
    [
        edited(lambda content: content["state_dict"].popitem()),
        edited(lambda content: content["state_dict"].update(more=torch.ones(2))),
        edited(lambda content: content["state_dict"].update({next(iter(content["state_dict"])): torch.ones(2)})),
        edited(lambda content: content["regard"]["progress"].update(speed=3)),
        edited(lambda content: content["regard"]["progress"].update(step=[3])),
        edited(lambda content: content["regard"].pop("progress")),
        edited(lambda content: content["regard"].update(format=99)),
        edited(lambda content: content.update(optimizer_states=[])),
        edited(lambda content: content.update(optimizer_states=[{"state": 3}])),
        edited(lambda content: content.update(schedule=3)),
        edited(lambda content: content.pop("precision")),
    ],
    ids=range(11),
)
def test_an_edited_checkpoint_is_one_line(run, tiny, train, change):
    change(list_checkpoints(run / "checkpoints")[-1])
    (run / "manifest.json").unlink()
    with contextlib.suppress(RegardError):
        train(tiny(checkpoint_steps=4, epochs=3), run, resume=True)


def test_changed_data_needs_an_option(tiny, train, corpus, signal_at, tmp_path):
    text = corpus["train"].read_text()
    mine = tmp_path / "train.tsv"
    mine.write_text(text)
    config = tiny()
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, train=str(mine)))
    train(config, tmp_path / "x", reporter=signal_at(12, 15))
    mine.write_text("".join(text.splitlines(keepends=True)[:40]))
    with pytest.raises(RunError) as caught:
        train(config, tmp_path / "x", resume=True)
    one_line(caught, mine, "has changed", "--allow-changed-data")
    assert train(config, tmp_path / "x", resume=True, allow_changed_data=True).progress.finished


def test_data_are_found_from_another_working_directory(tiny, train, corpus, signal_at, tmp_path, monkeypatch):
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "there")
    shutil.copy(corpus["train"], "train.tsv")
    shutil.copy(corpus["test"], "test.tsv")
    config = tiny()
    data = dataclasses.replace(config.data, train="train.tsv", validation=None, test="test.tsv", held_out=5)
    config = dataclasses.replace(config, data=data)
    train(config, tmp_path / "x", reporter=signal_at(2, 15))
    monkeypatch.chdir("/")
    finished = train(config, tmp_path / "x", resume=True)
    assert finished.progress.finished
    assert TASK.test_data(finished.folder, config) == str(tmp_path / "there" / "test.tsv")


# Disks


def test_too_small_a_disk_is_said_before_the_training(tiny, train, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1 << 20))
    with pytest.raises(RunError) as caught:
        train(tiny(), tmp_path / "x")
    one_line(caught, "1.0 MiB free", "needs", "--runs")
    assert not (tmp_path / "x").exists()


@contextlib.contextmanager
def largest_file(size):
    """No file can be larger, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("size", [0, 300, 3_000, 9_000, 20_000])
def test_a_full_disk_is_one_line_and_what_was_good_stays(run, tiny, train, size):
    config = tiny(checkpoint_steps=4, epochs=3)
    best = (run / "model.safetensors").read_bytes()
    with largest_file(size), pytest.raises((DataError, RunError)) as caught:
        train(config, run, resume=True)
    one_line(caught, "cannot write", re.search(r"runs?|x", str(caught.value))[0])
    assert (run / "model.safetensors").read_bytes() == best or size > 9_000
    TASK.load(RunFolder.open(run))
    assert train(config, run, resume=True).progress.epoch == 3


@pytest.mark.parametrize("size", [0, 300, 3_000, 9_000])
def test_a_full_disk_at_the_start(tiny, train, tmp_path, size):
    with largest_file(size), pytest.raises((DataError, RunError)) as caught:
        train(tiny(), tmp_path / "runs" / "x")
    one_line(caught, "cannot write")
    place = tmp_path / "runs" / "x"
    assert train(tiny(epochs=1), place, resume=place.exists()).progress.finished


def test_a_full_disk_at_the_pictures(run, run_command, corpus):
    with largest_file(9_000):
        code, _, error = run_command("evaluate", run, corpus["test"], "--limit", 5)
    assert code == 2
    assert error.startswith("regard: error: cannot write")
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize("name", ["checkpoints", "pictures", "manifest.json", "metrics.csv", "samples.jsonl"])
def test_a_file_in_place_of_a_folder_and_a_folder_in_place_of_a_file(run, tiny, train, name):
    place = run / name
    if place.is_dir():
        shutil.rmtree(place)
        place.write_text("dear")
    else:
        place.unlink()
        place.mkdir()

    def use():
        train(tiny(checkpoint_steps=4, epochs=3), run, resume=True)
        TASK.report(RunFolder.open(run))

    with pytest.raises(RegardError) as caught:
        use()
    one_line(caught, name)


def test_a_run_folder_behind_a_link_is_used(run, tiny, train, tmp_path):
    (tmp_path / "link").symlink_to(run)
    assert TASK.load(RunFolder.open(tmp_path / "link"))
    assert train(tiny(checkpoint_steps=4, epochs=3), tmp_path / "link", resume=True).progress.epoch == 3
    assert (tmp_path / "link").is_symlink()


# What is checked at the start


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--test", "none.tsv"], ["none.tsv", "no such file"]),
        (["--validation", "none.tsv"], ["none.tsv", "no such file"]),
        (["--target-column", "english"], ["--source-column", "english"]),
        (["--target-column", "german"], ["german"]),
        (["--target-column", ""], ["--target-column"]),
        (["--test", ""], ["--test"]),
        (["--run", ""], ["--run"]),
        (["--device", "abacus"], ["abacus"]),
        (["--devices", "0"], []),
        (["--strategy", "ddp_spawn"], ["ddp_spawn", "ddp or fsdp"]),
        (["--precision", "64"], ["64"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_mistakes_cost_no_model(run, run_command, corpus, options, words):
    model = (run / "model.safetensors").read_bytes()
    arguments = ["train", "translate", "--train", corpus["train"], "--source-column", "english", "--target-column",
                 "spanish", "--embedding", 6, "--hidden", 10, "--tokenizer", "word", "--threads", 1, "--device", "cpu",
                 "--runs", run.parent, "--run", "x", "--overwrite"]  # fmt: skip
    for option in options[::2]:
        if option in arguments:
            place = arguments.index(option)
            del arguments[place : place + 2]
    code, _, error = run_command(*arguments, *options)
    assert code == 2, error
    (line,) = [line for line in error.splitlines() if line.startswith("regard: error: ")]
    assert "Traceback" not in error
    for word in words:
        assert word in line
    assert (run / "model.safetensors").read_bytes() == model
    assert os.listdir(run.parent) == ["x"]


def test_validation_on_the_training_data_is_said(tiny, train, tmp_path, caplog):
    config = tiny(epochs=1)
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, validation=config.data.train))
    train(config, tmp_path / "x")
    assert "the validation data are the training data" in caplog.text


def test_inputs_of_the_training_among_others_are_counted(tiny, train, tmp_path, caplog):
    config, data = tiny(epochs=1), {}
    pairs = Path(config.data.train).read_text().splitlines(keepends=True)
    for name, lines in {"validation": [*pairs[:3], "A new one.\tUno.\t\n"], "test": pairs[:2]}.items():
        data[name] = str(tmp_path / f"{name}.tsv")
        Path(data[name]).write_text("".join(lines))
    train(dataclasses.replace(config, data=dataclasses.replace(config.data, **data)), tmp_path / "x")
    assert "2 pairs of the validation data are in the training data too" in caplog.text
    assert "1 pair of the test data is in the training data too, and says nothing about other data" in caplog.text
