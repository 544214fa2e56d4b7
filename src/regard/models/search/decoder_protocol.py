"""What a decoder must offer to be searched, and what a search finds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from regard.errors import ArgumentError
from regard.models.encoders import Encoded


class SearchState(Protocol):
    """Where a decoder stands, for a batch of rows."""

    def select(self, index: Tensor) -> Self:
        """The rows ``index [rows]``, in that order; a row may come twice."""
        ...

    def reorder(self, index: Tensor) -> Self:
        """As `select`, where each row is replaced by one with the same source: what was kept of the source can stay."""
        ...


class SearchableDecoder(Protocol):
    """A decoder that can be searched."""

    def start(self, encoded: Encoded) -> Any:
        """The `SearchState` before the first word."""
        ...

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any, Tensor | None]:
        """One more word.

        Args:
            tokens: ``int64 [rows]``, the last word of each row.
            state: the `SearchState` before it.

        Returns:
            Log-probabilities of the next word, float32 ``[rows, vocabulary]``; the state after; attention
            ``[rows, source]`` or None.
        """
        ...


@dataclass(frozen=True)
class Hypothesis:
    """A sentence that a search found.

    Attributes:
        tokens: without ``bos`` and ``eos``.
        score: what the search ranks by, nats: the log-probability, for a beam divided by its length penalty.
        log_probability: nats, of all tokens and ``eos``.
        weights: float32 ``[len(tokens), source tokens]`` on the CPU: where each token looked; None without attention.
    """

    tokens: list[int]
    score: float
    log_probability: float
    weights: Tensor | None


@dataclass(frozen=True)
class Limits:
    """Which sentences may be written.

    Attributes:
        bos: token to begin with; never written.
        eos: token that ends a sentence.
        max_length: most tokens before ``eos``; after so many only ``eos`` may follow, at its own probability.
        forbidden: tokens that are never written, such as padding.
    """

    bos: int
    eos: int
    max_length: int
    forbidden: Sequence[int] = ()

    def __post_init__(self) -> None:
        if self.max_length < 0:
            raise ArgumentError(f"max_length must be 0 or more; it is {self.max_length}")

    def restrict(self, log_probabilities: Tensor, length: int) -> Tensor:
        """Log-probabilities ``[rows, vocabulary]`` with −inf for what may not follow ``length`` tokens."""
        if length >= self.max_length:
            only = torch.full_like(log_probabilities, -torch.inf)
            only[:, self.eos] = log_probabilities[:, self.eos]
            return only
        allowed = log_probabilities.clone()
        allowed[:, [self.bos, *self.forbidden]] = -torch.inf
        return allowed
