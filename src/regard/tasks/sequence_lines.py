"""Lines of processes that share the tokens of the same windows, beside those that have other windows."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from regard.errors import ArgumentError
from regard.tasks.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed.device_mesh import DeviceMesh

    from regard.distributed import Shards


class SequenceLines:
    """A mesh of processes: those of one line have the same windows, and each keeps a part of their tokens.

    Args:
        processes: of a line; 1: each process has windows of its own.
        device: the type of the devices of the model.
    """

    def __init__(self, processes: int, device: str):
        self.processes, self._device = processes, device
        self._shards: dict[int, Shards] = {}

    def share(self, rank: int, world_size: int) -> tuple[int, int]:
        """Returns the number of a process's line, and how many lines there are; a process alone has all tokens."""
        if world_size == 1:
            return rank, world_size
        check_lines(self.processes, world_size)
        return rank // self.processes, world_size // self.processes

    @cached_property
    def _line(self) -> DeviceMesh | None:
        if self.processes == 1 or not torch.distributed.is_initialized():
            return None
        from torch.distributed.device_mesh import init_device_mesh

        lines = torch.distributed.get_world_size() // self.processes
        mesh = init_device_mesh(self._device, (lines, self.processes), mesh_dim_names=("data", "sequence"))
        return mesh["sequence"]

    def shards(self, length: int) -> Shards | None:
        """Returns which tokens of a window each process of a line has; None if each has all.

        Under a causal mask the processes of a line compute equally many pairs of tokens.

        Args:
            length: tokens of a window.
        """
        if self._line is None:
            return None
        from regard.distributed import Shards

        if length not in self._shards:
            self._shards[length] = Shards.balanced(torch.arange(length, 0, -1), self._line)
        return self._shards[length]

    def sums(self, numbers: Tensor) -> Any:
        """Returns the sums of numbers over the processes of a line."""
        if self._line is not None:
            torch.distributed.all_reduce(numbers, group=self._line.get_group())
        return numbers


def check_lines(processes: int, world_size: int) -> None:
    """Raises ArgumentError if the processes of a run cannot be divided into lines."""
    if world_size % processes:
        raise ArgumentError(
            f"sequence_processes must divide the {world_size} processes of the run (devices, nodes); it is {processes}"
        )
