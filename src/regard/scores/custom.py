"""Any function of queries and keys as a score."""

from collections.abc import Callable

from torch import Tensor, nn

from regard.axes import Float
from regard.errors import ArgumentError, KindError, ShapeError
from regard.locality import is_local, needs_trial, numbers, remember_trial
from regard.scores.score import Pairwise, Prepared, Score
from regard.scores.weights import in_dtype_of
from regard.shapes import accurate, check_arguments


class Custom(Score):
    """Any function of queries and keys.

    ::

        score(q, k) = function(q, k)

    Args:
        function: ``(query [batch, heads, queries, query_dim], key [batch, heads, keys, key_dim])`` to
            ``[batch, heads, queries, keys]``. It is called with tiles, so each pair must be scored by itself: nothing
            may depend on other pairs, or on where a pair stands (`Modified` is for that). Keys come with as many heads
            as queries. An `nn.Module` is registered, and its parameters get their gradients.
        width: how many numbers it holds at once for each pair; large values make smaller tiles.

    Raises:
        KindError: not callable.
        ArgumentError: a width below 1; a function whose score of a pair depends on other queries or keys. It is tried
            once, on a few numbers on a CPU, without a trace in random generators, buffers or hooks; not where PyTorch
            traces.
        ShapeError: scores of another shape.

    Numerics: half-precision inputs come to the function in float32, and a module calculates in the inputs' dtype.
    """

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor], width: int = 1):
        super().__init__()
        if isinstance(function, type) or not callable(function):
            raise KindError(f"function must be a callable (query, key) -> scores; it is {function!r}")
        check_arguments("function", function, 2)
        if isinstance(width, bool) or not isinstance(width, int):
            raise KindError(f"width must be an integer; it is a {type(width).__name__}")
        if width < 1:
            raise ArgumentError(f"width must be at least 1; it is {width}")
        self.function = function
        self.width = width

    def check(self, query: Tensor, key: Tensor) -> None:
        """Every pair of shapes may suit; the function says so by its own errors."""

    def prepare(
        self, query: Float[Tensor, "batch heads queries query_dim"], key: Float[Tensor, "batch kv_heads keys key_dim"]
    ) -> Prepared:
        query, key = accurate(query), accurate(key)
        if needs_trial(self.function, "score", query, key):
            self._try(query, key)
            remember_trial(self.function, "score")
        function = self.function
        if isinstance(function, nn.Module):
            function = in_dtype_of(query, function)
        return Prepared(query, key, Pairwise(function, self.width))

    def _try(self, query: Tensor, key: Tensor) -> None:
        """Raise ArgumentError if the score of one pair depends on another, and ShapeError for other axes."""
        for heads in (3, query.shape[1]):
            expected = (2, heads, 4, 5)

            def first_pair(scores: Tensor, expected: tuple[int, ...] = expected) -> Tensor:
                if scores.shape != expected:
                    raise ShapeError(
                        "score must return [batch, heads, queries, keys]; of 2, "
                        f"{', '.join(map(str, expected[1:]))} of them {self._name} returned {list(scores.shape)}"
                    )
                return scores[0, 0, 0, 0]

            shapes = (*expected[:3], query.shape[-1]), (*expected[:2], 5, key.shape[-1])
            inputs = [numbers(shape, query) for shape in shapes]
            others = [numbers(shape, query, first=1.0) for shape in shapes]
            for input, other in zip(inputs, others, strict=True):
                other[0, 0, 0] = input[0, 0, 0]
            local = is_local(self.function, inputs, others, first_pair)
            if local is False:
                raise ArgumentError(
                    "score must compare each query with each key by itself; the score of a pair by "
                    f"{self._name} depends on other queries, keys, heads or batch rows"
                )
            if local:
                return

    @property
    def _name(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)
