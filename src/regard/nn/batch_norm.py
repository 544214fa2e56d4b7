"""Batch normalization of feature maps that may have one value for each channel."""

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from regard.nn.fx_leaf import fx_leaf
from regard.shapes import size


@fx_leaf
class BatchNorm2d(nn.BatchNorm2d):
    """`torch.nn.BatchNorm2d` that also takes one value for each channel while training.

    Ioffe & Szegedy 2015. A batch of one with one position has no variance: `torch.nn.BatchNorm2d` raises an error for
    it. Here it is normalized by the running statistics, as in evaluation, and leaves them as they are. So a block that
    pools its whole input to one position trains with any batch. All other inputs, and the names of the parameters, are
    those of the parent.

    Args:
        num_features, eps, momentum, affine, track_running_stats: as in `torch.nn.BatchNorm2d`.
    """

    def __init__(self, num_features: int, *args: Any, **options: Any):
        super().__init__(size("num_features", num_features), *args, **options)

    def forward(self, input: Tensor) -> Tensor:
        tracked = self.running_mean is not None and self.running_var is not None
        if self.training and tracked and input.dim() == 4 and input.shape[0] * input.shape[2] * input.shape[3] == 1:
            return F.batch_norm(
                input, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps
            )
        return super().forward(input)
