"""The numbers that an option accepts."""

from collections.abc import Callable
from typing import Annotated, Any

from cyclopts import Parameter

LARGEST = 2**63 - 1
"""Largest whole number that PyTorch and the files of a run can hold."""


def between(low: float, high: float) -> Callable[[Any, Any], None]:
    """A check that a number is from ``low`` to ``high``; None passes.

    Returns:
        A validator as Cyclopts calls it: with the type of the option and its value. It raises ValueError with the end
        of a message that begins with the option's name.
    """

    def check(kind: Any, value: Any) -> None:
        if value is not None and not low <= value <= high:
            raise ValueError(f"must be from {low:,} to {high:,}; it is {value:,}")

    return check


Threads = Annotated[int, Parameter(validator=between(0, 1024))]
"""A number of CPU threads; 0: PyTorch's own number."""

Seed = Annotated[int, Parameter(validator=between(0, LARGEST))]
"""A seed of random numbers."""
