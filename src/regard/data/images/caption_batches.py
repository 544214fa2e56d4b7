"""Batches of images with all their captions, in an order that can be resumed at any batch."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.text.tokenizers import Tokenizer


@dataclass(frozen=True, slots=True)
class CaptionExample:
    """An image and the ids of its captions.

    Attributes:
        row: of the image in the table of pixels.
        captions: ids of each caption, without ``bos`` and ``eos``.
    """

    row: int
    captions: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class CaptionBatch:
    """Some images with captions.

    Attributes:
        images: uint8 ``[images, height, width, 3]``.
        owners: int64 ``[captions]``: the image of each caption.
        target: int64 ``[captions, target]``: from ``bos`` to ``eos``, padded.
        target_lengths: int64 ``[captions]``, both included.
        index: int64 ``[images]``: rows in the table of pixels.
    """

    images: Tensor
    owners: Tensor
    target: Tensor
    target_lengths: Tensor
    index: Tensor

    @classmethod
    def of(cls, examples: Sequence[CaptionExample], pixels: NDArray[np.uint8]) -> "CaptionBatch":
        """A batch of these examples.

        Args:
            examples: at least one, each with at least one caption.
            pixels: uint8 ``[rows, height, width, 3]``.
        """
        captions = [caption for example in examples for caption in example.captions]
        lengths = torch.tensor([len(caption) + 2 for caption in captions])
        target = torch.full((len(captions), int(lengths.max())), Tokenizer.PAD)
        for place, caption in enumerate(captions):
            target[place, : len(caption) + 2] = torch.tensor([Tokenizer.BOS, *caption, Tokenizer.EOS])
        counts = torch.tensor([len(example.captions) for example in examples])
        return cls(
            images=torch.from_numpy(np.stack([pixels[example.row] for example in examples])),
            owners=torch.arange(len(examples)).repeat_interleave(counts),
            target=target,
            target_lengths=lengths,
            index=torch.tensor([example.row for example in examples]),
        )

    def __len__(self) -> int:
        return len(self.images)

    @property
    def target_tokens(self) -> int:
        """Predicted tokens: ``eos`` counts, ``bos`` and padding do not."""
        return int(self.target_lengths.sum()) - len(self.target_lengths)

    def to(self, device: Any, non_blocking: bool = False) -> "CaptionBatch":
        """The batch on a device."""
        moved = (getattr(self, field.name).to(device, non_blocking=non_blocking) for field in fields(self))
        return CaptionBatch(*moved)

    def pin_memory(self) -> "CaptionBatch":
        """The batch in memory from which it is copied to a GPU quickly."""
        return CaptionBatch(*(getattr(self, field.name).pin_memory() for field in fields(self)))


def caption_examples(
    captions: Iterable[Sequence[str]], tokenizer: Tokenizer, max_length: int
) -> tuple[list[CaptionExample], int]:
    """The examples of a table of pixels, and how many captions were cut.

    Args:
        captions: the captions of each row, at least one.
        tokenizer: encodes them.
        max_length: largest number of tokens of a caption; longer ones are cut.
    """
    examples, cut = [], 0
    for row, texts in enumerate(captions):
        ids = tokenizer.encode_batch(list(texts))
        cut += sum(len(caption) > max_length for caption in ids)
        examples.append(CaptionExample(row, tuple(tuple(caption[:max_length]) for caption in ids)))
    return examples, cut
