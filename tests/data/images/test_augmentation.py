import torch

from regard.data.images.augmentation import Augmentation


def test_autocast_moves_no_pixel_of_an_augmented_image():
    images = torch.randint(0, 256, (3, 61, 97, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    change = Augmentation(zoom=0.3, flip=True, jitter=0.2)
    torch.manual_seed(2)
    expected = change(images)
    torch.manual_seed(2)
    with torch.autocast("cpu", torch.bfloat16):
        found = change(images)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


def test_contrast_and_brightness_change_by_at_most_the_jitter():
    """A picture of two gray levels near the middle: nothing is cut off at black or white."""
    images = torch.full((500, 2, 1, 3), 105, dtype=torch.uint8)
    images[:, 1] = 115
    torch.manual_seed(0)
    changed = Augmentation(jitter=0.5)(images)
    contrast = (changed[:, 1, 0, 0] - changed[:, 0, 0, 0]) * 25.5
    brightness = changed.mean((1, 2, 3)) * 255 / 110
    for factor in (contrast, brightness):
        assert 0.499 <= float(factor.min()) < 0.52
        assert 1.48 < float(factor.max()) <= 1.501
