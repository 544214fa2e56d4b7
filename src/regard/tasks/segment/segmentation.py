"""What a trained segmentation makes of an image: the class of each pixel, and the attention of one of them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.training.task import Prediction


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Segmentation(Prediction):
    """An image and the classes of its pixels.

    Attributes:
        image: the file of the image.
        pixels: uint8 ``[height, width, 3]``.
        classes: uint8 ``[height, width]``: the class of each pixel, at the image's own size.
        shares: the share of each class that was found, the largest first.
        names: the names of all classes, in the order of their numbers.
        pixel: x and y of the pixel whose attention was read.
        weights: with which it attends to the image, float32 ``[rows, columns]``, a sum of 1; None for a model whose
            positions do not attend to each other.
        cell: width and height in pixels of what each weight belongs to; the last cells may reach beyond the image.
    """

    image: str
    pixels: NDArray[np.uint8]
    classes: NDArray[np.uint8]
    shares: dict[str, float]
    names: tuple[str, ...]
    pixel: tuple[int, int]
    weights: NDArray[np.float32] | None
    cell: tuple[float, float]

    @property
    def text(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return " · ".join(f"{name} {100 * share:.1f} %" for name, share in self.shares.items())

    def lines(self) -> list[str]:
        return [f"{self.image}: {self.text}"]

    def texts(self) -> tuple[tuple[str, str], ...]:
        return ("image", self.image), ("classes", self.text)

    def to_dict(self) -> dict[str, Any]:
        """Image, size and shares, and the attention of the pixel: ``weights[row][column]`` of cells."""
        height, width = self.classes.shape
        found: dict[str, Any] = {
            "image": self.image,
            "width": width,
            "height": height,
            "shares": {name: round(share, 6) for name, share in self.shares.items()},
        }
        if self.weights is not None:
            found["pixel"] = list(self.pixel)
            found["cell"] = [round(side, 4) for side in self.cell]
            found["weights"] = [[round(weight, 6) for weight in row] for row in self.weights.tolist()]
        return found
