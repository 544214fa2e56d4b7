"""What a captioner makes of an image: the caption, and the weights over the grid for each word."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.images.pictures import InputImage
from regard.records import GridAxis
from regard.training.task import Prediction


@dataclass(frozen=True, slots=True, repr=False)
class Caption(Prediction):
    """An image, its caption, and where the model attended.

    Attributes:
        image: the image.
        text: its caption.
        score: log-probability of the caption in nats, divided by the length penalty of the search.
        tokens: labels of the tokens, without ``eos``.
        words: positions of the tokens of each word.
        weights: float32 ``[tokens, rows · columns]``; None for a model without attention.
        grid: rows and columns.
        token_ids: ids of the tokens.
    """

    image: InputImage
    text: str
    score: float
    tokens: list[str]
    words: list[range]
    weights: NDArray[np.float32] | None
    grid: tuple[int, int]
    token_ids: tuple[int, ...] = field(default=(), repr=False)

    @property
    def word_texts(self) -> list[str]:
        """The words, as they are written."""
        return ["".join(self.tokens[place].strip("▁␣·") for place in word) for word in self.words]

    @property
    def word_weights(self) -> NDArray[np.float32] | None:
        """``[words, rows · columns]``: the mean over the tokens of each word."""
        if self.weights is None:
            return None
        rows = [self.weights[word.start : word.stop].mean(0) for word in self.words]
        return np.stack(rows) if rows else self.weights[:0]

    @property
    def axis(self) -> GridAxis:
        """The grid over the image, for records."""
        return GridAxis(*self.grid, self.image.shown, box=self.image.box)

    def texts(self) -> tuple[tuple[str, str], ...]:
        return ("image", self.image.name), ("caption", self.text)

    def to_dict(self) -> dict[str, Any]:
        """Image, caption, score in nats, words, and weights ``[word][row][column]`` over ``box`` of the image."""
        found: dict[str, Any] = {
            "image": self.image.name,
            "caption": self.text,
            "score": round(self.score, 4),
            "words": self.word_texts,
        }
        if self.word_weights is not None:
            # In pixels of the image itself, not of the smaller one that is shown.
            found["box"] = [round(edge / self.image.scale, 2) for edge in self.image.box]
            found["weights"] = np.round(self.word_weights.reshape(len(self.words), *self.grid), 5).tolist()
        return found
