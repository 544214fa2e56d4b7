"""Gaussian windows that move along a memory from step to step (Graves 2013)."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.distributed.sequence_parts import refuse_parts
from regard.errors import ShapeError
from regard.nn.attention import Attention
from regard.nn.fx_leaf import fx_leaf
from regard.nn.memory import Memory
from regard.scores import GaussianMixture
from regard.scores.gaussian_mixture import PARAMETERS
from regard.shapes.checks import check_floating, positive_number, size
from regard.shapes.grid import upcast
from regard.summaries import summarized
from regard.tracing.module_calls import Module


@summarized
class Windowed(NamedTuple):
    """The output of `GaussianWindow`.

    Attributes:
        output: ``[batch, steps, value_dim]``, the windows' sums of the memory.
        weights: ``[batch, steps, keys]``, φ(t, j); they have no fixed sum.
        position: ``[batch, windows]``, κ after the last step, for the next call.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> layer = nn.GaussianWindow(4, windows=2)
        >>> windowed = layer(torch.zeros(1, 3, 4), torch.ones(1, 5, 6))
        >>> windowed.output.shape, windowed.weights.shape, windowed.position.shape
        (torch.Size([1, 3, 6]), torch.Size([1, 3, 5]), torch.Size([1, 2]))
    """

    output: Tensor
    weights: Tensor
    position: Tensor


@fx_leaf
class GaussianWindow(Module):
    """Attends to a memory through Gaussian windows that move forward with each step, whatever the memory holds.

    .. math::

        [log α_t; log β_t; κ̂_t] = W h_t + b
        κ_t = κ_{t−1} + exp(κ̂_t)
        φ(t, j) = Σ_m α_t^m exp(−β_t^m (κ_t^m − j)²)
        output_t = Σ_j φ(t, j) memory_j

    Graves 2013, "Generating Sequences with Recurrent Neural Networks", section 5.1, equations 46 to 51: h_t is the
    state of the first recurrent layer, memory_j the one-hot vector c_u of a character. Positions are counted from 0.
    The steps of one call follow one another; the next call goes on from the ``position`` that this one returns.

    Args:
        query_dim: features of h_t.
        windows: M, Gaussian windows.
        step: positions that an untrained window moves on at each step, above 0.

    Raises:
        KindError, ArgumentError: a size is below 1, or ``step`` is not above 0.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> _ = torch.manual_seed(0)
        >>> layer = nn.GaussianWindow(4, windows=3)
        >>> states, characters = torch.zeros(1, 4, 4), torch.eye(6)[None]
        >>> layer(states, characters).weights.argmax(-1)  # one position at each step
        tensor([[1, 2, 3, 4]])
        >>> first = layer(states[:, :2], characters)
        >>> layer(states[:, 2:], characters, position=first.position).weights.argmax(-1)
        tensor([[3, 4]])
    """

    def __init__(self, query_dim: int, windows: int = 10, *, step: float = 1.0):
        super().__init__()
        self.query_dim, self.windows = size("query_dim", query_dim), size("windows", windows)
        self.projection = nn.Linear(query_dim, PARAMETERS * windows)
        with torch.no_grad():
            self.projection.bias[: 2 * windows] = 0.0
            self.projection.bias[2 * windows :] = math.log(positive_number("step", step))
        self.attention = Attention(GaussianMixture(), torch.exp)

    def remember(self, annotations: Tensor, lengths: Tensor | None = None) -> Memory:
        """Prepares a memory that several calls attend to; the arguments are those of `Attention.remember`."""
        return self.attention.remember(annotations, lengths)

    def forward(self, query: Tensor, memory: Memory | Tensor, *, position: Tensor | None = None) -> Windowed:
        """Attends to a memory at successive steps.

        Args:
            query: h, ``[batch, steps, query_dim]``.
            memory: a `Memory`, or annotations ``[batch, keys, value_dim]`` for this call only.
            position: κ before the first step, ``[batch, windows]``; None: 0.

        Raises:
            ShapeError, KindError: bad input; the message names the argument.
        """
        refuse_parts(type(self).__name__)
        check_floating("query", query)
        if query.dim() != 3 or query.shape[-1] != self.query_dim:
            raise ShapeError(f"query must be [batch, steps, {self.query_dim}]; it has shape {list(query.shape)}")
        expected = [query.shape[0], self.windows]
        if position is not None:
            check_floating("position", position)
            if list(position.shape) != expected:
                raise ShapeError(f"position must be [batch, windows] = {expected}; it has shape {list(position.shape)}")
        numbers = upcast(self.projection(query))
        shape, log_step = numbers.split([2 * self.windows, self.windows], dim=-1)
        center = log_step.exp().cumsum(1)
        if position is not None:
            center = center + position.to(center.dtype)[:, None]
        output, weights = self.attention(torch.cat([shape, center], dim=-1), memory)
        assert weights is not None
        last = center[:, -1] if center.shape[1] else center.new_zeros(expected) if position is None else position
        return Windowed(output.to(query.dtype), weights, last)

    def extra_repr(self) -> str:
        return f"query_dim={self.query_dim}, windows={self.windows}"
