"""Batches of images with all their captions."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.batches import TargetBatch
from regard.data.ragged import Ragged
from regard.data.text.tokenizers import Tokenizer


@dataclass(frozen=True)
class CaptionExample:
    """An image and the ids of its captions.

    Attributes:
        row: of the image in the table of pixels.
        captions: ids of each caption, without ``bos`` and ``eos``.
    """

    row: int
    captions: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class CaptionBatch(TargetBatch):
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

    @classmethod
    def of(cls, examples: Sequence[CaptionExample], pixels: NDArray[np.uint8]) -> "CaptionBatch":
        """Returns a batch of these examples.

        Args:
            examples: at least one, each with at least one caption.
            pixels: uint8 ``[rows, height, width, 3]``.
        """
        captions = Ragged.from_lists([caption for example in examples for caption in example.captions])
        target, lengths = captions.with_ends(np.arange(len(captions)), Tokenizer.BOS, Tokenizer.EOS, Tokenizer.PAD)
        counts = torch.tensor([len(example.captions) for example in examples])
        return cls(
            images=torch.from_numpy(np.stack([pixels[example.row] for example in examples])),
            owners=torch.arange(len(examples)).repeat_interleave(counts),
            target=torch.from_numpy(target),
            target_lengths=torch.from_numpy(lengths),
            index=torch.tensor([example.row for example in examples]),
        )


def caption_examples(
    captions: Iterable[Sequence[str]], tokenizer: Tokenizer, max_length: int
) -> tuple[list[CaptionExample], int]:
    """Returns the examples of a table of pixels, and how many captions were cut.

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
