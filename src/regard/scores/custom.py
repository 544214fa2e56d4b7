"""Turns any function of queries and keys into a primitive, and into a score."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from regard.errors import ArgumentError, KindError, ShapeError
from regard.scores.score import Prepared, Primitive, Score
from regard.scores.weights import in_dtype_of
from regard.shapes.axes import Float
from regard.shapes.checks import check_arguments, check_sizes
from regard.shapes.grid import spread_heads, upcast
from regard.shapes.layout import Keys, Pairs, Queries
from regard.tracing.locality import is_local, needs_trial, remember_trial, trial_values

_OF_MATRICES = (
    "it scores matrices: count axes from the end (key.mT in place of key.T), or write score=torch.vmap(torch.vmap(fn))"
)


@dataclass(eq=False)
class Pairwise(Primitive):
    """Applies any function to a tile of queries and keys.

    Attributes:
        function: ``(query, key) -> scores``, for ``[batch, heads, queries, dim]`` and ``[batch, heads, keys, dim]``;
            must score each pair independently.
        width: elements that the function has in memory at once for each pair.

    Example:
        >>> import torch
        >>> from regard import scores
        >>> x = torch.ones(1, 1, 2, 3)
        >>> scores.Pairwise(lambda query, key: query @ key.mT)(x, x)
        tensor([[[[3., 3.],
                  [3., 3.]]]])
    """

    function: Callable[[Tensor, Tensor], Tensor]
    width: int = 1

    def __call__(self, query: Queries, key: Float[Tensor, "#batch kv_heads keys key_dim"]) -> Pairs:
        heads = query.shape[1]
        scores = self.function(query, spread_heads(key, heads))
        expected = (*query.shape[:-1], key.shape[-2])
        if not isinstance(scores, Tensor) or scores.shape != expected:
            shape = list(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
            raise ShapeError(f"score must return [batch, heads, queries, keys] = {list(expected)}; it returned {shape}")
        return upcast(scores)

    def elements_per_pair(self, query: Tensor, key: Tensor) -> int:
        return self.width


class Custom(Score):
    """A score that is any function of queries and keys.

    .. math::

        score(q, k) = function(q, k)

    Args:
        function: maps ``query [batch, heads, queries, query_dim]`` and ``key [batch, heads, keys, key_dim]`` to
            ``[batch, heads, queries, keys]``. It is called with tiles, so it must score each pair independently of
            other pairs and of the pair's position (for which there is `Modified`). Keys have as many heads as queries.
            If it is an `nn.Module`, its parameters are registered.
        width: elements that the function has in memory at once for each pair; a larger width makes smaller tiles.

    Raises:
        KindError: the function is not callable.
        ArgumentError: the width is below 1, or the score of a pair depends on other queries or keys. To find out, the
            function is run once on a small CPU tensor, without effects on random generators, buffers or hooks, unless
            PyTorch traces.
        ShapeError: the scores have another shape.

    Numerics: the function gets half-precision inputs in float32, and a module computes in the dtype of its inputs.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import scores
        >>> x = torch.ones(2, 1)
        >>> score = scores.Custom(lambda query, key: -(query - key.mT).abs())
        >>> regard.attend_with_weights(x, x, x, score=score).weights
        tensor([[0.5000, 0.5000],
                [0.5000, 0.5000]])
    """

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor], width: int = 1):
        super().__init__()
        if isinstance(function, type) or not callable(function):
            raise KindError(f"function must be a callable (query, key) -> scores; it is {function!r}")
        check_arguments("function", function, 2)
        check_sizes(width=width)
        self.function = function
        self.width = width

    def check(self, query: Tensor, key: Tensor) -> None:
        """Accepts all shapes; the function raises its own errors."""

    def prepare(self, query: Queries, key: Keys) -> Prepared:
        query, key = upcast(query), upcast(key)
        if needs_trial(self.function, "score", query, key):
            self._check_independence(query, key)
            remember_trial(self.function, "score")
        function = self.function
        if isinstance(function, nn.Module):
            function = in_dtype_of(query, function)
        return Prepared(query, key, Pairwise(function, self.width))

    def _check_independence(self, query: Tensor, key: Tensor) -> None:
        """Raises ArgumentError if the score of one pair depends on another pair, and ShapeError for other axes."""
        try:
            independent = self._is_independent(query, key)
        except ShapeError as error:
            if not self._takes_matrices(query, key):
                raise
            raise ShapeError(f"{error}; {_OF_MATRICES}") from None
        if independent is False:
            raise ArgumentError(
                "score must compare each query with each key by itself; the score of a pair by "
                f"{self._name} depends on other queries, keys, heads or batch rows"
            )
        if independent is None and self._takes_matrices(query, key):
            raise ShapeError(
                f"score is called with [batch, heads, length, dim], for which {self._name} fails; {_OF_MATRICES}"
            )

    def _takes_matrices(self, query: Tensor, key: Tensor) -> bool:
        """Whether the function scores matrices ``[queries, dim]`` and ``[keys, dim]``, each pair by itself."""

        def first_pair(scores: Tensor) -> Tensor:
            if scores.shape != (4, 5):
                raise ShapeError("the function does not score matrices")
            return scores[0, 0]

        inputs, others = (
            [trial_values(shape, query, phase) for shape in ((4, query.shape[-1]), (5, key.shape[-1]))]
            for phase in (0.0, 1.0)
        )
        for input, other in zip(inputs, others, strict=True):
            other[0] = input[0]
        try:
            return is_local(self.function, inputs, others, first_pair) is True
        except ShapeError:
            return False

    def _is_independent(self, query: Tensor, key: Tensor) -> bool | None:
        """Whether the score of one pair depends on no other pair; None if a trial cannot tell."""
        for heads in (3, query.shape[1]):
            expected = (2, heads, 4, 5)

            def first_pair(scores: Tensor, expected: tuple[int, ...] = expected) -> Tensor:
                if scores.shape != expected:
                    raise ShapeError(
                        f"score must return [batch, heads, queries, keys]; for the sizes {list(expected)} "
                        f"{self._name} returned {list(scores.shape)}"
                    )
                return scores[0, 0, 0, 0]

            shapes = (*expected[:3], query.shape[-1]), (*expected[:2], 5, key.shape[-1])
            inputs = [trial_values(shape, query) for shape in shapes]
            others = [trial_values(shape, query, phase=1.0) for shape in shapes]
            for input, other in zip(inputs, others, strict=True):
                other[0, 0, 0] = input[0, 0, 0]
            independent = is_local(self.function, inputs, others, first_pair)
            if independent is not None:
                return independent
        return None

    @property
    def _name(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)
