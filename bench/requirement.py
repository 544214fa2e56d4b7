"""The requirements on regard's time and memory, and whether a measurement meets them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from bench.columns import COLUMNS
from bench.measurement import Measurement
from bench.quantity import in_bytes, in_seconds

Kind = Literal["faster", "slower", "limit", "time", "overhead", "memory", "memory share", "resident"]

AT_LEAST = ("faster", "limit")
"""Kinds whose threshold is the least value; the others' is the largest."""


@dataclass(frozen=True)
class Outcome:
    """The result of checking a requirement.

    Attributes:
        value: the measured value, in the unit of the requirement; None: not measured.
        met: whether the requirement is met; None: not measured, or not checked.
        aim_met: whether the aim is met, likewise.
        shown: the value as text.
        shortfall: the distance to the threshold as text; empty if the requirement is met.
    """

    value: float | None
    met: bool | None
    aim_met: bool | None
    shown: str
    shortfall: str = ""


@dataclass(frozen=True)
class Requirement:
    """A requirement on regard in one task.

    Attributes:
        kind: the meaning of the threshold. ``faster``: least ratio of the other's time to regard's. ``slower``: largest
            ratio of regard's time to the other's. ``limit``: least share of the physical limit, which is the least time
            of the task's operations on this machine, divided by regard's time. ``time``: largest time in seconds.
            ``overhead``: largest difference of the times of a call, in seconds. ``memory``: largest extra memory in
            bytes. ``memory share``: largest ratio of regard's extra memory to the other's. ``resident``: largest memory
            of the process in bytes.
        threshold: the value that must be reached.
        against: column of the implementation that regard is compared with; empty: none.
        aim: a stricter threshold, which is not required.
    """

    kind: Kind
    threshold: float
    against: str = ""
    aim: float | None = None

    def __str__(self) -> str:
        other = f" {COLUMNS[self.against]}" if self.against else ""
        words = {"faster": f"times as fast as{other}", "slower": f"times the time of{other}",
                 "limit": "of the physical limit", "time": "of time", "overhead": f"a call above{other}",
                 "memory": "of extra memory",
                 "memory share": f"of the extra memory of{other}", "resident": "resident"}  # fmt: skip
        return words[self.kind].strip()

    def limit(self, number: float) -> str:
        """A threshold as text, e.g. ``≥ 20×``."""
        return f"{'≥' if self.kind in AT_LEAST else '≤'} {self.show(number)}"

    def show(self, number: float) -> str:
        """A value as text."""
        match self.kind:
            case "faster" | "slower":
                return f"{number:.2f}×" if number < 10 else f"{number:.1f}×"
            case "time" | "overhead":
                return in_seconds(number)
            case "limit":
                return f"{100 * number:.0f} %"
            case "memory share":
                return f"{100 * number:.1f} %"
        return in_bytes(number)

    def check(self, results: Mapping[str, Measurement], *, limit: float = 0.0, quick: bool = False) -> Outcome:
        """Check the measurements of the task.

        Args:
            results: column → measurement.
            limit: the least seconds of the task's operations on this machine.
            quick: whether small sizes were measured: then the value is given but not checked.
        """
        value = self._value(results, limit)
        if value is None:
            return Outcome(None, None, None, "not measured", self._why_not(results))
        if quick:
            return Outcome(value, None, None, self.show(value), "small sizes, not checked")
        met = self._reaches(value, self.threshold)
        aim_met = None if self.aim is None else self._reaches(value, self.aim)
        return Outcome(value, met, aim_met, self.show(value), "" if met else self._shortfall(value))

    def _reaches(self, value: float, threshold: float) -> bool:
        return value >= threshold if self.kind in AT_LEAST else value <= threshold

    def _shortfall(self, value: float) -> str:
        if self.kind in AT_LEAST:
            percent = 100 * (1 - value / self.threshold)
            return f"{percent:.0f} % below" if percent >= 1 else f"{percent:.1g} % below"
        if self.kind in ("time", "overhead"):
            return f"{in_seconds(value - self.threshold)} above"
        return f"{100 * (value / self.threshold - 1):.1f} % above" if value < 10 * self.threshold else "far above"

    def _value(self, results: Mapping[str, Measurement], limit: float) -> float | None:
        own, other = results.get("regard"), results.get(self.against)
        if own is None:
            return None
        if self.kind == "memory":
            return own.extra_bytes
        if self.kind == "resident":
            return own.resident_bytes
        if self.kind == "time":
            return own.seconds.median if own.seconds else None
        if self.kind == "limit":
            return limit / own.seconds.median if limit and own.seconds else None
        if other is None:
            return None
        if self.kind == "memory share":
            return own.extra_bytes / other.extra_bytes if other.extra_bytes and own.extra_bytes is not None else None
        if self.kind == "overhead":
            return own.seconds.median - other.seconds.median if own.seconds and other.seconds else None
        if not other.ratio:
            return None
        return other.ratio if self.kind == "faster" else 1 / other.ratio

    def _why_not(self, results: Mapping[str, Measurement]) -> str:
        for column in ("regard", self.against):
            found = results.get(column)
            if column and (found is None or found.state != "measured"):
                return f"{column}: {'not run' if found is None else found.reason or found.state}"
        return "memory was not measured" if "memory" in self.kind or self.kind == "resident" else "was not timed"
