"""A run of the task classify: its files, its labels, its attention, bad input."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import regard
from regard.data.text.reviews import write_reviews
from regard.errors import ArgumentError, DataError, KindError
from regard.tasks.classify import TASK, ClassificationTrainingConfig, ClassifyData, TextClassifierConfig
from regard.tasks.outputs.label_metrics import balanced_weights
from regard.training.checkpoints import list_checkpoints, load_checkpoint
from regard.training.config import RunConfig
from regard.training.reporter import SilentReporter
from regard.training.run import train_run
from regard.training.run_folder import RunFolder

SMALL = {"embedding": 8, "hidden": 8, "dropout": 0.1, "pooling_heads": 2}


def config_of(files, data=None, model=None, **training):
    data = {"train": str(files["train"]), "validation": str(files["validation"]), "vocabulary": 300, **(data or {})}
    chosen = {"epochs": 2, "batch_size": 32, "learning_rate": 0.01, "threads": 1, "accelerator": "cpu", **training}
    options = {**SMALL, **(model or {})}
    if options.get("architecture") == "none":
        del options["hidden"]
    if options.get("pooling") == "mean":
        del options["pooling_heads"]
    return RunConfig(
        "classify", ClassifyData(**data), TextClassifierConfig(**options), ClassificationTrainingConfig(**chosen)
    )


def train(config, path, resume=False, reporter=None):
    folder = RunFolder.open(path) if resume else RunFolder.create(path)
    return train_run(TASK, config, folder, resume=resume, reporter=reporter or SilentReporter())


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_reviews(tmp_path_factory.mktemp("reviews"), {"train": 300, "validation": 40, "test": 50}, 3)


@pytest.fixture(scope="module")
def run(files, tmp_path_factory):
    """A trained run that nothing interrupted, and its configuration."""
    path = tmp_path_factory.mktemp("runs") / "whole"
    config = config_of(files, checkpoint_steps=4)
    assert train(config, path).progress.epoch == 2
    return path, config


def test_the_run_folder_of_a_text_classifier(run):
    path, _ = run
    assert json.loads((path / "labels.json").read_text()) == {"labels": ["negative", "positive"]}
    recorded = json.loads((path / "manifest.json").read_text())["files"]
    assert {"tokenizer.json", "labels.json", "model.safetensors"} <= recorded.keys()
    assert {"val_accuracy", "val_macro_f1"} <= RunFolder(path).read_metrics()[0].keys()
    assert RunFolder(path).read_samples()[0].keys() >= {"text", "label", "found", "step"}


def test_predictions_of_a_text_classifier(run):
    trained = regard.load(run[0])
    text = "The film is not bad, and it took ten hours."
    found, empty = trained.predict([text, " "])
    assert found.label in ("negative", "positive")
    assert sum(found.probabilities.values()) == pytest.approx(1)
    assert list(found.probabilities.values()) == sorted(found.probabilities.values(), reverse=True)
    assert found.words == ["The", "film", "is", "not", "bad", ",", "and", "it", "took", "ten", "hours", "."]
    assert found.weights.shape == (2, 12)
    torch.testing.assert_close(found.weights.sum(-1), torch.ones(2))
    assert found.to_dict()["weights"][1][4] == pytest.approx(float(found.weights[1, 4]), abs=1e-4)
    assert empty.words == []
    assert [one.label for one in trained.predict(["A b.", text], batch_size=1)][1] == found.label
    with pytest.raises(KindError, match=r"inputs\[1\] must be text"):
        trained.predict(["a", 3])


def test_sub_words_are_merged_and_long_texts_are_cut(files, tmp_path):
    data = {"tokenizer": "bpe", "vocabulary": 90, "max_length": 9}
    path = tmp_path / "run"
    train(config_of(files, data, {"architecture": "gru"}, epochs=1), path)
    trained = regard.load(path)
    found = trained.predict(["The documentary is forgettable and long."])
    assert found[0].cut
    assert found[0].words[0] == "The"
    assert "documentary".startswith(found[0].words[1])
    assert found[0].weights.shape == (2, len(found[0].words))
    torch.testing.assert_close(found[0].weights.sum(-1), torch.ones(2))
    assert trained.remarks(found, None) == ["1 of 1 texts have more than 9 tokens and were cut"]


def test_evaluation_of_a_file_and_of_lists(run, files, tmp_path):
    path, _ = run
    trained = regard.load(path)
    found = trained.evaluate(str(files["test"]))
    assert found.texts == 50
    assert 0 < found.attention_on_deciding < 1
    right = sum(label == given for _, label, given, _ in found.predictions)
    assert found.accuracy == right / 50 == sum(found.confusion[i][i] for i in range(2)) / 50
    rows = [line.split("\t") for line in files["test"].read_text().splitlines()[1:]]
    of_lists = trained.evaluate(([row[0] for row in rows], [row[1] for row in rows]))
    assert (of_lists.accuracy, of_lists.loss) == (found.accuracy, found.loss)
    assert trained.evaluate(str(files["test"]), limit=7).texts == 7
    paths = found.write(RunFolder(path), "check")
    assert [one.name for one in paths] == ["evaluation-check.json", "evaluation-check.tsv", "confusion-check.png"]
    assert json.loads(paths[0].read_text())["confusion"] == found.confusion
    assert len(paths[1].read_text().splitlines()) == 51
    assert any("found" in line for line in found.lines())
    with pytest.raises(DataError, match=r"no training text has the label 'neutral' \(known: 'negative', 'positive'\)"):
        trained.evaluate((["a"], ["neutral"]))


def test_the_bundled_data_have_their_own_columns(files, tmp_path):
    own = tmp_path / "own.tsv"
    own.write_text(files["train"].read_text().replace("text\tlabel", "comment\topinion", 1))
    data = {"train": str(own), "validation": str(own), "text_column": "comment", "label_column": "opinion"}
    train(config_of(files, data, {"architecture": "none"}, epochs=1), tmp_path / "run")
    trained = regard.load(tmp_path / "run")
    assert trained.evaluate("bundled").texts == 1000
    assert trained.evaluate(str(own)).texts == 300
    assert trained.evaluate(str(files["test"]), text_column="text", label_column="label").texts == 50


def test_all_attention_on_the_deciding_words_is_1(run, files, tmp_path, monkeypatch):
    trained = regard.load(run[0])
    outputs = trained.outputs
    rows = [line.split("\t") for line in files["test"].read_text().splitlines()[1:]]

    def ideal(texts, *rest, **options):
        found = outputs(texts, *rest, **options)
        wanted = [torch.zeros(weights.shape) for weights in found.weights]
        for weights, (_, _, deciding) in zip(wanted, rows, strict=True):
            weights[:, [int(word) for word in deciding.split()]] = 0.3
        return replace(found, weights=wanted)

    monkeypatch.setattr(trained, "outputs", ideal)
    assert trained.evaluate(str(files["test"])).attention_on_deciding == pytest.approx(1)


def test_pictures_of_a_text_classifier(run, files, tmp_path):
    trained = regard.load(run[0])
    paths = trained.draw(trained.predict(["The film is good.", "Never."]), tmp_path / "pictures")
    assert [path.name for path in paths] == ["words-1.png", "words-2.png"]
    path = tmp_path / "mean"
    train(config_of(files, model={"pooling": "mean", "architecture": "none"}, epochs=1), path)
    mean = regard.load(path)
    found = mean.predict(["The film is good."])
    assert found[0].weights is None
    assert "weights" not in found[0].to_dict()
    assert mean.evaluate(str(files["test"])).attention_on_deciding is None
    with pytest.raises(ArgumentError, match="no attention weights"):
        mean.draw(found, tmp_path)


def test_initial_weights_of_another_run(run, files, tmp_path):
    path, _ = run
    train(config_of(files, epochs=1, init_from=str(path), learning_rate=1e-9), tmp_path / "more")
    for name, value in load_file(tmp_path / "more" / "model.safetensors").items():
        torch.testing.assert_close(value, load_file(path / "model.safetensors")[name])
    assert (tmp_path / "more" / "labels.json").read_bytes() == (path / "labels.json").read_bytes()
    (tmp_path / "other.tsv").write_text("text\tlabel\n" + "good\tyes\nbad\tno\n" * 20)
    with pytest.raises(DataError, match="no training text has the label 'no', 'yes'"):
        train(config_of(files, {"train": str(tmp_path / "other.tsv")}, init_from=str(path)), tmp_path / "wrong")


def test_validation_labels_must_be_known(files, tmp_path):
    (tmp_path / "other.tsv").write_text("text\tlabel\na\tneutral\n")
    for part in ("validation", "test"):
        with pytest.raises(DataError, match=r"other\.tsv: no training text has the label 'neutral'"):
            train(config_of(files, {part: str(tmp_path / "other.tsv")}), tmp_path / "run")


def test_validation_texts_of_sorted_data_are_of_every_label(tmp_path):
    path = tmp_path / "sorted.tsv"
    path.write_text("text\tlabel\n" + "".join(f"text {row}\t{row // 100}\n" for row in range(300)))
    config = config_of({"train": path, "validation": path}, {"validation": None})
    experiment = TASK.prepare(config, RunFolder(tmp_path))
    assert len(experiment.true) == 30
    assert set(experiment.true) == {0, 1, 2}
    assert sum(experiment.counts) == 270


def test_balanced_weights_give_each_label_the_same_sum():
    weights = balanced_weights((6, 2, 0, 4))
    assert weights[:2].tolist() == pytest.approx([12 / 18, 12 / 6])
    assert float((weights * torch.tensor([6, 2, 0, 4])).sum()) == pytest.approx(12)


def test_balanced_training_finds_the_rare_label(tmp_path):
    """With 19 to 1 and no word that tells the labels apart, only the weights make the rare label as probable."""
    path = tmp_path / "rare.tsv"
    path.write_text("text\tlabel\n" + "".join(f"same\t{'rare' if row % 20 == 0 else 'usual'}\n" for row in range(400)))
    probabilities = {}
    for kind in ("none", "balanced"):
        config = config_of({"train": path, "validation": path}, model={"architecture": "none"}, class_weights=kind,
                           label_smoothing=0.0, epochs=8, learning_rate=0.05, patience=0)  # fmt: skip
        run = tmp_path / kind
        train(config, run)
        folder = RunFolder(run)
        last = load_checkpoint(list_checkpoints(folder.checkpoints)[-1])["state_dict"]
        trained = regard.load(run)
        trained.model.load_state_dict({name.removeprefix("model."): value for name, value in last.items()})
        probabilities[kind] = trained.predict(["same"])[0].probabilities["rare"]
    assert probabilities["none"] < 0.15
    assert probabilities["balanced"] == pytest.approx(0.5, abs=0.2)


def test_a_label_that_only_held_out_texts_have_is_a_label(own_cache):
    held_out = int(np.random.default_rng(0).permutation(20)[0])
    labels = ["rare" if number == held_out else "ab"[number % 2] for number in range(20)]
    small = {"architecture": "none", "embedding": 8, "epochs": 1, "batch_size": 8, "threads": 1, "quiet": True}
    data = ["good film", "bad film"] * 10, labels
    classifier = regard.train("classify", data, class_weights="balanced", **small)
    assert set(classifier.labels.names) == {"a", "b", "rare"}
    assert torch.is_autocast_cache_enabled()


def test_the_package_imports_no_pytorch():
    code = "import sys, regard.tasks.classify; assert 'torch' not in sys.modules"
    subprocess.check_call([sys.executable, "-c", code])
