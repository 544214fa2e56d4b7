"""When a training ends, and which of its models is the best one."""

import math

import pytest

from regard.training.progress import Progress
from regard.training.task import Metric

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
    assert best == [0, 1, 6]
    assert waited == [0, 0, 0, 0, 1, 2, 0]


def test_a_metric_that_means_nothing_yet_decides_nothing():
    # The model has learned to write nothing, then begins to write without end, then learns to write the right words.
    best, waited = observe(WER, [(0.95, 4.0), (8.7, 3.0), (3.0, 2.5), (4.0, 2.6), (0.8, 2.4), (0.91, 2.3), (0.7, 2.4)])
    assert best == [0, 1, 2, 4, 6]
    assert waited == [0, 0, 0, 1, 0, 0, 0]


def test_validations_before_the_least_number_of_steps_do_not_count():
    _, waited = observe(ACCURACY, [(0.5, 1.0)] * 6, first_counted=4)
    assert waited == [0, 0, 0, 0, 1, 2]


@pytest.mark.parametrize(("value", "loss"), [(math.nan, 1.0), (0.9, math.nan), (math.inf, 1.0)])
def test_a_result_that_is_no_number_is_never_the_best(value, loss):
    assert observe(ACCURACY, [(value, loss), (0.1, 3.0), (value, loss)]) == ([1], [1, 0, 1])
