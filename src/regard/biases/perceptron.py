"""A perceptron of positions: a small network that biases are computed by."""

import torch
from torch import Tensor, nn

from regard.biases.bias import register_weight


def register_perceptron(bias: nn.Module, inner: Tensor | None, outer: Tensor | None, sizes: tuple[int, ...]) -> None:
    """Sets ``inner [hidden, inputs + 1]`` and ``outer [outputs, last]`` of a bias; None: uniform, as `nn.Linear` draws.

    Args:
        inner: weights of the hidden units, the last column of which are added.
        outer: weights of the outputs; with one more column than there are hidden units, the last one is added.
        sizes: hidden, inputs, outputs, last.
    """
    hidden, inputs, outputs, last = sizes
    for name, weight, shape, fan in (
        ("inner", inner, (hidden, inputs + 1), inputs),
        ("outer", outer, (outputs, last), hidden),
    ):
        register_weight(bias, weight, *shape, name=name)
        if weight is None:
            nn.init.uniform_(getattr(bias, name), -(fan**-0.5), fan**-0.5)


def perceptron(points: Tensor, inner: Tensor, outer: Tensor) -> Tensor:
    """Computes ``outer · relu(inner · points)``, in the dtype of the points.

    Args:
        points: ``[..., inputs]``.
        inner, outer: as `register_perceptron` has them.

    Returns:
        ``[..., outputs]``.
    """
    inner, outer = inner.to(points.dtype), outer.to(points.dtype)
    hidden = torch.relu(points @ inner[:, :-1].t() + inner[:, -1])
    units = hidden.shape[-1]
    added = outer[:, units:].sum(-1)  # of one column, or of none
    return hidden @ outer[:, :units].t() + added
