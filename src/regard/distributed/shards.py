"""Which positions of a sequence each process of a mesh holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from regard.distributed.agreement import agree, next_call
from regard.distributed.collectives import collective
from regard.errors import ArgumentError, BackendError, KindError, ShapeError
from regard.shapes.checks import positive_number, type_text, whole_number
from regard.tracing.transforms import is_batched
from regard.tracing.versions import Versions

TIMEOUT = 300.0
"""Seconds that a process waits for the others in one exchange, unless its `Shards` say another number."""

PIECES = (1, 2, 4, 8, 16, 32, 64)
"""Pieces of each process in a balanced order, of which the fewest that suffice are taken."""

IMBALANCE = 0.05
"""How much more than the mean the busiest process may have to do, in an order that suffices."""

MOST_SHOWN = 100
"""Characters of the runs of positions in a message."""

Spans = tuple[range, ...]
"""Runs of positions, ascending."""


@dataclass(frozen=True, eq=False)
class Shards:
    """Which positions of a sequence each process of a mesh holds.

    Attributes:
        length: the positions of the whole sequence.
        mesh: the mesh of one axis whose processes hold the sequence.
        spans: for each process the runs of positions that it holds, ascending; together they are all positions.
        timeout: seconds that a process waits for the others in one exchange; then it raises BackendError.

    Example:
        >>> import os, tempfile
        >>> import torch
        >>> from torch.distributed.device_mesh import init_device_mesh
        >>> from regard import distributed
        >>> file = tempfile.NamedTemporaryFile()
        >>> torch.distributed.init_process_group("gloo", init_method=f"file://{file.name}", rank=0, world_size=1)
        >>> shards = distributed.Shards.contiguous(10, init_device_mesh("cpu", (1,)))
        >>> shards
        Shards(10 positions on 1 process)
        >>> torch.distributed.destroy_process_group()
    """

    length: int
    mesh: DeviceMesh
    spans: tuple[Spans, ...]
    timeout: float = TIMEOUT

    @classmethod
    def contiguous(cls, length: int, mesh: DeviceMesh, *, timeout: float = TIMEOUT) -> "Shards":
        """Returns shards of one piece each, as PyTorch's ``Shard`` cuts an axis: all pieces but the last are equal.

        Args:
            length: the positions of the whole sequence.
            mesh: a mesh with one axis.
            timeout: see `Shards`.
        """
        processes = _processes(mesh)
        whole_number("length", length, low=0)
        return cls(length, mesh, _contiguous_spans(length, processes), timeout)

    @classmethod
    def balanced(cls, work: Sequence[float] | Tensor, mesh: DeviceMesh, *, timeout: float = TIMEOUT) -> "Shards":
        """Returns shards of equally many positions and nearly equal work, in as few pieces as that takes.

        Each process gets one piece if the busiest has then at most 5 % more work than the mean, as under a window.
        Otherwise it gets 2, 4, ... or 64 pieces: the heaviest piece that is left goes to the process with the least
        work that has room. With the work of a causal mask these are two pieces, in the order that is called zig-zag.
        If no number suffices, it is the best of them.

        Args:
            work: what each position costs, ``[length]``, such as the number of queries that see a key
                (`regard.masks.work_of_keys`).
            mesh: a mesh with one axis.
            timeout: see `Shards`.
        """
        processes = _processes(mesh)
        if not isinstance(work, (Sequence, Tensor)):
            raise KindError(
                f"work must be numbers, one a position; it is {type_text(work)}: masks.work_of_keys gives those of a "
                "mask"
            )
        costs = torch.as_tensor(work, dtype=torch.float64, device="cpu")
        if costs.dim() != 1:
            raise ArgumentError(f"work must have one number a position; it has shape {list(costs.shape)}")
        if not bool((costs.isfinite() & (costs >= 0)).all()):
            raise ArgumentError("work must be finite and at least 0 at each position")
        return cls(len(costs), mesh, balanced_spans(costs, processes), timeout)

    def __post_init__(self) -> None:
        _processes(self.mesh)
        positive_number("timeout", self.timeout)
        if not all(isinstance(span, range) for spans in self.spans for span in spans):
            raise KindError(
                "spans must be runs of positions for each process, such as ((range(0, 2), range(6, 8)), ...)"
            )
        positions = sorted((span.start, span.stop) for spans in self.spans for span in spans if span)
        ends = [0, *(stop for _, stop in positions)]
        if [start for start, _ in positions] != ends[:-1] or ends[-1] != self.length:
            raise ArgumentError(
                f"spans must be all positions from 0 to {self.length}, each once; they are {self.spans}"
            )
        if len(self.spans) != self.mesh.size():
            raise ArgumentError(
                f"spans must be of {self.mesh.size()} processes, as the mesh has; got {len(self.spans)}"
            )

    def __repr__(self) -> str:
        processes = self.mesh.size()
        return f"Shards({self.length} positions on {processes} process{'es' * (processes > 1)})"

    @property
    def processes(self) -> int:
        """The number of processes."""
        return len(self.spans)

    @cached_property
    def rank(self) -> int:
        """This process."""
        return self.mesh.get_local_rank()

    @property
    def own(self) -> Spans:
        """The runs of positions that this process holds."""
        return self.spans[self.rank]

    @property
    def is_contiguous(self) -> bool:
        """Whether the pieces are those of `contiguous`."""
        return self.spans == _contiguous_spans(self.length, self.processes)

    def count(self, process: int | None = None) -> int:
        """Returns how many positions a process holds; None: this one."""
        return sum(map(len, self.own if process is None else self.spans[process]))

    def positions(self, process: int | None = None, device: torch.device | str = "cpu") -> Tensor:
        """Returns the positions that a process holds, int64, ascending; None: those of this one."""
        spans = self.own if process is None else self.spans[process]
        parts = [torch.arange(span.start, span.stop, device=device) for span in spans]
        return torch.cat(parts) if parts else torch.empty(0, dtype=torch.int64, device=device)

    def cut(self, tensor: Tensor, dim: int) -> Tensor:
        """Returns this process's part of a whole tensor that every process has; a gradient reaches this part alone.

        Args:
            tensor: the whole tensor.
            dim: the axis of positions.

        Raises:
            ShapeError: the axis is not as long as the sequence.
        """
        check_whole(tensor, dim, self.length)
        parts = [tensor.narrow(dim, span.start, len(span)) for span in self.own]
        return torch.cat(parts, dim) if parts else tensor.narrow(dim, 0, 0)

    def join(self, tensor: Tensor, dim: int) -> Tensor:
        """Returns the whole tensor, on every process, from the part that each has. Its gradient reaches every part.

        Args:
            tensor: this process's part.
            dim: the axis of positions.
        """
        dim = dim % tensor.dim()
        number = next_call(self)
        shape = list(tensor.shape)
        has_part, shape[dim] = shape[dim] == self.count(), self.length
        error = None
        if not has_part:
            error = ShapeError(
                f"tensor must have the {self.count()} positions of this process along axis {dim}; it has shape "
                f"{list(tensor.shape)}"
            )
        wants_gradient = torch.is_grad_enabled() and tensor.requires_grad
        parts = {
            "shape": str(shape), "dtype": str(tensor.dtype), "gradient": str(wants_gradient),
            "positions": self.order_digest,
        }  # fmt: skip
        agree(self, f"call {number} (gather)", parts, error)
        if error is not None:
            raise error
        return _Join.apply(tensor, dim, self, number)

    def of_first(self, tensor: Tensor) -> Tensor:
        """Returns the first process's tensor, on every process; all have one of this shape."""
        tensor = tensor.contiguous().clone()
        collective(self, lambda group, timeout: group.broadcast(tensor, 0, timeout))
        return tensor

    @property
    def same_order(self) -> tuple[object, ...]:
        """A value that is equal for shards whose processes hold the same positions."""
        return self.length, self.spans

    @cached_property
    def order_digest(self) -> str:
        """A short text that is equal for equal orders: the first runs of positions, and a digest of all."""
        spans = " | ".join(", ".join(f"{span.start}–{span.stop - 1}" for span in own if span) for own in self.spans)
        shown = spans if len(spans) <= MOST_SHOWN else f"{spans[:MOST_SHOWN]}…"
        return f"{self!r}, {shown}, {blake2b(repr(self.same_order).encode(), digest_size=8).hexdigest()}"


class _Join(torch.autograd.Function):
    """Implements `Shards.join`."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, dim: int, shards: Shards, number: int) -> Tensor:
        ctx.dim, ctx.shards, ctx.number = dim, shards, number
        own = tensor.movedim(dim, 0).contiguous()
        parts = [own.new_empty(shards.count(process), *own.shape[1:]) for process in range(shards.processes)]
        widest = max(map(len, parts))  # equal sizes, which every collective takes
        sent = own.new_zeros(widest, *own.shape[1:])
        sent[: len(own)] = own
        received = [torch.empty_like(sent) for _ in parts]
        collective(shards, lambda group, timeout: group.allgather(received, sent, timeout))
        whole = own.new_empty(shards.length, *own.shape[1:])
        for process, part in enumerate(received):
            whole[shards.positions(process, own.device)] = part[: shards.count(process)]
        return whole.movedim(0, dim)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        agree_backward(ctx.shards, ctx.number, gradients)
        gradient = gradients[0].contiguous().clone()
        collective(ctx.shards, lambda group, timeout: group.allreduce(gradient, dist.ReduceOp.SUM, timeout))
        return ctx.shards.cut(gradient, ctx.dim), None, None, None


def agree_backward(
    shards: Shards, number: int, gradients: Sequence[Tensor | None], versions: Versions | None = None
) -> None:
    """Waits until all processes begin the backward pass of the same call.

    Raises:
        BackendError: they do not; a second or batched derivative is taken; a tensor of the call was changed.
    """
    error = None
    try:
        if torch.is_grad_enabled():
            raise BackendError(
                "a sharded call has no second derivative; gather the tensors, and call regard on the whole"
            )
        if any(one is not None and is_batched(one) for one in gradients):
            raise BackendError("a sharded call has no batched gradients; take one after the other")
        if versions is not None:
            versions.check()
    except BackendError as refusal:
        error = refusal
    agree(shards, f"the backward pass of call {number}", error=error)
    if error is not None:
        raise error


def check_whole(tensor: Tensor, dim: int, length: int) -> None:
    """Raises ShapeError unless an axis of a tensor has all positions of a sequence."""
    if not -tensor.dim() <= dim < tensor.dim() or tensor.shape[dim] != length:
        raise ShapeError(f"tensor must have all {length} positions along axis {dim}; it has shape {list(tensor.shape)}")


def _processes(mesh: DeviceMesh) -> int:
    if not isinstance(mesh, DeviceMesh):
        raise KindError(f"mesh must be a DeviceMesh of torch.distributed; it is {type_text(mesh)}")
    if mesh.ndim != 1:
        name = (mesh.mesh_dim_names or ("name",))[-1]
        raise ArgumentError(
            f"mesh must have one axis; it has {mesh.ndim}: take the one of the sequence, such as mesh[{name!r}]"
        )
    return mesh.size()


def _contiguous_spans(length: int, processes: int) -> tuple[Spans, ...]:
    size = -(-length // processes)
    starts = [min(process * size, length) for process in range(processes + 1)]
    return tuple((range(a, b),) for a, b in pairwise(starts))


def balanced_spans(costs: Tensor, processes: int) -> tuple[Spans, ...]:
    """Returns for each process the runs of positions that `Shards.balanced` gives it.

    Args:
        costs: what each position costs, float64 ``[length]`` on the CPU.
    """
    length = len(costs)
    total = torch.cat([costs.new_zeros(1), costs.cumsum(0)])
    best, least = _contiguous_spans(length, processes), torch.inf
    for pieces in PIECES:
        spans = best if pieces == 1 else _dealt(total, pieces, processes)
        loads = [sum(float(total[span.stop] - total[span.start]) for span in own) for own in spans]
        if max(loads) < least:
            best, least = spans, max(loads)
        if least <= (1.0 + IMBALANCE) * sum(loads) / processes or pieces * processes >= length:
            break
    return best


def _dealt(total: Tensor, pieces: int, processes: int) -> tuple[Spans, ...]:
    """Deals equal pieces to the processes, the heaviest first, each to the one with the least work that has room."""
    length, cuts = len(total) - 1, pieces * processes
    ends = [length * cut // cuts for cut in range(cuts + 1)]
    costs = (total[ends[1:]] - total[ends[:-1]]).tolist()
    loads, held = [0.0] * processes, [list[range]() for _ in range(processes)]
    for cut in sorted(range(cuts), key=lambda cut: (-costs[cut], cut)):
        process = min((one for one in range(processes) if len(held[one]) < pieces), key=lambda one: (loads[one], one))
        loads[process] += costs[cut]
        held[process].append(range(ends[cut], ends[cut + 1]))
    return tuple(map(_joined, held))


def _joined(spans: list[range]) -> Spans:
    """Returns runs of positions in their order, those that touch as one."""
    joined: list[range] = []
    for span in sorted(spans, key=lambda one: one.start):
        if not span:
            continue
        if joined and joined[-1].stop == span.start:
            joined[-1] = range(joined[-1].start, span.stop)
        else:
            joined.append(span)
    return tuple(joined)
