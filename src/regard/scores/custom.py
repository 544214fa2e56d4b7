"""Any function of queries and keys as a score."""

from collections.abc import Callable

from torch import Tensor, nn

from regard.axes import Float
from regard.errors import ArgumentError, KindError
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
        ArgumentError: a width below 1.

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
        function = self.function
        if isinstance(function, nn.Module):
            function = in_dtype_of(query, function)
        return Prepared(query, key, Pairwise(function, self.width))
