"""Collectives that end: each has a time limit, and none begins after one of its group has failed.

A process that gave up waiting, or that left a call by an error, is no longer in step with the others. What it would
exchange next could meet an exchange of another call, so that a number would be wrong in silence. So the exchanges of
each group are counted, `regard.distributed.agreement` compares the counts, and a failure is final.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol
from weakref import WeakKeyDictionary

import torch.distributed as dist
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh

from regard.errors import BackendError

_SOURCE = re.compile(r"^\[[^\]]*\] ")
"""Where in the source of a backend its error comes from."""


class Members(Protocol):
    """The processes of one group, such as those that hold a sequence (`regard.distributed.shards.Shards`)."""

    @property
    def mesh(self) -> DeviceMesh:
        """The mesh of one axis that they form."""
        ...

    @property
    def timeout(self) -> float:
        """Seconds that a process waits for the others in one exchange."""
        ...


@dataclass
class Record:
    """The common history of the processes of one group.

    Attributes:
        calls: how many calls have begun.
        exchanges: how many collectives have begun.
        failure: why the group can be used no more; empty if it can.
        disagreement: the last error that every process raised.
    """

    calls: int = 0
    exchanges: int = 0
    failure: str = ""
    disagreement: BackendError | None = None


_records: "WeakKeyDictionary[ProcessGroup, Record]" = WeakKeyDictionary()


def record_of(members: Members) -> Record:
    """Returns the record of a group."""
    return _records.setdefault(members.mesh.get_group(), Record())


def exchange_device(members: Members) -> str:
    """Returns the kind of device of small tensors that are exchanged: the CPU, if the group can, so that none waits."""
    group = members.mesh.get_group()
    return "cpu" if "cpu" in dist.get_backend_config(group) else members.mesh.device_type


def begin(members: Members, start: Callable[[ProcessGroup, timedelta], "dist.Work | None"]) -> "dist.Work | None":
    """Starts one collective.

    Args:
        members: the processes; their ``timeout`` is the limit.
        start: ``(group, timeout) ->`` the work that it starts.

    Raises:
        BackendError: a collective has failed before, or the group cannot run this one.
    """
    record = record_of(members)
    if record.failure:
        raise BackendError(f"the processes of this sequence cannot go on, since {record.failure}: start them again")
    record.exchanges += 1
    try:
        return start(members.mesh.get_group(), timedelta(seconds=members.timeout))
    except RuntimeError as error:
        raise _failed(members, error) from error


def wait(work: "dist.Work | None", members: Members) -> None:
    """Waits for a collective.

    Raises:
        BackendError: another process has left, or does not answer in time.
    """
    try:
        if work is not None:
            work.wait()
    except RuntimeError as error:
        raise _failed(members, error) from error


def collective(members: Members, start: Callable[[ProcessGroup, timedelta], "dist.Work | None"]) -> None:
    """Runs one collective; arguments and errors are those of `begin` and `wait`."""
    wait(begin(members, start), members)


def _failed(members: Members, error: RuntimeError) -> BackendError:
    """Returns the error of a process whose collective has failed, of any backend of `torch.distributed`."""
    reason = _SOURCE.sub("", str(error).strip() or type(error).__name__).splitlines()[0].partition(". ")[0]
    record = record_of(members)
    record.failure = (
        f"process {members.mesh.get_local_rank()} of {members.mesh.size()} waited for the others in vain: one has "
        f"left, has failed, or takes part in another call ({reason})"
    )
    return BackendError(f"{record.failure}; the limit is timeout={members.timeout:g} seconds")
