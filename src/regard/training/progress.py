"""What a person sees while a model trains: a bar in a terminal, plain lines elsewhere."""

import sys
import time
from typing import Any, Protocol


class Reporter(Protocol):
    """Told of the progress of a run; shows it."""

    def start(self, fraction: float) -> None:
        """Training begins (or goes on) with this fraction of it done."""
        ...

    def step(self, fraction: float, text: str) -> None:
        """A step is done; ``fraction`` of the whole, and what to say of it."""
        ...

    def say(self, text: str) -> None:
        """A line that stays."""
        ...

    def stop(self) -> None:
        """Training is over."""
        ...


class PlainReporter:
    """One line every ``interval`` seconds, with the time that is left: for logs, pipes and continuous integration."""

    def __init__(self, interval: float = 15.0):
        self.interval = interval
        self._estimate = Estimate()
        self._last = 0.0

    def start(self, fraction: float) -> None:
        self._estimate = Estimate(fraction)
        self._last = time.monotonic()

    def step(self, fraction: float, text: str) -> None:
        now = time.monotonic()
        if now - self._last >= self.interval:
            self._last = now
            self.say(f"{text} · {self._estimate.left(fraction)} left at most")

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def stop(self) -> None:
        pass


class BarReporter:
    """A bar with the time that is left, by Rich; redrawn at most four times a second."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

        self._console = Console(stderr=True)
        self._progress: Any = Progress(
            TextColumn("{task.fields[text]}"),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TextColumn("{task.fields[left]} left"),
            console=self._console,
            refresh_per_second=4,
            transient=True,
        )
        self._task = self._progress.add_task("train", total=1.0, text="", left="?")
        self._estimate = Estimate()
        self._last = 0.0

    def start(self, fraction: float) -> None:
        self._estimate = Estimate(fraction)
        self._progress.start()

    def step(self, fraction: float, text: str) -> None:
        now = time.monotonic()
        if now - self._last >= 0.25:
            self._last = now
            left = self._estimate.left(fraction)
            self._progress.update(self._task, completed=fraction, text=text, left=left)

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False)

    def stop(self) -> None:
        self._progress.stop()


class SilentReporter:
    """Shows nothing."""

    def start(self, fraction: float) -> None:
        pass

    def step(self, fraction: float, text: str) -> None:
        pass

    def say(self, text: str) -> None:
        pass

    def stop(self) -> None:
        pass


class Estimate:
    """Time left, from the time that the part done since ``fraction`` has taken."""

    def __init__(self, fraction: float = 0.0):
        self._fraction = fraction
        self._began = time.monotonic()

    def left(self, fraction: float) -> str:
        """E.g. ``"2 min"``; ``"?"`` as long as nothing is done."""
        done = fraction - self._fraction
        if done <= 0:
            return "?"
        return duration((time.monotonic() - self._began) * (1 - fraction) / done)


def duration(seconds: float) -> str:
    """Seconds as a person says them: ``"45 s"``, ``"12 min"``, ``"3 h 05 min"``."""
    if seconds < 90:
        return f"{max(0, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


def reporter_for_terminal() -> Reporter:
    """A bar when standard error is a terminal and Rich is there, plain lines when not."""
    return BarReporter() if sys.stderr.isatty() else PlainReporter()
