"""The base class of captioners: a grid of annotations of an image, a decoder, a loss, and a search."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from regard.models.encoders import Encoded
from regard.models.search import Hypothesis, MinimumRisk
from regard.models.text_predictor import Loss, TextPredictor, TranslatorOutput
from regard.models.vision.grid_encoder import GridEncoder


class Captioner(TextPredictor):
    """A model that predicts captions of images.

    Attributes:
        config: the configuration, a `CaptionerConfig`.
        encoder: maps images to annotations of a grid.

    Example:
        >>> import torch
        >>> from regard import models
        >>> sizes = {"image_height": 32, "image_width": 32, "grid": 16, "stages": 2, "patch": 4, "hidden": 8}
        >>> model = models.RecurrentCaptioner(models.CaptionerConfig(target_vocabulary=30, **sizes))
        >>> isinstance(model, models.Captioner), model.grid
        (True, (4, 4))
        >>> owners, target = torch.tensor([0, 0, 1]), torch.tensor([[1, 7, 2], [1, 8, 2], [1, 9, 2]])
        >>> loss = model.loss(torch.rand(2, 32, 32, 3), owners, target, torch.tensor([3, 3, 3]))
        >>> loss.tokens  # two of each caption; the first image has two captions
        tensor(6)
    """

    config: Any
    encoder: GridEncoder
    max_length: int | None = None
    """Largest number of tokens in a caption; None: no limit."""

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of the grid that the decoder attends to, row by row."""
        return self.encoder.rows, self.encoder.columns

    def encode(self, images: Tensor) -> Encoded:
        """Returns the annotations of images ``[batch, height, width, 3]``, uint8 or floating-point from 0 to 1."""
        return self.encoder(images)

    def longest(self, max_length: int) -> int:
        """Returns the largest number of tokens that a search may choose, at most ``max_length``."""
        return max_length if self.max_length is None else min(max_length, self.max_length - 1)

    def forward(
        self, images: Tensor, owners: Tensor, target: Tensor, target_lengths: Tensor | None = None
    ) -> TranslatorOutput:
        """Predicts the tokens of known captions; an image with several captions is encoded once.

        Args:
            images: ``[images, height, width, 3]``.
            owners: ``int64 [captions]``: the image of each caption.
            target: ``int64 [captions, target]``, from ``bos`` to ``eos``.
            target_lengths: ``int64 [captions]``, number of tokens of each caption, with ``bos`` and ``eos``; None: no
                padding.
        """
        return self.decode(self.encode(images).select(owners), target, target_lengths)

    def loss(
        self, images: Tensor, owners: Tensor, target: Tensor, target_lengths: Tensor, *, label_smoothing: float = 0.0
    ) -> Loss:
        """Computes the loss of a batch; ``label_smoothing`` is in [0, 1], other arguments are as in `forward`."""
        output = self(images, owners, target, target_lengths)
        return self.loss_of(output, target, target_lengths, label_smoothing)

    @torch.no_grad()
    def caption(
        self,
        images: Tensor,
        *,
        width: int = 1,
        length_penalty: float = 1.0,
        risk: MinimumRisk | None = None,
        max_length: int = 40,
        forbidden: Sequence[int] = (),
    ) -> list[Hypothesis]:
        """Searches for the best caption of each image, in evaluation mode.

        Args:
            images: ``[batch, height, width, 3]``.
            width, length_penalty, risk, max_length, forbidden: as for `search`.
        """
        training = self.training
        self.eval()
        try:
            return self.search(
                self.encode(images), width=width, length_penalty=length_penalty, risk=risk,
                max_length=self.longest(max_length), forbidden=forbidden,
            )  # fmt: skip
        finally:
            self.train(training)
