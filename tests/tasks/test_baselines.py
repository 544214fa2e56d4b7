"""The simple rule that a trained model should beat, counted by hand for each output."""

import json
import math
import re
import sys

import numpy as np
import pytest
from PIL import Image

import regard
from regard.tasks import registry
from regard.tasks.outputs import label_rule
from regard.tasks.outputs.text_metrics import rouge_scores, text_scores
from regard.training.config import make_config, options_by_section
from regard.training.run_folder import RunFolder
from regard.training.training_facts import TrainingFacts


@pytest.fixture
def baseline(tmp_path, own_cache):
    """Prepares a run of a task, and gives its baseline."""

    def make(task, options, **files):
        for name, content in files.items():
            (tmp_path / name.replace("_", ".")).write_text(content)
        parts = {part: str(tmp_path / options.pop(part)) for part in ("train", "validation")}
        folder = RunFolder(tmp_path / "run")
        folder.path.mkdir()
        task = registry.find(task)
        return task.prepare(make_config(task, options_by_section(task, {**parts, **options})), folder).baseline()

    return make


def table(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def no_sklearn(monkeypatch):
    """Makes scikit-learn a package that is not installed."""
    monkeypatch.setitem(sys.modules, "sklearn", None)


@pytest.mark.usefixtures("no_sklearn")
def test_the_most_frequent_label(baseline):
    train = table(*({"text": "a", "label": label} for label in "xxxyy"))
    validation = table(*({"text": "a", "label": label} for label in "xyyy"))
    found = baseline(
        "classify", {"train": "a.jsonl", "validation": "b.jsonl", "hidden": 8}, a_jsonl=train, b_jsonl=validation
    )
    assert found == ("always the most frequent label", 0.25)


CLAUSES = {"x": "我的订单在哪里", "y": "请退还我的钱"}
"""Label → a text without spaces, whose characters tell the label."""


def clauses(count):
    return table(*({"text": f"{number}{CLAUSES[label]}", "label": label} for number in range(count) for label in "xy"))


def test_a_linear_model_of_texts(baseline):
    pytest.importorskip("sklearn", reason="needs scikit-learn")
    files = {"a_jsonl": clauses(20), "b_jsonl": clauses(7)}
    options = {"train": "a.jsonl", "validation": "b.jsonl", "hidden": 8}
    first = baseline("classify", dict(options), **files)
    assert first == ("a linear model of words and characters", 1.0)


def test_a_linear_model_of_many_texts_says_of_how_many(baseline, monkeypatch):
    pytest.importorskip("sklearn", reason="needs scikit-learn")
    monkeypatch.setattr(label_rule, "MOST_CHARACTERS", 100)
    train, numbers = clauses(20), [len(json.loads(line)["text"]) for line in clauses(20).splitlines()]
    found = baseline("classify", {"train": "a.jsonl", "validation": "a.jsonl", "hidden": 8}, a_jsonl=train)
    assert re.fullmatch(r"a linear model of words and characters \(of 1\d of 40 texts\)", found.rule)
    assert sum(numbers) > 100  # an alternation of labels is not cut to one of them
    assert found.value == 1


@pytest.mark.parametrize(("labels", "warns"), [(label_rule.MOST_LABELS + 1, False), (2, True)])
def test_a_linear_model_that_cannot_be_is_the_most_frequent_label(baseline, monkeypatch, caplog, labels, warns):
    linear_model = pytest.importorskip("sklearn.linear_model", reason="needs scikit-learn")

    def fit(*_):
        raise ValueError("no such matrix\nat all")

    monkeypatch.setattr(linear_model.LogisticRegression, "fit", fit)
    train = table(*({"text": "a", "label": f"{number % labels}"} for number in range(2 * labels + 1)))
    found = baseline("classify", {"train": "a.jsonl", "validation": "a.jsonl", "hidden": 8}, a_jsonl=train)
    assert found == ("always the most frequent label", pytest.approx(3 / (2 * labels + 1)))
    assert [record.getMessage() for record in caplog.records if "no linear" in record.getMessage()] == (
        ["no linear model beside the network: ValueError: no such matrix"] * warns
    )


def test_a_linear_model_of_images(baseline, tmp_path):
    pytest.importorskip("sklearn", reason="needs scikit-learn")
    random = np.random.default_rng(1)
    for number in range(20):  # dark and bright
        pixels = random.integers(0, 120, (16, 16, 3)) + 130 * (number % 2)
        Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / f"{number}.png")
    rows = [{"image": f"{number}.png", "label": "xy"[number % 2]} for number in range(20)]
    options = {"train": "a.jsonl", "validation": "b.jsonl", "image_size": 16, "stages": 1, "grid": 16}
    files = {"a_jsonl": table(*rows[:12]), "b_jsonl": table(*rows[12:])}
    found = baseline("images", {**options, "architecture": "cnn", "patch": 4, "pooling": "mean"}, **files)
    assert found == ("a linear model of mean colours and tones", 1.0)


def test_a_linear_model_of_sounds(baseline, tmp_path):
    pytest.importorskip("sklearn", reason="needs scikit-learn")
    random = np.random.default_rng(1)
    for number in range(20):  # calm and loud bands, and one sound that is too long to be trained on
        frames = 11 + number if number else 400
        np.save(tmp_path / f"{number}.npy", (1 + number % 2) * random.standard_normal((frames, 5)).astype(np.float32))
    rows = [{"audio": f"{number}.npy", "text": "xy"[number % 2]} for number in range(20)]
    options = {"train": "a.jsonl", "validation": "b.jsonl", "hidden": 8, "channels": 2, "max_seconds": 3}
    files = {"a_jsonl": table(*rows[:12]), "b_jsonl": table(*rows[12:])}
    found = baseline("sounds", options, **files)
    assert found.rule == "a linear model of the mean and deviation of each band (of 11 of 12 sounds)"
    assert found.value == 1


@pytest.mark.slow
@pytest.mark.parametrize("installed", [True, False])
def test_results_have_the_scale_of_the_simple_rule(installed, tmp_path, monkeypatch, capsys, own_cache):
    if installed:
        pytest.importorskip("sklearn", reason="needs scikit-learn")
    else:
        monkeypatch.setitem(sys.modules, "sklearn", None)
    rule, value = ("a linear model of words and characters", 1.0) if installed else (label_rule.MOST_FREQUENT, 0.5)
    monkeypatch.chdir(tmp_path)
    for name, count in (("train", 20), ("validation", 7), ("test", 9)):
        (tmp_path / f"{name}.jsonl").write_text(clauses(count))
    options = {f"{part}": f"{part}.jsonl" for part in ("train", "validation", "test")}
    run = regard.train("classify", **options, run="run", epochs=1, hidden=8, learning_rate=1e-6, threads=1, seed=3)
    printed = "".join(capsys.readouterr())
    assert f"; {rule}: {value:.4f} · run" in printed
    accuracy = run.folder.read_metrics()[-1]["val_accuracy"]
    assert ("the model is not better than that simple rule" in printed) == (accuracy < value)
    assert ("the model and that simple rule are equal" in printed) == (accuracy == value)
    facts = json.loads((tmp_path / "run" / "training.json").read_text())
    assert facts["baseline"] == {"rule": rule, "value": value}
    assert f"{rule}, has accuracy {value:.4f}" in (tmp_path / "run" / "README.md").read_text()
    del facts["baseline"]  # as an earlier version wrote it
    (tmp_path / "run" / "training.json").write_text(json.dumps(facts))
    assert TrainingFacts.read(run.folder.facts).baseline == {}

    evaluation = run.evaluate()
    expected = {"rule": rule, "accuracy": value, "macro_f1": pytest.approx(1 if installed else 1 / 3)}
    assert evaluation.to_dict()["baseline"] == expected
    assert f"  {rule}: accuracy {value:.4f} · macro F1" in evaluation.lines()[1]
    (tmp_path / "train.jsonl").write_text(clauses(21))
    other = regard.load("run")
    assert other.evaluate().baseline is None  # of other data than those of the run
    assert len(other.evaluate().lines()) == len(evaluation.lines()) - 1 - (evaluation.accuracy <= value)


def test_a_copy_of_the_source(baseline):
    pairs = [("Anna sees the Rio Grande today .", "Anna ve el Rio Grande hoy ."), ("A cat", "Un gato")]
    train = table(*({"a": source, "b": target} for source, target in pairs * 3))
    found = baseline(
        "translate", {"train": "a.jsonl", "validation": "a.jsonl", "hidden": 8, "tokenizer": "word"}, a_jsonl=train
    )
    sources, targets = zip(*(pairs * 3), strict=True)
    assert found == ("a copy of the source", text_scores(sources, targets).bleu)


def test_the_beginning_of_an_article(baseline):
    article, summary = "one two three four five six", "one two four"
    found = baseline(
        "summarize",
        {"train": "a.jsonl", "validation": "a.jsonl", "hidden": 8},
        a_jsonl=table(*({"article": article, "summary": each} for each in (summary, "one two five", summary))),
    )
    expected = rouge_scores(["one two three"], [summary]).rouge_l
    assert found == ("the first 3 words of the article", pytest.approx(expected))


def test_the_frequencies_of_the_tokens(baseline):
    options = {"train": "a.txt", "validation": "b.txt", "tokenizer": "char", "hidden": 8, "heads": 2, "layers": 1}
    found = baseline("language", {**options, "context": 4, "batch_size": 2}, a_txt="ab" * 40, b_txt="ab" * 20)
    assert found.rule == "the frequencies of the tokens"
    assert found.value == pytest.approx(1.0, abs=0.15)  # two characters, equally frequent, are a bit each


def test_the_most_frequent_class(baseline, tmp_path):
    mask = np.zeros((16, 16), np.uint8)
    mask[:4] = 1  # a quarter
    Image.fromarray(np.zeros((16, 16, 3), np.uint8)).save(tmp_path / "image.png")
    Image.fromarray(mask).save(tmp_path / "mask.png")
    found = baseline(
        "segment",
        {"train": "a.jsonl", "validation": "a.jsonl", "channels": 4, "levels": 2, "width": 16, "height": 16},
        a_jsonl=table({"image": "image.png", "mask": "mask.png"}),
    )
    assert found.rule == "always the most frequent class"
    assert found.value == pytest.approx(0.75 / 2)
    assert math.isfinite(found.value)
