"""Recording: the problems that the modules of regard run, with their weights, for worked steps and pictures."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from torch import Tensor

from regard.attention.problem import Problem


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
