"""Scores made from another score."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from numbers import Real

from torch import Tensor, nn

from regard.axes import Float
from regard.errors import ArgumentError, KindError, ShapeError
from regard.scores.names import Scoring, own_score
from regard.scores.score import Cap, Modifier, Prepared, Score
from regard.shapes import Grid, accurate, check_arguments

ScoreFunction = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
"""``(score, batch, head, query_index, key_index) -> score``."""


class Wrapper(Score, ABC):
    """A score changed after it was scaled; checks and projections are the inner score's."""

    def __init__(self, score: Scoring):
        super().__init__()
        self.score = own_score(score)

    @property
    @abstractmethod
    def modifier(self) -> Modifier:
        """What changes the scores of a tile."""

    @abstractmethod
    def around(self, score: Score) -> Score:
        """The same change of another score."""

    def check(self, query: Tensor, key: Tensor) -> None:
        self.score.check(query, key)

    def project_query(self, query: Tensor) -> Tensor:
        return self.score.project_query(query)

    def project_key(self, key: Tensor) -> Tensor:
        return self.score.project_key(key)

    def projected(self) -> Score:
        return self.around(self.score.projected())

    def prepare(
        self, query: Float[Tensor, "batch heads queries query_dim"], key: Float[Tensor, "batch kv_heads keys key_dim"]
    ) -> Prepared:
        return self.score.prepare(query, key).modified_by(self.modifier)


class SoftCap(Wrapper):
    """Scores kept within ±cap, smoothly.

    ::

        score(q, k) = cap · tanh(inner(q, k) / cap)

    Bello et al. 2017, "Neural Combinatorial Optimization with Reinforcement Learning", *logit clipping* (there without
    the division); Gemma Team 2024, "Gemma 2", section 2, *logit soft-capping*.

    Args:
        score: the inner score: a `Score`, a name or a callable.
        cap: a finite number above 0.

    Raises:
        ArgumentError: a cap out of its range.
        KindError: a cap that is not a number.
    """

    def __init__(self, score: Scoring, cap: float):
        super().__init__(score)
        if isinstance(cap, bool) or not isinstance(cap, Real):
            raise KindError(f"cap must be a number; it is a {type(cap).__name__}")
        if not math.isfinite(cap) or cap <= 0:
            raise ArgumentError(f"cap must be finite and above 0; it is {cap}")
        self.cap = float(cap)

    @property
    def modifier(self) -> Modifier:
        return Cap(self.cap)

    def around(self, score: Score) -> Score:
        return SoftCap(score, self.cap)

    def extra_repr(self) -> str:
        return f"cap={self.cap:g}"


class Modified(Wrapper):
    """Scores changed by a function that knows where each pair stands.

    ::

        score(q_i, k_j) = fn(inner(q_i, k_j), batch, head, i, j)

    The function's signature is that of a ``score_mod`` of PyTorch's FlexAttention. There it is called for one number at
    a time; here with tensors that broadcast against each other, so it must be made of elementwise operations.

    Args:
        score: the inner score: a `Score`, a name or a callable.
        fn: ``fn(score, batch, head, query_index, key_index) -> score``. ``score`` is scaled, before bias and mask,
            ``[batch, heads, queries, keys]`` of a tile, float32 for half-precision inputs. The others are int64 and say
            where the pairs of the tile stand in the whole problem: ``[batch, 1, 1, 1]``, ``[heads, 1, 1]``,
            ``[queries, 1]`` and ``[keys]``. An `nn.Module` is registered, and its parameters get their gradients.

    Raises:
        KindError: ``fn`` is not callable.
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
        changed = self.fn(scores, grid.batch_index, grid.head_index, grid.query_index, grid.key_index)
        if not isinstance(changed, Tensor) or changed.shape != scores.shape:
            got = list(changed.shape) if isinstance(changed, Tensor) else type(changed).__name__
            raise ShapeError(f"fn must return the scores' shape, {list(scores.shape)}; it returned {got}")
        return accurate(changed)

    def around(self, score: Score) -> Score:
        return Modified(score, self.fn)

    def extra_repr(self) -> str:
        return "" if isinstance(self.fn, nn.Module) else f"fn={getattr(self.fn, '__name__', type(self.fn).__name__)}"
