"""Recording: the problems that the modules of regard run, with their weights, for worked steps and pictures."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import NamedTuple

from torch import Tensor

from regard.attention.execution import execute
from regard.attention.problem import Problem
from regard.attention.readings import Gatherer
from regard.attention.result import Attended


class RecordedCall(NamedTuple):
    """One attention that was run.

    Attributes:
        problem: what was asked.
        weights: ``[batch, heads, queries, keys]``, before dropout, as the backend that ran computed them.
    """

    problem: Problem
    weights: Tensor


_calls: ContextVar[list[RecordedCall] | None] = ContextVar("recorded calls", default=None)


@contextmanager
def recorded_calls() -> Iterator[list[RecordedCall]]:
    """In this context, each attention of `attend` and of the modules of `regard.nn` is recorded, in their order.

    No output changes by a bit. Memory is quadratic: for texts of a length that a person reads. Calls of other threads,
    and calls that a compiler traces, are not recorded.
    """
    calls: list[RecordedCall] = []
    outer = _calls.set(calls)
    try:
        yield calls
    finally:
        _calls.reset(outer)


def recording() -> list[RecordedCall] | None:
    """The calls recorded so far, to append to; None outside of `recorded_calls`."""
    return _calls.get()


def execute_recorded(
    calls: list[RecordedCall],
    problem: Problem,
    backend: str,
    gatherer: Gatherer | None = None,
    need_weights: bool = False,
) -> Attended:
    """`regard.attention.execution.execute`, and the call is appended to ``calls``."""
    if gatherer is not None:  # a run with readings gives no weights
        weights = execute(replace(problem, dropout=0.0), backend, need_weights=True).weights
        attended = execute(problem, backend, gatherer)
    else:
        attended = execute(problem, backend, need_weights=True)
        weights = attended.weights
    assert weights is not None
    calls.append(RecordedCall(problem, weights.detach()))
    return attended if need_weights else Attended(attended.output, None)
