"""Runs of the task sounds: training on tables and folders, evaluation, prediction, pictures, bad input."""

import json
import shutil

import numpy as np
import pytest

import regard
from regard.errors import ArgumentError, DataError
from regard.records import FrameAxis
from regard.tasks.sounds import TASK, SoundClassifierConfig, SoundsData, SoundsTrainingConfig
from regard.training.config import RunConfig
from regard.training.reporter import SilentReporter
from regard.training.run import train_run
from regard.training.run_folder import RunFolder
from tone_corpus import HOP, WORDS, write_tones

SMALL = {"convolutions": 1, "channels": 4, "hidden": 16, "encoder_layers": 0, "dropout": 0.0, "longest_mask": 2,
         "widest_mask": 1, "pooling_heads": 2}  # fmt: skip


def config_of(files, data=None, model=None, **training):
    places = {"train": str(files["train"]), "validation": str(files["validation"]), "sound_column": "audio"}
    data = {**places, "label_column": "text", "hop_seconds": HOP, **(data or {})}
    chosen = {"epochs": 6, "batch_size": 8, "learning_rate": 0.01, "threads": 1, "accelerator": "cpu", **training}
    options = {**SMALL, **(model or {})}
    if options.get("pooling") == "mean":
        del options["pooling_heads"]
    return RunConfig("sounds", SoundsData(**data), SoundClassifierConfig(**options),
                     SoundsTrainingConfig(**chosen))  # fmt: skip


def train(config, path):
    return train_run(TASK, config, RunFolder.create(path), reporter=SilentReporter())


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_tones(tmp_path_factory.mktemp("labels"), {"train": 60, "validation": 8, "test": 9}, words=(1, 1))


@pytest.fixture(scope="module")
def trained(files, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "learnt"
    train(config_of(files), path)
    return regard.load(path)


def test_a_sound_run_learns_and_measures(trained, files, tmp_path):
    found = trained.evaluate(str(files["test"]), sound_column="audio", label_column="text")
    assert found.accuracy == 1.0
    assert found.labels == sorted(WORDS)
    assert sum(map(sum, found.confusion)) == found.sounds == 9
    written = found.write(trained.folder, "test")
    assert {path.suffix for path in written} == {".json", ".tsv", ".png"}
    assert "accuracy 1.0000" in found.lines()[0]


def test_a_prediction_shows_when_it_heard(trained, files, tmp_path):
    (found,) = trained.predict([files["test"].parent / "test-0.npy"])
    content = json.loads(json.dumps(found.to_dict()))
    assert content["output"] == found.label == max(content["probabilities"], key=content["probabilities"].get)
    assert found.weights.shape == (2, found.sound.annotations)
    assert found.weights.sum(1).tolist() == pytest.approx([1, 1], abs=1e-5)
    assert trained.draw([found], tmp_path)[0].read_bytes().startswith(b"\x89PNG")
    (record,) = trained.document(found).records
    assert isinstance(record.keys, FrameAxis)
    np.testing.assert_allclose(record.weights[:, 0], found.weights.numpy(), atol=1e-5)


def test_a_folder_of_classes_and_a_transformer(files, tmp_path):
    rows = [line.split("\t") for line in files["train"].read_text().splitlines()[1:]]
    for name, label, _ in rows:
        (tmp_path / "classes" / label).mkdir(parents=True, exist_ok=True)
        shutil.copy(files["train"].parent / name, tmp_path / "classes" / label / name)
    data = {"train": str(tmp_path / "classes"), "validation": None, "sound_column": None, "label_column": None}
    model = {"architecture": "transformer", "heads": 2, "feedforward": 16, "encoder_layers": 1, "pooling": "mean"}
    config = config_of(files, data, model, epochs=1)
    train(config, tmp_path / "run")
    trained = regard.load(tmp_path / "run")
    assert trained.evaluate(str(tmp_path / "classes")).sounds == 60
    (found,) = trained.predict([files["test"].parent / "test-0.npy"])
    assert found.weights is None
    assert [record.kind for record in trained.document(found).records] == ["self"]
    with pytest.raises(ArgumentError, match="no attention weights"):
        trained.draw([found], tmp_path)


def test_unknown_labels_and_missing_files_are_named(files, tmp_path):
    (tmp_path / "test.tsv").write_text(f"audio\ttext\n{files['test'].parent}/test-0.npy\tother\n")
    with pytest.raises(DataError, match="no training sound has the label 'other'"):
        train(config_of(files, {"test": str(tmp_path / "test.tsv")}), tmp_path / "run")
    (tmp_path / "test.tsv").write_text("audio\ttext\nnone.npy\tba\n")
    with pytest.raises(DataError, match=r"test\.tsv: row 1: .*none\.npy: no such file"):
        train(config_of(files, {"test": str(tmp_path / "test.tsv")}), tmp_path / "run")
    (tmp_path / "one.tsv").write_text(f"audio\ttext\n{files['test'].parent}/test-0.npy\tba\n" * 1)
    with pytest.raises(DataError, match="nothing to tell apart"):
        train(config_of(files, {"train": str(tmp_path / "one.tsv")}), tmp_path / "run")
