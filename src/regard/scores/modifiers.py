"""Scores that modify another score."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real

import torch
from torch import Tensor, nn

from regard.errors import ArgumentError, KindError, ShapeError
from regard.fields import replaced
from regard.names.answered import answered
from regard.scores.names import Scoring, own_score
from regard.scores.score import Modifier, PairUnits, Places, Prepared, Score
from regard.shapes.checks import check_arguments, type_text
from regard.shapes.grid import Grid, upcast
from regard.shapes.layout import Keys, Pairs, Queries

ScoreFunction = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
"""``(score, batch, head, query_index, key_index) -> score``."""


# Not frozen: compilers of older PyTorch lose the fields of a frozen object that is created in compiled code.
@dataclass
class Cap:
    """Modifies scores to ``cap · tanh(scores / cap)``."""

    cap: float

    def __call__(self, scores: Pairs, grid: Grid) -> Pairs:
        return self.cap * torch.tanh(scores / self.cap)


class WrappingScore(Score, ABC):
    """Contains another score, whose checks and projections are its own."""

    def __init__(self, score: Scoring):
        super().__init__()
        self.score = own_score(score)
        self.is_causal = self.score.is_causal

    def check(self, query: Tensor, key: Tensor) -> None:
        self.score.check(query, key)

    def project_query(self, query: Tensor) -> Tensor:
        return self.score.project_query(query)

    def project_key(self, key: Tensor) -> Tensor:
        return self.score.project_key(key)

    def pair_units(self, query: Tensor, key: Tensor) -> PairUnits | None:
        return self.score.pair_units(query, key)

    def projected(self) -> Score:
        return replaced(self, score=self.score.projected())


class Modifying(WrappingScore, ABC):
    """Modifies another score after it was scaled."""

    @property
    @abstractmethod
    def modifier(self) -> Modifier:
        """The function that modifies the scores of a tile."""

    def prepare(self, query: Queries, key: Keys) -> Prepared:
        return self.score.prepare(query, key).modified_by(self.modifier)

    def prepare_at(self, query: Queries, key: Keys, places: Places) -> Prepared:
        return self.score.prepare_at(query, key, places).modified_by(self.modifier)


@answered
class SoftCap(Modifying, fields=("score", "cap")):
    """Limits scores to ±cap, smoothly.

    .. math::

        score(q, k) = cap · tanh(inner(q, k) / cap)

    Bello et al. 2017, "Neural Combinatorial Optimization with Reinforcement Learning", *logit clipping* (there without
    the division); Gemma Team 2024, "Gemma 2", section 2, *logit soft-capping*.

    Args:
        score: the inner score: a `Score`, a name or a callable.
        cap: a finite number above 0.

    Raises:
        ArgumentError: the cap is not finite or not above 0.
        KindError: the cap is not a number.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import scores
        >>> x = torch.zeros(3, 4)
        >>> regard.attend(x, x, x, score=scores.SoftCap("scaled_dot", 30.0)).shape
        torch.Size([3, 4])
    """

    def __init__(self, score: Scoring, cap: float):
        super().__init__(score)
        if isinstance(cap, bool) or not isinstance(cap, Real):
            raise KindError(f"cap must be a number; it is {type_text(cap)}")
        if not math.isfinite(cap) or cap <= 0:
            raise ArgumentError(f"cap must be finite and above 0; it is {cap}")
        self.cap = float(cap)

    @property
    def modifier(self) -> Modifier:
        return Cap(self.cap)


@answered
class Modified(Modifying, fields=("score", "fn")):
    """Modifies scores by a function of the score and the position of each pair.

    .. math::

        score(q_i, k_j) = fn(inner(q_i, k_j), batch, head, i, j)

    The function has the signature of a ``score_mod`` in PyTorch's FlexAttention (Dong et al. 2024), which calls it
    with scalars. Here it is called with tensors that broadcast against each other, so it must consist of elementwise
    operations.

    Args:
        score: the inner score: a `Score`, a name or a callable.
        fn: ``fn(score, batch, head, query_index, key_index) -> score``. ``score`` holds the scaled scores of a tile,
            before bias and mask, ``[batch, heads, queries, keys]``, in float32 for half-precision inputs. The others
            are int64 positions of the tile's pairs in the whole problem: ``[batch, 1, 1, 1]``, ``[heads, 1, 1]``,
            ``[queries, 1]`` and ``[keys]``. If it is an `nn.Module`, its parameters are registered.

    Raises:
        KindError: ``fn`` is not callable.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import scores
        >>> def nearer(score, batch, head, query_index, key_index):
        ...     return score - (query_index - key_index).abs()
        ...
        >>> x = torch.zeros(2, 1)
        >>> regard.attend_with_weights(x, x, x, score=scores.Modified("dot", nearer)).weights
        tensor([[0.7311, 0.2689],
                [0.2689, 0.7311]])
    """

    def __init__(self, score: Scoring, fn: ScoreFunction):
        super().__init__(score)
        if isinstance(fn, type) or not callable(fn):
            raise KindError(f"fn must be a callable (score, batch, head, query_index, key_index); it is {fn!r}")
        check_arguments("fn", fn, 5)
        self.fn = fn

    @property
    def modifier(self) -> Modifier:
        return self._modify

    def _modify(self, scores: Tensor, grid: Grid) -> Tensor:
        modified = self.fn(scores, grid.batch_index, grid.head_index, grid.query_index, grid.key_index)
        if not isinstance(modified, Tensor) or modified.shape != scores.shape:
            shape = list(modified.shape) if isinstance(modified, Tensor) else type(modified).__name__
            raise ShapeError(f"fn must return the scores' shape, {list(scores.shape)}; it returned {shape}")
        return upcast(modified)

    def extra_repr(self) -> str:
        return "" if isinstance(self.fn, nn.Module) else f"fn={getattr(self.fn, '__name__', type(self.fn).__name__)}"
