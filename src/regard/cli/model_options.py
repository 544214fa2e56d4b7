"""How `regard view` and `regard serve` run a model: on which device, with how many threads."""

from typing import Annotated

from cyclopts import Parameter

from regard.cli.ranges import Threads

ModelThreads = Annotated[Threads, Parameter(help="CPU threads; 0: PyTorch's own number.")]
Device = Annotated[str, Parameter(help="cpu, cuda, cuda:1, mps, ...")]


def use_threads(threads: int) -> None:
    """Let PyTorch use so many threads; 0: its own number."""
    if threads:
        # Imported here: help and errors in options need no PyTorch.
        import torch

        torch.set_num_threads(threads)
