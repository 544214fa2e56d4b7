"""Lines of processes that share the tokens of the same texts, beside those that have other texts."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from regard.errors import ArgumentError
from regard.tasks.lazy import torch
from regard.tasks.task import TableExperiment
from regard.training.processes import process_count

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed.device_mesh import DeviceMesh

    from regard.distributed import Shards
    from regard.training.task import EpochLoader


class SequenceLines:
    """A mesh of processes: those of one line have the same texts, and each keeps a part of their tokens. In a line of
    one process each has texts of its own. ``device`` is the type of the devices of the model."""

    def __init__(self, processes: int, device: str):
        self.processes, self._device = processes, device
        self._shards: dict[int, Shards] = {}

    def share(self, rank: int, world_size: int) -> tuple[int, int]:
        """Returns the number of a process's line, and how many lines there are; a process alone has all tokens."""
        if world_size == 1:
            return rank, world_size
        _check_divisor(self.processes, world_size)
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
        """Returns which tokens of a text each process of a line has; None if each has all.

        The processes of a line compute equally many pairs of tokens, under a causal mask as well. Texts of one length
        are shared in one order, so that the lengths of a source and a target tell which is which where it matters.
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


class LineExperiment(TableExperiment):
    """A prepared run whose processes may share texts; its options are a `regard.tasks.options.SequenceOptions`."""

    @cached_property
    def lines(self) -> SequenceLines:
        """The processes that share the tokens of a text."""
        return SequenceLines(self.training.sequence_processes, self.device.type)

    def batches(self, rank: int, world_size: int) -> EpochLoader:
        return super().batches(*SequenceLines(self.training.sequence_processes, "cpu").share(rank, world_size))


def check_lines(run: Any) -> None:
    """Raises ArgumentError if the processes of a run cannot be divided into lines, or its model needs whole texts."""
    processes = run.training.sequence_processes
    if processes == 1:
        return
    _check_divisor(processes, process_count(run.training))
    name = run.model.self_attention
    if name in ("native_sparse", "compressed"):
        raise ArgumentError(
            f"sequence_processes must be 1 with self_attention {name!r}, which needs whole sequences; it is {processes}"
        )


def _check_divisor(processes: int, world_size: int) -> None:
    if world_size % processes:
        alone = f": give devices {processes} too" if world_size == 1 else ""
        raise ArgumentError(
            f"sequence_processes must divide the number of processes of the run (devices times nodes), {world_size}; "
            f"it is {processes}{alone}"
        )
