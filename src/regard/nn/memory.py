"""The memory of a decoder: annotations that are prepared once and attended to at each step."""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from regard.attention.problem import CachedMemory
from regard.scores import Score
from regard.summaries import summarized


@summarized
@dataclass(frozen=True)
class Memory:
    """Keys and values of a batch of inputs, prepared by `Attention.remember`.

    Attributes:
        key: ``[batch, keys, dim]``, projected by the score.
        value: ``[batch, keys, value_dim]``.
        score: compares projected queries with these keys.
        mask: bool ``[batch, keys]``; True: may be attended to. None: all may.
        cached: the memory as a backend has prepared it for many calls, or None.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> attention = nn.Attention.create("general", query_dim=4, key_dim=6)
        >>> memory = attention.remember(torch.randn(2, 5, 6), torch.tensor([5, 3]))
        >>> memory.lengths, memory.mask[1]
        (tensor([5, 3]), tensor([ True,  True,  True, False, False]))
        >>> beams = memory.repeat(2)  # two hypotheses of each input
        >>> beams.lengths
        tensor([5, 5, 3, 3])
        >>> beams = beams.select(torch.tensor([3, 0]))  # the two that go on
        >>> attention(torch.randn(2, 4), beams).context.shape
        torch.Size([2, 6])
    """

    key: Tensor
    value: Tensor
    score: Score
    mask: Tensor | None = None
    cached: CachedMemory | None = field(default=None, repr=False)

    @property
    def lengths(self) -> Tensor:
        """The number of keys that may be attended to in each batch row, ``int64 [batch]``."""
        batch, keys = self.key.shape[:2]
        if self.mask is None:
            return torch.full((batch,), keys, device=self.key.device)
        return self.mask.sum(dim=1)

    def select(self, index: Tensor) -> "Memory":
        """Returns the memory of these batch rows, in this order; used when a beam search continues.

        Args:
            index: int64 ``[rows]``; a row may occur several times.
        """
        mask = None if self.mask is None else self.mask.index_select(0, index)
        cached = None if self.cached is None else self.cached.select(index)
        key, value = self.key.index_select(0, index), self.value.index_select(0, index)
        return replace(self, key=key, value=value, mask=mask, cached=cached)

    def repeat(self, times: int) -> "Memory":
        """Returns a memory with copies of each batch row, one after another; used when a beam search begins.

        Args:
            times: number of copies of each row, at least 1.
        """
        rows = torch.arange(self.key.shape[0], device=self.key.device)
        return self.select(rows.repeat_interleave(times))
