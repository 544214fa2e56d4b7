"""Giving a model in plain PyTorch the parameters of ours."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn

Plain = TypeVar("Plain", bound=nn.Module)


def with_parameters_of(model: nn.Module, plain: Plain, named: Callable[[str], str]) -> Plain:
    """The plain model with a copy of the parameters of ours, each in its own shape.

    Args:
        model: ours.
        plain: the same in plain PyTorch.
        named: name of a plain parameter → its name in ours.
    """
    ours = model.state_dict()
    with torch.no_grad():
        for name, parameter in plain.named_parameters():
            parameter.copy_(ours[named(name)].reshape(parameter.shape))
    return plain
