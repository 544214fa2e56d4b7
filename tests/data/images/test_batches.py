"""Batches of captions, and random changes of images."""

import numpy as np
import pytest
import torch

from image_files import colours
from regard.data.images.augmentation import Augmentation
from regard.data.images.caption_batches import CaptionBatch, CaptionExample, caption_examples
from regard.data.images.image_rows import cells_inside
from regard.data.text.tokenizers import Tokenizer
from regard.errors import ArgumentError, ShapeError


def test_a_batch_has_each_caption_with_its_image():
    pixels = np.stack([colours(5, 7, seed) for seed in range(3)])
    batch = CaptionBatch.of([CaptionExample(2, ((5, 6, 7), (8,))), CaptionExample(0, ((9, 4),))], pixels)
    assert np.array_equal(batch.images.numpy(), pixels[[2, 0]])
    assert batch.owners.tolist() == [0, 0, 1]
    assert batch.target.tolist() == [[1, 5, 6, 7, 2], [1, 8, 2, 0, 0], [1, 9, 4, 2, 0]]
    assert batch.target_lengths.tolist() == [5, 3, 4]
    assert batch.index.tolist() == [2, 0]
    assert batch.target_tokens == 4 + 2 + 3
    assert len(batch) == 2


def test_captions_are_encoded_and_cut():
    tokenizer = Tokenizer.train(["a red dog runs"], "word")
    examples, cut = caption_examples([("a red dog", "a dog"), ("runs",)], tokenizer, 2)
    assert cut == 1
    assert [tokenizer.decode(caption) for caption in examples[0].captions] == ["a red", "a dog"]


def test_no_change_gives_the_bytes():
    images = torch.from_numpy(colours()[None])
    assert Augmentation()(images) is images


def test_half_of_the_images_are_mirrored():
    images = torch.from_numpy(colours()[None]).expand(200, -1, -1, -1)
    found = Augmentation(flip=True)(images)
    same = ((found - images / 255).abs() < 1e-6).flatten(1).all(1)
    mirrored = ((found - images.flip(2) / 255).abs() < 1e-6).flatten(1).all(1)
    assert bool((same ^ mirrored).all())
    assert 60 < int(mirrored.sum()) < 140


@pytest.mark.parametrize("flip", [False, True])
def test_a_part_is_a_part(flip):
    """Of an image whose colours are its coordinates, a part has coordinates of one range with an even step."""
    side = 32
    steps = torch.linspace(0, 255, side).round().to(torch.uint8)
    planes = steps[None].expand(side, side), steps[:, None].expand(side, side), steps.new_zeros(side, side)
    image = torch.stack(planes, -1)
    found = Augmentation(zoom=0.5, flip=flip)(image[None].expand(50, -1, -1, -1))
    across, down = found[:, side // 2, :, 0], found[:, :, side // 2, 1]
    for values, can_fall in ((across, flip), (down, False)):
        extent = values[:, -1] - values[:, 0]
        assert bool((extent.abs() > 0.45).all())
        assert bool((extent.abs() <= 1).all())
        assert bool((extent < 0).any()) == can_fall
    assert not torch.allclose(found[0], found[1])


def test_brightness_stays_in_range_and_the_seed_decides():
    images = torch.from_numpy(np.stack([colours(5, 7, seed) for seed in range(3)]))
    change = Augmentation(zoom=0.2, flip=True, jitter=0.4)
    torch.manual_seed(3)
    first = change(images)
    torch.manual_seed(3)
    assert torch.equal(first, change(images))
    assert not torch.equal(first, change(images))
    assert first.min() >= 0
    assert first.max() <= 1
    assert first.shape == images.shape


def test_augmentation_refuses_wrong_arguments():
    for bad in ({"zoom": 1.0}, {"jitter": -0.1}, {"zoom": float("nan")}):
        with pytest.raises(ArgumentError, match=next(iter(bad))):
            Augmentation(**bad)
    with pytest.raises(ShapeError, match="uint8"):
        Augmentation(flip=True)(torch.zeros(1, 5, 7, 3))


def test_cells_whose_middle_is_on_an_object():
    # A grid of 2 × 4 over the part from (10, 20) to (50, 40): the middles are at 15, 25, 35, 45 and 25, 35.
    inside = cells_inside([(14, 24, 26, 26), (44, 30, 60, 60)], (2, 4), (10, 20, 50, 40))
    assert inside.reshape(2, 4).tolist() == [[True, True, False, False], [False, False, False, True]]
    assert not cells_inside([], (2, 4), (10, 20, 50, 40)).any()
