import torch

from regard.data.images.augmentation import Augmentation


def test_autocast_moves_no_pixel():
    images = torch.randint(0, 256, (3, 61, 97, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    change = Augmentation(zoom=0.3, flip=True, jitter=0.2)
    torch.manual_seed(2)
    expected = change(images)
    torch.manual_seed(2)
    with torch.autocast("cpu", torch.bfloat16):
        found = change(images)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
