"""FIRE: a perceptron of the logarithm of distance, as a share of that of the query's position."""

import torch
from torch import Tensor, nn

from regard.biases.bias import Bias, check_fit, register_weight
from regard.biases.perceptron import perceptron, register_perceptron
from regard.names.answered import answered
from regard.shapes.checks import whole_number
from regard.shapes.grid import Grid, upcast


@answered
class Fire(Bias, fields=("heads", "hidden", "rate", "threshold", "inner", "outer")):
    r"""Adds a learned function of the distance as a share of the query's position, so that it knows no length.

    .. math::

        bias_{hij} = f_h\left(\frac{ψ(|p_i − j|)}{ψ(\max(p_i, |threshold|))}\right), \quad
        ψ(x) = \log(|rate| · x + 1), \quad p_i = i + keys − queries

    Li et al. 2024, "Functional Interpolation for Relative Positions Improves Long Context Transformers" (FIRE),
    section 3.2, equations 8 and 9: c is ``rate``, L is ``threshold``, f is a perceptron with one hidden layer of
    rectified units. The divisor depends on the query's position, so the bias is **not** a function of distance alone:
    no fused kernel reads it, and it is computed a tile at a time, in linear memory. For the position of a query the
    ends are aligned, so the steps of a decoder see what the whole sequence sees. Keys after the query, which the
    paper's causal models mask, get the value of their distance.

    Args:
        heads: number of query heads.
        hidden: hidden units, default 32.
        rate: c, a tensor with one number; None: 0.1, learned.
        threshold: L in keys, a tensor with one number; None: 512, learned. The authors learn a multiple of 512.
        inner: ``[hidden, 2]``, the weight and the addend of each hidden unit; None draws them.
        outer: ``[heads, hidden + 1]``, the weights of each head and, last, its addend; None draws them.

    Raises:
        ArgumentError, KindError, ShapeError: an argument is out of range or has the wrong type or shape.

    Numerics: 1e-6 is added to the divisor, as in the authors' code; a tile needs ``hidden`` numbers a pair.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import biases
        >>> bias = biases.Fire(heads=2)
        >>> x = torch.zeros(1, 2, 3, 4)
        >>> regard.attend(x, x, x, bias=bias, mask="causal").shape
        torch.Size([1, 2, 3, 4])
    """

    rate: Tensor
    threshold: Tensor
    inner: Tensor
    outer: Tensor

    def __init__(
        self,
        heads: int,
        hidden: int = 32,
        rate: Tensor | None = None,
        threshold: Tensor | None = None,
        inner: Tensor | None = None,
        outer: Tensor | None = None,
    ):
        super().__init__()
        self.heads = whole_number("heads", heads, low=1)
        self.hidden = whole_number("hidden", hidden, low=1)
        for name, number, first in (("rate", rate, 0.1), ("threshold", threshold, 512.0)):
            register_weight(self, number, name=name)
            if number is None:
                nn.init.constant_(getattr(self, name), first)
        register_perceptron(self, inner, outer, (self.hidden, 1, self.heads, self.hidden + 1))

    def check(self, query: Tensor, grid: Grid) -> None:
        check_fit(self, self.heads, grid)

    @property
    def reads_query(self) -> bool:
        return False

    def forward(self, query: Tensor, grid: Grid) -> Tensor:
        dtype = upcast(query).dtype
        rate, threshold = self.rate.to(dtype).abs(), self.threshold.to(dtype).abs()
        position = grid.query_index + grid.offset
        distance = torch.log1p(rate * (position - grid.key_index).abs().to(dtype))
        divisor = torch.log1p(rate * torch.maximum(position.to(dtype), threshold)) + 1e-6
        share = (distance / divisor)[..., None]  # Q K 1
        return perceptron(share, self.inner, self.outer).movedim(-1, 0)
