"""A comparison of a call between the processes that make it, before they exchange anything else.

If one of them has other sizes, another mask or another version, or refuses its arguments, every process raises one
error, and none waits for the others.
"""

import hashlib
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from regard.attention.problem import Problem
from regard.attention.sharding.placement import Placed, place, processes_of
from regard.attention.trials import package_version
from regard.distributed.shards import Shards, wait
from regard.errors import BackendError, RegardError
from regard.versions import tensors_of

NAMES = (
    "version", "shapes", "dtype", "gradient", "positions", "score", "normalizer", "mask", "bias", "dropout",
)  # fmt: skip
"""What the processes compare."""

TEXT = 400
"""Bytes of the error of a process that the others are shown."""

_digests = WeakTensorKeyDictionary()


def in_agreement(check: Callable[..., Problem], query: Any, key: Any, value: Any, *parts: Any) -> Problem:
    """Returns the checked problem of a sharded call that every process makes alike.

    Args:
        check: ``(placed, *parts) ->`` the problem.
        query, key, value: the user's tensors.
        parts: score, normalizer, mask, bias and dropout.

    Raises:
        RegardError: what is wrong with the arguments of this process.
        BackendError: the calls differ, another process refuses its arguments, or one does not answer.
    """
    processes = processes_of(query)
    try:
        placed = place(query, key, value)
        problem = check(placed, *parts)
    except RegardError as error:
        _agree(processes, {}, error)
        raise
    sides = placed.queries.same_order, placed.keys.same_order
    shapes = tuple(tuple(tensor.shape) for tensor in (problem.query, problem.key, problem.value))
    described = {
        "version": f"regard {package_version('regard')}, PyTorch {torch.__version__}",
        "shapes": shapes,
        "dtype": problem.query.dtype,
        "gradient": torch.is_grad_enabled() and problem_wants_gradient(problem, placed),
        "positions": sides,
        "score": problem.score,
        "normalizer": problem.normalizer,
        "mask": problem.mask,
        "bias": problem.bias,
        "dropout": problem.dropout,
    }
    _agree(processes, described)
    return problem


def problem_wants_gradient(problem: Problem, placed: Placed) -> bool:
    """Whether a backward pass may follow."""
    parts = placed.query, placed.key, placed.value
    return any(part.requires_grad for part in parts) or problem.wants_gradient


def _agree(shards: Shards, parts: dict[str, Any], error: Exception | None = None) -> None:
    own = torch.zeros(len(NAMES), 32, dtype=torch.uint8)
    for row, name in enumerate(NAMES):
        if name in parts:
            own[row] = torch.frombuffer(bytearray(hashlib.sha256(_described(parts[name])).digest()), dtype=torch.uint8)
    message = f"{type(error).__name__}: {error}".encode()[:TEXT] if error else b""
    said = torch.zeros(TEXT, dtype=torch.uint8)
    if message:
        said[: len(message)] = torch.frombuffer(bytearray(message), dtype=torch.uint8)
    sent = torch.cat([own.flatten(), said]).to(shards.mesh.device_type)
    received = [torch.empty_like(sent) for _ in range(shards.processes)]
    wait(dist.all_gather(received, sent, group=shards.mesh.get_group(), async_op=True), shards)
    if error is not None:
        return
    for process, other in enumerate(received):
        rows, text = other.cpu()[: own.numel()].view_as(own), bytes(other.cpu()[own.numel() :].tolist()).rstrip(b"\0")
        if text:
            raise BackendError(f"process {process} cannot make this call: {text.decode(errors='replace')}")
        for row, name in enumerate(NAMES):
            if not torch.equal(rows[row], own[row]):
                here = _described(parts[name])[:TEXT].decode(errors="replace")
                raise BackendError(
                    f"{name} differs between process {shards.rank} and process {process} of the sequence, and every "
                    f"process must make the same call; here it is {here}"
                )


def _described(value: Any) -> bytes:
    """Returns a text that is equal for equal values, with the contents of tensors as digests."""
    text = repr(value).encode()
    if isinstance(value, (int, float, str, bool, tuple, torch.dtype, type(None))):
        return text
    return b" ".join((text.split(b" at 0x")[0], *map(_digest, tensors_of(value))))


def _digest(tensor: Tensor) -> bytes:
    known = _digests.get(tensor)
    version = 0 if tensor.is_inference() else tensor._version
    if known is not None and known[0] == version:
        return known[1]
    with torch.no_grad():
        plain = tensor.detach().cpu().contiguous()
        data = plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""
    digest = hashlib.sha256(data + repr((list(tensor.shape), tensor.dtype)).encode()).hexdigest()[:16].encode()
    _digests[tensor] = version, digest
    return digest
