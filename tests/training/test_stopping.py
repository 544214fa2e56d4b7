"""When a training ends, which of its models is the best one, and what it says meanwhile."""

import dataclasses
import math
from types import SimpleNamespace

import pytest

import regard
from regard.tasks import registry
from regard.training import loop
from regard.training.loop import TrainingLoop
from regard.training.progress import Progress
from regard.training.reporter import Reporter
from regard.training.run import train_run
from regard.training.run_folder import RunFolder
from regard.training.task import Metric
from regard.training.training_facts import TrainingFacts

WER = Metric("wer", "WER", higher_is_better=False, trivial=0.9)
ACCURACY = Metric("accuracy", "accuracy")


def observe(metric, validations, first_counted=0):
    """The steps of the models that were the best, and how long the run has waited after each validation."""
    progress, best, waited = Progress(), [], []
    for step, (value, loss) in enumerate(validations):
        progress.step = step
        if progress.observe(metric, value, loss, step >= first_counted):
            best.append(step)
        waited.append(progress.waited)
    return best, waited


def test_the_metric_decides_and_the_lowest_loss_prolongs_the_run():
    best, waited = observe(
        ACCURACY, [(0.5, 2.0), (0.6, 1.5), (0.6, 1.4), (0.55, 1.3), (0.6, 1.3), (0.5, 1.5), (0.7, 1.6)]
    )
    assert best == [0, 1, 2, 4, 6]  # of equal metrics the lower loss is better
    assert waited == [0, 0, 0, 0, 0, 1, 0]


def test_a_checkpoint_without_the_loss_of_the_best_model_continues():
    progress = Progress()
    assert progress.observe(ACCURACY, 0.5, 2.0, True)
    content = progress.to_dict()
    del content["progress"]["best_loss"]
    resumed = Progress()
    resumed.restore(content)
    assert not resumed.observe(ACCURACY, 0.5, 2.0, True)
    assert resumed.observe(ACCURACY, 0.5, 1.9, True)


def test_a_metric_that_means_nothing_yet_decides_nothing():
    # The model has learned to write nothing, then begins to write without end, then learns to write the right words.
    best, waited = observe(WER, [(0.95, 4.0), (8.7, 3.0), (3.0, 2.5), (4.0, 2.6), (0.8, 2.4), (0.91, 2.3), (0.7, 2.4)])
    assert best == [0, 1, 2, 4, 6]
    assert waited == [0, 0, 0, 1, 0, 0, 0]


def test_a_checkpoint_of_an_earlier_version_keeps_its_best_model():
    progress = Progress(best=0.95)  # which knew no loss
    assert not progress.observe(WER, 5.0, 9.9, True)
    assert progress.best == 0.95
    assert progress.observe(WER, 0.7, 9.8, True)


def test_validations_before_the_least_number_of_steps_do_not_count():
    _, waited = observe(ACCURACY, [(0.5, 1.0)] * 6, first_counted=4)
    assert waited == [0, 0, 0, 0, 1, 2]


@pytest.mark.parametrize(
    ("accuracies", "shows", "patience", "ends"),
    [
        ([1.0] * 6, True, 50, 2),  # although the loss still falls
        ([0.9, 1.0, 0.9, 1.0], True, 50, 3),
        ([1.0] * 6, True, 1, 0),
        ([1.0] * 6, True, 0, None),
        ([0.95] * 6, True, 50, None),
        ([1.0] * 6, False, 50, 5),  # of few examples, until the loss no longer falls
    ],
)
def test_a_perfect_metric_ends_a_training(accuracies, shows, patience, ends):
    metric, progress = Metric("accuracy", "accuracy", perfect=1.0), Progress()
    config = SimpleNamespace(epochs=99, max_minutes=0.0, patience=patience)
    half_made = SimpleNamespace(config=config, progress=progress, metrics=(metric,), shows_perfection=shows)
    reasons = []
    for progress.step, (accuracy, loss) in enumerate(zip(accuracies, (3.0, 2.0, 1.0, 1.1, 1.0, 1.2), strict=False)):
        progress.observe(metric, accuracy, loss, False)
        copy = Progress()
        copy.restore(progress.to_dict())  # a resumed run agrees
        half_made.progress = copy
        reasons.append(TrainingLoop.reason_to_end(half_made))
    assert next((step for step, reason in enumerate(reasons) if reason), None) == ends
    assert (
        ends is None
        or reasons[ends] == "validation accuracy is perfect: no model has a better one (patience 0 goes on)"
    )


BEYOND = {"cider": "its largest value depends on the references", "bits_per_byte": "no text is certain"}
"""Metrics that decide which model is the best, and that no model brings to their limit."""


@pytest.mark.parametrize("name", registry.names())
def test_the_metric_of_each_task_knows_its_best_value(name):
    metric = registry.find(name).metrics[0]
    assert (metric.perfect is None) == (metric.name in BEYOND)
    if metric.perfect is not None:
        assert metric.is_perfect(metric.perfect)
        assert metric.is_perfect(metric.perfect * (1 + 1e-15) - 1e-15)  # as sums of logarithms round it
        assert not metric.is_perfect(metric.perfect + (-0.01 if metric.higher_is_better else 0.01))


def films(count):
    return ["a fine film", "a dull film", "fine music", "dull music"] * count, ["good", "bad", "good", "bad"] * count


@pytest.mark.slow
def test_a_training_whose_metric_is_perfect_ends_and_goes_on_where_that_is_asked_for(tmp_path):
    options = {"validation": 0.5, "epochs": 40, "hidden": 8, "learning_rate": 0.02, "threads": 1, "quiet": True}
    run = regard.train("classify", films(10), run=tmp_path / "run", **options)
    rows = run.folder.read_metrics()
    first = next(number for number, row in enumerate(rows) if row["val_accuracy"] == 1)
    assert len(rows) == first + 3 < 40
    assert "perfect" in TrainingFacts.read(run.folder.facts).finished
    longer = dataclasses.replace(run.config.training, epochs=60)
    ended = train_run(run.task, dataclasses.replace(run.config, training=longer), run.folder, resume=True)
    assert "perfect" in ended.progress.finished
    assert ended.progress.step == rows[-1]["step"]
    whole = dataclasses.replace(run.config.training, patience=0)
    ended = train_run(run.task, dataclasses.replace(run.config, training=whole), run.folder, resume=True)
    assert ended.progress.finished == "40 epochs are done"


@pytest.mark.parametrize(("value", "loss"), [(math.nan, 1.0), (0.9, math.nan), (math.inf, 1.0)])
def test_a_result_that_is_no_number_is_never_the_best(value, loss):
    assert observe(ACCURACY, [(value, loss), (0.1, 3.0), (value, loss)]) == ([1], [1, 0, 1])


def test_a_resumed_run_that_is_over_validates_and_says_why(train, tiny, tmp_path, signal_at):
    path = tmp_path / "run"
    stopped = train(tiny(checkpoint_steps=1), path, reporter=signal_at(3, 2))
    assert not stopped.progress.finished
    config = tiny(checkpoint_steps=1)
    config = dataclasses.replace(config, training=dataclasses.replace(config.training, max_minutes=1e-6))
    ended = train(config, path, resume=True)
    assert ended.progress.step == stopped.progress.step
    assert "minutes are over" in ended.progress.finished
    assert ended.progress.last_validation == ended.progress.step
    assert RunFolder(path).read_metrics()[-1]["step"] == ended.progress.step


def test_a_run_that_minutes_ended_has_its_minutes_anew_when_it_is_resumed(train, tiny, tmp_path):
    path, config = tmp_path / "run", tiny(epochs=3)
    limited = dataclasses.replace(config, training=dataclasses.replace(config.training, max_minutes=1e-6))
    first = train(limited, path)
    assert "minutes are over" in first.progress.finished
    enough = dataclasses.replace(config, training=dataclasses.replace(config.training, max_minutes=60.0))
    assert train(enough, path, resume=True).progress.finished == "3 epochs are done"
    one = dataclasses.replace(config, training=dataclasses.replace(config.training, epochs=1))
    assert train(one, tmp_path / "one").progress.finished == "1 epoch is done"


class Lines(Reporter):
    """Keeps the lines that are printed."""

    def __init__(self):
        self.lines, self.steps = [], []

    def print_line(self, text):
        self.lines.append(text)

    def step(self, fraction, text):
        self.steps.append(text)


def test_the_printed_loss_is_that_of_the_epoch(train, tiny, tmp_path):
    reporter = Lines()
    train(tiny(), tmp_path / "run", reporter=reporter)
    rows = RunFolder(tmp_path / "run").read_metrics()
    assert len(rows) == 2
    for row in rows:
        assert (
            f"step {row['step']:g} · epoch {row['epoch']:g}/2 · loss {row['train_loss']:.3f}"
            in reporter.steps[int(row["step"]) - 1]
        )


def test_a_long_training_says_so_once(train, tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "ESTIMATE_AFTER", 0)
    quick, long = Lines(), Lines()
    train(tiny(), tmp_path / "quick", reporter=quick)
    monkeypatch.setattr(loop, "LONG_TRAINING", 0)
    train(tiny(), tmp_path / "long", reporter=long)
    assert sum("--max-minutes 15" in line for line in long.lines) == 1
    assert not any("--max-minutes" in line for line in quick.lines)


@pytest.mark.parametrize(
    ("progress", "earlier", "ends"),
    [
        (Progress(step=9, seconds=50), 0, False),
        (Progress(step=9, seconds=55), 0, True),  # a tenth of the time is kept for a first validation
        (Progress(step=9, seconds=45, last_validation=5, validation_seconds=20), 0, True),
        (Progress(step=9, seconds=35, last_validation=5, validation_seconds=20), 0, False),
        (Progress(step=9, seconds=59, last_validation=9, validation_seconds=20), 0, False),
        # The minutes of a resumed run are those since it was resumed.
        (Progress(step=9, seconds=635, last_validation=5, validation_seconds=20), 600, False),
        (Progress(step=9, seconds=645, last_validation=5, validation_seconds=20), 600, True),
    ],
)
def test_a_limit_of_minutes_keeps_room_for_the_last_validation(progress, earlier, ends):
    config = SimpleNamespace(epochs=5, max_minutes=1.0, patience=0)
    half_made = SimpleNamespace(config=config, progress=progress, earlier_seconds=earlier)
    half_made.reserved_seconds = lambda: TrainingLoop.reserved_seconds(half_made)
    assert bool(TrainingLoop.reason_to_end(half_made)) == ends
