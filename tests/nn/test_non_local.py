"""Non-local blocks and the global context: the equations of their papers in plain loops; no matrix of pairs."""

import math

import pytest
import torch

import regard
from largest_tensor import LargestTensor
from regard import Readings
from regard.errors import ArgumentError, ShapeError, UnknownNameError
from regard.nn import GlobalContext, NonLocal
from regard.nn.non_local import PAIRWISE, relu_of_sums

B, C, H, W, D = 2, 7, 3, 5, 3


def embedded(convolution, x):
    """A convolution of 1 × 1 at one position, or x itself."""
    if not isinstance(convolution, torch.nn.Conv2d):
        return x
    return convolution.weight[:, :, 0, 0] @ x + convolution.bias


def pairwise(block, x_i, x_j):
    theta, phi = embedded(block.query, x_i), embedded(block.key, x_j)
    if block.pairwise in ("embedded_gaussian", "gaussian"):
        return torch.exp(theta @ phi)  # eq. 2 and 3
    if block.pairwise == "dot":
        return theta @ phi  # eq. 4
    return torch.relu(block.weight @ torch.cat((theta, phi)))  # eq. 5


@pytest.mark.parametrize("name", PAIRWISE)
def test_the_equations_of_wang_et_al(name):
    block = NonLocal(C, D, name, zero=False).double()
    x = torch.randn(B, C, H, W, dtype=torch.float64) / 2
    found = block(x)
    for b in range(B):
        positions = x[b].flatten(1).T
        for i, x_i in enumerate(positions):
            f = [pairwise(block, x_i, x_j) for x_j in positions]
            total = sum(f) if name.endswith("gaussian") else len(positions)
            y = sum(one * embedded(block.value, x_j) for one, x_j in zip(f, positions, strict=True)) / total  # eq. 1
            torch.testing.assert_close(found[b, :, i // W, i % W], embedded(block.output, y) + x_i)  # eq. 6


@pytest.mark.parametrize("name", PAIRWISE)
def test_a_new_non_local_block_is_the_identity(name):
    x = torch.randn(B, C, H, W)
    assert torch.equal(NonLocal(C, pairwise=name)(x), x)


@pytest.mark.parametrize("name", PAIRWISE)
@pytest.mark.parametrize("subsample", [1, 2])
def test_gradients_and_subsampling(name, subsample, is_full):
    block = NonLocal(C, D, name, subsample=subsample, zero=False, backend="reference").double()
    x = torch.randn(B, C, H, W, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, *_: block(x), (x, *block.parameters()), fast_mode=not is_full)
    assert block(torch.randn(1, C, 1, 1, dtype=torch.float64)).shape == (1, C, 1, 1)


def test_subsampled_keys_are_maxima_of_the_embedded_map():
    block = NonLocal(C, D, subsample=2, zero=False).double()
    x = torch.randn(1, C, 3, 5, dtype=torch.float64)
    cells = [[(y, x) for y in rows for x in columns] for rows in ((0, 1), (2,)) for columns in ((0, 1), (2, 3), (4,))]

    def keys(convolution):
        return [torch.stack([embedded(convolution, x[0, :, i, j]) for i, j in cell]).amax(0) for cell in cells]

    theta = embedded(block.query, x[0, :, 1, 3])
    weights = torch.stack([theta @ key for key in keys(block.key)]).softmax(0)
    y = sum(w * value for w, value in zip(weights, keys(block.value), strict=True))
    torch.testing.assert_close(block(x)[0, :, 1, 3], embedded(block.output, y) + x[0, :, 1, 3])


@pytest.mark.parametrize("equal", [False, True])
def test_sums_of_relu_by_sorting(equal):
    a, b, v = torch.randn(B, 13), torch.randn(B, 17), torch.randn(B, 17, 5)
    if equal:  # many ties, and pairs whose sum is exactly 0
        a, b = a.round(), b.round()
    expected = torch.einsum("bij,bjd->bid", (a[:, :, None] + b[:, None]).double().relu(), v.double())
    torch.testing.assert_close(relu_of_sums(a, b, v).double(), expected, atol=1e-5, rtol=1e-5)
    found = relu_of_sums(a.bfloat16(), b.bfloat16(), v.bfloat16())
    assert found.dtype == torch.bfloat16


@pytest.mark.parametrize("name", PAIRWISE)
def test_many_positions_make_no_matrix_of_pairs(name):
    x = torch.randn(1, 4, 61, 67, requires_grad=True)  # 4,087 positions, 16.7 million pairs
    block = NonLocal(4, 2, name, zero=False)
    with LargestTensor() as largest:
        block(x).sum().backward()
    assert largest.numbers < 2_000_000


def test_non_local_blocks_refuse_wrong_options_and_inputs():
    with pytest.raises(UnknownNameError, match="unknown pairwise 'gausian'; did you mean 'gaussian'"):
        NonLocal(C, pairwise="gausian")
    with pytest.raises(ArgumentError, match="subsample must be at least 1"):
        NonLocal(C, subsample=0)
    with pytest.raises(ShapeError, match="with 7 channels"):
        NonLocal(C)(torch.randn(B, C + 1, H, W))
    with pytest.raises(UnknownNameError, match="backend 'sdpaa'"):
        NonLocal(C, backend="sdpaa")(torch.randn(B, C, H, W))


def test_a_nan_stays_in_its_image():
    x = torch.randn(B, C, H, W)
    x[1, 0, 0, 0] = math.nan
    for name in PAIRWISE:
        found = NonLocal(C, D, name, zero=False)(x)
        assert found[0].isfinite().all()
        assert found[1].isnan().any()


def global_context(channels=C, **options):
    block = GlobalContext(channels, hidden=D, **options).double()
    for parameter in block.parameters():
        torch.nn.init.normal_(parameter)
    return block


def test_the_global_context_is_cao_et_al():
    block = global_context()
    x = torch.randn(B, C, H, W, dtype=torch.float64)
    weights = block.observe(x, Readings(weights=True)).weights
    for b in range(B):
        positions = x[b].flatten(1).T
        exponentials = [torch.exp(block.query @ x_j) for x_j in positions]
        alpha = [one / sum(exponentials) for one in exponentials]
        context = sum(a * x_j for a, x_j in zip(alpha, positions, strict=True))
        hidden = block.reduce.weight @ context + block.reduce.bias
        centered = hidden - hidden.mean()
        hidden = centered / (centered.square().mean() + block.norm.eps).sqrt() * block.norm.weight + block.norm.bias
        added = block.expand.weight @ hidden.clamp(min=0) + block.expand.bias
        torch.testing.assert_close(block(x)[b], x[b] + added[:, None, None])  # eq. 5
        torch.testing.assert_close(weights[b, 0, 0], torch.stack(alpha))


def test_a_new_global_context_is_the_identity_and_has_eight_units():
    x = torch.randn(B, C, H, W)
    assert torch.equal(GlobalContext(C)(x), x)
    assert GlobalContext(C).reduce.out_features == 8
    assert GlobalContext(144).reduce.out_features == 9
    assert GlobalContext(C)(x[:0]).shape == (0, C, H, W)


def test_gradients_of_the_global_context_are_exact():
    block = global_context(backend="reference")
    x = torch.randn(B, C, 2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, *_: block(x), (x, *block.parameters()))


def test_the_weights_of_a_global_context_are_seen_by_every_reader():
    block = global_context()
    x = torch.randn(B, C, H, W, dtype=torch.float64)
    expected = (block.query @ x.flatten(2)).softmax(-1)
    with regard.watch(block, read=Readings(weights=True)) as watched:
        output = block(x)
    (call,) = watched.calls
    assert torch.equal(output, block(x))
    assert (call.kind, call.queries, call.keys) == ("cross", 1, H * W)
    torch.testing.assert_close(call.weights[:, 0, 0].double(), expected)
    explained = regard.explain(*block.projected(x), score=block.score)
    torch.testing.assert_close(explained.weights[:, 0, 0], expected)


def test_a_global_context_of_half_precision_is_near_that_of_float32():
    block = GlobalContext(C, hidden=D)
    for parameter in block.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    x = torch.randn(B, C, H, W).bfloat16()
    expected = block(x.float())
    torch.testing.assert_close(block.bfloat16()(x).float(), expected, atol=0.1, rtol=0.05)
    with pytest.raises(ShapeError, match=r"features must be .* with 7 channels"):
        block(torch.randn(B, C + 1, H, W))
    with pytest.raises(ArgumentError, match="reduction must be at least 1"):
        GlobalContext(C, 0)
