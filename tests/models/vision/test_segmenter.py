"""The segmentation network: sizes, exact alignment of positions and pixels, every kind of attention or none."""

from typing import get_args

import pytest
import torch

from regard import Readings
from regard.errors import ArgumentError, KindError, ShapeError, UnknownNameError
from regard.models.checkpoint import load_model, save_model
from regard.models.vision.configs import Gate
from regard.models.vision.residual_block import GATES, GatedBlock, WeighedBlock
from regard.models.vision.segmenter import Segmenter, SegmenterConfig
from regard.nn import AFF, CBAM, ECA, IAFF, DualAttention, NonLocal, SelectiveKernel, SplitAttention, SqueezeExcitation

NONE = {"gate": "none", "attention": "none", "fusion": "sum"}


def small(**sizes):
    return SegmenterConfig(classes=5, **{"channels": 3, "decoder_channels": 4, "levels": 3, "blocks": 1, **sizes})


@pytest.mark.parametrize(
    ("gate", "attention", "fusion"),
    [
        *((gate, "none", "sum") for gate in GATES),
        *(("none", attention, "aff") for attention in ("none", "non_local", "dual")),
        *(("se", "dual", fusion) for fusion in ("sum", "aff", "iaff")),
    ],
)
def test_every_kind_of_attention_trains(gate, attention, fusion):
    model = Segmenter(small(gate=gate, attention=attention, fusion=fusion))
    logits = model(torch.rand(2, 3, 17, 29))
    assert logits.shape == (2, 5, 17, 29)
    logits.square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    kinds = {type(module) for module in model.modules()}
    assert (SqueezeExcitation in kinds) == (gate == "se")
    assert (CBAM in kinds, ECA in kinds) == (gate == "cbam", gate == "eca")
    assert (NonLocal in kinds, DualAttention in kinds) == (attention == "non_local", attention == "dual")
    assert (AFF in kinds) == (fusion != "sum")
    assert (IAFF in kinds) == (fusion == "iaff")


@pytest.mark.parametrize("fusion", ["aff", "iaff"])
def test_the_norm_of_the_global_context(fusion):
    for norm, layers in (("batch", 0), ("layer", 2 * 2 * (1 + (fusion == "iaff")))):
        model = Segmenter(small(fusion=fusion, fusion_norm=norm))
        assert sum(isinstance(module, torch.nn.GroupNorm) for module in model.modules()) == layers


@pytest.mark.parametrize("levels", [2, 3, 5])
@pytest.mark.parametrize("size", [(1, 1), (8, 8), (13, 37)])
def test_a_segmenter_takes_images_of_any_size(levels, size):
    config = small(levels=levels)
    model = Segmenter(config).eval()
    images = torch.rand(1, 3, *size)
    assert model(images).shape == (1, 5, *size)
    rows, columns = model.context_size(*size)
    assert rows * config.cell >= size[0] > (rows * config.cell - config.stride)
    weights = model.observe_context(images, Readings(weights=True)).weights
    assert weights.shape == (1, 1, rows * columns, rows * columns)
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 1, rows * columns))
    model.train()(images).sum().backward()  # a batch of one, and maps of one position


@torch.no_grad()
@pytest.mark.parametrize("attention", [{}, NONE])
@pytest.mark.parametrize("axis", [2, 3])
def test_mirrored_kernels_see_the_mirrored_image(attention, axis):
    """No halving or doubling moves the image by a part of a pixel: left and right are alike, and above and below."""
    model = Segmenter(small(**attention)).eval().double()
    images = torch.rand(1, 3, 24, 32, dtype=torch.float64)
    expected = model(images)
    for module in model.modules():
        if isinstance(module, torch.nn.Conv2d):
            module.weight.copy_(module.weight.flip(axis))
    torch.testing.assert_close(model(images.flip(axis)).flip(axis), expected)


def test_a_position_that_attends_has_its_own_pixels_in_its_middle():
    """The middle of all pixels, weighed by their effect on a position's features, is the middle of its cell."""
    torch.manual_seed(3)
    middles = []
    for _ in range(16):
        model = Segmenter(small(**{**NONE, "attention": "dual"}, levels=4, channels=4)).eval()
        images = torch.rand(1, 3, 160, 224, requires_grad=True)
        features = model._before_context(model._encoded(images))  # B C 20 28
        (grad,) = torch.autograd.grad(features[0, :, 7, 21].sum(), images)
        mass = grad.square().sum((0, 1))
        y = (mass.sum(1) * (torch.arange(160) + 0.5)).sum() / mass.sum()
        x = (mass.sum(0) * (torch.arange(224) + 0.5)).sum() / mass.sum()
        middles.append(torch.stack((y, x)))
    middle = torch.stack(middles).mean(0)
    assert (middle - torch.tensor([7.5 * 8, 21.5 * 8])).abs().max() < 1.5, middle


@torch.no_grad()
def test_images_of_a_batch_do_not_see_each_other():
    model = Segmenter(small()).eval()
    images = torch.rand(3, 3, 16, 24)
    torch.testing.assert_close(model(images)[1:2], model(images[1:2]), atol=1e-5, rtol=1e-4)


def test_the_block_adds_its_gated_convolutions():
    block = GatedBlock(7, "cbam").double().eval()
    x = torch.randn(2, 7, 3, 5, dtype=torch.float64)
    torch.testing.assert_close(block(x), (x + block.gate(block.layers(x))).relu())
    with pytest.raises(UnknownNameError, match="gate"):
        GatedBlock(7, "ce")


@pytest.mark.parametrize("kind", [SelectiveKernel, SplitAttention])
def test_branches_replace_the_first_convolution_of_a_block(kind):
    block = WeighedBlock(8, kind(8)).eval()
    x = torch.randn(2, 8, 3, 5)
    assert torch.equal(block(x), x.relu())  # a new block is the identity
    branches, convolution, norm = block.layers
    torch.nn.init.ones_(norm.weight)
    assert isinstance(branches, kind)
    torch.testing.assert_close(block(x), (x + norm(convolution(branches(x)))).relu())


def test_every_gate_of_the_options_has_a_class():
    assert get_args(Gate) == tuple(GATES)


def test_saved_and_loaded(tmp_path):
    model = Segmenter(small()).eval()
    save_model(tmp_path, model)
    found = load_model(tmp_path)
    images = torch.rand(1, 3, 16, 16)
    assert torch.equal(found(images), model(images))
    assert found.config == model.config


def test_a_segmenter_refuses_wrong_options_and_images():
    with pytest.raises(ArgumentError, match="levels must be from 2 to 6; it is 7"):
        small(levels=7)
    with pytest.raises(UnknownNameError, match="unknown fusion 'af'"):
        small(fusion="af")
    with pytest.raises(ArgumentError, match="dropout"):
        small(dropout=1.0)
    model = Segmenter(small(attention="none"))
    with pytest.raises(ArgumentError, match="do not attend to each other"):
        model.observe_context(torch.rand(1, 3, 8, 8), Readings())
    with pytest.raises(ShapeError, match=r"images must be \[batch, channels, height, width\] with 3 channels"):
        model(torch.rand(1, 8, 8, 3))
    with pytest.raises(KindError, match="images"):
        model(torch.zeros(1, 3, 8, 8, dtype=torch.uint8))
