"""What a normalizer lowers to: a few operations on one row of scores, which a backend can implement."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from torch import Tensor

if TYPE_CHECKING:
    from regard.normalizers.normalizer import Normalizer


@dataclass(frozen=True, eq=False)
class RowPrimitive:
    """What a normalizer does to a row of scores, in primitives that a backend can implement.

    With :math:`s` a row of scores and :math:`j` the position of a key,

    .. math:: w_j = primitive(s)_j \\; \\exp\\!\\big(-(j - center)^2 / (2 \\, sigma^2)\\big)

    ===========  =================================================================================================
    kind         primitive(s)
    ===========  =================================================================================================
    ``softmax``  exp(s_j / temperature) / (exp(sink) + Σ exp(s_k / temperature)); without a sink its term is 0
    ``entmax``   the weights of `Entmax` with this alpha
    ``sigmoid``  1 / (1 + exp(−(s_j + shift)))
    ===========  =================================================================================================

    Attributes:
        kind: one of the three.
        temperature: of softmax; a number, ``[]`` or ``[heads]``.
        sink: of softmax, its score, which no temperature divides; a number, ``[]`` or ``[heads]``; None without.
        alpha: of entmax; a number, ``[]`` or ``[heads]``.
        shift: of sigmoid, added to each score; a number, ``[]`` or ``[heads]``.
        center: of the Gaussian window over the weights, in key positions, broadcastable to
            ``[batch, heads, queries]``; None without a window.
        sigma: the window's standard deviation in key positions, a number or broadcastable like ``center``.
    """

    kind: Literal["softmax", "entmax", "sigmoid"]
    temperature: float | Tensor = 1.0
    sink: float | Tensor | None = None
    alpha: float | Tensor = 1.5
    shift: float | Tensor = 0.0
    center: Tensor | None = None
    sigma: float | Tensor | None = None

    def normalizer(self) -> "Normalizer":
        """The normalizer that lowers to this; tensors are passed on as they are, so that gradients reach them."""
        from regard.normalizers.elementwise import Sigmoid
        from regard.normalizers.entmax import Entmax
        from regard.normalizers.local import LocalGaussian
        from regard.normalizers.softmax import Softmax, SoftmaxWithSink

        if self.kind == "sigmoid":
            inner: Normalizer = Sigmoid(self.shift)
        elif self.kind == "entmax":
            inner = Entmax(self.alpha)
        elif self.sink is not None:
            inner = SoftmaxWithSink(self.sink)
        else:
            inner = Softmax(self.temperature)
        if self.center is None or self.sigma is None:
            return inner
        return LocalGaussian(inner, self.center, self.sigma)
