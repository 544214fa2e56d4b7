"""The grid: its sizes, and that each annotation lies exactly over its part of the image."""

import pytest
import torch

from regard.errors import ArgumentError, KindError, ShapeError, UnknownNameError
from regard.models.vision.convolutional_grid import ConvolutionalGrid
from regard.models.vision.grid_encoder import GridConfig, GridEncoder
from regard.models.vision.pixels import DEVIATION, MEAN, PixelInput
from regard.models.vision.residual_block import GATES


def trained_like(grid):
    """The network in float64 and evaluation mode, with normalizations that do something."""
    for module in grid.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.weight, 0.5, 1.5)
            torch.nn.init.constant_(module.bias, 30.0)  # so that a rectifier passes most of it on
            module.running_mean.uniform_(-0.1, 0.1)
    return grid.double().eval()


@pytest.mark.parametrize(("patch", "stages", "size"), [(1, 3, (12, 28)), (2, 2, (20, 12)), (3, 1, (15, 21))])
def test_the_middle_of_what_an_annotation_depends_on_is_its_cell(patch, stages, size):
    """The pixels that can change an annotation lie symmetrically around the cell, cut at the edges of the image."""
    grid = trained_like(ConvolutionalGrid([2 * 2**stage for stage in range(stages)], 1, patch))
    image = torch.rand(1, 3, *size, dtype=torch.float64, requires_grad=True)
    features = grid(image)
    stride = grid.stride
    assert features.shape[2:] == (size[0] // stride, size[1] // stride)
    for row in range(features.shape[2]):
        for column in range(features.shape[3]):
            # Absolute values of the derivative of each feature: nothing cancels.
            reached = torch.zeros(size, dtype=torch.bool)
            for one in features[0, :, row, column]:
                (gradient,) = torch.autograd.grad(one, image, retain_graph=True)
                reached |= (gradient[0] != 0).any(0)
            for axis, cell in ((1, row), (0, column)):
                places = reached.any(axis).nonzero().squeeze(1)
                first, last, side = int(places[0]), int(places[-1]) + 1, reached.any(axis).shape[0]
                if first > 0 and last < side:
                    assert first + last == 2 * cell * stride + stride  # twice the middle


def test_a_planted_object_lights_up_its_own_cell():
    grid = trained_like(ConvolutionalGrid([3, 6], 1, 2))
    plain = torch.zeros(1, 3, 20, 28, dtype=torch.float64)
    for row, column in ((0, 0), (4, 2), (1, 6)):
        planted = plain.clone()
        planted[0, :, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4] = 3.0
        change = (grid(planted) - grid(plain)).abs().sum(1)[0]
        assert divmod(int(change.argmax()), 7) == (row, column)


def test_annotations_are_row_by_row_and_the_summary_is_their_mean():
    encoder = GridEncoder(GridConfig(image_height=8, image_width=24, grid=4, stages=2, patch=2)).eval()
    images = torch.randint(0, 256, (3, 8, 24, 3), dtype=torch.uint8)
    found = encoder(images)
    features = encoder.network(encoder.pixels(images))
    assert (encoder.rows, encoder.columns, encoder.dim) == (2, 6, 4)
    assert torch.equal(found.annotations[:, 6 + 5], features[:, :, 1, 5])
    assert torch.allclose(found.summary, features.mean((2, 3)))
    assert found.lengths.tolist() == [12, 12, 12]


@pytest.mark.parametrize("weigh", GATES)
def test_one_image_of_one_cell_trains(weigh):
    encoder = GridEncoder(GridConfig(image_height=8, image_width=8, grid=16, stages=2, patch=4, gate=weigh))
    found = encoder.train()(torch.randint(0, 256, (1, 8, 8, 3), dtype=torch.uint8))
    found.annotations.sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in encoder.parameters())


def test_bytes_and_numbers_are_the_same_pixels():
    images = torch.randint(0, 256, (2, 3, 5, 3), dtype=torch.uint8)
    found = PixelInput()(images)
    assert torch.allclose(found, PixelInput()(images.float() / 255))
    expected = (images[1, 2, 4, 1] / 255 - MEAN[1]) / DEVIATION[1]
    assert torch.allclose(found[1, 1, 2, 4], expected)
    with pytest.raises(ShapeError, match=r"images must be \[batch, height, width, 3\]"):
        PixelInput()(images.permute(0, 3, 1, 2))
    with pytest.raises(KindError, match="images must be uint8 or floating-point"):
        PixelInput()(images.int())


def test_sizes_that_do_not_fit_are_refused():
    for bad in ({"image_height": 12}, {"grid": 6, "stages": 3}, {"stages": 9}, {"patch": -1}, {"blocks": -1}):
        with pytest.raises(ArgumentError, match=next(iter(bad))):
            GridConfig(**{"image_height": 32, "image_width": 32, "grid": 8, "patch": 4, **bad})
    with pytest.raises(UnknownNameError, match="gate"):
        GridConfig(gate="so")
    with pytest.raises(ArgumentError, match="torchvision:NAME"):
        GridConfig(backbone="resnet18")
    encoder = GridEncoder(GridConfig(image_height=8, image_width=8, grid=4, stages=2, patch=2))
    with pytest.raises(ShapeError, match=r"height and width \[8, 8\]"):
        encoder(torch.zeros(1, 8, 12, 3))
    with pytest.raises(ArgumentError, match="there is no backbone"):
        encoder.freeze_backbone()
    with pytest.raises(ShapeError, match="multiples of 4"):
        ConvolutionalGrid([2, 4], 1, 2)(torch.zeros(1, 3, 8, 6))
