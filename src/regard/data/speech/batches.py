"""Batches of utterances with similar lengths, joined and stretched at random in training."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.batches import Batches, Order, TargetBatch
from regard.data.ragged import Ragged
from regard.data.speech.utterances import FeatureTable
from regard.data.text.tokenizers import Tokenizer
from regard.errors import ArgumentError


@dataclass(frozen=True)
class SpeechBatch(TargetBatch):
    """A batch of utterances, padded with zeros.

    Attributes:
        source: float32 ``[batch, frames, features]``.
        source_lengths: int64 ``[batch]``, frames of each.
        target: int64 ``[batch, target_tokens]``: ``bos``, the text, ``eos``.
        target_lengths: int64 ``[batch]``, with ``bos`` and ``eos``.
        index: int64 ``[batch]``: the number of each utterance; of the first one where several are joined.
    """

    source: Tensor
    source_lengths: Tensor
    target: Tensor
    target_lengths: Tensor

    @property
    def labels(self) -> Tensor:
        """int64 ``[batch]``: the first token of each text, for texts that are labels."""
        return self.target[:, 1]

    @classmethod
    def of(
        cls,
        features: Sequence[NDArray[np.float32]],
        targets: Sequence[Sequence[int]] | None = None,
        index: Sequence[int] | None = None,
    ) -> "SpeechBatch":
        """Returns a batch of features ``[frames, width]`` and lists of ids without ``bos`` and ``eos``.

        Args:
            features: of each utterance; at least one.
            targets: the ids of each text; None: each is empty.
            index: the number of each utterance; None: 0, 1, ...
        """
        targets = [()] * len(features) if targets is None else targets
        if len(targets) != len(features) or not features:
            raise ArgumentError(
                f"features and targets must have the same length, at least 1; got {len(features)} and {len(targets)}"
            )
        lengths = np.array([len(one) for one in features], np.int64)
        source = np.zeros((len(features), int(lengths.max()), features[0].shape[1]), np.float32)
        for row, one in enumerate(features):
            source[row, : len(one)] = one
        rows = np.arange(len(targets))
        target, target_lengths = Ragged.from_lists(targets).with_ends(rows, Tokenizer.BOS, Tokenizer.EOS, Tokenizer.PAD)
        numbers = rows if index is None else np.asarray(index, np.int64)
        return cls(*map(torch.from_numpy, (numbers, source, lengths, target, target_lengths)))


@dataclass(frozen=True)
class Variation:
    """How training utterances vary from epoch to epoch."""

    join: int = 1
    """Each example is made of 1 to ``join`` random utterances, one after the other; each utterance occurs equally
    often, but for one."""
    stretch: float = 0.0
    """The speed is multiplied by a random factor from ``1 − stretch`` to ``1 + stretch``, by linear interpolation
    between frames."""

    def __post_init__(self) -> None:
        if self.join < 1:
            raise ArgumentError(f"join must be at least 1; it is {self.join}")
        if not 0 <= self.stretch < 1:
            raise ArgumentError(f"stretch must be in [0, 1); it is {self.stretch}")


class _Example(NamedTuple):
    """An example of an epoch: the numbers of its utterances, and how many times as fast they are spoken."""

    utterances: list[int]
    speed: float


def speech_batches(
    features: FeatureTable,
    target: Callable[[Sequence[int]], list[int]],
    batch_size: int,
    variation: Variation | None = None,
    **order: Unpack[Order],
) -> Batches[_Example, SpeechBatch]:
    """Returns batches of utterances with similar lengths; each epoch of a training varies them anew.

    Args:
        features: of the utterances.
        target: gives the ids of the texts of the utterances with these numbers, which are joined in this order.
        batch_size: examples of a batch, at least 1; the last batch of an epoch may have fewer.
        variation: for training; None: utterances as they are, from the shortest to the longest.
        order: options of `regard.data.batches.Batches`; ``shuffle`` follows from ``variation``.

    Raises:
        ArgumentError: there is no utterance, or a number is out of its range.
    """
    change = variation or Variation()

    def examples(random: np.random.Generator) -> list[_Example]:
        drawn = _joined(random, len(features), change.join)
        speeds = random.uniform(1 - change.stretch, 1 + change.stretch, len(drawn))
        return [_Example(numbers.tolist(), speed) for numbers, speed in zip(drawn, speeds.tolist(), strict=True)]

    def lengths(drawn: Sequence[_Example]) -> NDArray[np.int64]:
        return np.array([features.lengths[one.utterances].sum() / one.speed for one in drawn]).astype(np.int64)

    def collate(chosen: list[_Example]) -> SpeechBatch:
        joined = [np.concatenate([features[number] for number in one.utterances]) for one in chosen]
        if change.stretch:
            joined = [stretched(frames, one.speed) for frames, one in zip(joined, chosen, strict=True)]
        targets = [target(one.utterances) for one in chosen]
        return SpeechBatch.of(joined, targets, [one.utterances[0] for one in chosen])

    # In a bucket the frames of the examples differ by about an eighth.
    middle = float(np.median(features.lengths)) * (change.join + 1) / 2 if len(features) else 0
    return Batches(
        examples if variation is not None else [_Example([number], 1.0) for number in range(len(features))],
        batch_size,
        collate,
        lengths=lengths,
        bucket_width=max(1, round(middle / 8)),
        **{"shuffle": variation is not None, **order},
    )


def _joined(random: np.random.Generator, utterances: int, join: int) -> list[NDArray[np.int64]]:
    """Returns groups of 1 to ``join`` utterances, (join + 1) / 2 on average; all but one occur equally often."""
    if join == 1:
        return list(np.arange(utterances)[:, None])
    ends = np.cumsum(random.integers(1, join + 1, -(-2 * utterances // (join + 1))))
    rounds = [random.permutation(utterances) for _ in range(-(-int(ends[-1]) // utterances))]
    return np.split(np.concatenate(rounds)[: ends[-1]], ends[:-1])


def stretched(features: NDArray[np.float32], factor: float) -> NDArray[np.float32]:
    """Returns the features of a sound spoken ``factor`` times as fast: ``round(frames / factor)`` frames, at least 1.

    Args:
        features: ``[frames, width]``.
        factor: above 0.
    """
    frames = len(features)
    length = max(1, round(frames / factor))
    # Frame t stands for the time from t to t + 1, its centre is t + ½.
    positions = np.clip((np.arange(length) + 0.5) * frames / length - 0.5, 0, frames - 1)
    before = np.floor(positions).astype(int)
    after = np.minimum(before + 1, frames - 1)
    share = (positions - before).astype(np.float32)[:, None]
    return (features[before] * (1 - share) + features[after] * share).astype(np.float32)
