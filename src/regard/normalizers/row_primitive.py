"""What a normalizer lowers to: a few operations on one row of scores, which a backend can implement."""

from typing import Literal, NamedTuple

from torch import Tensor


class RowPrimitive(NamedTuple):
    """What a normalizer does to a row of scores, in primitives that a backend can implement.

    With :math:`s` a row of scores and :math:`j` the position of a key,

    .. math:: w_j = primitive(s)_j \\; \\exp\\!\\big(-(j - center)^2 / (2 \\, sigma^2)\\big)

    ===========  =================================================================================================
    kind         primitive(s)
    ===========  =================================================================================================
    ``softmax``  exp(s_j / temperature) / (exp(sink) + Σ exp(s_k / temperature)); without a sink its term is 0
    ``entmax``   the weights of `Entmax` with this alpha
    ``sigmoid``  1 / (1 + exp(−(s_j + shift)))
    ``hard``     1 on the first of the largest scores, 0 on all others; without a gradient to the scores
    ===========  =================================================================================================

    Attributes:
        kind: one of the four.
        temperature: of softmax; a number, ``[]`` or ``[heads]``.
        sink: of softmax, its score, which no temperature divides; a number, ``[]`` or ``[heads]``; None without.
        alpha: of entmax; a number, ``[]`` or ``[heads]``.
        shift: of sigmoid, added to each score; a number, ``[]`` or ``[heads]``.
        center: of the Gaussian window over the weights, in key positions, broadcastable to
            ``[batch, heads, queries]``; None without a window.
        sigma: the window's standard deviation in key positions, a number or broadcastable like ``center``.
    """

    kind: Literal["softmax", "entmax", "sigmoid", "hard"]
    temperature: float | Tensor = 1.0
    sink: float | Tensor | None = None
    alpha: float | Tensor = 1.5
    shift: float | Tensor = 0.0
    center: Tensor | None = None
    sigma: float | Tensor | None = None
