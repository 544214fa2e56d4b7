"""Readings of small calls, taken together: calls that differ in their numbers alone are read as the batch of one call.

Reading a call of 16 tokens takes longer to start than to compute. So queries and keys of small calls are copied when
the call is made, and what is read of them is computed for many calls at once: at the end of the context, when a reading
is asked for, or when the copies reach a limit.
"""

from dataclasses import dataclass, field, replace
from functools import reduce
from operator import and_
from typing import Any

import torch
from torch import Tensor

from regard.attention.readings import Readings, check_readings
from regard.masks import And, Band, Lengths, Mask, keep
from regard.normalizers.softmax import softmax
from regard.scores import ScaledDot
from regard.shapes import Grid
from regard.watching.attention_call import AttentionCall
from regard.watching.call_problems import REGARD
from regard.watching.intercepted import READ, Intercepted
from regard.watching.thread_state import STATE, without_mode

CALL_NUMBERS = 1 << 18
"""Numbers that a call has at most, of which copies are made: 1 MiB of float32. Reading a larger one takes longer than
its start."""

KEPT_NUMBERS = 1 << 20
"""Numbers that the copies of all calls have at most."""

FIRST_CALLS = 8
"""Calls for whose copies memory is taken at first, unless they are so large that fewer reach the limit."""


@dataclass(eq=False)
class JoinedCalls:
    """Calls that agree in everything but their numbers.

    Attributes:
        found: the first one.
        read: what is read of each.
        chosen: the heads that the readings have; None: all.
        calls: those whose readings are not taken yet.
        copies: what their readings are computed from, each ``[calls, *shape]``; there is room for more calls. The
            memory is used again, since the system gives new memory page by page, more slowly than it is copied to.
    """

    found: Intercepted
    read: Readings
    chosen: tuple[int, ...] | None
    calls: list[AttentionCall] = field(default_factory=list)
    copies: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        found, problem = self.found, self.found.problem
        check_readings(self.read, found.grid)
        self._mask = None if problem is None or problem.mask is None else _copied(problem.mask, found.grid)
        self.found = found.without_numbers()

    def add(self, call: AttentionCall, tensors: tuple[Tensor, ...]) -> int:
        """Take a call in; its readings are taken later.

        Args:
            call: without readings.
            tensors: what they are computed from: `numbers_of` the call.

        Returns:
            how many numbers were copied.
        """
        place, numbers = len(self.calls), sum([tensor.numel() for tensor in tensors])
        if not self.copies or place == len(self.copies[0]):
            self._make_room(tensors, max(2 * place, min(FIRST_CALLS, 1 + KEPT_NUMBERS // max(numbers, 1))))
        for copies, tensor in zip(self.copies, tensors, strict=True):
            copies[place].copy_(tensor.detach())
        self.calls.append(call)
        call.postpone(self)
        return numbers

    def release(self) -> None:
        """Give the memory of copies back, whose readings are taken."""
        self.copies = []

    def _make_room(self, tensors: tuple[Tensor, ...], calls: int) -> None:
        """Have room for the copies of so many calls; those that there are stay."""
        former, place = self.copies, len(self.calls)
        self.copies = [tensor.new_empty(calls, *tensor.shape) for tensor in tensors]
        for copies, old in zip(self.copies, former, strict=False):
            copies[:place] = old

    def settle(self, call: AttentionCall) -> None:
        """Take the readings of all calls, of which this is one, and give them to the calls."""
        self.take()

    def take(self) -> None:
        """Take the readings of all calls, and give them to the calls."""
        if self.calls:
            STATE.inside += 1
            try:
                without_mode(self._take)
            finally:
                STATE.inside -= 1

    @torch.no_grad()
    def _take(self) -> None:
        calls, count = self.calls, len(self.calls)
        taken = self._joined(count).read(self.read)
        found: dict[str, Any] = dict.fromkeys(READ, (None,) * count)
        for name, value in taken.items():
            if value is not None:
                found[name] = chosen_heads(value, self.chosen).split(self.found.grid.batch)
        self.calls = []
        for place, call in enumerate(calls):
            call.receive({name: values[place] for name, values in found.items()})

    def _joined(self, count: int) -> Intercepted:
        found = self.found
        joined = [copies[:count].flatten(0, 1) for copies in self.copies]
        if found.problem is None:
            return replace(found, weights=joined[0], scores=joined[1] if len(joined) > 1 else None)
        query, key = joined
        mask = self._mask
        if mask is not None and count > 1:
            mask = _repeated(mask, found.grid, count)
        # Values are no part of the weights.
        return replace(found, problem=replace(found.problem, query=query, key=key, value=key, mask=mask))


def joint(found: Intercepted, read: Readings) -> tuple[object, ...] | None:
    """What calls agree in that can be read together; None if this call must be read by itself."""
    tensors = numbers_of(found)
    if sum([tensor.numel() for tensor in tensors]) > CALL_NUMBERS or not tensors[0].shape[0] or read.shares:
        return None
    if any(type(tensor) is not Tensor for tensor in tensors) or torch._C._len_torch_dispatch_stack():
        return None
    first, problem = tensors[0], found.problem
    same = (found.source, first.dtype, first.device, *[tensor.shape for tensor in tensors])
    if problem is None:
        return same
    mask, score = problem.mask, problem.score
    if problem.bias is not None or type(score) is not ScaledDot or isinstance(score.scale, Tensor):
        return None
    if problem.normalizer is not softmax or problem.memory is not None:
        return None
    # Masks that were found in a call's arguments are new where a tensor changed. A user's own may change meanwhile.
    if found.source == REGARD and not _is_constant(mask):
        return None
    return *same, score.scale, mask if isinstance(mask, Band) else id(mask)


def chosen_heads(tensor: Tensor, chosen: tuple[int, ...] | None) -> Tensor:
    """The chosen heads of ``[batch, heads, ...]``, on the CPU."""
    return (tensor if chosen is None else tensor[:, list(chosen)]).detach().cpu()


def numbers_of(found: Intercepted) -> tuple[Tensor, ...]:
    """What the readings are computed from."""
    if found.problem is not None:
        return found.problem.query, found.problem.key
    assert found.weights is not None
    return (found.weights,) if found.scores is None else (found.weights, found.scores)


def _is_constant(mask: Mask | None) -> bool:
    """Whether a mask is made of integers that nothing changes."""
    if isinstance(mask, And):
        return all(_is_constant(part) for part in mask.parts)
    return mask is None or isinstance(mask, (Band, Lengths))


def _copied(mask: Mask, grid: Grid) -> Mask:
    """The mask without tensors that others may change."""
    if _is_constant(mask):
        return mask
    if isinstance(mask, And):
        return reduce(and_, [_copied(part, grid) for part in mask.parts])
    return keep(mask.allows(grid).clone())


def _repeated(mask: Mask, grid: Grid, count: int) -> Mask:
    """The mask of so many copies of a batch."""
    if isinstance(mask, And):
        return reduce(and_, [_repeated(part, grid, count) for part in mask.parts])
    if isinstance(mask, Band) and isinstance(mask.offset_on(grid), int):
        return mask
    allowed = mask.allows(grid)
    if allowed.dim() == 4 and allowed.shape[0] > 1:
        allowed = allowed.repeat(count, 1, 1, 1)
    return keep(allowed)
