"""The check of a sharded call on each process, of whose failure the other processes learn."""

from collections.abc import Callable
from typing import Any, TypeVar

from regard.attention.sharding.placement import place_tensors, processes_of
from regard.distributed.agreement import next_call, refuse
from regard.tracing.transforms import uncompiled

Checked = TypeVar("Checked")


@uncompiled
def placed_problem(check: Callable[..., Checked], query: Any, key: Any, value: Any, *parts: Any) -> Checked:
    """Returns the checked problem of a sharded call; if it is invalid, the other processes learn it.

    Args:
        check: ``(placed, *parts) ->`` the problem.
        query, key, value: the user's tensors.
        parts: score, normalizer, mask, bias and dropout.
    """
    processes = processes_of(query, key, value)
    number = 0 if processes is None else next_call(processes)
    try:
        return check(place_tensors(query, key, value, number), *parts)
    except Exception as error:
        if processes is not None:
            refuse(processes, number, error)
        raise
