"""What each process of `bench.scripts.sharded` does: functions ``(rank, processes, ...)``."""

import gc
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import _cp_options, context_parallel_unshard
from torch.nn import functional as F

import regard
from bench.process_status import status
from regard import distributed, masks, scores
from regard.distributed import Shards, collectives, exchange
from regard.shapes.grid import Grid

DIM = 64
HEADS = 2
WINDOW = 512
"""Earlier keys that a query sees under the window; in a short sequence an eighth of it."""
SAMPLED = 8
"""Rows of a long sequence that are compared."""


def _mesh(processes: int) -> DeviceMesh:
    return init_device_mesh("cpu", (processes,))


def _mask(name: str, length: int) -> masks.Mask | None:
    """The mask of a name for so many keys."""
    ids = torch.arange(length).mul(7919).remainder(length).lt(40).cumsum(0)
    made = {
        "none": lambda: None,
        "causal": masks.causal,
        "window": lambda: masks.window(min(WINDOW, length // 8), 0),
        "prefix": lambda: masks.causal() | masks.prefix(length // 16),
        "documents": lambda: masks.documents(ids),
        "causal documents": lambda: masks.documents(ids) & masks.causal(),
    }
    return made[name]()


def long_call(rank: int, processes: int, mask: str, what: str, queries: int, keys: int) -> dict[str, float]:
    """One call on a long sequence, of which each process makes its own part.

    Args:
        rank, processes: which process it is, of how many.
        mask: ``window`` or ``causal``.
        what: ``observe``, ``attend``, or ``attend, gradients``.
        queries, keys: their numbers.

    Returns:
        CPU seconds, bytes of this process's inputs, its peak memory beyond what it held before it made them, and the
        largest difference of some rows of the output from a sum over all keys in float64.
    """
    mesh = _mesh(processes)
    of_queries, of_keys = Shards.contiguous(queries, mesh), Shards.contiguous(keys, mesh)
    if queries == keys:
        made = _mask(mask, keys)
        assert made is not None
        of_queries = of_keys = Shards.balanced(masks.work_of_keys(made, queries, keys), mesh)
    small = Shards.contiguous(64, mesh)
    _long_call(mask, what, small, small)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before, began = status("VmRSS"), time.process_time()
    *tensors, output = _long_call(mask, what, of_queries, of_keys)
    seconds, peak = time.process_time() - began, status("VmHWM") - before
    return {
        "seconds": seconds,
        "share": sum(tensor.numel() * tensor.element_size() for tensor in tensors),
        "memory": peak,
        "difference": _difference_of_rows(mask, *tensors, output, of_queries, of_keys),
    }


def _long_call(mask: str, what: str, of_queries: Shards, of_keys: Shards) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Query, key and value of this process, and its output."""
    generator = torch.Generator().manual_seed(of_queries.rank)
    gradients = what.endswith("gradients")
    query, key, value = (
        torch.randn(1, 1, shards.count(), DIM, generator=generator).requires_grad_(gradients)
        for shards in (of_queries, of_keys, of_keys)
    )
    with distributed.sequence(of_queries, of_keys):
        made = _mask(mask, of_keys.length)
        if what == "observe":
            read = regard.Readings(entropy=True, peak=True, top_k=4, received=True, distance=True)
            seen = regard.observe(query, key, value, mask=made, read=read)
            assert seen.received is not None
            total = seen.received.double().sum()
            dist.all_reduce(total)
            # Each row's weights add up to 1.
            assert abs(float(total) / of_queries.length - 1.0) < 1e-5, float(total)
            output = seen.output
        else:
            output = regard.attend(query, key, value, mask=made)
            if gradients:
                output.square().sum().backward()
    return query.detach(), key.detach(), value.detach(), output.detach()


def _difference_of_rows(
    mask: str, query: Tensor, key: Tensor, value: Tensor, output: Tensor, of_queries: Shards, of_keys: Shards
) -> float:
    """The largest difference of some rows from softmax's equation: sums over the keys of all processes."""
    made, worst = _mask(mask, of_keys.length), 0.0
    assert made is not None
    grid = Grid.whole(1, 1, of_queries.length, of_keys.length)
    for position in range(of_queries.length - 1, -1, -max(1, of_queries.length // SAMPLED)):
        row, answer = torch.zeros(DIM, dtype=torch.float64), torch.zeros(DIM, dtype=torch.float64)
        index = (of_queries.positions() == position).nonzero()
        if index.numel():
            row, answer = query[0, 0, int(index)].double(), output[0, 0, int(index)].double()
        for tensor in (row, answer):
            dist.all_reduce(tensor)
        powers, mixed = torch.zeros(1, dtype=torch.float64), torch.zeros(DIM, dtype=torch.float64)
        before = 0
        for span in of_keys.own:
            part = slice(before, before + len(span))
            before += len(span)
            visible = made.dense(grid.tile(queries=range(position, position + 1), keys=span))[0, 0, 0]
            # Scores are small numbers here: no maximum is subtracted.
            power = (key[0, 0, part].double() @ row / DIM**0.5).exp() * visible
            powers += power.sum()
            mixed += power @ value[0, 0, part].double()
        dist.all_reduce(powers)
        dist.all_reduce(mixed)
        worst = max(worst, float((mixed / powers - answer).abs().max()))
    return worst


class _Counting:
    """A group that counts the bytes which this process sends to others, where they are numbers of rows."""

    def __init__(self, group: Any, count: list[int]):
        self.group, self.count = group, count

    def alltoall_base(self, output: Tensor, rows: Tensor, receives: Any, sends: Sequence[int], **rest: Any) -> Any:
        sent = sum(size for process, size in enumerate(sends) if process != self.group.rank())
        self.count[0] += sent * rows[:1].numel() * rows.element_size()
        return self.group.alltoall_base(output, rows, receives, sends, **rest)

    def allgather(self, outputs: list[Tensor], own: Tensor, *rest: Any) -> Any:
        if own.is_floating_point():
            self.count[0] += own.numel() * own.element_size() * (len(outputs) - 1)
        return self.group.allgather(outputs, own, *rest)

    def allreduce(self, tensor: Tensor, *rest: Any) -> Any:
        processes = self.group.size()
        if tensor.is_floating_point():
            self.count[0] += 2 * tensor.numel() * tensor.element_size() * (processes - 1) // processes
        return self.group.allreduce(tensor, *rest)

    def broadcast(self, *arguments: Any) -> Any:
        return self.group.broadcast(*arguments)


@contextmanager
def counted_bytes() -> Iterator[list[int]]:
    """Counts in its only element the bytes of rows that this process hands to torch.distributed for other processes.

    An all-reduce counts as that of a ring: twice the tensor, less one share. What the processes compare before a call
    (`regard.distributed.agreement`) is not among them.
    """
    count, begin = [0], collectives.begin

    def counting(shards: Shards, start: Any) -> Any:
        return begin(shards, lambda group, timeout: start(_Counting(group, count), timeout))

    with mock.patch.object(collectives, "begin", counting), mock.patch.object(exchange, "begin", counting):
        yield count


def count_bytes(
    rank: int, processes: int, normalizer: str, mask: str, length: int, bias: str = "none", score: str = "features",
    dtype: str = "float32",
) -> dict[str, Any]:  # fmt: skip
    """Bytes sent forward and backward, counted and planned; the names are those of ``tests/support/cases.py``."""
    from sharded_laws import ALL_NORMALIZERS

    shards = Shards.contiguous(length, _mesh(processes))
    generator = torch.Generator().manual_seed(rank)
    number = getattr(torch, dtype)
    tensors = [
        torch.randn(1, HEADS, shards.count(), DIM, generator=generator).to(number).requires_grad_() for _ in range(3)
    ]
    vector = torch.linspace(-1.0, 1.0, DIM).to(number)
    options = {
        "score": scores.Additive(vector) if score == "additive" else scores.Features("elu"),
        "normalizer": ALL_NORMALIZERS[normalizer](),
        "mask": _mask(mask, length),
        "bias": None if bias == "none" else bias,
    }
    with distributed.sequence(shards):
        plan: Any = regard.plan(*tensors, **options)
        with counted_bytes() as forward:
            output = regard.attend(*tensors, **options)
        with counted_bytes() as backward:
            output.sum().backward()
    return {"way": plan.way, "counted": (forward[0], backward[0]), "planned": (plan.sent, plan.sent_backward)}


def imbalances(rank: int, processes: int, mask: str, length: int) -> list[dict[str, Any]]:
    """What `regard.plan` says with contiguous shards and with balanced ones."""
    mesh = _mesh(processes)
    made = _mask(mask, length)
    assert made is not None
    balanced = Shards.balanced(masks.work_of_keys(made, length, length), mesh)
    return [_planned(made, shards) for shards in (Shards.contiguous(length, mesh), balanced)]


def _planned(mask: masks.Mask, shards: Shards) -> dict[str, Any]:
    part = torch.zeros(1, 1, shards.count(), DIM)
    with distributed.sequence(shards):
        plan: Any = regard.plan(part, part, part, mask=mask)
    sent = torch.tensor(plan.sent)
    dist.all_reduce(sent)
    return {"imbalance": plan.imbalance, "pieces": max(map(len, shards.spans)), "sent": int(sent)}


def peer_call(rank: int, processes: int, name: str, mask: str, queries: int, keys: int) -> dict[str, Any]:
    """One call, forward and backward, and its differences from one process."""
    mesh = _mesh(processes)
    generator = torch.Generator().manual_seed(7)
    whole = [torch.randn(1, HEADS, length, DIM, generator=generator) for length in (queries, keys, keys)]
    expected = [tensor.clone().requires_grad_() for tensor in whole]
    made = _mask(mask, keys)
    one = regard.attend(*expected, mask=made, backend="tiled")
    one.square().sum().backward()
    calls = {"regard": _by_regard, "context_parallel": _by_context_parallel}
    began = time.process_time()
    try:
        output, gradients = calls[name](mesh, whole, mask)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"}
    seconds = time.process_time() - began
    pairs = zip(gradients, expected, strict=True)
    return {
        "error": "",
        "seconds": seconds,
        "output": float((output - one.detach()).abs().max()),
        "gradient": max(float((gradient - tensor.grad).abs().max()) for gradient, tensor in pairs),
    }


def _by_regard(mesh: DeviceMesh, whole: list[Tensor], mask: str) -> tuple[Tensor, list[Tensor]]:
    queries, keys = (Shards.contiguous(tensor.shape[2], mesh) for tensor in whole[:2])
    sides = queries, keys, keys
    parts = [shards.cut(tensor, 2).requires_grad_() for shards, tensor in zip(sides, whole, strict=True)]
    with distributed.sequence(queries, keys):
        output = regard.attend(*parts, mask=_mask(mask, keys.length))
    output.square().sum().backward()
    gradients = [part.grad for part in parts if part.grad is not None]
    joined = [distributed.gather(part, shards) for part, shards in zip(gradients, sides, strict=True)]
    return distributed.gather(output.detach(), queries), joined


def _by_context_parallel(mesh: DeviceMesh, whole: list[Tensor], mask: str) -> tuple[Tensor, list[Tensor]]:
    made = _mask(mask, whole[1].shape[2])
    dense = None
    if mask not in ("none", "causal"):
        assert made is not None
        dense = made.dense(Grid.of(*whole[:2]))
    buffers = [tensor.clone() for tensor in whole]
    _cp_options.enable_load_balance = mask == "causal"  # it takes no other mask
    with context_parallel(mesh, buffers=buffers, buffer_seq_dims=[2, 2, 2]):
        parts = [buffer.clone().requires_grad_() for buffer in buffers]
        output = F.scaled_dot_product_attention(*parts, dense, is_causal=mask == "causal")
        output.square().sum().backward()
        gradients = [part.grad for part in parts if part.grad is not None]
        found = context_parallel_unshard(mesh, [output.detach(), *gradients], [2] * 4)
    return found[0], found[1:]
