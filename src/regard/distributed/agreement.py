"""A comparison of a call between the processes that make it, before they exchange anything else.

If one of them makes another call or refuses its arguments, every process raises one error, and none waits for the
others. The common case is one exchange of a few numbers; only a fault costs a second one, of texts.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b

import torch

from regard.distributed.collectives import Members, collective, exchange_device, record_of
from regard.errors import BackendError

WIDTH = 18
"""Numbers that a process sends: whether it refuses, its numbers, and digests."""

NUMBERS = 2
"""Numbers for which the processes need not agree."""

TEXT = 600
"""Bytes of the text that a process sends after a fault."""


def next_call(members: Members) -> int:
    """Returns the number of the call that begins, counted in the group of these processes."""
    record = record_of(members)
    record.calls += 1
    return record.calls


def agree(
    members: Members,
    call: str,
    parts: Mapping[str, str] | None = None,
    error: Exception | None = None,
    numbers: Sequence[int] = (),
) -> list[list[int]]:
    """Returns when all processes make the same call, with the numbers of each process.

    Args:
        members: the processes, which all call this function.
        call: what begins.
        parts: name → text, equal for equal values; at most 14.
        error: why this process cannot make the call. The others raise, and this function returns.
        numbers: at most 2, which may differ.

    Raises:
        BackendError: the calls differ, another process refuses, or one does not answer.
    """
    texts = {"call": f"{call}, after {record_of(members).exchanges} exchanges", **(parts or {})}
    digests = [int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), signed=True) for text in texts.values()]
    head = [int(error is not None), *numbers, *[0] * (NUMBERS - len(numbers))]
    own = torch.tensor([*head, *digests, *[0] * (WIDTH - len(head) - len(digests))])
    table = [row.tolist() for row in _gathered(members, own)]
    refusing = [process for process, row in enumerate(table) if row[0]]
    differing = [column for column in range(len(head), WIDTH) if len({row[column] for row in table}) > 1]
    if not refusing and not differing:
        return [row[1 : 1 + len(numbers)] for row in table]
    name, text = "call", ""
    if error is not None:
        text = f"{type(error).__name__}: {error}"
    elif not refusing and differing[0] - len(head) < len(texts):
        name, text = list(texts.items())[differing[0] - len(head)]
    encoded = text.encode()[:TEXT].ljust(TEXT, b"\0")
    texts_of_all = [
        bytes(row.tolist()).rstrip(b"\0").decode(errors="replace")
        for row in _gathered(members, torch.frombuffer(bytearray(encoded), dtype=torch.uint8))
    ]
    if error is not None:
        return []
    if refusing:
        raise _disagreement(members, f"process {refusing[0]} cannot make this call: {texts_of_all[refusing[0]]}")
    other = next(process for process, row in enumerate(table) if row[differing[0]] != table[0][differing[0]])
    raise _disagreement(
        members,
        f"the processes of a sequence must make the same calls; {name} differs: process 0 has {texts_of_all[0]}, "
        f"and process {other} has {texts_of_all[other]}",
    )


def _disagreement(members: Members, text: str) -> BackendError:
    """Returns the error that every process raises."""
    record = record_of(members)
    record.disagreement = BackendError(text)
    return record.disagreement


def refuse(members: Members, number: int, error: Exception) -> None:
    """Tells the other processes that this one cannot make the call of this number, unless they know."""
    record = record_of(members)
    if not record.failure and error is not record.disagreement:
        agree(members, f"call {number}", error=error)


def _gathered(members: Members, own: torch.Tensor) -> list[torch.Tensor]:
    """Returns the small tensors of all processes."""
    sent = own.to(exchange_device(members))
    received = [torch.empty_like(sent) for _ in range(members.mesh.size())]
    collective(members, lambda group, timeout: group.allgather(received, sent, timeout))
    return [one.cpu() for one in received]
