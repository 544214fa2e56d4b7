"""The interface of a decoder for a search, the limits of a search, and its result."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from regard.errors import ArgumentError
from regard.models.encoders import Encoded
from regard.shapes.checks import Requested


class SearchState(Protocol):
    """The state of a decoder for a batch of rows."""

    def select(self, index: Tensor) -> Self:
        """Returns the rows ``index [rows]``, in that order; a row may occur several times."""
        ...

    def reordered(self, index: Tensor) -> Self:
        """Selects rows that have the source of the row that each replaces."""
        ...


class SearchableDecoder(Protocol):
    """A decoder on which a search can run: any object with these two methods.

    Its state for a batch of rows has the method ``select(index)``, which returns the rows ``index [rows]``. For `beam`
    it also has ``reordered(index)``, which may assume that each new row has the source of the row that it replaces.

    Example:
        >>> import torch
        >>> from regard import models
        >>> class Chain:  # p(next token | last token); 0 is bos, 1 is eos
        ...     table = torch.tensor([[0, 0, 0.6, 0.4], [0, 1, 0, 0], [0, 0.5, 0.3, 0.2], [0, 0.9, 0.1, 0]])
        ...     def start(self, encoded):
        ...         return self
        ...     def step(self, tokens, state):
        ...         return self.table[tokens].log(), state, None
        ...     def select(self, index):  # it is its own state, and the same for all rows
        ...         return self
        >>> encoded = models.Encoded(torch.zeros(1, 1, 1), torch.tensor([1]))
        >>> models.greedy(Chain(), encoded, bos=0, eos=1)[0].tokens
        [2]
    """

    def start(self, encoded: Encoded) -> Any:
        """Returns the `SearchState` before the first token."""
        ...

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any, Tensor | None]:
        """Runs one step.

        Args:
            tokens: ``int64 [rows]``, the last token of each row.
            state: the `SearchState` before the step.

        Returns:
            Log-probabilities of the next token, float32 ``[rows, vocabulary]``; the state after the step; weights
            ``[rows, source]`` or None.
        """
        ...


@dataclass(frozen=True)
class Hypothesis:
    """The result of a search for one sentence.

    Attributes:
        tokens: the tokens without ``bos`` and ``eos``.
        score: the log-probability in nats; in a beam search, divided by the length penalty; with minimum Bayes risk,
            the mean utility.
        log_probability: log-probability of all tokens and ``eos``, in nats.
        weights: attention weights, float32 ``[len(tokens), source tokens]`` on the CPU; None without attention.
        next_best: the next best hypotheses of the same sentence, the best first, if several were requested.

    Example:
        >>> import torch
        >>> from regard import models
        >>> model = models.RecurrentTranslator(models.TranslatorConfig(20, 20, hidden=8, embedding=8)).eval()
        >>> encoded = model.encode(torch.tensor([[4, 5, 6]]), torch.tensor([3]))
        >>> best = model.search(encoded, width=3, n_best=3, max_length=5)[0]
        >>> best.weights.shape == (len(best.tokens), 3), len(best.next_best)
        (True, 2)
        >>> best.score >= best.next_best[0].score >= best.next_best[1].score
        True
    """

    tokens: list[int]
    score: float
    log_probability: float
    weights: Requested[Tensor]
    next_best: tuple["Hypothesis", ...] = ()

    @classmethod
    def of_ranked(cls, ranked: Sequence["Hypothesis"]) -> "Hypothesis":
        """Returns the first of several hypotheses of a sentence, the best first, with the others after it."""
        return replace(ranked[0], next_best=tuple(ranked[1:]))


@dataclass(frozen=True)
class Limits:
    """The limits of a search: the token before the first one and that which ends a sentence; the largest number of
    tokens before it, of all sentences or of each, after which ``eos`` must follow, with its own probability; and tokens
    that are never part of a hypothesis, such as padding."""

    bos: int
    eos: int
    max_length: int | Sequence[int]
    forbidden: Sequence[int] = ()

    def __post_init__(self) -> None:
        lengths = [self.max_length] if isinstance(self.max_length, int) else self.max_length
        for length in lengths:
            if length < 0:
                raise ArgumentError(f"max_length must be 0 or more; it is {length}")

    def lengths(self, sentences: int) -> list[int]:
        """Returns the largest number of tokens of each sentence; raises ArgumentError if there is not one for each."""
        if isinstance(self.max_length, int):
            return [self.max_length] * sentences
        if len(self.max_length) != sentences:
            raise ArgumentError(
                f"max_length must be one number, or one for each of {sentences} sentences; "
                f"it has {len(self.max_length)}"
            )
        return list(self.max_length)

    def restrict(self, log_probabilities: Tensor, must_end: Tensor | None) -> Tensor:
        """Returns log-probabilities ``[rows, vocabulary]`` with −inf for tokens that must not follow.

        ``must_end``, bool ``[rows]``, marks rows that have their largest number of tokens; None: no row has.
        """
        allowed = log_probabilities.clone()
        for token in (self.bos, *self.forbidden):
            allowed[:, token] = -torch.inf
        if must_end is not None:
            ends = log_probabilities[:, self.eos]
            allowed.masked_fill_(must_end[:, None], -torch.inf)
            allowed[:, self.eos] = ends
        return allowed
