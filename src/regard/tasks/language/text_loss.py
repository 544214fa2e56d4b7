"""How well a language model predicts a text: nats a token, perplexity, bits a byte."""

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from regard.data.text.running_text import TokenTable
from regard.data.text.tokenizers import TextTokenizer
from regard.models.language_model import LanguageModel

TOKENS_PER_BATCH = 16_384
"""Tokens that are predicted at once."""


@dataclass(frozen=True, slots=True)
class TextLoss:
    """The loss of a model on a text, summed over its tokens."""

    nats: float
    """−log p of all predicted tokens."""
    tokens: int
    """Predicted tokens; the ends of documents but the last one are among them."""
    bytes: int
    """Bytes of the predicted tokens in UTF-8. An unknown piece has none, so it never makes bits a byte smaller."""
    unknown: int
    """Predicted tokens that are unknown pieces."""

    @property
    def loss(self) -> float:
        """Mean −log p of a token, in nats."""
        return self.nats / max(1, self.tokens)

    @property
    def perplexity(self) -> float:
        """exp(loss)."""
        return math.exp(min(self.loss, 700.0))

    @property
    def bits_per_byte(self) -> float:
        """−log₂ p of the text, divided by its bytes; it does not depend on the tokenizer."""
        return self.nats / math.log(2) / self.bytes if self.bytes else math.inf

    def __add__(self, other: "TextLoss") -> "TextLoss":
        return TextLoss(
            self.nats + other.nats,
            self.tokens + other.tokens,
            self.bytes + other.bytes,
            self.unknown + other.unknown,
        )


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of equal length that predict every token of a text once.

    Window ``k`` reads the tokens from ``starts[k]`` on, and the predictions of its last ``counted[k]`` tokens count.
    """

    starts: np.ndarray
    counted: np.ndarray
    length: int

    @classmethod
    def over(cls, predicted: int, context: int, stride: int) -> "Windows":
        """The windows that predict the tokens 1 to ``predicted``.

        The first window predicts ``context`` tokens; each later one begins ``stride`` tokens after the one before it,
        and predicts the next ``stride`` tokens. The last one ends with the text.
        """
        length = min(context, predicted)
        ends = np.append(np.arange(length, predicted, stride), predicted)
        return cls(ends - length, np.diff(ends, prepend=0), length)


@torch.inference_mode()
def text_loss(
    model: LanguageModel,
    table: TokenTable,
    tokenizer: TextTokenizer,
    *,
    stride: int = 0,
    limit: int = 0,
    rank: int = 0,
    world_size: int = 1,
) -> TextLoss:
    """The loss on a text whose first token is only read. In a distributed run each process predicts a part of it.

    Args:
        model: the model, in evaluation mode.
        table: the ids of the text, at least two.
        tokenizer: the tokenizer of the ids.
        stride: tokens between the starts of windows, up to the model's context; 0: the context.
        limit: largest number of predicted tokens, from the first; 0: all.
        rank: number of this process.
        world_size: number of processes.
    """
    predicted = len(table) - 1 if not limit else min(limit, len(table) - 1)
    context = model.config.context
    windows = Windows.over(predicted, context, stride or context)
    rows = max(1, TOKENS_PER_BATCH // windows.length)
    device = next(model.parameters()).device
    total = TextLoss(0.0, 0, 0, 0)
    for first in itertools.islice(range(0, len(windows.starts), rows), rank, None, world_size):
        tokens = table.windows(windows.starts[first : first + rows], windows.length + 1)
        counted = np.arange(windows.length) >= windows.length - windows.counted[first : first + rows, None]
        nll = model.loss(torch.from_numpy(tokens).to(device)).nll.double().cpu().numpy()
        targets = tokens[:, 1:][counted]
        total += TextLoss(
            float(nll[counted].sum()),
            int(counted.sum()),
            int(tokenizer.byte_lengths[targets].sum()),
            int((targets == tokenizer.UNK).sum()),
        )
    if world_size > 1:
        parts: list[Any] = [None] * world_size
        torch.distributed.all_gather_object(parts, total)
        total = sum(parts, TextLoss(0.0, 0, 0, 0))
    return total
