"""The measurement of one implementation in one task."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

State = Literal["measured", "absent", "failed", "skipped"]


class Spread(NamedTuple):
    """A sample of times, in seconds a call.

    Attributes:
        median: the median.
        lower: the first quartile.
        upper: the third quartile.
        runs: number of times.
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
        state: ``measured``; ``absent``: the peer is not installed; ``failed``: it raised an error; ``skipped``: it
            would need more memory than is available.
        reason: why it was not measured.
        backend: the backend that regard chose; empty for other implementations.
        note: a note on what this implementation computes.
        seconds: times of a call in interleaved runs; None if the task is not timed.
        first: seconds of the first call, compilation included.
        ratio: its time divided by regard's, the median over the rounds in which both ran; 1 for regard.
        extra_bytes: peak memory of the call minus the memory before it, in a fresh process.
        resident_bytes: peak memory of that process.
        alone: seconds of the call in that process.
        errors: largest absolute difference from the float64 oracle, for each output; None: not a finite number.
        expected_bytes: expected memory beside the inputs; None: not estimated.
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
        """The inverse of `dataclasses.asdict` and JSON."""
        seconds = found.get("seconds")
        return cls(**{**found, "seconds": None if seconds is None else Spread(*seconds)})
