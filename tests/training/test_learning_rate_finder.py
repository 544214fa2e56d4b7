"""The sweep of learning rates: its rule, and that it uses the run's own batches and leaves nothing behind."""

import os
import random

import numpy as np
import pytest
import torch

from regard.errors import ArgumentError, ShapeError, TrainingError
from regard.pictures import learning_rate_curve
from regard.tasks import registry
from regard.training.learning_rate_finder import STEPS, WINDOW, LearningRateSweep, find_learning_rate
from regard.training.run_folder import RunFolder

TASK = registry.find("translate")
RATES = tuple(np.geomspace(1e-7, 1, STEPS).tolist())


def sweep_of(losses):
    return LearningRateSweep(RATES[: len(losses)], tuple(losses))


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_the_rate_at_which_the_loss_falls_fastest(noise):
    """A loss that falls around 10⁻³ and rises from 10⁻¹ on, over batches that differ."""
    x = np.log10(RATES)
    losses = 7 - 2 / (1 + np.exp(-4 * (x + 3))) + 30 * np.maximum(0, x + 1) ** 2
    sweep = sweep_of(losses + noise * np.random.default_rng(1).standard_normal(STEPS))
    assert 5e-4 < sweep.suggestion < 2e-3
    assert len(sweep.smoothed) == STEPS


def test_no_rate_is_suggested_where_nothing_is_learned():
    """Losses that differ by chance alone give a suggestion less than once in a hundred times."""
    noise = np.random.default_rng(1).standard_normal((500, STEPS))
    assert sum(sweep_of(0.7 + 0.03 * losses).suggestion is not None for losses in noise) < 5


@pytest.mark.parametrize("losses", [np.ones(STEPS), np.linspace(1, 2, STEPS), np.linspace(2, 1, WINDOW - 1)])
def test_constant_rising_and_short_losses(losses):
    assert sweep_of(losses).suggestion is None


def states():
    python, numpy = random.getstate(), np.random.get_state()
    return python, numpy[1].tolist(), numpy[2:], torch.get_rng_state().tolist(), torch.get_num_threads()


@pytest.fixture
def nothing_changes(tmp_path, monkeypatch):
    """The test may change neither the working directory, nor random numbers, nor the number of threads."""
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(2)  # the run has another number
    before = states()
    yield
    assert states() == before
    assert not os.listdir(tmp_path)


@pytest.mark.usefixtures("nothing_changes")
def test_the_learning_rate_finder_leaves_nothing_behind(tiny):
    config = tiny()
    sweep = find_learning_rate(TASK, config, steps=25)
    assert len(sweep.losses) == len(sweep.rates) > WINDOW
    assert sweep.rates[0] == RATES[0]
    assert find_learning_rate(TASK, config, steps=25) == sweep


def test_the_learning_rate_finder_begins_as_the_run_begins(tiny, train, tmp_path):
    """The first loss is that of the run's first step: the same weights, batch and dropout, also with --init-from."""
    options = {"validate_every": 1, "max_minutes": 0.0, "epochs": 1}
    train(tiny(**options), tmp_path / "x")
    first = RunFolder(tmp_path / "x").read_metrics()[0]["train_loss"]
    assert find_learning_rate(TASK, tiny(**options), steps=WINDOW).losses[0] == pytest.approx(first, rel=1e-5)
    further = tiny(init_from=str(tmp_path / "x"), **options)
    train(further, tmp_path / "y")
    second = RunFolder(tmp_path / "y").read_metrics()[0]["train_loss"]
    assert find_learning_rate(TASK, further, steps=WINDOW).losses[0] == pytest.approx(second, rel=1e-5)
    assert first != second


def test_the_learning_rate_finder_respects_its_limits(tiny, monkeypatch):
    with pytest.raises(ArgumentError, match="steps must be at least 15; it is 3"):
        find_learning_rate(TASK, tiny(), steps=3)
    assert len(find_learning_rate(TASK, tiny(max_minutes=1e-6)).losses) == 1
    monkeypatch.setattr("regard.training.learning_rate_finder.LOWEST_RATE", 1e30)
    with pytest.raises(TrainingError, match="the loss is"):
        find_learning_rate(TASK, tiny())


def test_the_picture_of_learning_rates_marks_the_suggestion():
    axes = learning_rate_curve([1e-3, 1e-2, 1e-1], [3, 2, 9], [3, 2.5, 9], 1e-2, title="x").axes[0]
    assert axes.get_xscale() == "log"
    assert [text.get_text() for text in axes.get_legend().get_texts()][-1] == "falls fastest at 1.00e-02"
    assert learning_rate_curve([], [], []).axes
    with pytest.raises(ShapeError, match="equally long"):
        learning_rate_curve([1], [1, 2], [1])


def test_find_lr_draws_a_picture_and_leaves_no_run(corpus, run_command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    columns = ("--source-column", "english", "--target-column", "spanish", "--tokenizer", "word")
    model = ("--embedding", 6, "--hidden", 10, "--threads", 1, "--device", "cpu", "--tokens-per-batch", 200)
    command = ("train", "translate", "--train", corpus["train"], "--run", "x", *columns, *model)
    code, output, error = run_command(*command, "--find-lr")
    assert code == 0, error
    assert "use it with: --learning-rate " in output
    assert os.listdir("runs") == ["x-learning-rate.png"], "there is no run"
    assert "replaces" not in output
    monkeypatch.setattr("regard.training.learning_rate_finder.find_learning_rate", lambda *_: sweep_of([1.0] * STEPS))
    assert "x-learning-rate.png (it replaces an earlier one)" in run_command(*command, "--find-lr")[1]
    for other in ("--resume", "--dry-run"):
        code, _, error = run_command(*command, "--find-lr", other)
        assert (code, "exclude each other" in error) == (2, True), error
