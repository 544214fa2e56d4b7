"""One attention problem, checked and with all four axes: what every backend takes."""

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from regard.biases.bias import Bias
from regard.masks import Mask, Spans
from regard.normalizers.normalizer import Normalizer
from regard.scores.score import Prepared, Score
from regard.shapes import Grid


# Not frozen: that would be the longest part of making one, and every call makes one.
@dataclass(eq=False)
class Problem:
    """Inputs that passed the door.

    Attributes:
        query: ``[batch, heads, queries, dim]``.
        key: ``[batch, kv_heads, keys, dim]``.
        value: ``[batch, kv_heads, keys, value_dim]``.
        score: how queries and keys are compared.
        normalizer: how scores become weights.
        mask: who may see whom; None is everybody.
        bias: what is added to the scores; None is nothing.
        dropout: probability of dropping a weight, in [0, 1).
        rank: how many axes the user's tensors had (2 to 4).
    """

    query: Tensor
    key: Tensor
    value: Tensor
    score: Score
    normalizer: Normalizer
    mask: Mask | None
    bias: Bias | None
    dropout: float
    rank: int

    @cached_property
    def prepared(self) -> Prepared:
        """The score lowered for these inputs, once."""
        return self.score.prepare(self.query, self.key)

    @cached_property
    def spans(self) -> Spans | None:
        """The visible keys of each row, if there is a mask and they are one run in every row."""
        return None if self.mask is None else self.mask.spans(self.grid)

    @cached_property
    def grid(self) -> Grid:
        """The index space of all pairs."""
        batch, heads, queries, _ = self.query.shape
        return Grid.whole(batch, heads, queries, self.key.shape[2], self.query.device)

    @property
    def pairs(self) -> int:
        """How many pairs there are."""
        batch, heads, queries, _ = self.query.shape
        return batch * heads * queries * self.key.shape[2]

    @property
    def is_empty(self) -> bool:
        """Whether there is no pair at all."""
        return self.pairs == 0

    def restore(self, tensor: Tensor) -> Tensor:
        """A result ``[batch, heads, ...]`` with the leading axes that the user's tensors had."""
        if self.rank == 4:
            return tensor
        return tensor[0] if self.rank == 3 else tensor[0, 0]
