"""The loss of a language model on a text: windows that predict each token once, on one or several processes."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from regard.tasks.lazy import np, torch
from regard.tasks.sequence_lines import SequenceLines
from regard.tasks.task import gathered

if TYPE_CHECKING:
    from torch import Tensor

    from regard.data.text.running_text import TokenTable
    from regard.data.text.tokenizers import TextTokenizer
    from regard.models.language_model import LanguageLoss, LanguageModel

TOKENS_PER_BATCH = 16_384
"""Tokens that are predicted at once."""


@dataclass(frozen=True)
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

    def __add__(self, other: TextLoss) -> TextLoss:
        return TextLoss(
            self.nats + other.nats, self.tokens + other.tokens, self.bytes + other.bytes, self.unknown + other.unknown
        )


@dataclass(frozen=True)
class Windows:
    """Windows of equal length that predict every token of a text once: window ``k`` reads the tokens from ``starts[k]``
    on, and the predictions of its last ``counted[k]`` tokens count."""

    starts: np.ndarray
    counted: np.ndarray
    length: int

    @classmethod
    def over(cls, predicted: int, context: int, stride: int) -> Windows:
        """Returns the windows that predict the tokens 1 to ``predicted``.

        The first window predicts ``context`` tokens; each later one begins ``stride`` tokens after the one before it,
        and predicts the next ``stride`` tokens. The last one ends with the text.
        """
        length = min(context, predicted)
        ends = np.append(np.arange(length, predicted, stride), predicted)
        return cls(ends - length, np.diff(ends, prepend=0), length)


WHOLE_WINDOWS = SequenceLines(1, "cpu")
"""Each process has whole windows."""


def window_loss(model: LanguageModel, tokens: Tensor, lines: SequenceLines, label_smoothing: float) -> LanguageLoss:
    """Returns the loss of this process's part of windows, in which every token but the first is predicted; ``tokens``,
    ``int64 [windows, length + 1]``, are the same on all processes of a line."""
    shards = lines.shards(tokens.shape[1] - 1)
    if shards is None:
        return model.loss(tokens, label_smoothing=label_smoothing)
    from regard.distributed import sequence

    inputs, labels = (shards.cut(part, 1) for part in (tokens[:, :-1], tokens[:, 1:]))
    with sequence(shards):
        return model.loss_of(inputs, labels, label_smoothing=label_smoothing)


def text_loss(
    model: LanguageModel,
    table: TokenTable,
    tokenizer: TextTokenizer,
    *,
    stride: int = 0,
    limit: int = 0,
    rank: int = 0,
    world_size: int = 1,
    lines: SequenceLines = WHOLE_WINDOWS,
) -> TextLoss:
    """Returns the loss on a text whose first token is only read, over ``limit`` tokens (0: all); each process of a
    distributed run predicts a part. ``stride`` are the tokens between the starts of windows; 0: the model's context."""
    predicted = len(table) - 1 if not limit else min(limit, len(table) - 1)
    context = model.config.context
    windows = Windows.over(predicted, context, stride or context)
    rows = max(1, TOKENS_PER_BATCH // windows.length)
    device = next(model.parameters()).device
    total, shards = TextLoss(0.0, 0, 0, 0), lines.shards(windows.length)
    line, count = lines.share(rank, world_size)
    for first in itertools.islice(range(0, len(windows.starts), rows), line, None, count):
        tokens = table.windows(windows.starts[first : first + rows], windows.length + 1)
        counted = np.arange(windows.length) >= windows.length - windows.counted[first : first + rows, None]
        with torch.inference_mode():
            nll = window_loss(model, torch.from_numpy(tokens).to(device), lines, 0.0).nll
            nll = (nll if shards is None else shards.join(nll, 1)).cpu().double().numpy()
        targets = tokens[:, 1:][counted]
        total += TextLoss(
            float(nll[counted].sum()),
            int(counted.sum()),
            int(tokenizer.byte_lengths[targets].sum()),
            int((targets == tokenizer.UNK).sum()),
        )
    # Each process of a line has the loss of its whole windows.
    return sum(gathered(total, world_size)[:: lines.processes], TextLoss(0.0, 0, 0, 0))
