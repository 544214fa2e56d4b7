"""Metrics of segmentations: a confusion matrix of pixels, and what it gives."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class PixelMetrics:
    """How many pixels of each class were found to be which.

    Attributes:
        confusion: int64 ``[true, found]``, on the CPU.
    """

    confusion: Tensor

    @property
    def iou(self) -> list[float | None]:
        """Intersection over union of each class: TP / (TP + FP + FN); None for one that neither occurs nor is found."""
        hits = self.confusion.diagonal().double()
        union = (self.confusion.sum(0) + self.confusion.sum(1)).double() - hits
        return [float(hit / one) if one else None for hit, one in zip(hits, union, strict=True)]

    @property
    def mean_iou(self) -> float:
        """The mean of `iou` over the classes that have one; 0 without any pixel."""
        known = [one for one in self.iou if one is not None]
        return sum(known) / max(1, len(known))

    @property
    def pixel_accuracy(self) -> float:
        """The share of pixels whose class was found; 0 without any pixel."""
        return float(self.confusion.diagonal().sum()) / max(1, int(self.confusion.sum()))

    @property
    def recall(self) -> list[float | None]:
        """The share of each class's pixels that were found; None for a class that does not occur."""
        total = self.confusion.sum(1)
        return [
            float(hit) / int(one) if one else None for hit, one in zip(self.confusion.diagonal(), total, strict=True)
        ]


def count_pixels(true: Tensor, found: Tensor, classes: int) -> Tensor:
    """The confusion matrix of pixels, ``[true, found]``, on the CPU.

    Args:
        true: int64 of any shape; pixels of a class below 0 do not count.
        found: int64 of the same shape, from 0 to ``classes - 1``.
        classes: how many there are; ``true`` is below it.
    """
    counted = true >= 0
    pairs = true[counted] * classes + found[counted]
    return torch.bincount(pairs, minlength=classes * classes).view(classes, classes).cpu()
