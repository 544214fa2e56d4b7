"""Cross-covariance attention: the equation of its paper in plain loops, its laws, and who sees its weights."""

import math

import pytest
import torch

import regard
from largest_tensor import LargestTensor
from regard import Readings
from regard.errors import ArgumentError, KindError, ShapeError
from regard.nn import XCA

B, C, HEADS, H, W = 2, 6, 2, 5, 7
D = C // HEADS


def attention(**options):
    block = XCA(C, HEADS, **options).double()
    block.score.temperature.data.copy_(torch.tensor([0.3, 1.7]).view(HEADS, 1, 1))
    return block


def projected(convolution, tokens):
    return tokens @ convolution.weight[:, :, 0, 0].T + convolution.bias


def test_cross_covariance_attention_is_el_nouby_et_al():
    block = attention()
    x = torch.randn(B, C, H, W, dtype=torch.float64)
    weights = block.observe(x, Readings(weights=True)).weights
    for b in range(B):
        tokens = x[b].flatten(1).T  # N C
        mixed = torch.empty(H * W, C, dtype=torch.float64)
        for h, own in enumerate((slice(0, D), slice(D, C))):
            q, k, v = (projected(part, tokens)[:, own] for part in (block.query, block.key, block.value))
            q, k = (part / part.square().sum(0).sqrt() for part in (q, k))  # columns of length 1
            exponentials = torch.exp(k.T @ q / block.score.temperature[h])
            a = exponentials / exponentials.sum(0)
            mixed[:, own] = v @ a
            torch.testing.assert_close(weights[b, h], a.T)
        torch.testing.assert_close(block(x)[b], projected(block.output, mixed).T.unflatten(1, (H, W)))


def test_the_order_of_positions_moves_with_the_output():
    block = attention()
    x = torch.randn(B, C, H, W, dtype=torch.float64)
    order = torch.randperm(H * W)
    shuffled = x.flatten(2)[..., order].unflatten(2, (H, W))
    torch.testing.assert_close(block(shuffled), block(x).flatten(2)[..., order].unflatten(2, (H, W)))


def test_gradients_of_cross_covariance_attention_are_exact():
    block = attention(backend="reference")
    x = torch.randn(B, C, 2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, *_: block(x), (x, *block.parameters()), fast_mode=True)


def test_weights_between_channels_are_seen_by_every_reader():
    block = attention()
    x = torch.randn(B, C, H, W, dtype=torch.float64)
    weights = regard.explain(*block.projected(x), score=block.score).weights
    with regard.watch(block, read=Readings(weights=True, entropy=True)) as watched:
        output = block(x)
    (call,) = watched.calls
    assert torch.equal(output, block(x))
    assert (call.heads, call.queries, call.keys) == (HEADS, D, D)
    torch.testing.assert_close(call.weights.double(), weights)
    torch.testing.assert_close(block.observe(x, Readings(entropy=True)).entropy, call.entropy.double())


def test_large_maps_make_no_matrix_between_positions():
    block, x = XCA(4, 2), torch.randn(1, 4, 61, 67, requires_grad=True)  # 4,087 positions, 16.7 million pairs
    with LargestTensor() as largest:
        block(x).sum().backward()
    assert largest.numbers < 200_000


def test_cross_covariance_of_half_precision_is_near_that_of_float32():
    """Sums of squares over all positions leave the range of float16."""
    block = XCA(C, HEADS)
    x = (100 * torch.randn(B, C, H, W)).half()
    expected = block(x.float())
    torch.testing.assert_close(block.half()(x).float(), expected, atol=1.0, rtol=0.02)


def test_cross_covariance_takes_any_size_and_refuses_wrong_channels():
    block = XCA(C, HEADS)
    assert block(torch.empty(0, C, H, W)).shape == (0, C, H, W)
    assert block(torch.randn(1, C, 1, 1)).isfinite().all()
    wrong = torch.randn(B, C, H, W)
    wrong[1] = math.nan
    assert block(wrong)[0].isfinite().all()
    assert block(torch.zeros(1, C, H, W)).isfinite().all()
    with pytest.raises(ShapeError, match=r"features must be .* with 6 channels"):
        block(torch.randn(B, C + 1, H, W))
    with pytest.raises(KindError, match="features"):
        block(torch.ones(B, C, H, W, dtype=torch.int32))
    with pytest.raises(ArgumentError, match="heads must divide channels, 6; it is 4"):
        XCA(C, 4)
    with pytest.raises(ArgumentError, match="channels must be at least 1"):
        XCA(0)
