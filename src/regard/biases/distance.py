"""Biases that are functions of distance: their base, KERPLE and Sandwich."""

from abc import abstractmethod
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from regard.biases.bias import DiagonalBias, check_fit, register_weight, relative_positions
from regard.errors import ArgumentError
from regard.names.answered import answered
from regard.shapes.checks import known_name, whole_number
from regard.shapes.grid import Grid
from regard.tracing.transforms import exact_dtype


class DistanceBias(DiagonalBias):
    """A function of the relative position, one for each head.

    .. math::

        bias_{hij} = f_h(j − i − offset)
        offset = keys − queries (the ends are aligned)

    A subclass has ``heads`` and defines `values`, which fused kernels read: nothing quadratic is in memory.

    Attributes:
        heads: number of query heads.

    Example:
        >>> import torch
        >>> from regard import biases
        >>> biases.alibi(2).values(torch.tensor([-2, -1, 0]), torch.float32)
        tensor([[-0.1250, -0.0625, -0.0000],
                [-0.0078, -0.0039, -0.0000]])
    """

    heads: int

    def check(self, query: Tensor, grid: Grid) -> None:
        check_fit(self, self.heads, grid)

    @abstractmethod
    def values(self, relative: Tensor, dtype: torch.dtype) -> Tensor:
        """Computes the bias of relative positions.

        Args:
            relative: key − query − offset, ``int64 [n]``.
            dtype: the dtype of the result, float32 or float64.

        Returns:
            ``[heads, n]``, differentiable.
        """

    def diagonals(self, grid: Grid, dtype: torch.dtype) -> Tensor:
        return self.values(relative_positions(grid), dtype)


KerpleVariant = Literal["logarithmic", "power"]
LEAST_RATE = 0.01
"""Learned parameters of `Kerple` are clamped to this value from below."""


@answered
class Kerple(DistanceBias, fields=("heads", "variant", "amplitude", "rate")):
    """Subtracts a learned function of distance, which grows with the logarithm or with a power of it.

    .. math::

        logarithmic: bias_{hij} = −amplitude_h · log(1 + rate_h · |i + offset − j|)
        power: bias_{hij} = −amplitude_h · |i + offset − j|^{rate_h}
        offset = keys − queries (the ends are aligned)

    Chi et al. 2022, "KERPLE: Kernelized Relative Positional Embedding for Length Extrapolation", section 4, equations 3
    and 4: r₁ is ``amplitude``, r₂ is ``rate``. Both negated functions are conditionally positive definite kernels for
    positive parameters and, in the power variant, a rate of at most 2. ALiBi is the power variant with rate 1.

    Args:
        heads: number of query heads.
        variant: ``logarithmic``, which the paper recommends, or ``power``.
        amplitude, rate: one number a head, ``[heads]``; None draws them uniformly from 0.01 to 2, and from 0.01 to 1.
            They are used as max(·, 0.01), as in the authors' code, and a power as at most 2.

    Raises:
        ArgumentError, KindError, ShapeError, UnknownNameError: an argument is out of range or has the wrong type or
            shape.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import biases
        >>> bias = biases.Kerple(1, amplitude=torch.tensor([1.0]), rate=torch.tensor([1.0]))
        >>> x = torch.zeros(3, 4)
        >>> regard.attend_with_weights(x, x, x, bias=bias, mask="causal").weights
        tensor([[1.0000, 0.0000, 0.0000],
                [0.3333, 0.6667, 0.0000],
                [0.1818, 0.2727, 0.5455]])
    """

    amplitude: Tensor
    rate: Tensor

    def __init__(
        self,
        heads: int,
        variant: KerpleVariant = "logarithmic",
        amplitude: Tensor | None = None,
        rate: Tensor | None = None,
    ):
        super().__init__()
        self.heads = whole_number("heads", heads, low=1)
        self.variant = known_name("variant", variant, get_args(KerpleVariant))
        for name, tensor, high in (("amplitude", amplitude, 2.0), ("rate", rate, 1.0)):
            register_weight(self, tensor, self.heads, name=name)
            if tensor is None:
                nn.init.uniform_(getattr(self, name), LEAST_RATE, high)

    def values(self, relative: Tensor, dtype: torch.dtype) -> Tensor:
        distance = relative.abs().to(dtype)
        amplitude, rate = (tensor.to(dtype).clamp(min=LEAST_RATE)[:, None] for tensor in (self.amplitude, self.rate))
        if self.variant == "logarithmic":
            return -amplitude * torch.log1p(rate * distance)
        # The power of 0 has no derivative in the exponent that PyTorch computes in all modes.
        power = torch.exp(rate.clamp(max=2.0) * distance.clamp(min=1.0).log())
        return -amplitude * torch.where(relative == 0, 0.0, power)


class Sandwich(DistanceBias, fields=("heads", "dim")):
    r"""Adds what sinusoidal positions would contribute to the scores: their inner product, with one scale a head.

    .. math::

        bias_{hij} = \frac{H}{8 h} \Big(\sum_{k=1}^{dim / 2} \cos\big((i + offset − j) / 10000^{2 k / dim}\big)
        − dim / 2\Big), \quad h = 1, …, H

    Chi et al. 2023, "Dissecting Transformer Length Extrapolation via the Lens of Receptive Field Analysis", section 6:
    the inner product of two sinusoidal positions of ``dim`` features depends on their distance alone, and falls with
    its logarithm. It is 0 at distance 0, as ALiBi. Heads divide it by ``8 h / H``. There is nothing to learn.

    Args:
        heads: number of query heads, H.
        dim: features of the sinusoidal positions, even; default 128, as in the paper.

    Raises:
        ArgumentError, KindError: an argument is out of range or has the wrong type.

    Numerics: angles are computed in float64.

    Example:
        >>> import torch
        >>> from regard import biases
        >>> biases.Sandwich(2).values(torch.tensor([-100, -10, -1, 0]), torch.float32)
        tensor([[-8.3297, -4.8352, -0.3617,  0.0000],
                [-4.1649, -2.4176, -0.1808,  0.0000]])
    """

    def __init__(self, heads: int, dim: int = 128):
        super().__init__()
        self.heads = whole_number("heads", heads, low=1)
        self.dim = whole_number("dim", dim, low=2)
        if dim % 2:
            raise ArgumentError(f"dim must be even; it is {dim}")

    @property
    def may_hide(self) -> bool:
        return False

    def values(self, relative: Tensor, dtype: torch.dtype) -> Tensor:
        exact = exact_dtype(relative.device)
        exponents = torch.arange(2, self.dim + 1, 2, dtype=exact, device=relative.device) / self.dim
        falling = (relative.to(exact)[:, None] * 10000.0**-exponents).cos().sum(-1) - self.dim / 2
        head = torch.arange(1, self.heads + 1, dtype=exact, device=relative.device)
        return (falling * (self.heads / 8 / head)[:, None]).to(dtype)
