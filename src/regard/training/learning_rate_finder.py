"""Finds a learning rate by a short sweep: the rate grows exponentially from step to step, and the loss is recorded.

Smith 2017, "Cyclical learning rates for training neural networks", section 3.3, with the rule of fastai and Lightning:
the rate at which the loss falls fastest. The sweep trains a model of its own in a temporary folder.
"""

import dataclasses
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from regard.errors import ArgumentError, TrainingError
from regard.files.atomic import temporary_folder
from regard.kernels.availability import kernels_awaited
from regard.training.config import RunConfig
from regard.training.loop import TrainingLoop
from regard.training.processes import make_fabric
from regard.training.randomness import seed_step
from regard.training.reporter import Reporter, SilentReporter
from regard.training.run import copy_weights, initial_run
from regard.training.run_folder import RunFolder
from regard.training.task import Task

LOWEST_RATE, HIGHEST_RATE, STEPS = 1e-7, 1.0, 100
WINDOW = 15
"""Steps over which losses are averaged and their slope is measured: about a factor of 10 of the rate."""
CERTAINTY = 4.5
"""A slope counts if it is this multiple of its standard error, since the losses of batches differ anyway."""
DIVERGENCE = 4.0
"""The sweep ends when the mean of the last losses is this multiple of the smallest mean."""


@dataclass(frozen=True)
class LearningRateSweep:
    """The losses of a sweep, and the learning rate that they suggest."""

    rates: tuple[float, ...]
    """The learning rate of each step."""
    losses: tuple[float, ...]
    """The loss of each step, before its update."""

    @property
    def smoothed(self) -> tuple[float, ...]:
        """The mean of the losses around each step, over `WINDOW` steps or as many as there are on both sides."""
        means = []
        for step in range(len(self.losses)):
            side = min(WINDOW // 2, step, len(self.losses) - 1 - step)
            means.append(float(np.mean(self.losses[step - side : step + side + 1])))
        return tuple(means)

    @property
    def suggestion(self) -> float | None:
        """The rate at which the loss falls fastest per factor of the rate, with two digits.

        The slope at a step is that of a straight line through the losses of `WINDOW` steps around it. None: there are
        too few steps, or the loss fell nowhere more than it differs from batch to batch.
        """
        if len(self.losses) < WINDOW:
            return None
        x = np.lib.stride_tricks.sliding_window_view(np.log(self.rates), WINDOW)
        losses = np.lib.stride_tricks.sliding_window_view(np.array(self.losses), WINDOW)
        x, losses = (part - part.mean(1, keepdims=True) for part in (x, losses))
        spread = (x * x).sum(1)
        slopes = (x * losses).sum(1) / spread
        noise = np.sqrt(((losses - slopes[:, None] * x) ** 2).sum(1) / (WINDOW - 2))
        errors = np.maximum(noise, np.median(noise)) / np.sqrt(spread)
        certain = np.where(slopes < -CERTAINTY * errors, slopes, 0.0)
        steepest = int(certain.argmin())
        return float(f"{self.rates[steepest + WINDOW // 2]:.1e}") if certain[steepest] < 0 else None

    def figure(self, title: str | None = None) -> Any:
        """Draws the losses over the rates, with the suggestion."""
        from regard.pictures import learning_rate_curve

        return learning_rate_curve(self.rates, self.losses, self.smoothed, self.suggestion, title=title)


def find_learning_rate(
    task: Task, config: RunConfig, reporter: Reporter | None = None, steps: int = STEPS
) -> LearningRateSweep:
    """Sweeps the learning rate of a run that has not begun, on its own batches.

    The sweep leaves no trace: it trains a separate model in a temporary folder, and restores the global generators of
    random numbers and the number of threads.

    Args:
        config: the configuration of the run. Its ``learning_rate``, ``schedule`` and ``warmup`` are not used;
            ``max_minutes`` ends the sweep.
        reporter: prints the progress; None: nothing is printed.
        steps: steps of the sweep.

    Raises:
        ArgumentError: there are fewer than `WINDOW` steps.
        RegardError: the run could not begin either.
        TrainingError: the loss of the first steps is not finite.
    """
    if steps < WINDOW:
        raise ArgumentError(f"steps must be at least {WINDOW}; it is {steps}")
    training = dataclasses.replace(config.training, devices="1", nodes=1, strategy="auto", logger="")
    initial = None if training.init_from is None else initial_run(task, training.init_from)
    with _same_state(), kernels_awaited(), temporary_folder() as temporary:
        if training.threads:
            torch.set_num_threads(training.threads)
        folder = RunFolder(temporary)
        fabric = make_fabric(training)
        seed_step(training.seed, -1)
        experiment = task.prepare(config, folder)
        if initial:
            copy_weights(initial, task, config, experiment)
        reporter = reporter or SilentReporter()
        return _Sweep(steps, fabric, experiment, task.metrics, training, folder, reporter, None).sweep()


class _Sweep(TrainingLoop):
    """The training loop with growing learning rates, without validations, and without files."""

    def __init__(self, steps: int, *arguments: Any):
        self.rates = np.geomspace(LOWEST_RATE, HIGHEST_RATE, steps).tolist()
        super().__init__(*arguments)

    def _set_learning_rate(self, step: int) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self.rates[min(step, len(self.rates) - 1)]

    def sweep(self) -> LearningRateSweep:
        """Returns the losses up to the last rate, or to that at which the model diverges."""
        progress, losses = self.progress, []
        began = time.monotonic()
        self.reporter.start(0.0)
        try:
            for batch in self._batches():
                loss_sum, units = progress.loss_sum, progress.units
                try:
                    self._take_step(batch)
                    self._read_losses()
                except TrainingError:
                    if len(losses) < WINDOW:
                        raise
                    break
                losses.append((progress.loss_sum - loss_sum) / max(1, progress.units - units))
                self._count_step()
                rate = self.rates[len(losses) - 1]
                self.reporter.step(len(losses) / len(self.rates), f"learning rate {rate:.1e} · loss {losses[-1]:.3f}")
                minutes = (time.monotonic() - began) / 60
                if (
                    len(losses) == len(self.rates)
                    or _has_diverged(losses)
                    or (self.config.max_minutes and minutes > self.config.max_minutes)
                ):
                    break
        finally:
            self.reporter.stop()
        return LearningRateSweep(tuple(self.rates[: len(losses)]), tuple(losses))


def _has_diverged(losses: list[float]) -> bool:
    means = np.convolve(losses, np.ones(5) / 5, mode="valid")
    return len(losses) > WINDOW and bool(means[-1] > DIVERGENCE * means.min() > 0)


@contextmanager
def _same_state() -> Iterator[None]:
    """Restores the generators of random numbers and the number of threads after this context."""
    python, numpy, threads = random.getstate(), np.random.get_state(), torch.get_num_threads()
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_num_threads(threads)
