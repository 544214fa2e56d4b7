"""Axial attention: each position of a grid attends along one axis (Ho et al. 2019)."""

import torch
from torch import Tensor

from regard.attention.result import Attended
from regard.attention.verbs import BackendName
from regard.distributed.sequence_parts import refuse_parts
from regard.errors import ShapeError
from regard.nn.fx_leaf import fx_leaf
from regard.nn.layer_inputs import Masking
from regard.nn.multihead import MultiheadAttention
from regard.nn.named_positions import Position
from regard.normalizers import Normalizing
from regard.scores import Scoring
from regard.shapes.checks import check_floating, whole_number
from regard.tracing.module_calls import Module


@fx_leaf
class AxialAttention(Module):
    """Self-attention along one axis of a grid: in an image, along its columns or its rows.

    .. math::

        y_ij = MultiHead(x_ij, x_{:j}, x_{:j}) along axis 0,    y_ij = MultiHead(x_ij, x_{i:}, x_{i:}) along axis 1

    Ho et al. 2019, "Axial Attention in Multidimensional Transformers". The other axes are part of the batch, so that a
    grid of N positions costs N^{3/2} pairs in two dimensions instead of N². One layer for each axis, with a residual
    connection around it, lets every position reach every other one.

    Args:
        embed_dim: features of a position.
        num_heads: heads, a divisor of ``embed_dim``.
        axis: along which axis of the grid to attend, from 0; −1 is the last one.
        dropout, bias, score, normalizer, kv_heads, position, backend, device, dtype: as for `MultiheadAttention`;
            positions are those along the axis.

    Raises:
        ArgumentError, KindError, UnknownNameError: an argument is invalid; the message names it.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> columns, rows = nn.AxialAttention(8, 2, axis=0), nn.AxialAttention(8, 2, axis=1)
        >>> image = torch.randn(3, 5, 7, 8)  # [batch, height, width, features]
        >>> image = image + columns(image).output
        >>> attended = rows(image, mask="causal", need_weights=True)
        >>> attended.output.shape, attended.weights.shape
        (torch.Size([3, 5, 7, 8]), torch.Size([3, 5, 2, 7, 7]))
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        axis: int,
        *,
        dropout: float = 0.0,
        bias: bool = True,
        score: Scoring = "scaled_dot",
        normalizer: Normalizing = "softmax",
        kv_heads: int | None = None,
        position: Position | None = None,
        backend: BackendName = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        self.axis = whole_number("axis", axis)
        self.attention = MultiheadAttention(
            embed_dim, num_heads, dropout, bias, batch_first=True, device=device, dtype=dtype,
            score=score, normalizer=normalizer, kv_heads=kv_heads, position=position, backend=backend,
        )  # fmt: skip

    def forward(self, x: Tensor, *, mask: Masking | None = None, need_weights: bool = False) -> Attended:
        """Lets each position attend along the axis.

        Args:
            x: ``[batch, axis 0, axis 1, …, embed_dim]``.
            mask: which positions along the axis each one may attend to: a `Mask`, ``"causal"``, or a bool tensor
                (**True: may attend**) ``[length, length]``; the same for all lines along the axis.
            need_weights: whether to give the weights; the output is the same, bit for bit.

        Returns:
            ``output``, of x's shape, and ``weights [batch, other axes, num_heads, length, length]``.

        Raises:
            ShapeError, KindError: bad input; the message names the argument.
        """
        refuse_parts(type(self).__name__)
        check_floating("x", x)
        axes, dim = x.dim() - 2, self.attention.embed_dim
        if not -axes <= self.axis < axes or x.shape[-1] != dim:
            raise ShapeError(
                f"x must be [batch, axes of a grid, {dim}], and the grid must have an axis {self.axis}; "
                f"x has shape {list(x.shape)}"
            )
        lines = x.movedim(self.axis % axes + 1, -2)  # batch, other axes, length, dim
        flat = lines.reshape(-1, *lines.shape[-2:])
        output, weights = self.attention(
            flat, flat, flat, need_weights=need_weights, average_attn_weights=False, mask=mask
        )
        if weights is not None:
            weights = weights.reshape(*lines.shape[:-2], *weights.shape[1:])
        return Attended(output.reshape(lines.shape).movedim(-2, self.axis % axes + 1), weights)

    def extra_repr(self) -> str:
        return f"axis={self.axis}"
