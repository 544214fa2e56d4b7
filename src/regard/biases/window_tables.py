"""Biases of the windows of an image: one number for each relative position, learned or computed."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from regard.biases.bias import Bias, PairBias, check_fit, register_weight
from regard.biases.perceptron import perceptron, register_perceptron
from regard.errors import ShapeError
from regard.names.answered import answered
from regard.shapes.checks import size, type_text, whole_number
from regard.shapes.grid import Grid, upcast


class WindowBias(Bias):
    """A function of the relative position in a window of any number of axes, one for each head.

    .. math::

        bias_{hij} = table[n(i, j), h]
        n(i, j) = Σ_a stride_a (clip(i_a − j_a, 1 − window_a, window_a − 1) + window_a − 1)

    ``i_a`` is the coordinate of position i along axis a of the grid ``shape``, whose last axis runs fastest, as in the
    rows of an image; ``stride_a`` is the product of ``2 window − 1`` over the later axes. Queries are the last
    positions of the grid, as for `masks.GridMask`. By default the grid is the window, and a batch row is a window. With
    the ``shape`` of a whole image and `masks.shifted_windows`, all windows of an image are one call.

    Attributes:
        heads: number of query heads.
        window: lengths of the window along each axis.
        shape: lengths of the grid; None: those of the window.

    Example:
        >>> from regard import biases
        >>> isinstance(biases.WindowTable(2, (3, 5)), biases.WindowBias)
        True
    """

    heads: int
    window: tuple[int, ...]
    shape: tuple[int, ...] | None

    @abstractmethod
    def table(self, dtype: torch.dtype) -> Tensor:
        """Returns the values of all relative positions, ``[Π (2 window − 1), heads]``, in this dtype."""

    def check(self, query: Tensor, grid: Grid) -> None:
        check_fit(self, self.heads, grid)
        check_positions(self, "keys", self.window if self.shape is None else self.shape, grid.keys)
        if grid.queries > grid.keys:
            raise ShapeError(
                f"{type(self).__name__}: queries are the last positions of the grid; there are {grid.queries} queries "
                f"and {grid.keys} keys"
            )

    @property
    def reads_query(self) -> bool:
        return False

    def of_pairs(self, query: Tensor, grid: Grid) -> PairBias:
        table = self.table(upcast(query).dtype)
        return lambda pair: table[self._index(pair), pair.head_index]

    def forward(self, query: Tensor, grid: Grid) -> Tensor:
        return self.table(upcast(query).dtype).t()[:, self._index(grid)]

    def _index(self, grid: Grid) -> Tensor:
        query, key = grid.query_index + grid.offset, grid.key_index
        index, stride = None, 1
        for length, reach in zip(reversed(self.shape or self.window), reversed(self.window), strict=True):
            relative = (query % length - key % length).clamp(1 - reach, reach - 1) + reach - 1
            index = relative if index is None else index + stride * relative
            query, key, stride = query // length, key // length, stride * (2 * reach - 1)
        assert index is not None
        return index

    def _set_window(self, heads: int, window: Sequence[int], shape: Sequence[int] | None) -> int:
        """Sets the fields of the grid, and returns the number of relative positions."""
        self.heads = whole_number("heads", heads, low=1)
        self.window = axis_lengths("window", window)
        self.shape = None if shape is None else axis_lengths("shape", shape, len(self.window))
        return math.prod(2 * length - 1 for length in self.window)


@answered
class WindowTable(WindowBias, fields=("heads", "window", "shape", "weight")):
    """Adds one learned value for each head and each relative position in a window (Swin).

    .. math::

        bias_{hij} = weight[n(i, j), h]

    Liu et al. 2021, "Swin Transformer: Hierarchical Vision Transformer using Shifted Windows", equation 4: their
    ``B̂`` is ``weight``; n as for `WindowBias`, in the order of the authors' released code. Over three axes: Liu et al.
    2022, "Video Swin Transformer", section 3.2.

    Args:
        heads: number of query heads.
        window: lengths of the window, as ``(height, width)``; any number of axes.
        shape: lengths of the grid whose positions are the keys; None: those of the window. Pairs that are farther
            apart than a window reaches get the value at its border; `masks.shifted_windows` hides them.
        weight: the values, ``[Π (2 window − 1), heads]``; None draws them from a normal distribution with standard
            deviation 0.02, as the paper.

    Raises:
        ArgumentError, KindError, ShapeError: an argument is out of range or has the wrong type or shape.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import biases, masks
        >>> bias = biases.WindowTable(2, window=(2, 3))
        >>> windows = torch.randn(4, 2, 6, 8)  # four windows, a batch row each
        >>> regard.attend(windows, windows, windows, bias=bias).shape
        torch.Size([4, 2, 6, 8])
        >>> whole = biases.WindowTable(2, window=(2, 3), shape=(4, 6), weight=bias.weight)
        >>> image, mask = torch.randn(1, 2, 24, 8), masks.shifted_windows((2, 3), (1, 1), shape=(4, 6))
        >>> regard.attend(image, image, image, bias=whole, mask=mask).shape
        torch.Size([1, 2, 24, 8])
    """

    weight: Tensor

    def __init__(
        self, heads: int, window: Sequence[int], shape: Sequence[int] | None = None, weight: Tensor | None = None
    ):
        super().__init__()
        register_weight(self, weight, self._set_window(heads, window, shape), self.heads)
        if weight is None:
            nn.init.normal_(self.weight, std=0.02)

    def table(self, dtype: torch.dtype) -> Tensor:
        return self.weight.to(dtype)


@answered
class LogSpacedTable(WindowBias, fields=("heads", "window", "shape", "hidden", "pretrained", "inner", "outer")):
    r"""Adds a learned function of log-spaced relative coordinates, which transfers between windows (Swin v2).

    .. math::

        bias_{hij} = 16 \, σ\big(f_h(\hat{r}_1, …, \hat{r}_n)\big), \quad
        \hat{r}_a = sign(r_a) \log_8(1 + |r_a|), \quad r_a = 8 (i_a − j_a) / (window_a − 1)

    Liu et al. 2022, "Swin Transformer V2: Scaling Up Capacity and Resolution", section 3.3, equations 3 and 4; the
    factors 8 and 16 and the sigmoid are those of the authors' released code. f is a perceptron with one hidden layer
    of rectified units, and is computed for each relative position of the window, not for each pair.

    Args:
        heads: number of query heads.
        window, shape: as for `WindowTable`.
        hidden: hidden units, default 512.
        pretrained: the window of the training, whose lengths divide the coordinates; None: ``window``.
        inner: ``[hidden, axes + 1]``, weights of the coordinates and the addend; None draws them.
        outer: ``[heads, hidden]``; None draws them.

    Raises:
        ArgumentError, KindError, ShapeError: an argument is out of range or has the wrong type or shape.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import biases
        >>> bias = biases.LogSpacedTable(2, window=(4, 6), pretrained=(2, 3))
        >>> x = torch.randn(1, 2, 24, 8)
        >>> regard.attend(x, x, x, score="cosine", bias=bias).shape
        torch.Size([1, 2, 24, 8])
    """

    inner: Tensor
    outer: Tensor

    def __init__(
        self,
        heads: int,
        window: Sequence[int],
        shape: Sequence[int] | None = None,
        hidden: int = 512,
        pretrained: Sequence[int] | None = None,
        inner: Tensor | None = None,
        outer: Tensor | None = None,
    ):
        super().__init__()
        self._set_window(heads, window, shape)
        axes = len(self.window)
        self.hidden = whole_number("hidden", hidden, low=1)
        self.pretrained = None if pretrained is None else axis_lengths("pretrained", pretrained, axes)
        register_perceptron(self, inner, outer, (self.hidden, axes, self.heads, self.hidden))

    def table(self, dtype: torch.dtype) -> Tensor:
        device, units = self.inner.device, self.pretrained or self.window
        axes = [
            torch.arange(1 - length, length, dtype=dtype, device=device) * (8 / max(unit - 1, 1))
            for length, unit in zip(self.window, units, strict=True)
        ]
        coordinates = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).flatten(0, -2)  # positions, axes
        spaced = coordinates.sign() * torch.log2(coordinates.abs() + 1) / 3
        return 16 * torch.sigmoid(perceptron(spaced, self.inner, self.outer))


def axis_lengths(name: str, lengths: Any, axes: int | None = None) -> tuple[int, ...]:
    """Returns the lengths of the axes of a grid; raises an error unless they are positive integers, one for each."""
    expected = "one or more axes" if axes is None else f"{axes} axes"
    is_list = isinstance(lengths, Sequence) and not isinstance(lengths, str)
    if not is_list or not lengths or (axes is not None and len(lengths) != axes):
        text = list(lengths) if isinstance(lengths, Sequence) else type_text(lengths)
        raise ShapeError(f"{name} must have the lengths of {expected}, as (height, width); it is {text}")
    return tuple(size(f"{name}[{index}]", length) for index, length in enumerate(lengths))


def check_positions(bias: Bias, name: str, shape: tuple[int, ...], count: int) -> None:
    """Raises ShapeError unless a grid has as many positions as there are queries or keys."""
    if math.prod(shape) != count:
        raise ShapeError(
            f"{type(bias).__name__}: a grid {list(shape)} has {math.prod(shape)} positions; there are {count} {name}"
        )
