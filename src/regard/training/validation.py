"""Validation during training: loss, BLEU and chrF of greedy translations."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from regard.data.batches import BatchLoader
from regard.data.tokenizers import Tokenizer
from regard.models.search import greedy
from regard.models.translator import RecurrentTranslator
from regard.training.text_metrics import TextScores, text_scores


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """The results of one validation."""

    loss: float
    """Mean −log p of a target token, in nats, without smoothing."""
    scores: TextScores
    translations: list[str]
    """Greedy translations, in the order of the data."""


class Validation:
    """Translates the validation data with a model. In a distributed run each process translates a part of the batches.

    Args:
        loader: batches in a fixed order; ``PairBatch.index`` gives their rows.
        references: the target text of each row.
        tokenizer: the target tokenizer.
        max_length: largest number of tokens of a translation.
        rank: number of this process.
        world_size: number of processes.
    """

    def __init__(
        self,
        loader: BatchLoader,
        references: Sequence[str],
        tokenizer: Tokenizer,
        max_length: int,
        rank: int = 0,
        world_size: int = 1,
    ):
        self._loader = loader
        self._references = list(references)
        self._tokenizer = tokenizer
        self._max_length = max_length
        self._rank = rank
        self._world_size = world_size

    def run(self, model: RecurrentTranslator, autocast: Any) -> ValidationResult:
        """Translate the validation data and compare the translations with the references.

        Args:
            model: the model; it is in evaluation mode during the validation.
            autocast: a function that returns the autocast context of the run's precision.
        """
        was_training = model.training
        model.eval()
        try:
            with torch.inference_mode(), autocast():
                loss, tokens, found = self._translate(model)
        finally:
            model.train(was_training)
        if self._world_size > 1:
            parts: list[Any] = [None] * self._world_size
            torch.distributed.all_gather_object(parts, (loss, tokens, found))
            loss, tokens = sum(part[0] for part in parts), sum(part[1] for part in parts)
            found = {row: text for part in parts for row, text in part[2].items()}
        translations = [found[row] for row in range(len(self._references))]
        return ValidationResult(loss / max(tokens, 1), text_scores(translations, self._references), translations)

    def _translate(self, model: RecurrentTranslator) -> tuple[float, int, dict[int, str]]:
        # Returns the loss summed over the target tokens, the number of these tokens, and the translation of each row.
        device = next(model.parameters()).device
        config = model.config
        total, tokens, found = 0.0, 0, {}
        self._loader.set_epoch(0)
        for batch in itertools.islice(self._loader, self._rank, None, self._world_size):
            batch = batch.to(device)
            loss = model.loss(
                batch.source, batch.source_lengths, batch.target, batch.target_lengths, label_smoothing=0.0
            )
            total += float(loss.nll) * batch.target_tokens
            tokens += batch.target_tokens
            longest = min(self._max_length, 2 * batch.source.shape[1] + 10)
            encoded = model.encode(batch.source, batch.source_lengths)
            hypotheses = greedy(
                model, encoded, bos=config.bos, eos=config.eos, max_length=longest, forbidden=(config.pad, config.bos)
            )
            for row, hypothesis in zip(batch.index.tolist(), hypotheses, strict=True):
                found[row] = self._tokenizer.decode(hypothesis.tokens)
        return total, tokens, found
