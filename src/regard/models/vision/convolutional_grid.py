"""A residual convolutional network whose output is a grid of annotations, each exactly over its part of the image."""

from collections.abc import Sequence

from torch import Tensor, nn

from regard.errors import ArgumentError, ShapeError
from regard.models.vision.residual_block import Channels, WeighedBlock
from regard.nn import BatchNorm2d
from regard.tracing.module_calls import Module


class ConvolutionalGrid(Module):
    """Encodes patches by stages of residual blocks, and halves the grid between two stages.

    .. math::

        patches: p × p convolution, stride p
        block: x → relu(x + weigh(norm(conv(relu(norm(conv(x)))))))    3 × 3, padded
        halving: 2 × 2 convolution, stride 2

    The blocks are those of He et al. 2016, figure 2; ``weigh`` is the identity or a gate such as squeeze-and-excitation
    (Hu et al. 2018, figure 3) or CBAM (Woo et al. 2018, figure 3). Windows that halve a grid have the size of their
    stride. With 3 × 3 windows and stride 2, as in other networks, the center of each annotation would move by half a
    pixel of the finer grid. Here the pixels that annotation (row, column) depends on have the same center as its part
    of the image, so an overlay of weights is exact.

    Args:
        channels: channels of each stage, at least one stage.
        blocks: number of residual blocks in each stage.
        patch: side of a patch in pixels.
        weigh: creates the module that weighs the channels or positions of each block; None: no weighing. A
            `regard.nn.SelectiveKernel` or `regard.nn.SplitAttention` replaces the first convolution of the block.

    Attributes:
        dim: features of an annotation, the last of ``channels``.
        stride: side of a cell in pixels, ``patch · 2 ** (stages − 1)``.

    Raises:
        ArgumentError: there is no stage, or a size is out of range.

    Example:
        >>> import torch
        >>> from regard import models, nn
        >>> grid = models.ConvolutionalGrid([8, 16], blocks=1, patch=4, weigh=nn.SqueezeExcitation)
        >>> grid.stride, grid(torch.rand(2, 3, 32, 48)).shape
        (8, torch.Size([2, 16, 4, 6]))
    """

    def __init__(self, channels: Sequence[int], blocks: int = 1, patch: int = 4, weigh: Channels | None = None):
        super().__init__()
        if not channels or min(channels) < 1 or blocks < 0 or patch < 1:
            raise ArgumentError(
                f"channels and patch must be at least 1, blocks at least 0; they are {list(channels)}, {patch} and "
                f"{blocks}"
            )
        self.dim = channels[-1]
        self.stride = patch * 2 ** (len(channels) - 1)
        stages: list[nn.Module] = []
        inputs, window = 3, patch
        for width in channels:
            stages += [nn.Conv2d(inputs, width, window, window, bias=False), BatchNorm2d(width), nn.ReLU()]
            stages += [WeighedBlock(width, None if weigh is None else weigh(width)) for _ in range(blocks)]
            inputs, window = width, 2
        self.stages = nn.Sequential(*stages)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """Maps ``[batch, 3, height, width]`` to ``[batch, dim, height / stride, width / stride]``.

        Raises:
            ShapeError: the stride does not divide height and width.
        """
        height, width = images.shape[-2:]
        if height % self.stride or width % self.stride or not height * width:
            raise ShapeError(
                f"height and width of the images must be multiples of {self.stride}; they are {height} and {width}"
            )
        return self.stages(images)
