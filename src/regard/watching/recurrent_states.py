"""The tokens inside the states of a watched model's linear recurrences.

A recurrence passes on a state instead of keys and values. A call that begins with the state which an earlier call of
its module ended with, in any order of the batch rows, continues the tokens of that call.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

STATES_LIMIT = 8
"""The most states of a module that can be continued."""


class RecurrentTokens(NamedTuple):
    """What a recurrence does to its state at each token, in float32 or float64.

    Attributes:
        key: ``[batch, heads, tokens, dim]``.
        value: ``[batch, heads, tokens, value_dim]``.
        log_decay: ``[batch, heads, tokens]``, or with as many features as keys; None: nothing decays.
        beta: the strength of the delta rule, ``[batch, heads, tokens]``; None: values are added.
    """

    key: Tensor
    value: Tensor
    log_decay: Tensor | None = None
    beta: Tensor | None = None

    def map(self, function: Callable[[Tensor], Tensor]) -> "RecurrentTokens":
        """Applies a function to each tensor."""
        return RecurrentTokens(*(None if tensor is None else function(tensor) for tensor in self))  # type: ignore[arg-type]

    def after(self, earlier: "RecurrentTokens") -> "RecurrentTokens":
        """Returns earlier tokens, followed by these."""
        pairs = zip(earlier, self, strict=True)
        joined = (None if one is None or other is None else torch.cat((one, other), 2) for one, other in pairs)
        return RecurrentTokens(*joined)  # type: ignore[arg-type]


class RecurrentStates:
    """The last states of each module, with the tokens inside of them."""

    def __init__(self) -> None:
        self._states: WeakKeyDictionary[nn.Module, list[tuple[Tensor, RecurrentTokens]]] = WeakKeyDictionary()
        self._verified: WeakKeyDictionary[nn.Module, set[str]] = WeakKeyDictionary()

    def clear(self) -> None:
        """Forgets all states."""
        self._states.clear()
        self._verified.clear()

    def inside(self, module: nn.Module, state: Tensor) -> RecurrentTokens | None:
        """Returns the tokens inside the state with which a call of a module begins; None: they are unknown."""
        for earlier, tokens in reversed(self._states.get(module, [])):
            rows = _rows_of(state, earlier.to(state.dtype)) if earlier.shape[1:] == state.shape[1:] else None
            if rows is not None:
                if rows == list(range(len(earlier))):
                    return tokens
                return tokens.map(partial(torch.index_select, dim=0, index=torch.tensor(rows, device=state.device)))
        return None

    def add(self, module: nn.Module, state: Tensor, tokens: RecurrentTokens) -> None:
        """Stores the state with which a call ended, and all tokens inside of it."""
        states = self._states.setdefault(module, [])
        states.append((state.detach().clone(), tokens))
        del states[:-STATES_LIMIT]

    def is_first(self, module: nn.Module, source: str) -> bool:
        """Whether this is a module's first call of a function."""
        sources = self._verified.setdefault(module, set())
        is_new = source not in sources
        sources.add(source)
        return is_new


def _rows_of(state: Tensor, earlier: Tensor) -> list[int] | None:
    """Returns the row of an earlier state that each row of a state equals; None if one equals none."""
    if state.shape == earlier.shape and torch.equal(state, earlier):
        return list(range(len(state)))
    equal = [(earlier == row).flatten(1).all(1).nonzero()[:, 0].tolist() for row in state]
    return [rows[0] for rows in equal] if all(equal) else None
