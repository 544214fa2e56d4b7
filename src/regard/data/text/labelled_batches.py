"""Batches of labelled texts with similar lengths, in an order that can be resumed at any batch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.data.text.batches import BatchLoader, PairBatch, encode_pairs
from regard.data.text.labels import Labels
from regard.data.text.tokenizers import Tokenizer

if TYPE_CHECKING:
    import datasets

# A label is a target of one token, which `PairBatch` puts between ``bos`` and ``eos``.
_LABEL_TOKENS = 3


def encode_labelled(
    dataset: "datasets.Dataset", tokenizer: Tokenizer, labels: Labels, max_length: int
) -> "datasets.Dataset":
    """Encode texts and labels; a text with more than ``max_length`` tokens is cut, and the logger ``regard`` warns.

    Args:
        dataset: as `regard.data.text.labelled.open_labelled` gives it; every label must be known.
        tokenizer: encodes the texts.
        labels: encodes the labels.
        max_length: largest number of tokens of a text.

    Returns:
        what `regard.data.text.batches.encode_pairs` returns, for `LabelledBatches`.
    """
    return encode_pairs(dataset, tokenizer, labels, max_length=max_length, overlong="cut", unit="texts")


@dataclass(frozen=True, slots=True)
class LabelledBatch:
    """A batch of texts, padded with id 0.

    Attributes:
        tokens: int64 ``[batch, length]``.
        lengths: int64 ``[batch]``, tokens of each text.
        labels: int64 ``[batch]``, the number of each label.
        index: int64 ``[batch]``, the row of each text in the data set.
    """

    tokens: Tensor
    lengths: Tensor
    labels: Tensor
    index: Tensor

    def __len__(self) -> int:
        return len(self.index)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "LabelledBatch":
        """The same batch on a device."""
        moved = (getattr(self, field.name).to(device, non_blocking=non_blocking) for field in fields(self))
        return LabelledBatch(*moved)

    @classmethod
    def of(cls, texts: Sequence[Sequence[int]]) -> "LabelledBatch":
        """A batch of texts from lists of ids; every label is number 0."""
        return cls.of_pairs(PairBatch.of(texts, [(0,)] * len(texts)))

    @classmethod
    def of_pairs(cls, batch: PairBatch) -> "LabelledBatch":
        """A batch from pairs of texts and labels."""
        return cls(batch.source, batch.source_lengths, batch.target[:, 1], batch.index)


class LabelledBatches:
    """Gives every text once an epoch, in batches of texts with similar lengths; can resume after any batch.

    The order is that of a `regard.data.text.batches.BatchLoader`.

    Args:
        encoded: what `encode_labelled` gives.
        texts: largest number of texts of a batch.
        tokens: largest number of tokens of a batch, with padding; a longer text is a batch of one.
        seed: seed of the order.
        shuffle: whether each epoch has another order.
        rank: number of this process.
        world_size: number of processes.
    """

    def __init__(
        self,
        encoded: "datasets.Dataset",
        texts: int,
        tokens: int,
        *,
        seed: int = 0,
        shuffle: bool = True,
        rank: int = 0,
        world_size: int = 1,
    ):
        self._pairs = BatchLoader(
            encoded,
            _LABEL_TOKENS * texts,
            seed=seed,
            shuffle=shuffle,
            source_tokens_per_batch=tokens,
            rank=rank,
            world_size=world_size,
        )

    def __len__(self) -> int:
        return len(self._pairs)

    def __iter__(self) -> Iterator[LabelledBatch]:
        return map(LabelledBatch.of_pairs, self._pairs)

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration this epoch, from its first batch."""
        self._pairs.set_epoch(epoch)

    def state_dict(self) -> dict[str, int]:
        """The epoch, and how many of its batches the iteration has given."""
        return self._pairs.state_dict()

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Make the next iteration start at the batch after the last one before ``state``."""
        self._pairs.load_state_dict(state)
