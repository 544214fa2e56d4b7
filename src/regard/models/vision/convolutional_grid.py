"""A residual convolutional network whose output is a grid of annotations, each exactly over its part of the image."""

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from regard.errors import ArgumentError, ShapeError
from regard.nn.batch_norm import BatchNorm2d

Channels = Callable[[int], nn.Module]
"""Makes a module that weighs a map of so many channels, ``[batch, channels, height, width]``: SE, CBAM."""


class ConvolutionalGrid(nn.Module):
    """Patches, then stages of residual blocks; between two stages the grid is halved.

    ::

        patches: convolution of p × p, stride p
        block:   x → relu(x + weigh(norm(conv(relu(norm(conv(x)))))))        3 × 3, padded
        halved:  convolution of 2 × 2, stride 2

    The blocks are those of He et al. 2016, figure 2; ``weigh`` is nothing, squeeze-and-excitation (Hu et al. 2018,
    figure 3) or CBAM (Woo et al. 2018, figure 3). Windows that halve a grid have the size of their stride. Windows of 3
    × 3 with stride 2, as in other networks, would move the middle of each annotation by half a pixel of the finer grid.
    Here the middle of the pixels that annotation (row, column) depends on is the middle of its part of the image, so an
    overlay of weights is exact.

    Args:
        channels: of each stage, at least one.
        blocks: residual blocks of each stage.
        patch: pixels of a side of a patch.
        weigh: makes what weighs the channels or positions of each block; None: nothing.
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
        before, window = 3, patch
        for width in channels:
            stages += [nn.Conv2d(before, width, window, window, bias=False), BatchNorm2d(width), nn.ReLU()]
            stages += [ResidualBlock(width, None if weigh is None else weigh(width)) for _ in range(blocks)]
            before, window = width, 2
        self.stages = nn.Sequential(*stages)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """``[batch, dim, height / stride, width / stride]`` of ``[batch, 3, height, width]``.

        Raises:
            ShapeError: the stride does not divide height and width.
        """
        height, width = images.shape[-2:]
        if height % self.stride or width % self.stride or not height * width:
            raise ShapeError(
                f"height and width of the images must be multiples of {self.stride}; they are {height} and {width}"
            )
        return self.stages(images)


class ResidualBlock(nn.Module):
    """Two convolutions whose output is added to their input (He et al. 2016, figure 2).

    Args:
        channels: of input and output.
        weigh: weighs the output of the convolutions before the sum; None: nothing does.
    """

    def __init__(self, channels: int, weigh: nn.Module | None = None):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            BatchNorm2d(channels),
        )
        self.weigh = weigh
        # At first a block passes its input on, so that deep networks start like shallow ones (Goyal et al. 2017, 5.1).
        nn.init.zeros_(self.layers[4].weight)  # pyright: ignore[reportArgumentType]

    def forward(self, features: Tensor) -> Tensor:
        """``[batch, channels, height, width]`` → the same."""
        change = self.layers(features)
        if self.weigh is not None:
            change = self.weigh(change)
        return (features + change).relu()
