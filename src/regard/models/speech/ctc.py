"""Connectionist temporal classification: tokens in their order, predicted from the annotations alone."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.models.encoders import Encoded
from regard.tracing.module_calls import Module


def fewest_annotations(tokens: Sequence[int]) -> int:
    """Counts the annotations that a path of these tokens needs: one for each, and a blank between two equal ones."""
    return len(tokens) + sum(before == after for before, after in pairwise(tokens))


class AlignmentHead(Module):
    """A linear layer that predicts a token, or none, from each annotation (Graves et al. 2006).

    .. math::

        p(y | x) = Σ_{paths that give y} Π_t p(path_t | x)

    A path has a token or a blank for each annotation; it gives the tokens that are left when repetitions and then
    blanks are taken away.

    Args:
        dim: features of an annotation.
        vocabulary: tokens.
        blank: the token that stands for none: padding, which is in no text.
    """

    def __init__(self, dim: int, vocabulary: int, blank: int = 0):
        super().__init__()
        self.linear = nn.Linear(dim, vocabulary)
        self.blank = blank

    def forward(self, annotations: Tensor) -> Tensor:
        """Computes log-probabilities of the tokens of each annotation, float32 ``[batch, annotations, vocabulary]``."""
        return self.linear(annotations).float().log_softmax(-1)

    def loss(self, encoded: Encoded, target: Tensor, target_lengths: Tensor) -> Tensor:
        """Computes −log p(y | x) in nats, summed over the batch.

        A text for which a sound has fewer than `fewest_annotations` adds nothing, and has no gradient.

        Args:
            encoded: the annotations.
            target: ``int64 [batch, target]``, from ``bos`` to ``eos``.
            target_lengths: ``int64 [batch]``, both counted.
        """
        log_probabilities = self(encoded.annotations).transpose(0, 1)
        texts, lengths = target[:, 1:-1], target_lengths - 2
        return F.ctc_loss(
            log_probabilities, texts, encoded.lengths, lengths, blank=self.blank, reduction="sum", zero_infinity=True
        )

    @torch.no_grad()
    def best_path(self, encoded: Encoded) -> list[list[int]]:
        """Returns the tokens of the most likely path of each row."""
        texts = []
        tokens = self(encoded.annotations).argmax(-1).cpu()  # an accelerator is waited for here, and not for each row
        for row, length in zip(tokens, encoded.lengths.tolist(), strict=True):
            path = row[:length].unique_consecutive().tolist()
            texts.append([token for token in path if token != self.blank])
        return texts
