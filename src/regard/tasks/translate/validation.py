"""Validation during training: the loss, and greedy translations."""

import itertools
from typing import Any, NamedTuple

import torch

from regard.data.text.batches import BatchLoader
from regard.data.text.tokenizers import Tokenizer
from regard.models.search import greedy
from regard.models.translator import Translator, longest_translation


class TranslatedData(NamedTuple):
    """What a model makes of the validation data."""

    loss: float
    """Mean −log p of a target token, in nats, without smoothing."""
    translations: list[str]
    """Greedy translations, in the order of the data."""


class Validation:
    """Translates the validation data with a model. In a distributed run each process translates a part of the batches.

    Args:
        loader: batches in a fixed order; ``PairBatch.index`` gives their rows.
        rows: number of rows of the data.
        tokenizer: the target tokenizer.
        max_length: largest number of tokens of a translation.
    """

    def __init__(self, loader: BatchLoader, rows: int, tokenizer: Tokenizer, max_length: int):
        self._loader = loader
        self._rows = rows
        self._tokenizer = tokenizer
        self._max_length = max_length

    def run(self, model: Translator, rank: int = 0, world_size: int = 1) -> TranslatedData:
        """Translate the validation data.

        Args:
            model: the model, in evaluation mode.
            rank: number of this process.
            world_size: number of processes.
        """
        loss, tokens, found = self._translate(model, rank, world_size)
        if world_size > 1:
            parts: list[Any] = [None] * world_size
            torch.distributed.all_gather_object(parts, (loss, tokens, found))
            loss, tokens = sum(part[0] for part in parts), sum(part[1] for part in parts)
            found = {row: text for part in parts for row, text in part[2].items()}
        return TranslatedData(loss / max(tokens, 1), [found[row] for row in range(self._rows)])

    def _translate(self, model: Translator, rank: int, world_size: int) -> tuple[float, int, dict[int, str]]:
        # Returns the loss summed over the target tokens, the number of these tokens, and the translation of each row.
        device = next(model.parameters()).device
        config = model.config
        total, tokens, found = 0.0, 0, {}
        self._loader.set_epoch(0)
        for batch in itertools.islice(self._loader, rank, None, world_size):
            batch = batch.to(device)
            loss = model.loss(
                batch.source, batch.source_lengths, batch.target, batch.target_lengths, label_smoothing=0.0
            )
            total += float(loss.nll) * batch.target_tokens
            tokens += batch.target_tokens
            longest = min(self._max_length, longest_translation(batch.source.shape[1]))
            encoded = model.encode(batch.source, batch.source_lengths)
            hypotheses = greedy(
                model, encoded, bos=config.bos, eos=config.eos, max_length=longest, forbidden=(config.pad, config.bos)
            )
            for row, hypothesis in zip(batch.index.tolist(), hypotheses, strict=True):
                found[row] = self._tokenizer.decode(hypothesis.tokens)
        return total, tokens, found
