"""Validation of a translator during training: the loss, and greedy predictions."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import torch

from regard.models.search import greedy
from regard.models.translator import Translator, longest_translation


class PredictedData(NamedTuple):
    """What a model makes of the validation data."""

    loss: float
    """Mean −log p of a target token, in nats, without smoothing."""
    texts: list[str]
    """Greedy predictions, in the order of the data."""


class ValidationLoader(Protocol):
    """Batches in a fixed order.

    They have the fields of a `regard.data.text.batches.PairBatch`; the source may be of any kind that the model reads.
    """

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration this epoch, from its first batch."""
        ...

    def __iter__(self) -> Iterator[Any]: ...


class GreedyValidation:
    """Predicts the validation data with a model. In a distributed run each process predicts a part of the batches.

    Args:
        loader: batches in a fixed order; their ``index`` gives the rows.
        rows: number of rows of the data.
        decode: gives the text of the tokens that were found for a row.
        max_length: largest number of tokens of a prediction.
        forbidden: tokens that are never predicted, besides padding and ``bos``.
        longest: gives the largest number of tokens of the prediction for a source of some length.
    """

    def __init__(
        self,
        loader: ValidationLoader,
        rows: int,
        decode: Callable[[int, list[int]], str],
        max_length: int,
        forbidden: Sequence[int] = (),
        longest: Callable[[int], int] = longest_translation,
    ):
        self._loader = loader
        self._rows = rows
        self._decode = decode
        self._max_length = max_length
        self._forbidden = tuple(forbidden)
        self._longest = longest

    def run(self, model: Translator, rank: int = 0, world_size: int = 1) -> PredictedData:
        """Predict the validation data.

        Args:
            model: the model, in evaluation mode.
            rank: number of this process.
            world_size: number of processes.
        """
        loss, tokens, found = self._predict(model, rank, world_size)
        if world_size > 1:
            parts: list[Any] = [None] * world_size
            torch.distributed.all_gather_object(parts, (loss, tokens, found))
            loss, tokens = sum(part[0] for part in parts), sum(part[1] for part in parts)
            found = {row: text for part in parts for row, text in part[2].items()}
        return PredictedData(loss / max(tokens, 1), [found[row] for row in range(self._rows)])

    def _predict(self, model: Translator, rank: int, world_size: int) -> tuple[float, int, dict[int, str]]:
        # Returns the loss summed over the target tokens, the number of these tokens, and the text of each row.
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
            lengths = batch.source_lengths.tolist()
            longest = [min(self._max_length, self._longest(length)) for length in lengths]
            encoded = model.encode(batch.source, batch.source_lengths)
            hypotheses = greedy(
                model,
                encoded,
                bos=config.bos,
                eos=config.eos,
                max_length=longest,
                forbidden=(config.pad, config.bos, *self._forbidden),
            )
            for row, hypothesis in zip(batch.index.tolist(), hypotheses, strict=True):
                found[row] = self._decode(row, hypothesis.tokens)
        return total, tokens, found
