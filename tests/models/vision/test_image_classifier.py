"""Classifiers of images: patches, the class token, poolings, saving and loading."""

import pytest
import torch

from regard.errors import ArgumentError, ShapeError, UnknownNameError
from regard.models import load_model, save_model
from regard.models.vision.image_classifier import ImageClassifier, ImageClassifierConfig, patches

IMAGE = {"labels": 3, "image_height": 8, "image_width": 12, "patch": 4}
SMALL = {**IMAGE, "hidden": 6, "layers": 2, "heads": 2}
KINDS = {
    "cls": {},
    "vit-attention": {"pooling": "attention", "pooling_heads": 2},
    "vit-mean": {"pooling": "mean"},
    "se": {"architecture": "cnn", "gate": "se", "pooling": "mean", "grid": 16, "stages": 1},
    "cbam": {"architecture": "cnn", "gate": "cbam", "pooling": "attention", "grid": 16, "stages": 1},
}


@pytest.fixture(params=KINDS)
def model(request):
    return ImageClassifier(
        ImageClassifierConfig(
            **{**(IMAGE if "architecture" in KINDS[request.param] else SMALL), **KINDS[request.param]}
        )
    ).eval()


def test_patches_are_the_pixels_of_each_part():
    images = torch.rand(2, 3, 6, 4)
    found = patches(images, 2)
    assert found.shape == (2, 6, 12)
    for place in range(6):
        row, column = divmod(place, 2)
        part = images[:, :, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
        assert torch.equal(found[:, place], part.flatten(1))


def test_shapes_gradients_and_looking_changes_nothing(model):
    images = torch.randint(0, 256, (2, 8, 12, 3), dtype=torch.uint8)
    plain, looked = model(images), model(images, need_weights=True)
    assert plain.logits.shape == (2, 3)
    assert torch.equal(plain.logits, looked.logits)
    assert plain.weights is None
    if model.pooling is not None:
        heads = model.config.pooling_heads
        assert looked.weights.shape == (2, heads, model.grid[0] * model.grid[1])
        assert torch.allclose(looked.weights.sum(-1), torch.ones(2, heads))
    assert model.grid == (2, 3)
    model.train()(images).logits.square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_batch_is_its_images(model):
    images = torch.randint(0, 256, (3, 8, 12, 3), dtype=torch.uint8)
    whole = model(images).logits
    for row in range(3):
        assert torch.allclose(model(images[row : row + 1]).logits[0], whole[row], atol=1e-5)


def test_positions_matter_to_a_vision_transformer():
    model = ImageClassifier(ImageClassifierConfig(**SMALL)).eval()
    images = torch.randint(0, 256, (1, 8, 12, 3), dtype=torch.uint8)
    assert not torch.allclose(model(images).logits, model(images.flip(1)).logits)


def test_a_saved_image_classifier_loads_unchanged(model, tmp_path):
    save_model(tmp_path, model)
    again = load_model(tmp_path)
    images = torch.randint(0, 256, (2, 8, 12, 3), dtype=torch.uint8)
    assert again.config == model.config
    assert torch.equal(again(images).logits, model(images).logits)


def test_image_classifiers_refuse_wrong_options_and_sizes():
    for bad in (
        {"labels": 0}, {"patch": 5}, {"heads": 4}, {"dropout": 1.0}, {"feedforward": -1},
        {"gate": "se"}, {"backbone": "timm:x"},
    ):  # fmt: skip
        with pytest.raises(ArgumentError, match=next(iter(bad))):
            ImageClassifierConfig(**{**SMALL, **bad})
    with pytest.raises(ArgumentError, match="pooling 'cls' has no meaning with"):
        ImageClassifierConfig(**IMAGE, architecture="cnn", pooling="cls", grid=16, stages=1)
    with pytest.raises(UnknownNameError):
        ImageClassifierConfig(**SMALL, pooling="max")
    with pytest.raises(ShapeError, match=r"height and width \[8, 12\]"):
        ImageClassifier(ImageClassifierConfig(**SMALL))(torch.zeros(1, 12, 8, 3))
