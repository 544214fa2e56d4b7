"""What a classifier makes of an image: the label, the probabilities, and where it attended."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.images.pictures import InputImage
from regard.training.task import Prediction


@dataclass(frozen=True, slots=True, repr=False)
class ImageLabel(Prediction):
    """An image, its label, and the weights of its parts.

    Attributes:
        image: the image.
        label: the name of the most probable label.
        probabilities: label → probability, the most probable first.
        weights: float32 ``[rows · columns]``, which sum to 1: how much of the output each cell of the grid is made of;
            None for a model without attention.
        grid: rows and columns.
    """

    image: InputImage
    label: str
    probabilities: dict[str, float]
    weights: NDArray[np.float32] | None
    grid: tuple[int, int]

    @property
    def text(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.label

    def texts(self) -> tuple[tuple[str, str], ...]:
        return ("image", self.image.name), ("label", self.label)

    def ranked(self) -> tuple[tuple[str, float], ...]:
        return tuple(self.probabilities.items())

    def to_dict(self) -> dict[str, Any]:
        """Image, label, probabilities, and weights ``[row][column]`` over ``box`` of the image."""
        found: dict[str, Any] = {
            "image": self.image.name,
            "label": self.label,
            "probabilities": {label: round(value, 6) for label, value in self.probabilities.items()},
        }
        if self.weights is not None:
            # In pixels of the image itself, not of the smaller one that is shown.
            found["box"] = [round(edge / self.image.scale, 2) for edge in self.image.box]
            found["weights"] = np.round(self.weights.reshape(self.grid), 5).tolist()
        return found
