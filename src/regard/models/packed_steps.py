"""The steps of a recurrent layer over packed rows: which rows belong to each, and which go on from the step before."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor


class Step(NamedTuple):
    """The packed rows of one step.

    Attributes:
        rows: where they are.
        number: how many there are.
        earlier: where the rows of the step before, in the order of the loop, are that go on; they come first.
        going_on: how many go on; the state of the others begins with zeros.
    """

    rows: slice
    number: int
    earlier: slice
    going_on: int


def steps_of(sizes: list[int], backwards: bool) -> Iterator[Step]:
    """The steps in the order of the loop.

    Args:
        sizes: rows of each step; they decrease, since the longest rows come first.
        backwards: whether the last step comes first.
    """
    first, place = [], 0
    for size in sizes:
        first.append(place)
        place += size
    order = list(range(len(sizes)))
    if backwards:
        order.reverse()
    before = None
    for step in order:
        going_on = 0 if before is None else min(sizes[step], sizes[before])
        start = 0 if before is None else first[before]
        yield Step(slice(first[step], first[step] + sizes[step]), sizes[step], slice(start, start + going_on), going_on)
        before = step


def states_before(states: Tensor, steps: list[Step]) -> Tensor:
    """The state before each row's step, from those after it; both are packed."""
    before = torch.zeros_like(states)
    for step in steps:
        before[step.rows][: step.going_on] = states[step.earlier]
    return before


def last_rows(steps: list[Step]) -> list[int]:
    """For each sequence the packed row of its last step in the order of the loop."""
    last = [0] * max(step.number for step in steps)
    for step in steps:
        last[: step.number] = range(step.rows.start, step.rows.stop)
    return last
