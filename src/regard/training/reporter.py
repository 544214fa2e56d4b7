"""Reporters show the progress of a training run: a bar in a terminal and in a notebook, plain lines elsewhere."""

import html
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def each_warning_once() -> Iterator[None]:
    """Shows each message of the logger ``regard`` once in this context: a training opens some data several times."""
    logger, messages = logging.getLogger("regard"), set[str]()

    def is_new(record: logging.LogRecord) -> bool:
        message = record.getMessage()
        is_known = message in messages
        messages.add(message)
        return not is_known

    logger.addFilter(is_new)
    try:
        yield
    finally:
        logger.removeFilter(is_new)


class Reporter:
    """Reports the progress of a run; this base class reports nothing."""

    def start(self, fraction: float) -> None:
        """Begins the report when training starts or resumes; ``fraction`` of the run is already done."""

    def step(self, fraction: float, text: str) -> None:
        """Reports a step that has ended, which ``text`` describes; ``fraction`` of the run is done."""

    def print_line(self, text: str) -> None:
        """Prints a line that stays on the screen."""

    def stop(self) -> None:
        """Ends the report when training has ended."""


class SilentReporter(Reporter):
    """Prints nothing."""


class _TimedReporter(Reporter):
    """Shows a step, with the remaining time, if the last one was shown ``interval`` seconds ago."""

    def __init__(self, interval: float):
        self.interval = interval
        self._estimate = Estimate()
        self._shown_at = 0.0

    def start(self, fraction: float) -> None:
        self._estimate = Estimate(fraction)

    def step(self, fraction: float, text: str) -> None:
        self._estimate.step(fraction)
        now = time.monotonic()
        if now - self._shown_at >= self.interval:
            self._shown_at = now
            self._show(fraction, text, self._estimate.remaining())

    def _show(self, fraction: float, text: str, left: str) -> None:
        raise NotImplementedError


class PlainReporter(_TimedReporter):
    """Prints a line every ``interval`` seconds: for logs, pipes and continuous integration."""

    def __init__(self, interval: float = 15.0):
        super().__init__(interval)

    def start(self, fraction: float) -> None:
        super().start(fraction)
        self._shown_at = time.monotonic()

    def _show(self, fraction: float, text: str, left: str) -> None:
        self.print_line(f"{text} · {left} at most" if left else text)

    def print_line(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


class BarReporter(_TimedReporter):
    """A progress bar that Rich draws at most four times a second."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

        super().__init__(0.25)
        self._console = Console(stderr=True)
        self._progress: Any = Progress(
            TextColumn("{task.fields[text]}"),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TextColumn("{task.fields[left]}"),
            console=self._console,
            refresh_per_second=4,
            transient=True,
        )
        self._task = self._progress.add_task("train", total=1.0, text="", left="")

    def start(self, fraction: float) -> None:
        super().start(fraction)
        self._progress.start()

    def _show(self, fraction: float, text: str, left: str) -> None:
        self._progress.update(self._task, completed=fraction, text=text, left=left)

    def print_line(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False)

    def stop(self) -> None:
        self._progress.stop()


class NotebookReporter(_TimedReporter):
    """A progress bar in the output of a notebook's cell, drawn at most twice a second, under the lines that stay."""

    def __init__(self) -> None:
        super().__init__(0.5)
        self._display: Any = None

    def start(self, fraction: float) -> None:
        from IPython.display import display

        super().start(fraction)
        self._display = display(_html_bar(fraction, ""), display_id=True)

    def _show(self, fraction: float, text: str, left: str) -> None:
        self._display.update(_html_bar(fraction, f"{text} · {left}" if left else text))

    def print_line(self, text: str) -> None:
        print(text, flush=True)

    def stop(self) -> None:
        if self._display is not None:
            self._display.update(_html_bar(None, ""))


def _html_bar(fraction: float | None, text: str) -> Any:
    """Returns the bar for a notebook; an empty output for None."""
    from IPython.display import HTML

    if fraction is None:
        return HTML("")
    return HTML(f'<progress max="1" value="{fraction:.4f}" style="width: 20em"></progress> {html.escape(text)}')


FIRST_STEPS = 5
"""Steps that estimates leave out, in which kernels are compiled and memory is allocated."""


class Estimate:
    """Estimates the remaining time from the steps since the start, when ``fraction`` was done, without the first
    ones."""

    def __init__(self, fraction: float = 0.0):
        self._steps = 0
        self._fraction = self._from = fraction
        self._began = self._now = time.monotonic()

    def step(self, fraction: float) -> None:
        """Counts a step that has ended; ``fraction`` of the run is done."""
        self._steps += 1
        self._fraction, self._now = fraction, time.monotonic()
        if self._steps <= FIRST_STEPS:
            self._from, self._began = fraction, self._now

    @property
    def measured(self) -> float:
        """Seconds between the first and the last step that count."""
        return self._now - self._began if self._steps > FIRST_STEPS else 0.0

    def seconds(self) -> float | None:
        """Returns the remaining seconds; None before the first step that counts."""
        done = self._fraction - self._from
        return (self._now - self._began) * (1 - self._fraction) / done if done > 0 else None

    def remaining(self) -> str:
        """Returns the remaining time, e.g. ``"2 min left"``; nothing before the first step that counts."""
        seconds = self.seconds()
        return "" if seconds is None else f"{duration(seconds)} left"


class Throughput:
    """Measures units of the loss (tokens, ...) a second since the last validation, without the first steps."""

    def __init__(self) -> None:
        self._steps = 0
        self._from = (0, 0.0)
        self._units = 0

    def step(self, units: int, seconds: float) -> float | None:
        """Returns the units a second after a step, from those since the last validation; None before the first step
        that counts."""
        self._steps += 1
        if units < self._units:
            self._from = (0, 0.0)
        self._units = units
        if self._steps <= FIRST_STEPS:
            self._from = units, seconds
        new_units, new_seconds = units - self._from[0], seconds - self._from[1]
        return new_units / new_seconds if new_units > 0 and new_seconds > 0 else None


def duration(seconds: float) -> str:
    """Returns seconds as text: ``"45 s"``, ``"12 min"``, ``"3 h 05 min"``."""
    if seconds < 90:
        return f"{max(0, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


def default_reporter() -> Reporter:
    """Returns a progress bar in a notebook and if standard error is a terminal, else plain lines."""
    if in_notebook():
        return NotebookReporter()
    return BarReporter() if sys.stderr.isatty() else PlainReporter()


def in_notebook() -> bool:
    """Whether the code runs in a kernel of Jupyter."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")
