"""The base of scores that see the weights of earlier steps, and their convolutions."""

from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import ArgumentError, KindError, ShapeError, UnknownNameError
from regard.fields import replaced
from regard.scores.score import Score
from regard.scores.weights import check_device, in_dtype_of
from regard.shapes.checks import SIZE_LIMIT, check_floating, size, type_text
from regard.tracing.module_calls import is_observed, runs

Seen = Literal["previous", "total", "both"]
"""Weights that a score sees: those of the previous step, the sum of those of all earlier steps, or both."""


class AlignmentScore(Score):
    """A score that sees the weights of earlier steps, which `given` binds; all queries of a call see the same ones.

    Attributes:
        begins: whether the first step sees a weight of 1 at the first key; if not, it sees 0 everywhere.
        sees: which weights: a row of the convolutions' input each.
        earlier: ``[batch, rows, keys]`` or ``[batch, heads, rows, keys]``; None at the first step.
    """

    begins: bool = False
    sees: Seen
    earlier: Tensor | None

    def bind(self, sees: Seen, earlier: Tensor | None) -> None:
        """Sets the two attributes; part of a constructor."""
        if sees not in get_args(Seen):
            raise UnknownNameError("value of sees", sees, get_args(Seen))
        self.sees = sees
        if earlier is not None:
            check_floating("earlier", earlier)
            if earlier.dim() not in (3, 4) or earlier.shape[-2] != self.seen:
                raise ShapeError(
                    f"earlier must be [batch, {self.seen}, keys] or [batch, heads, {self.seen}, keys] with "
                    f"sees={sees!r}; it has shape {list(earlier.shape)}"
                )
        # torch.compile cannot trace an assignment.
        self.register_buffer("earlier", earlier, persistent=False)

    @property
    def seen(self) -> int:
        """The number of rows of weights that the score sees."""
        return 2 if self.sees == "both" else 1

    def given(self, previous: Tensor, total: Tensor | None = None) -> "AlignmentScore":
        """Returns this score, with the same parameters, for the step after the one with these weights.

        Args:
            previous: weights of the previous step, ``[batch, keys]``, or ``[batch, heads, keys]`` with separate weights
                a head. A gradient flows through them to the previous step.
            total: the sum of the weights of all earlier steps, in the same shape; None: there is one such step.

        Raises:
            KindError: the weights are not floating-point tensors.
            ShapeError: the weights have another rank, or different shapes.
        """
        total = previous if total is None else total
        for name, weights in (("previous", previous), ("total", total)):
            check_floating(name, weights)
            if weights.dim() not in (2, 3) or weights.shape != previous.shape:
                raise ShapeError(
                    f"{name} must be [batch, keys] or [batch, heads, keys], and total as previous is; it has shape "
                    f"{list(weights.shape)}"
                )
        rows = {"previous": [previous], "total": [total], "both": [previous, total]}[self.sees]
        return replaced(self, earlier=torch.stack(rows, -2)).train(self.training)

    def check_earlier(self, query: Tensor, key: Tensor) -> None:
        """Raises an error unless the weights that are bound belong to these queries and keys."""
        if self.earlier is None:
            return
        check_device("earlier", self.earlier, query)
        batch, heads, keys = query.shape[0], query.shape[1], key.shape[2]
        shape = [*self.earlier.shape[:-2], self.earlier.shape[-1]]
        if shape not in ([batch, keys], [batch, heads, keys], [batch, 1, keys]):
            raise ShapeError(
                f"the weights of earlier steps must be [batch, keys] = {[batch, keys]} or [batch, heads, keys] = "
                f"{[batch, heads, keys]}; they have shape {shape}"
            )

    def rows(self, key: Tensor) -> Tensor:
        """Returns what the convolutions read, ``[batch, heads or 1, rows, keys]``."""
        if self.earlier is None:
            rows = key.new_zeros(1, 1, self.seen, key.shape[2])
            if self.begins:
                rows = rows + torch.eye(1, key.shape[2], dtype=key.dtype, device=key.device)
            return rows.expand(key.shape[0], -1, -1, -1)
        earlier = self.earlier.to(key.dtype)
        return earlier[:, None] if earlier.dim() == 3 else earlier


def create_convolution(rows: int, channels: int, kernel_size: int) -> nn.Conv1d:
    """Creates filters over rows of weights, without a bias."""
    size("kernel_size", kernel_size, low=-SIZE_LIMIT)
    if kernel_size < 1 or kernel_size % 2 == 0:
        raise ArgumentError(f"kernel_size must be odd and above 0; it is {kernel_size}")
    return nn.Conv1d(rows, channels, kernel_size, padding="same", bias=False)


def check_convolution(convolution: object, rows: int) -> None:
    """Raises an error unless a module keeps the number of keys and takes so many rows of weights."""
    if not isinstance(convolution, nn.Conv1d):
        raise KindError(f"convolution must be a torch.nn.Conv1d; it is {type_text(convolution)}")
    if convolution.in_channels != rows:
        raise ShapeError(
            f"convolution must take {rows} channel{'s' * (rows > 1)}, the earlier weights; "
            f"it takes {convolution.in_channels}"
        )
    width, dilation = convolution.kernel_size[0], convolution.dilation[0]
    if width % 2 == 0:
        raise ArgumentError(f"convolution must have an odd kernel, to be centered on a key; it has {width}")
    keeps = convolution.padding == "same" or convolution.padding == (dilation * (width - 1) // 2,)
    if not keeps or convolution.stride[0] != 1 or convolution.padding_mode != "zeros":
        raise ArgumentError(
            "convolution must keep the number of keys: stride 1 and zero padding 'same'; it has stride "
            f"{convolution.stride[0]}, padding {convolution.padding!r}, mode {convolution.padding_mode!r}"
        )


def convolved(convolution: nn.Conv1d, rows: Tensor) -> Tensor:
    """Returns the filters' outputs for ``rows [batch, heads, rows, keys]``: ``[batch, heads, keys, channels]``."""
    B, H, _, K = rows.shape
    if K == 0:
        # A convolution does not accept length 0, but its weights still need a gradient of zero.
        zero = sum(part.flatten()[:0].sum().to(rows.dtype) for part in convolution.parameters())
        return rows.new_zeros(B, H, 0, convolution.out_channels) + zero
    flat = rows.flatten(0, 1)
    if not runs(convolution, nn.Conv1d.forward) or is_observed(convolution):
        features = in_dtype_of(rows, convolution)(flat)
    else:
        bias = None if convolution.bias is None else convolution.bias.to(rows.dtype)
        weight = convolution.weight.to(rows.dtype)
        features = F.conv1d(flat, weight, bias, padding="same", dilation=convolution.dilation)
    return features.unflatten(0, (B, H)).transpose(2, 3)
