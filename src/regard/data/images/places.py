"""Where the pixels of a changed image come from."""

import torch
from torch import Tensor
from torch.nn import functional as F


def pixel_places(change: Tensor, size: tuple[int, int]) -> Tensor:
    """For each pixel of the results its place in the images, for `torch.nn.functional.grid_sample`.

    Args:
        change: ``[batch, 2, 3]``: an affine map from places in the result to places in the image, both from −1 to 1.
        size: height and width of the results.

    Returns:
        ``[batch, height, width, 2]``, for ``align_corners=False``. Under autocast too it has the dtype of ``change``:
        16 bits would move pixels.
    """
    with torch.autocast(change.device.type, enabled=False):
        return F.affine_grid(change, [len(change), 1, *size], align_corners=False)
