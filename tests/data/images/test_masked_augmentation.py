"""Augmentation: an image and its class map are changed alike, and nothing but the drawn part decides."""

import pytest
import torch

from regard.data.images.augmentation import IGNORED_CLASS, MaskedAugmentation, augment_masked

B, H, W = 3, 11, 17


def coded():
    """Images whose red tells the class of the pixel exactly."""
    classes = torch.randint(0, 7, (B, H, W))
    images = torch.rand(B, 3, H, W)
    images[:, 0] = (classes + 1) / 10
    return images, classes


def test_no_augmentation_is_the_image():
    images, classes = coded()
    found = augment_masked(images, classes, MaskedAugmentation((H, W)))
    torch.testing.assert_close(found[0], images)
    assert torch.equal(found[1], classes)


@pytest.mark.parametrize("mirror", [False, True])
def test_a_part_at_the_same_place_of_both(mirror):
    classes = torch.randint(0, 7, (B, 1, 1)).expand(B, 40, 60).clone()
    classes[:, 10:30, 20:50] += 5
    images = (classes + 1.0)[:, None].expand(-1, 3, -1, -1) / 20
    sides = set()
    for _ in range(8):
        found, known = augment_masked(images, classes, MaskedAugmentation((23, 31), 1.0, 0.0, mirror))
        assert found.shape == (B, 3, 23, 31)
        # Away from edges, where bilinear pixels lie between two classes, both tell the same.
        right = (found[:, 0] * 20 - 1 - known).abs() < 1e-3
        assert right.float().mean() > 0.9
        assert (known != IGNORED_CLASS).all()  # a part that fits lies inside
        sides.add(tuple(known[:, :, 0].flatten().tolist()))
    assert len(sides) > 1


def test_pixels_outside_of_a_masked_image_are_black_and_ignored():
    images, classes = coded()
    found, known = augment_masked(images + 0.5, classes, MaskedAugmentation((2 * H, 2 * W)))
    outside = known == IGNORED_CLASS
    assert 0.7 < outside.float().mean() < 0.8
    assert (known[~outside] >= 0).all()
    assert (found.amax(1)[outside] <= 1.5).all()
    assert found[:, :, 0, 0].eq(0).all() or known[:, 0, 0].ne(IGNORED_CLASS).any()


def test_the_number_of_pixels_of_a_class_follows_the_zoom():
    classes = torch.zeros(64, 40, 40, dtype=torch.int64)
    classes[:, 18:22, 18:22] = 1
    images = torch.rand(64, 3, 40, 40)
    _, known = augment_masked(images, classes, MaskedAugmentation((40, 40), 2.0))
    sizes = (known == 1).sum((1, 2)).float()
    assert sizes.max() > 45
    assert sizes.min() < 9
    assert sizes.median() == pytest.approx(16, abs=8)


def test_ignored_pixels_stay_ignored():
    images, classes = coded()
    classes[:, 3, 5] = IGNORED_CLASS
    _, known = augment_masked(images, classes, MaskedAugmentation((H, W)))
    assert (known[:, 3, 5] == IGNORED_CLASS).all()
    assert (known == IGNORED_CLASS).sum() == B


def test_colours_change_and_classes_do_not():
    images, classes = coded()
    found, known = augment_masked(images, classes, MaskedAugmentation((H, W), colour=0.5))
    assert torch.equal(known, classes)
    assert ((found >= 0) & (found <= 1)).all()
    assert (found - images).abs().mean() > 0.02


def test_autocast_moves_no_pixel_of_a_masked_image():
    images, classes = torch.rand(1, 3, 61, 337), torch.randint(0, 200, (1, 61, 337))
    with torch.autocast("cpu", torch.bfloat16):
        found, known = augment_masked(images, classes, MaskedAugmentation((61, 337)))
    torch.testing.assert_close(found, images, atol=1e-4, rtol=0)
    assert torch.equal(known, classes)


def test_the_seed_decides():
    images, classes = coded()
    options = MaskedAugmentation((7, 9), 1.7, 0.3, True)
    results = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        results.append(augment_masked(images, classes, options))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])
    assert not torch.equal(results[0][0], results[2][0])
