"""What was measured of one contender at one task."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

State = Literal["measured", "absent", "failed", "skipped"]


class Spread(NamedTuple):
    """A sample of times, in seconds a call.

    Attributes:
        median: the middle one.
        lower: the first quartile.
        upper: the third quartile.
        runs: how many there are.
    """

    median: float
    lower: float
    upper: float
    runs: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Spread":
        """The spread of at least one time."""
        if len(seconds) == 1:
            return cls(seconds[0], seconds[0], seconds[0], 1)
        lower, middle, upper = statistics.quantiles(seconds, n=4, method="inclusive")
        return cls(middle, lower, upper, len(seconds))


@dataclass(frozen=True)
class Measurement:
    """One cell of the benchmark's table.

    Attributes:
        state: ``measured``; ``absent``: the peer is not installed; ``failed``: it raised; ``skipped``: it would have
            needed more memory or time than there is.
        reason: why it was not measured, in words.
        backend: what regard chose; empty for others.
        note: what this contender leaves out of the task, if anything.
        seconds: of interleaved runs; None where the task is not timed.
        first: seconds of the very first call, compilation included.
        ratio: its time over regard's, the median over rounds in which both ran; 1 for regard.
        extra_bytes: the most memory above what was there before the call, in a fresh process.
        resident_bytes: the most memory of that process altogether.
        alone: seconds of the call in that process.
        errors: largest absolute difference from the float64 oracle, for each output; None: not a finite number.
        expected_bytes: what it was expected to need beside its inputs, where that decided that it was skipped.
    """

    state: State
    reason: str = ""
    backend: str = ""
    note: str = ""
    seconds: Spread | None = None
    first: float | None = None
    ratio: float | None = None
    extra_bytes: int | None = None
    resident_bytes: int | None = None
    alone: float | None = None
    errors: Mapping[str, float | None] = field(default_factory=dict)
    expected_bytes: float | None = None

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> "Measurement":
        """What `dataclasses.asdict` and JSON have made of one, back again."""
        seconds = found.get("seconds")
        return cls(**{**found, "seconds": None if seconds is None else Spread(*seconds)})
