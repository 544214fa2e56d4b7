"""Attentional feature fusion: the equations of its paper in plain loops, batches of one, bad shapes."""

import pytest
import torch

from regard.errors import ArgumentError, ShapeError, UnknownNameError
from regard.nn import AFF, IAFF, MSCAM, BatchNorm2d

B, C, H, W = 2, 7, 3, 5


def block_of(kind, **options):
    """A block in evaluation, with statistics and weights of no special value."""
    block = kind(C, 2, **options).double().eval()
    for module in block.modules():
        if isinstance(module, torch.nn.BatchNorm2d | torch.nn.GroupNorm):
            torch.nn.init.normal_(module.weight, 1.0, 0.3)
            torch.nn.init.normal_(module.bias)
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.normal_(module.running_mean)
            torch.nn.init.uniform_(module.running_var, 0.5, 2.0)
    return block


def batch_normalized(norm, x):
    return (x - norm.running_mean) / torch.sqrt(norm.running_var + norm.eps) * norm.weight + norm.bias


def layer_normalized(norm, x):
    spread = ((x - x.sum() / len(x)) ** 2).sum() / len(x)
    return (x - x.sum() / len(x)) / torch.sqrt(spread + norm.eps) * norm.weight + norm.bias


def context(layers, x):
    """B(PWConv2(ReLU(B(PWConv1(x))))) of the channels at one position."""
    first, norm, _, second, last = layers
    normalized = batch_normalized if isinstance(norm, BatchNorm2d) else layer_normalized
    hidden = normalized(norm, first.weight[:, :, 0, 0] @ x).relu()
    return normalized(last, second.weight[:, :, 0, 0] @ hidden)


def gate(block, x):
    """M(X) of eq. 3 for ``[channels, height, width]``."""
    found, height, width = torch.empty_like(x), *x.shape[1:]
    mean = sum(x[:, i, j] for i in range(height) for j in range(width)) / (height * width)
    for i in range(height):
        for j in range(width):
            total = context(block.local_context, x[:, i, j]) + context(block.global_context, mean)
            found[:, i, j] = 1 / (1 + torch.exp(-total))
    return found


def inputs(*shape):
    return (torch.randn(*(shape or (B, C, H, W)), dtype=torch.float64) for _ in range(2))


norms = pytest.mark.parametrize("norm", ["batch", "layer"])


@norms
def test_the_module_is_dai_et_al(norm):
    block, (x, _) = block_of(MSCAM, global_norm=norm), inputs()
    for b in range(B):
        torch.testing.assert_close(block(x)[b], gate(block, x[b]) * x[b])


@norms
def test_fusion_is_dai_et_al(norm):
    block, (x, y) = block_of(AFF, global_norm=norm), inputs()
    for b in range(B):
        m = gate(block.attention, x[b] + y[b])
        torch.testing.assert_close(block(x, y)[b], m * x[b] + (1 - m) * y[b])  # eq. 4


@norms
def test_iterative_fusion_is_dai_et_al(norm):
    block, (x, y) = block_of(IAFF, global_norm=norm), inputs()
    for b in range(B):
        m = gate(block.initial.attention, x[b] + y[b])
        m = gate(block.attention, m * x[b] + (1 - m) * y[b])  # eq. 5
        torch.testing.assert_close(block(x, y)[b], m * x[b] + (1 - m) * y[b])  # eq. 4


@pytest.mark.parametrize("kind", [AFF, IAFF])
def test_fusion_of_a_map_with_itself_is_that_map(kind):
    x, _ = inputs()
    torch.testing.assert_close(kind(C).double()(x, x), x)


@norms
@pytest.mark.parametrize("kind", [AFF, IAFF])
def test_gradients_of_feature_fusion_are_exact(kind, norm, is_full):
    block, (x, y) = kind(C, 2, global_norm=norm).double(), inputs(3, C, 1, 2)
    x.requires_grad_(), y.requires_grad_()
    leaves = x, y, *block.parameters()
    assert torch.autograd.gradcheck(lambda x, y, *_: block(x, y), leaves, fast_mode=not is_full)


@pytest.mark.parametrize("kind", [AFF, IAFF])
def test_feature_fusion_takes_any_size_and_refuses_wrong_channels(kind):
    block = kind(C).eval()
    empty = torch.empty(0, C, H, W)
    assert block(empty, empty).shape == (0, C, H, W)
    x = torch.randn(B, C, H, W)
    with pytest.raises(ShapeError, match=r"second must have the shape of first, \[2, 7, 3, 5\]; .*\[2, 7, 5, 3\]"):
        block(x, x.mT.contiguous())
    with pytest.raises(ShapeError, match=r"second must be .* with 7 channels"):
        block(x, torch.randn(B, 1, H, W))
    with pytest.raises(ShapeError, match=r"first must be .* with 7 channels"):
        block(x[:, :3], x)
    with pytest.raises(ArgumentError, match="reduction must be at least 1"):
        kind(C, 0)


@pytest.mark.parametrize("kind", [AFF, IAFF])
@pytest.mark.parametrize("size", [(1, C, H, W), (1, C, 1, 1)])
def test_a_batch_of_one_trains(kind, size):
    block, (x, y) = kind(C).double().train(), inputs(*size)
    block(x, y).sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in block.parameters())


@pytest.mark.parametrize("kind", [AFF, IAFF, MSCAM])
def test_the_global_context_of_an_image_is_its_own_with_layer_norm(kind):
    """While training too: batch normalization in g would mix the few images of a batch."""
    block = kind(C, 2, global_norm="layer").double().train()
    parts = [part for part in block.modules() if isinstance(part, MSCAM)]
    for part in parts:
        part.local_context = torch.nn.Identity()  # L normalizes over all positions of a batch, which are many
    x, y = inputs()
    given = (x,) if kind is MSCAM else (x, y)
    together = block(*given)
    alone = torch.cat([block(*(one[b : b + 1] for one in given)) for b in range(B)])
    torch.testing.assert_close(together, alone)
    with pytest.raises(UnknownNameError, match="global_norm"):
        kind(C, global_norm="group")


def test_one_value_is_normalized_by_the_running_statistics():
    norm, parent = BatchNorm2d(C), torch.nn.BatchNorm2d(C)
    x = torch.randn(B, C, H, W)
    assert torch.equal(norm(x), parent(x))
    assert torch.equal(norm.running_mean, parent.running_mean)
    before = {name: tensor.clone() for name, tensor in norm.state_dict().items()}
    one = torch.randn(1, C, 1, 1)
    assert torch.equal(norm(one), parent.eval()(one))
    assert all(torch.equal(tensor, before[name]) for name, tensor in norm.state_dict().items())
    assert norm(one).isfinite().all()
    untracked = BatchNorm2d(C, track_running_stats=False)
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        untracked(one)
