"""Types of options that several commands share: runs, ranges of numbers, seeds, threads, devices."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from cyclopts import Parameter

LARGEST_INTEGER = 2**63 - 1
"""Largest integer that PyTorch and the files of a run can hold."""


def between(low: float, high: float) -> Callable[[Any, Any], None]:
    """Returns a Cyclopts validator that accepts None and numbers from ``low`` to ``high``. It is called with the type
    and the value of an option, and raises ValueError with the end of a message that begins with the option's name."""

    def check(kind: Any, value: Any) -> None:
        if value is not None and not low <= value <= high:
            raise ValueError(f"must be from {low:,} to {high:,}; it is {value:,}")

    return check


Threads = Annotated[int, Parameter(validator=between(0, 1024))]
"""A number of CPU threads; 0: PyTorch's own number."""

Seed = Annotated[int, Parameter(validator=between(0, LARGEST_INTEGER))]
"""A seed of random numbers."""

Run = Annotated[str, Parameter(help="Run folder, e.g. runs/translate-bahdanau, or hf://OWNER/NAME on the hub.")]
"""A trained run, of this machine or of the hub."""

ModelThreads = Annotated[Threads, Parameter(help="CPU threads; 0: PyTorch's own number.")]
Language = Annotated[
    Literal["en", "zh"] | None,
    Parameter(help="Language of the page or the picture, en or zh. Default: that of the browser."),
]
Device = Annotated[str, Parameter(help="cpu, cuda, cuda:1, mps, ...")]


def use_threads(threads: int) -> None:
    """Sets PyTorch's number of threads; 0 leaves it unchanged."""
    if threads:
        # The import is here because help and errors in options need no PyTorch.
        import torch

        torch.set_num_threads(threads)
