"""Batch normalization that accepts a single value a channel."""

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from regard.distributed.sequence_parts import refuse_parts
from regard.nn.fx_leaf import fx_leaf
from regard.shapes.checks import size


@fx_leaf
class BatchNorm2d(nn.BatchNorm2d):
    """A `torch.nn.BatchNorm2d` that also accepts a single value a channel while training.

    .. math::

        y = (x − mean) / √(variance + eps) · weight + bias    for each channel

    Ioffe & Szegedy 2015, "Batch Normalization", algorithm 1 (their γ and β are ``weight`` and ``bias``). A batch of one
    with one position has no variance, and `torch.nn.BatchNorm2d` raises an error. Here the running statistics normalize
    it, as in evaluation, and stay unchanged, so a block that pools its input to one position can be trained with any
    batch size. Everything else is inherited.

    Args:
        num_features: channels of the feature maps.
        eps, momentum, affine, track_running_stats: as in `torch.nn.BatchNorm2d`.

    Raises:
        KindError, ArgumentError: ``num_features`` is no integer, or is below 1.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> norm = nn.BatchNorm2d(3)
        >>> one = torch.ones(1, 3, 1, 1)
        >>> norm(one).flatten().detach()  # torch.nn.BatchNorm2d raises ValueError here
        tensor([1.0000, 1.0000, 1.0000])
        >>> norm(torch.tensor([1.0, 3.0]).expand(1, 3, 1, 2))[0, 0].detach()
        tensor([[-1.0000,  1.0000]])
    """

    def __init__(self, num_features: int, *args: Any, **options: Any):
        super().__init__(size("num_features", num_features), *args, **options)

    def forward(self, input: Tensor) -> Tensor:
        refuse_parts(type(self).__name__)
        tracked = self.running_mean is not None and self.running_var is not None
        if self.training and tracked and input.dim() == 4 and input.shape[0] * input.shape[2] * input.shape[3] == 1:
            return F.batch_norm(
                input, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps
            )
        return super().forward(input)
