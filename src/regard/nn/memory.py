"""What a decoder attends to: annotations, prepared once and read at each step."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.attention.problem import CachedMemory
from regard.scores import Score


@dataclass(frozen=True)
class Memory:
    """Keys and values of a batch of inputs, prepared by `Attention.remember`.

    Attributes:
        key: ``[batch, keys, dim]``, as the score's own weights see them.
        value: ``[batch, keys, value_dim]``.
        score: compares projected queries with these keys.
        mask: bool ``[batch, keys]``; True: may be attended. None: all may.
        cached: the same, as a backend prepared it for many calls; None where none did.
    """

    key: Tensor
    value: Tensor
    score: Score
    mask: Tensor | None = None
    cached: CachedMemory | None = None

    @property
    def lengths(self) -> Tensor:
        """How many keys of each batch row may be attended, ``int64 [batch]``."""
        batch, keys = self.key.shape[:2]
        if self.mask is None:
            return torch.full((batch,), keys, device=self.key.device)
        return self.mask.sum(dim=1)

    def select(self, index: Tensor) -> "Memory":
        """The memory of these batch rows, as often and in the order that they are named; for beams that go on.

        Args:
            index: int64 ``[rows]``.
        """
        mask = None if self.mask is None else self.mask.index_select(0, index)
        cached = None if self.cached is None else self.cached.select(index)
        key, value = self.key.index_select(0, index), self.value.index_select(0, index)
        return replace(self, key=key, value=value, mask=mask, cached=cached)

    def repeat(self, times: int) -> "Memory":
        """Each batch row so many times in a row; for beams that begin.

        Args:
            times: at least 1.
        """
        rows = torch.arange(self.key.shape[0], device=self.key.device)
        return self.select(rows.repeat_interleave(times))
