"""The interface of a task: metrics with a direction, options that are checked."""

from dataclasses import dataclass

import pytest

from regard.errors import ArgumentError
from regard.training.progress import Progress
from regard.training.task import Metric, NoOptions, Task, Trained


def test_a_metric_has_a_direction():
    bleu, errors = Metric("bleu", "BLEU"), Metric("wer", "WER", higher_is_better=False, digits=3)
    assert bleu.better(2.0, 1.0)
    assert not bleu.better(1.0, 1.0)
    assert errors.better(1.0, 2.0)
    assert not errors.better(2.0, 1.0)
    assert bleu.better(0.0, None)
    assert errors.better(1e9, None)
    assert bleu.text(31.234) == "BLEU 31.23"
    assert errors.text(0.5) == "WER 0.500"


def test_the_counters_of_version_0_1_are_read():
    saved = {"step": 7, "best_bleu": 3.5, "tokens": 11, "waited": 2}
    progress = Progress()
    progress.restore({"format": 1, "progress": saved})
    assert progress == Progress(step=7, best=3.5, units=11, waited=2)
    progress.restore({"format": 1, "progress": {"best_bleu": -1.0}})
    assert progress.best is None
    again = Progress()
    again.restore(progress.to_dict())
    assert again == progress


@dataclass(frozen=True)
class Options:
    width: int = 3
    """Characters."""


class Cutting(Task):
    name = "cut"
    summary = "Cut texts."
    metrics = (Metric("length", "length"),)
    prediction_config = Options

    def prepare(self, config, folder):
        raise NotImplementedError

    def load(self, folder, device="cpu"):
        raise NotImplementedError


class Cutter(Trained):
    task = Cutting()

    def predict_with(self, inputs, options):
        return [text[: options.width] for text in inputs]

    def evaluate_with(self, data, options):
        assert options == NoOptions()
        return data


def test_options_are_the_fields_of_the_tasks_configuration():
    trained = Cutter()
    assert trained.predict(["abcdef", "a"]) == ["abc", "a"]
    assert trained.predict(["abcdef"], width=2) == ["ab"]
    with pytest.raises(ArgumentError, match=r"no option 'wide'; did you mean 'width'\? \(known: width\)"):
        trained.predict(["abcdef"], wide=2)
    with pytest.raises(ArgumentError, match=r"no option 'width' \(known: none\)"):
        trained.evaluate("data", width=2)
    assert trained.evaluate("data") == "data"
    assert not trained.tokenizers
    with pytest.raises(ArgumentError, match="a list of one"):
        trained.predict("abcdef")
