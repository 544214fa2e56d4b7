"""Blocks on feature maps of few channels, images and positions: every size is taken, while training and after it."""

from itertools import product

import pytest
import torch

from regard.nn import (
    AFF,
    CBAM,
    ECA,
    IAFF,
    MSCAM,
    XCA,
    BatchNorm2d,
    ChannelAttention,
    ChannelGate,
    CoordinateAttention,
    DualAttention,
    GlobalContext,
    NonLocal,
    PositionAttention,
    SelectiveKernel,
    SpatialGate,
    SplitAttention,
    SqueezeExcitation,
)

BLOCKS = {
    "MSCAM": lambda channels, reduction: MSCAM(channels, reduction),
    "MSCAM of layers": lambda channels, reduction: MSCAM(channels, reduction, global_norm="layer"),
    "AFF of layers": lambda channels, reduction: AFF(channels, reduction, global_norm="layer"),
    "IAFF": lambda channels, reduction: IAFF(channels, reduction),
    "IAFF of layers": lambda channels, reduction: IAFF(channels, reduction, global_norm="layer"),
    "SqueezeExcitation": lambda channels, reduction: SqueezeExcitation(channels, reduction),
    "ChannelGate": lambda channels, reduction: ChannelGate(channels, reduction),
    "SpatialGate": lambda channels, reduction: SpatialGate(channels),
    "CBAM": lambda channels, reduction: CBAM(channels, reduction),
    "PositionAttention": lambda channels, reduction: PositionAttention(channels, reduction),
    "ChannelAttention": lambda channels, reduction: ChannelAttention(channels),
    "DualAttention": lambda channels, reduction: DualAttention(channels, reduction),
    "NonLocal": lambda channels, reduction: NonLocal(channels, max(1, channels // reduction)),
    "ECA": lambda channels, reduction: ECA(channels),
    "CoordinateAttention": lambda channels, reduction: CoordinateAttention(channels, reduction),
    "GlobalContext": lambda channels, reduction: GlobalContext(channels, reduction),
    "SelectiveKernel": lambda channels, reduction: SelectiveKernel(channels, reduction),
    "SplitAttention": lambda channels, reduction: SplitAttention(channels, reduction, radix=2 - channels % 2),
    "XCA": lambda channels, reduction: XCA(channels, 2 - channels % 2),
    "BatchNorm2d": lambda channels, reduction: BatchNorm2d(channels),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_every_size_is_taken(name):
    sizes = product((1, 2, 4, 5), (1, 4), (0, 1, 2), ((1, 1), (2, 3)), (True, False))
    for channels, reduction, batch, positions, training in sizes:
        size = channels, reduction, batch, positions, training
        block = BLOCKS[name](channels, reduction).train(training)
        given = [torch.randn(batch, channels, *positions, requires_grad=True) for _ in range(1 + ("AFF" in name))]
        output = block(*given)
        assert output.shape == given[0].shape, size
        output.sum().backward()
        numbers = output, *(tensor.grad for tensor in given), *block.buffers()
        assert all(tensor.isfinite().all() for tensor in numbers), size
        if not training:
            images = [block(*(tensor[index, None] for tensor in given)) for index in range(batch)]
            torch.testing.assert_close(torch.cat([output[:0], *images]), output, msg=str(size))


@pytest.mark.parametrize("kind", [MSCAM, AFF, IAFF])
def test_layer_normalization_of_one_channel_is_its_bias(kind):
    block = kind(4, global_norm="layer").eval()
    [*norms] = (module for module in block.modules() if isinstance(module, torch.nn.GroupNorm))
    one = norms[0]
    assert one.num_channels == 1
    torch.nn.init.constant_(one.bias, 0.7)
    torch.testing.assert_close(one(1e6 * torch.randn(2, 1, 1, 1)), torch.full((2, 1, 1, 1), 0.7))
