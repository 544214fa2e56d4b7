"""Exchanges rows: queries travel to the processes whose keys they see, and the results travel back.

In one step every process owns a block of rows. `RowRoute` says which processes see which blocks, and sends only those.
All processes of the mesh take part in every exchange, in the same order, even where they have nothing to send.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor

from regard.distributed.collectives import begin, collective, wait
from regard.distributed.shards import Shards


class RowRoute:
    """The ways of the rows of one step.

    Args:
        counts: how many rows each process owns in this step.
        seen: ``seen[owner][process]``: whether the process holds keys that the owner's rows see.
    """

    def __init__(self, keys: Shards, counts: Sequence[int], seen: Sequence[Sequence[bool]]):
        self.keys = keys
        self.own = counts[keys.rank]
        self.receives = [count if seen[owner][keys.rank] else 0 for owner, count in enumerate(counts)]
        self.sends = [self.own if sees else 0 for sees in seen[keys.rank]]
        self.arrived = sum(self.receives)

    def travelling(self, process: int) -> int:
        """Returns how many rows this process sends to others, one for each process that sees it."""
        return sum(count for other, count in enumerate(self.sends) if other != process)

    def send(self, rows: Tensor) -> Tensor:
        """Sends own rows to the processes that see them.

        Args:
            rows: ``[batch, heads, own rows, features]``.

        Returns:
            the rows of all owners that this process sees, one owner after the other, ``[batch, heads, rows,
            features]``.
        """
        return self.depart(rows).arrive()

    def depart(self, rows: Tensor) -> "Travelling":
        """Begins `send`, and does not wait for the rows."""
        batch, heads, _, features = rows.shape
        sent = rows.permute(2, 0, 1, 3).reshape(self.own, batch * heads * features)
        copies = sent.repeat(sum(count > 0 for count in self.sends), 1)
        received = sent.new_empty(self.arrived, sent.shape[1])
        work = self._begin(received, copies, self.receives, self.sends)
        return Travelling(work, copies, received.view(self.arrived, batch, heads, features), self.keys)

    def collect(self, rows: Tensor, operation: Literal["sum", "max"] = "sum") -> Tensor:
        """Returns to each owner the sum or the maximum of what the processes found out about its rows.

        Args:
            rows: ``[batch, heads, rows, features]``, as `send` returns them.
            operation: how the processes' numbers are joined. A NaN stays one.

        Returns:
            ``[batch, heads, own rows, features]``; where no process sees the rows, 0 or −∞.
        """
        batch, heads, _, features = rows.shape
        sent = rows.permute(2, 0, 1, 3).reshape(self.arrived, batch * heads * features)
        contributors = sum(count > 0 for count in self.sends)
        received = sent.new_empty(contributors * self.own, sent.shape[1])
        self._exchange(received, sent, self.sends, self.receives)
        parts = received.view(contributors, self.own, batch, heads, features)
        if operation == "sum":
            joined = parts.sum(0, dtype=parts.dtype)
        elif contributors:
            joined = parts.amax(0)
        else:
            joined = parts.new_full(parts.shape[1:], -torch.inf)
        return joined.permute(1, 2, 0, 3)

    def collect_columns(self, columns: Tensor, fill: float) -> Tensor:
        """Returns to each owner the whole rows of which each process has the columns of its keys.

        Args:
            columns: ``[batch, heads, rows, own keys]``, rows as `send` returns them.
            fill: what stands in columns of processes that do not see the rows.

        Returns:
            ``[batch, heads, own rows, keys]``.
        """
        batch, heads, _, width = columns.shape
        sent = columns.permute(2, 0, 1, 3).reshape(-1)
        widths = [self.keys.count(process) * batch * heads for process in range(self.keys.processes)]
        sizes = [count * each for count, each in zip(self.sends, widths, strict=True)]
        received = sent.new_empty(sum(sizes))
        self._exchange(received, sent, sizes, [count * width * batch * heads for count in self.receives])
        whole = columns.new_full((batch, heads, self.own, self.keys.length), fill)
        for process, part in enumerate(received.split(sizes)):
            if part.numel():
                rows = part.view(self.own, batch, heads, self.keys.count(process)).permute(1, 2, 0, 3)
                whole[..., self.keys.positions(process, whole.device)] = rows
        return whole

    def send_columns(self, whole: Tensor) -> Tensor:
        """Sends to each process that sees the rows the columns of its keys: the adjoint of `collect_columns`.

        Args:
            whole: ``[batch, heads, own rows, keys]``.

        Returns:
            ``[batch, heads, rows, own keys]``.
        """
        batch, heads = whole.shape[:2]
        parts = [
            whole[..., self.keys.positions(process, whole.device)].permute(2, 0, 1, 3).reshape(-1)
            if count
            else whole.new_empty(0)
            for process, count in enumerate(self.sends)
        ]
        width = self.keys.count()
        sizes = [count * width * batch * heads for count in self.receives]
        received = whole.new_empty(sum(sizes))
        self._exchange(received, torch.cat(parts), sizes, [part.numel() for part in parts])
        return received.view(self.arrived, batch, heads, width).permute(1, 2, 0, 3)

    def all(self, flag: bool) -> bool:
        """Whether this is true on every process."""
        one = torch.tensor(int(flag)).to(self.keys.mesh.device_type)
        collective(self.keys, lambda group, timeout: group.allreduce(one, dist.ReduceOp.MIN, timeout))
        return bool(one)

    def _exchange(self, received: Tensor, sent: Tensor, receives: list[int], sends: list[int]) -> None:
        wait(self._begin(received, sent.contiguous(), receives, sends), self.keys)

    def _begin(self, received: Tensor, sent: Tensor, receives: list[int], sends: list[int]) -> Any:
        return begin(
            self.keys, lambda group, timeout: group.alltoall_base(received, sent, receives, sends, timeout=timeout)
        )


@dataclass
class Travelling:
    """Rows on their way.

    Attributes:
        work: the exchange.
        sent: what is sent, which must stay in memory until the rows have arrived.
        received: ``[rows, batch, heads, features]``, once they have.
        shards: the processes, for the time that they wait.
    """

    work: Any
    sent: Tensor
    received: Tensor
    shards: Shards

    def arrive(self) -> Tensor:
        """Waits, and returns the rows ``[batch, heads, rows, features]``."""
        wait(self.work, self.shards)
        return self.received.permute(1, 2, 0, 3)


class SumOverProcesses(torch.autograd.Function):
    """The sum of each row over the processes that see it, on each of them; its derivative is the same sum."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, route: RowRoute) -> Tensor:
        ctx.route = route
        return route.send(route.collect(rows))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.route.send(ctx.route.collect(gradients[0])), None


class CollectColumns(torch.autograd.Function):
    """`RowRoute.collect_columns` with its derivative."""

    @staticmethod
    def forward(ctx: Any, columns: Tensor, route: RowRoute, fill: float) -> Tensor:
        ctx.route = route
        return route.collect_columns(columns, fill)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return ctx.route.send_columns(gradients[0]), None, None


class SendColumns(torch.autograd.Function):
    """`RowRoute.send_columns` with its derivative."""

    @staticmethod
    def forward(ctx: Any, whole: Tensor, route: RowRoute) -> Tensor:
        ctx.route = route
        return route.send_columns(whole)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.route.collect_columns(gradients[0], 0.0), None
