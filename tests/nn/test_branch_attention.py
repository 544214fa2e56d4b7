"""Selective kernels and split attention: the equations of their papers in plain loops, and what they refuse."""

import math

import pytest
import torch
from torch.nn import functional as F

from regard.errors import ArgumentError, KindError, ShapeError
from regard.nn import SelectiveKernel, SplitAttention

B, C, H, W = 2, 12, 5, 7
KINDS = {
    "kernels": lambda **options: SelectiveKernel(C, hidden=3, **options),
    "splits": lambda **options: SplitAttention(C, hidden=6, **options),
}


def trained(block):
    """A block in float64 and evaluation, whose normalizations do something."""
    for module in block.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.normal_(module.running_mean, std=0.3)
            torch.nn.init.uniform_(module.running_var, 0.5, 2)
            torch.nn.init.normal_(module.weight)
            torch.nn.init.normal_(module.bias)
    return block.double().eval()


def normalized(norm, x, channels=slice(None)):
    """Batch normalization in evaluation, of the chosen channels on the first axis, and ReLU."""
    shape = (-1,) + (1,) * (x.dim() - 1)
    mean, variance, weight, bias = (
        part[channels].view(shape) for part in (norm.running_mean, norm.running_var, norm.weight, norm.bias)
    )
    return ((x - mean) / (variance + norm.eps).sqrt() * weight + bias).clamp(min=0)


@pytest.mark.parametrize(
    ("kernel_sizes", "dilations", "groups"), [((3, 3), (1, 2), 1), ((3, 5, 1), (1, 1, 1), 4), ((3, 5), (3, 2), 2)]
)
def test_selective_kernels_are_li_et_al(kernel_sizes, dilations, groups):
    block = trained(SelectiveKernel(C, hidden=3, kernel_sizes=kernel_sizes, dilations=dilations, groups=groups))
    x = torch.randn(B, C, H, W, dtype=torch.float64)
    for b in range(B):
        maps = []
        for (convolution, norm, _), size, dilation in zip(block.convolutions, kernel_sizes, dilations, strict=True):
            full = size + (size - 1) * (dilation - 1)  # a dilated kernel has zeros between its elements
            kernel = torch.zeros(C, C // groups, full, full, dtype=torch.float64)
            kernel[:, :, ::dilation, ::dilation] = convolution.weight
            maps.append(normalized(norm, F.conv2d(x[b], kernel, padding=full // 2, groups=groups)))
        s = sum(maps).mean((1, 2))  # eq. 1 and 2
        z = normalized(block.norm, block.reduce.weight[:, :, 0, 0] @ s)  # eq. 3
        e = [torch.exp(block.expand.weight[m * C : (m + 1) * C, :, 0, 0] @ z) for m in range(len(maps))]
        a = [one / sum(e) for one in e]  # eq. 5
        torch.testing.assert_close(block.weights(x)[b], torch.stack(a))
        expected = sum(weight[:, None, None] * each for weight, each in zip(a, maps, strict=True))
        torch.testing.assert_close(block(x)[b], expected)  # eq. 6


@pytest.mark.parametrize(("radix", "cardinality"), [(1, 1), (2, 1), (3, 2), (2, 3), (1, 3)])
def test_split_attention_is_zhang_et_al(radix, cardinality):
    block = trained(SplitAttention(C, radix=radix, cardinality=cardinality, hidden=6))
    x = torch.randn(B, C, H, W, dtype=torch.float64)
    convolution, norm, _ = block.convolution
    width, hidden = C // cardinality, 6 // cardinality
    for b in range(B):
        u = normalized(norm, F.conv2d(x[b], convolution.weight, padding=1, groups=radix * cardinality))
        for k in range(cardinality):
            own = slice(k * width, (k + 1) * width)
            splits = [u[r * C : (r + 1) * C][own] for r in range(radix)]
            s = sum(splits).mean((1, 2))  # eq. 1
            units = slice(k * hidden, (k + 1) * hidden)
            z = normalized(block.norm, block.reduce.weight[units, :, 0, 0] @ s, units)
            g = []
            for r in range(radix):
                rows = slice((k * radix + r) * width, (k * radix + r + 1) * width)
                g.append(torch.exp(block.expand.weight[rows, :, 0, 0] @ z + block.expand.bias[rows]))
            a = [one / sum(g) for one in g] if radix > 1 else [g[0] / (1 + g[0])]  # eq. 2
            torch.testing.assert_close(block.weights(x)[b, :, own], torch.stack(a))
            expected = sum(weight[:, None, None] * split for weight, split in zip(a, splits, strict=True))
            torch.testing.assert_close(block(x)[b, own], expected)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_branch_attention_are_exact(kind):
    block = trained(KINDS[kind]())
    x = torch.randn(1, C, 2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, *_: block(x), (x, *block.parameters()), fast_mode=True)


@pytest.mark.parametrize("kind", KINDS)
def test_the_weights_of_branches_sum_to_one_in_half_precision(kind):
    block = KINDS[kind]().eval()
    x = torch.randn(B, C, H, W).bfloat16()
    expected, weights = block(x.float()), block.bfloat16().weights(x)
    assert weights.dtype == torch.float32
    torch.testing.assert_close(weights.sum(1), torch.ones(B, C))
    assert block(x).dtype == torch.bfloat16
    torch.testing.assert_close(block(x).float(), expected, atol=0.05, rtol=0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_branch_attention_is_local_and_refuses_wrong_maps(kind):
    block = KINDS[kind]().eval()
    assert block(torch.empty(0, C, H, W)).shape == (0, C, H, W)
    wrong = torch.randn(B, C, H, W)
    wrong[1] = math.nan
    assert block(wrong)[0].isfinite().all()
    with pytest.raises(ShapeError, match=r"features must be \[batch, channels, height, width\] with 12 channels; .*7"):
        block(torch.randn(B, 7, H, W))
    with pytest.raises(ShapeError, match="at least one position"):
        block(torch.randn(B, C, H, 0))
    with pytest.raises(KindError, match="features must hold floating-point numbers"):
        block(torch.ones(B, C, H, W, dtype=torch.int64))


def test_hidden_units_of_branches_have_a_least_number():
    assert SelectiveKernel(C).norm.num_features == SplitAttention(C).norm.num_features == 32
    assert SelectiveKernel(1024).norm.num_features == SplitAttention(128).norm.num_features == 64


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: SelectiveKernel(0), "channels must be at least 1"),
        (lambda: SelectiveKernel(4, kernel_sizes=(3, 4)), "kernel_sizes must be odd"),
        (lambda: SelectiveKernel(4, dilations=(1, 0)), "dilations must be at least 1"),
        (lambda: SelectiveKernel(4, kernel_sizes=(3, 5, 7)), r"two branches; they are \(3, 5, 7\) and \(1, 2\)"),
        (lambda: SelectiveKernel(4, kernel_sizes=(3,), dilations=(1,)), "at least two branches"),
        (lambda: SelectiveKernel(4, groups=3), "channels must be a multiple of groups, 3; it is 4"),
        (lambda: SplitAttention(9), "channels must be a multiple of cardinality · radix, 2; it is 9"),
        (lambda: SplitAttention(8, radix=0), "radix must be at least 1"),
        (lambda: SplitAttention(8, kernel_size=2), "kernel_size must be odd"),
        (lambda: SplitAttention(8, cardinality=2, hidden=5), "hidden must be a multiple of cardinality, 2; it is 5"),
    ],
)
def test_branch_attention_refuses_wrong_sizes(make, words):
    with pytest.raises(ArgumentError, match=words):
        make()
