"""Gates of channels and coordinates: the equations of their papers in plain loops, and what the blocks refuse."""

import math

import pytest
import torch

from regard.errors import ArgumentError, KindError, ShapeError
from regard.nn import CBAM, ECA, ChannelGate, CoordinateAttention, SpatialGate, SqueezeExcitation

B, C, H, W = 2, 11, 3, 5


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def perceptron(first, second, inputs, biases=(None, None)):
    """W2 ReLU(W1 z + b1) + b2, number by number."""
    hidden = [max(0.0, sum(w * z for w, z in zip(row, inputs, strict=True))) for row in first.tolist()]
    if biases[0] is not None:
        hidden = [
            max(0.0, sum(w * z for w, z in zip(row, inputs, strict=True)) + bias)
            for row, bias in zip(first.tolist(), biases[0].tolist(), strict=True)
        ]
    output = [sum(w * h for w, h in zip(row, hidden, strict=True)) for row in second.tolist()]
    return output if biases[1] is None else [one + bias for one, bias in zip(output, biases[1].tolist(), strict=True)]


@pytest.mark.parametrize("bias", [False, True])
def test_squeeze_and_excitation_is_hu_et_al(bias):
    block = SqueezeExcitation(C, 5, bias=bias).double()
    u = torch.randn(B, C, H, W, dtype=torch.float64)
    found = block(u)
    for b in range(B):
        z = [u[b, c].sum().item() / (H * W) for c in range(C)]  # eq. 2
        s = map(
            sigmoid, perceptron(block.reduce.weight, block.expand.weight, z, (block.reduce.bias, block.expand.bias))
        )
        for c, factor in enumerate(s):  # eq. 3
            torch.testing.assert_close(found[b, c], factor * u[b, c])  # eq. 4
            torch.testing.assert_close(block.gate(u)[b, c].item(), factor)


def test_the_channel_gate_is_woo_et_al():
    block = ChannelGate(C, 5).double()
    f = torch.randn(B, C, H, W, dtype=torch.float64)
    found = block(f)
    for b in range(B):
        means = [f[b, c].mean().item() for c in range(C)]
        maxima = [max(f[b, c].flatten().tolist()) for c in range(C)]
        of_means = perceptron(block.reduce.weight, block.expand.weight, means)
        of_maxima = perceptron(block.reduce.weight, block.expand.weight, maxima)
        for c in range(C):
            torch.testing.assert_close(found[b, c], sigmoid(of_means[c] + of_maxima[c]) * f[b, c])  # eq. 2


@pytest.mark.parametrize("size", [1, 3, 7])
def test_the_spatial_gate_is_woo_et_al(size):
    block = SpatialGate(C, size).double()
    f = torch.randn(B, C, H, W, dtype=torch.float64)
    found, kernel, half = block(f), block.convolution.weight[0], size // 2
    for b in range(B):
        for y in range(H):
            for x in range(W):
                total = 0.0
                for dy in range(-half, half + 1):
                    for dx in range(-half, half + 1):
                        if 0 <= y + dy < H and 0 <= x + dx < W:
                            at = f[b, :, y + dy, x + dx]
                            pooled = at.mean(), at.max()
                            total += sum(kernel[i, dy + half, dx + half] * pooled[i] for i in range(2)).item()
                torch.testing.assert_close(found[b, :, y, x], sigmoid(total) * f[b, :, y, x])  # eq. 3


def test_cbam_is_the_channel_gate_and_then_the_spatial_gate():
    block = CBAM(C, 5, 3).double()
    f = torch.randn(B, C, H, W, dtype=torch.float64)
    first = block.channel.gate(f) * f
    torch.testing.assert_close(block(f), block.spatial.gate(first) * first)  # eq. 1
    assert not torch.allclose(block(f), block.spatial.gate(f) * first)


def test_efficient_channel_attention_is_wang_et_al():
    block = ECA(C, kernel_size=5).double()
    x = torch.randn(B, C, H, W, dtype=torch.float64)
    weight = block.convolution.weight.flatten().tolist()
    for b in range(B):
        y = [x[b, c].sum().item() / (H * W) for c in range(C)]
        for c in range(C):  # ω = σ(C1D_k(y))
            near = sum(weight[d + 2] * y[c + d] for d in range(-2, 3) if 0 <= c + d < C)
            torch.testing.assert_close(block.gate(x)[b, c].item(), sigmoid(near))
            torch.testing.assert_close(block(x)[b, c], sigmoid(near) * x[b, c])


def test_the_kernel_of_channels_is_the_nearest_odd_number():
    for channels in (*range(1, 70), 127, 128, 129, 512, 513, 2047, 2048):
        wanted = abs(math.log2(channels) / 2 + 1 / 2)
        nearest = min(range(1, 99, 2), key=lambda odd, wanted=wanted: (abs(odd - wanted), -odd))
        assert ECA(channels).convolution.kernel_size == (nearest,), channels


def test_coordinate_attention_is_hou_et_al():
    block = CoordinateAttention(C, hidden=5).double().eval()
    torch.nn.init.normal_(block.norm.running_mean)
    torch.nn.init.uniform_(block.norm.running_var, 0.5, 2)
    x = torch.randn(B, C, H, W, dtype=torch.float64)
    rows, columns = block.gates(x)

    def gate(line, expand):  # eq. 6 to 8 for the pooled channels of one row or column
        hidden = block.reduce.weight[:, :, 0, 0] @ line
        hidden = (hidden - block.norm.running_mean) / (block.norm.running_var + block.norm.eps).sqrt()
        hidden = hidden * ((hidden + 3).clamp(0, 6) / 6)  # h-swish; the normalization's weight is 1, its bias 0
        return 1 / (1 + torch.exp(-expand.weight[:, :, 0, 0] @ hidden - expand.bias))

    for b in range(B):
        for i in range(H):
            row = gate(x[b, :, i].mean(1), block.expand_rows)  # eq. 4
            torch.testing.assert_close(rows[b, :, i, 0], row)
            for j in range(W):
                column = gate(x[b, :, :, j].mean(1), block.expand_columns)  # eq. 5
                torch.testing.assert_close(columns[b, :, 0, j], column)
                torch.testing.assert_close(block(x)[b, :, i, j], x[b, :, i, j] * row * column)  # eq. 9


def test_coordinate_attention_of_the_transposed_map_is_transposed():
    block = CoordinateAttention(C)
    swapped = CoordinateAttention(C)
    names = {"expand_rows": "expand_columns", "expand_columns": "expand_rows"}
    state = block.state_dict()
    swapped.load_state_dict({name.replace(n := name.split(".")[0], names.get(n, n)): v for name, v in state.items()})
    x = torch.randn(B, C, H, W)
    torch.testing.assert_close(swapped(x.mT), block(x).mT)
    assert CoordinateAttention(320).reduce.out_channels == 10
    assert block.reduce.out_channels == 8  # the least


@pytest.mark.parametrize("kind", [SqueezeExcitation, ChannelGate, SpatialGate, CBAM, ECA, CoordinateAttention])
def test_every_channel_gate_is_local_empty_safe_and_differentiable(kind):
    block = kind(C).eval()
    assert block(torch.empty(0, C, H, W)).shape == (0, C, H, W)
    assert block(torch.randn(1, C, 1, 1)).shape == (1, C, 1, 1)
    wrong = torch.randn(B, C, H, W)
    wrong[1] = math.nan
    assert block(wrong)[0].isfinite().all()  # another image of the batch has no effect
    assert block(wrong)[1].isnan().all()
    with pytest.raises(ShapeError, match=r"features must be \[batch, channels, height, width\] with 11 channels; .*7"):
        block(torch.randn(B, 7, H, W))
    with pytest.raises(ShapeError, match=r"features must be \[batch, channels"):
        block(torch.randn(C, H, W))
    with pytest.raises(ShapeError, match=r"at least one position; its height × width is \[0, 5\]"):
        block(torch.randn(B, C, 0, W))
    with pytest.raises(KindError, match="features must hold floating-point numbers"):
        block(torch.ones(B, C, H, W, dtype=torch.int64))
    double = block.double()
    u = torch.randn(B, C, 2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda u, *_: double(u), (u, *double.parameters()))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: SqueezeExcitation(0), "channels must be at least 1"),
        (lambda: SqueezeExcitation(4, 0), "reduction must be at least 1"),
        (lambda: SqueezeExcitation(4, hidden=0), "hidden must be at least 1"),
        (lambda: CBAM(4, kernel_size=4), "kernel_size must be odd"),
        (lambda: SpatialGate(4, 0), "kernel_size must be at least 1"),
        (lambda: ECA(0), "channels must be at least 1"),
        (lambda: ECA(4, 2), "kernel_size must be odd"),
        (lambda: CoordinateAttention(4, hidden=0), "hidden must be at least 1"),
    ],
)
def test_channel_gates_refuse_wrong_sizes(make, words):
    with pytest.raises(ArgumentError, match=words):
        make()


def test_a_reduction_above_the_channels_leaves_one_unit():
    assert SqueezeExcitation(3, 16).reduce.weight.shape == (1, 3)
