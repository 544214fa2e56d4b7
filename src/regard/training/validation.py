"""How good the model is in the middle of training: loss, BLEU and chrF of greedy translations."""

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
class Validated:
    """What one validation found."""

    loss: float
    """Mean −log p of a target token, in nats, without smoothing."""
    scores: TextScores
    translations: list[str]
    """Greedy, in the order of the data."""


class Validation:
    """Validation data, ready to be translated again and again; shared out over the processes of a run.

    Args:
        loader: batches in a fixed order; ``PairBatch.index`` says which rows they are.
        references: the target text of each row.
        tokenizer: of the target.
        max_length: most tokens that are written for a sentence.
        rank: the number of this process.
        world_size: how many processes there are.
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

    def run(self, model: RecurrentTranslator, autocast: Any) -> Validated:
        """Translate everything and compare.

        Args:
            model: put into evaluation mode meanwhile.
            autocast: a function that gives the context of the run's precision.
        """
        was_training = model.training
        model.eval()
        try:
            with torch.inference_mode(), autocast():
                loss, tokens, found = self._translate(model)
        finally:
            model.train(was_training)
        if self._world_size > 1:
            shares: list[Any] = [None] * self._world_size
            torch.distributed.all_gather_object(shares, (loss, tokens, found))
            loss, tokens = sum(share[0] for share in shares), sum(share[1] for share in shares)
            found = {row: text for share in shares for row, text in share[2].items()}
        translations = [found[row] for row in range(len(self._references))]
        return Validated(loss / max(tokens, 1), text_scores(translations, self._references), translations)

    def _translate(self, model: RecurrentTranslator) -> tuple[float, int, dict[int, str]]:
        # The sum of the loss over target tokens, their number, and the translation of each row.
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
