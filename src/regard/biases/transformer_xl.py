"""Transformer-XL's relative positions: projected sinusoids, and one vector a head for keys and one for positions."""

import torch
from torch import Tensor, nn

from regard.biases.bias import register_weight, relative_positions
from regard.biases.query_bias import KeyedBias, diagonal_index, gathered
from regard.errors import ArgumentError
from regard.names.answered import answered
from regard.shapes.checks import positive_number, whole_number
from regard.shapes.grid import Grid, upcast
from regard.tracing.transforms import exact_dtype


@answered
class TransformerXL(KeyedBias, fields=("heads", "dim", "features", "scale", "weight", "content_bias", "position_bias")):
    r"""Adds the three terms of relative positions to the product of query and key.

    .. math::

        bias_{hij} = scale · \big(u_h · key_{hj} + (query_{hi} + v_h) · W_h \, r(i + offset − j)\big), \quad
        r_{2k}(p) = \sin(p \, 10000^{-2k / F}), \; r_{2k+1}(p) = \cos(p \, 10000^{-2k / F})

    Dai et al. 2019, "Transformer-XL: Attentive Language Models beyond a Fixed-Length Context", section 3.3: terms (b),
    (c) and (d) of ``A^rel``, whose term (a) is the score; u is ``content_bias``, v is ``position_bias``, and
    ``W_{k,R}`` is ``weight``. So it is in XLNet and in Conformers (Gulati et al. 2020, section 2.1). Sines and cosines
    alternate, as in the latter; for tables that have all sines first, permute the columns of ``weight``.

    Args:
        heads: number of query heads.
        dim: features of a query and of a key.
        features: F, features of the sinusoids, even; None: ``heads · dim``, or one more.
        scale: a positive number; None for ``1 / sqrt(dim)``, which fits ``scaled_dot``.
        weight: ``[heads, dim, features]``; None draws it (Glorot and Bengio 2010).
        content_bias, position_bias: ``[heads, dim]``; None: zeros.

    Raises:
        ArgumentError, KindError, ShapeError: an argument is out of range or has the wrong type or shape.

    Numerics: as for `QueryBias`; sinusoids are computed in float64. A tile has the products of its queries with as many
    vectors as it has diagonals.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import biases
        >>> bias = biases.TransformerXL(heads=2, dim=4)
        >>> x = torch.randn(1, 2, 3, 4)
        >>> regard.attend(x, x, x, bias=bias).shape
        torch.Size([1, 2, 3, 4])
    """

    weight: Tensor
    content_bias: Tensor
    position_bias: Tensor

    def __init__(
        self,
        heads: int,
        dim: int,
        features: int | None = None,
        scale: float | None = None,
        weight: Tensor | None = None,
        content_bias: Tensor | None = None,
        position_bias: Tensor | None = None,
    ):
        super().__init__()
        self.heads, self.dim = whole_number("heads", heads, low=1), whole_number("dim", dim, low=1)
        width = self.heads * self.dim
        self.features = width + width % 2 if features is None else whole_number("features", features, low=2)
        if self.features % 2:
            raise ArgumentError(f"features must be even; it is {self.features}")
        self.scale = self.dim**-0.5 if scale is None else positive_number("scale", scale)
        register_weight(self, weight, self.heads, self.dim, self.features)
        if weight is None:
            nn.init.xavier_uniform_(self.weight.view(-1, self.features))
        for name, vectors in (("content_bias", content_bias), ("position_bias", position_bias)):
            register_weight(self, vectors, self.heads, self.dim, name=name)
            if vectors is None:
                nn.init.zeros_(getattr(self, name))

    def values(self, query: Tensor, key: Tensor, grid: Grid) -> Tensor:
        dtype, exact = upcast(query).dtype, exact_dtype(grid.device)
        falling = torch.arange(0, self.features, 2, dtype=exact, device=grid.device) / self.features
        angles = -relative_positions(grid).to(exact)[:, None] * 10000.0**-falling
        sinusoids = torch.stack((angles.sin(), angles.cos()), -1).flatten(1).to(dtype)  # diagonals, features
        moved = upcast(query) + self.position_bias.to(dtype)[:, None]
        by_position = gathered(self.products(moved, sinusoids @ self.weight.to(dtype).mT), diagonal_index(grid))
        return by_position + self.products(key, self.content_bias[:, None]).mT
