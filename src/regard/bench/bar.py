"""What a task is asked to reach, and whether it did."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from regard.bench.columns import COLUMNS
from regard.bench.measurement import Measurement
from regard.bench.quantity import in_bytes, in_seconds

Kind = Literal["faster", "slower", "overhead", "memory", "memory share", "resident"]


@dataclass(frozen=True)
class Verdict:
    """A bar held against what was measured.

    Attributes:
        value: what was measured, in the bar's unit; None if that is not known.
        met: whether the bar was reached; None: not known, or not to be judged.
        aim_met: the same of the aim.
        shown: the value for people.
        shortfall: how far it is from the bar, for people; empty where it is met.
    """

    value: float | None
    met: bool | None
    aim_met: bool | None
    shown: str
    shortfall: str = ""


@dataclass(frozen=True)
class Bar:
    """One demand on regard.

    Attributes:
        kind: ``faster``: so many times as fast as the other, at least. ``slower``: at most so many times its time.
            ``overhead``: at most so many seconds a call above it. ``memory``: at most so many extra bytes.
            ``memory share``: at most this part of the other's extra bytes. ``resident``: at most so many bytes of the
            whole process.
        least: what must be reached.
        against: the column that it is about; empty where regard stands alone.
        aim: what is hoped for.
    """

    kind: Kind
    least: float
    against: str = ""
    aim: float | None = None

    def __str__(self) -> str:
        other = f" {COLUMNS[self.against]}" if self.against else ""
        words = {"faster": f"times as fast as{other}", "slower": f"times the time of{other}",
                 "overhead": f"a call above{other}", "memory": "of extra memory",
                 "memory share": f"of the extra memory of{other}", "resident": "resident"}  # fmt: skip
        return words[self.kind].strip()

    def limit(self, number: float) -> str:
        """A number of this bar's unit for people, e.g. ``≥ 20×``."""
        return f"{'≥' if self.kind == 'faster' else '≤'} {self.show(number)}"

    def show(self, number: float) -> str:
        """A number of this bar's unit for people."""
        match self.kind:
            case "faster" | "slower":
                return f"{number:.2f}×" if number < 10 else f"{number:.1f}×"
            case "overhead":
                return in_seconds(number)
            case "memory share":
                return f"{100 * number:.1f} %"
        return in_bytes(number)

    def judge(self, results: Mapping[str, Measurement], *, quick: bool = False) -> Verdict:
        """Hold the bar against the measurements of its task.

        Args:
            results: column → measurement.
            quick: the sizes were small ones: the value is given, and not judged.
        """
        value = self._value(results)
        if value is None:
            return Verdict(None, None, None, "not measured", self._why_not(results))
        if quick:
            return Verdict(value, None, None, self.show(value), "small sizes, not judged")
        met = self._reaches(value, self.least)
        aim_met = None if self.aim is None else self._reaches(value, self.aim)
        return Verdict(value, met, aim_met, self.show(value), "" if met else self._shortfall(value))

    def _reaches(self, value: float, bar: float) -> bool:
        return value >= bar if self.kind == "faster" else value <= bar

    def _shortfall(self, value: float) -> str:
        if self.kind == "faster":
            return f"{100 * (1 - value / self.least):.0f} % below"
        if self.kind == "overhead":
            return f"{in_seconds(value - self.least)} above"
        return f"{100 * (value / self.least - 1):.1f} % above" if value < 10 * self.least else "far above"

    def _value(self, results: Mapping[str, Measurement]) -> float | None:
        own, other = results.get("regard"), results.get(self.against)
        if own is None:
            return None
        if self.kind == "memory":
            return own.extra_bytes
        if self.kind == "resident":
            return own.resident_bytes
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
