"""Dual attention: the equations of its paper in plain loops, linear memory, and readings of one position."""

import math

import pytest
import torch
from torch.nn import functional as F

from largest_tensor import LargestTensor
from regard import Readings
from regard.errors import ArgumentError, KindError, ShapeError
from regard.nn import ChannelAttention, DualAttention, PositionAttention

B, C, H, W = 2, 7, 3, 5


def at(convolution, x):
    return convolution.weight[:, :, 0, 0] @ x + convolution.bias


def position_attention(scale=0.7, **options):
    block = PositionAttention(C, 2, **options).double()
    torch.nn.init.constant_(block.scale, scale)
    return block


def test_position_attention_is_fu_et_al():
    block = position_attention()
    a = torch.randn(B, C, H, W, dtype=torch.float64)
    found = block(a)
    for b in range(B):
        positions = a[b].flatten(1).T
        for j, a_j in enumerate(positions):
            c_j = at(block.query, a_j)
            scores = [torch.exp(at(block.key, a_i) @ c_j) for a_i in positions]
            s_j = [one / sum(scores) for one in scores]  # eq. 1
            mixed = sum(s * at(block.value, a_i) for s, a_i in zip(s_j, positions, strict=True))
            torch.testing.assert_close(found[b, :, j // W, j % W], 0.7 * mixed + a_j)  # eq. 2


def test_channel_attention_is_fu_et_al():
    block = ChannelAttention(C).double()
    torch.nn.init.constant_(block.scale, -0.3)
    a = torch.randn(B, C, H, W, dtype=torch.float64)
    found = block(a)
    for b in range(B):
        channels = a[b].flatten(1)
        for j in range(C):
            scores = [torch.exp(channels[i] @ channels[j]) for i in range(C)]
            x_j = [one / sum(scores) for one in scores]  # eq. 3
            mixed = sum(x * channels[i] for i, x in enumerate(x_j))
            torch.testing.assert_close(found[b, j].flatten(), -0.3 * mixed + channels[j])  # eq. 4
            torch.testing.assert_close(block.weights(a)[b, j], torch.stack(x_j))


@pytest.mark.parametrize("kind", [PositionAttention, ChannelAttention])
def test_a_new_dual_attention_block_is_the_identity(kind):
    a = torch.randn(B, C, H, W)
    assert torch.equal(kind(C)(a), a)


def test_dual_attention_is_the_sum_of_both():
    block = DualAttention(C, reduction=2, hidden=4).double().eval()
    for parameter in block.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    a = torch.randn(B, C, H, W, dtype=torch.float64)

    def convolved(layers, x):  # 3 × 3, normalized by running statistics of mean 0 and variance 1, ReLU
        scale = layers[1].weight / math.sqrt(1 + layers[1].eps)
        y = F.conv2d(x, layers[0].weight, padding=1)
        return (y * scale[:, None, None] + layers[1].bias[:, None, None]).relu()

    position = convolved(block.after_position, block.position(convolved(block.before_position, a)))
    channel = convolved(block.after_channel, block.channel(convolved(block.before_channel, a)))
    torch.testing.assert_close(block(a), position + channel)
    assert block(a).shape == (B, 4, H, W)
    assert DualAttention(C)(a.float()).shape == a.shape
    assert DualAttention(C, hidden=1)(a.float()).shape == (B, 1, H, W)


def test_the_weights_of_one_position():
    block = position_attention()
    a = torch.randn(B, C, H, W, dtype=torch.float64)
    y, x = 2, 3
    row = block.observe(a, Readings(rows=[y * W + x])).rows[:, 0, 0]  # B N
    query, key = at(block.query, a[1, :, y, x]), block.key(a)[1].flatten(1)
    torch.testing.assert_close(row[1], (query @ key).softmax(0))
    output = block.observe(a, Readings(entropy=True)).output[:, 0]
    torch.testing.assert_close(block(a), 0.7 * output.mT.view_as(a) + a)


def test_gradients_of_dual_attention_are_exact():
    a = torch.randn(B, C, 2, 3, dtype=torch.float64, requires_grad=True)
    channel = ChannelAttention(C).double()
    torch.nn.init.ones_(channel.scale)
    for block in (position_attention(backend="reference"), channel):
        assert torch.autograd.gradcheck(lambda a, *_, block=block: block(a), (a, *block.parameters()))


def test_thousands_of_positions_make_no_matrix_of_pairs():
    block = PositionAttention(4, 2)
    torch.nn.init.ones_(block.scale)
    a = torch.randn(1, 4, 61, 67, requires_grad=True)  # 4,087 positions, 16.7 million pairs
    with LargestTensor() as largest:
        found = block(a)
        found.sum().backward()
        row = block.observe(a, Readings(rows=[7])).rows
    assert largest.numbers < 2_000_000
    assert row.shape == (1, 1, 1, 61 * 67)
    query, keys = block.query(a)[0, :, 60, 13], block.key(a)[0].flatten(1)
    mixed = block.value(a)[0].flatten(1) @ (query @ keys).softmax(0)
    torch.testing.assert_close(found[0, :, 60, 13], mixed + a[0, :, 60, 13], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", [PositionAttention, ChannelAttention, DualAttention])
def test_dual_attention_takes_any_size_and_refuses_wrong_channels(kind):
    block = kind(C).eval()
    assert block(torch.empty(0, C, H, W)).shape[0] == 0
    assert block(torch.randn(1, C, 1, 1)).isfinite().all()
    wrong = torch.randn(B, C, H, W)
    wrong[1] = math.nan
    assert block(wrong)[0].isfinite().all()
    assert block(wrong)[1].isnan().any()
    with pytest.raises(ShapeError, match=r"features must be \[batch, channels, height, width\] with 7 channels"):
        block(torch.randn(B, W, H, C))
    with pytest.raises(ShapeError, match="at least one position"):
        block(torch.randn(B, C, H, 0))
    with pytest.raises(KindError, match="features"):
        block(torch.ones(B, C, H, W, dtype=torch.int32))
    with pytest.raises(ArgumentError, match="channels must be at least 1"):
        kind(0)


def test_half_precision_is_computed_in_float32():
    """Sums of products over all positions leave the range of float16."""
    block = ChannelAttention(2).half()
    torch.nn.init.ones_(block.scale)
    a = torch.full((1, 2, 4, 4), 100.0, dtype=torch.float16)
    torch.testing.assert_close(block(a), torch.full_like(a, 200.0))


def test_the_blocks_are_traced_and_compiled_as_one_graph():
    block = DualAttention(C, hidden=4).eval()
    torch.nn.init.ones_(block.position.scale)
    a = torch.randn(B, C, H, W)
    exported = torch.export.export(block, (a,)).module()
    torch.testing.assert_close(exported(a), block(a))
