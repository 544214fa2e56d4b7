"""Pixels as the input of a network."""

import torch
from torch import Tensor

from regard.distributed.sequence_parts import refuse_parts
from regard.errors import KindError, ShapeError
from regard.tracing.module_calls import Module
from regard.tracing.portable import vector
from regard.tracing.transforms import sent

MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)
"""Mean and standard deviation of each color over the photos of ImageNet, from 0 to 1: pretrained weights expect images
that are normalized by them."""


def normalized(images: Tensor) -> Tensor:
    """Returns ``(images − mean) / deviation`` of images ``[batch, 3, height, width]`` from 0 to 1.

    The numbers are no buffers, which would stay rounded in a model that is made double.
    """
    mean, deviation = (
        sent(vector(numbers, images.dtype), images.device).view(3, 1, 1) for numbers in (MEAN, DEVIATION)
    )
    return (images - mean) / deviation


class PixelInput(Module):
    """Normalizes the bytes of an image: ``(pixels / 255 − mean) / deviation`` for each color."""

    like: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("like", torch.empty(0), persistent=False)  # its dtype is that of the network

    def forward(self, images: Tensor) -> Tensor:
        """Normalizes images ``[batch, height, width, 3]``, uint8 from 0 to 255 or floating-point from 0 to 1.

        Returns ``[batch, 3, height, width]`` of the network's dtype, in the memory format channels last. Raises
        ShapeError unless the last axis is 3 colors, and KindError for another dtype.
        """
        refuse_parts("a model of images")
        if images.dim() != 4 or images.shape[-1] != 3:
            raise ShapeError(f"images must be [batch, height, width, 3]; they have shape {list(images.shape)}")
        if images.dtype == torch.uint8:
            images = images.to(self.like.dtype) / 255
        elif not images.is_floating_point():
            raise KindError(f"images must be uint8 or floating-point; they are {images.dtype}")
        # Colors are on the last axis of the bytes, so the permutation copies nothing.
        return normalized(images.permute(0, 3, 1, 2).to(self.like.dtype))
