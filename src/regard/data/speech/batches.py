"""Batches of utterances with similar lengths, in an order that can be resumed at any batch."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.ragged import Ragged
from regard.data.speech.feature_table import FeatureTable
from regard.data.text.tokenizers import Tokenizer
from regard.errors import ArgumentError

_POOL = 16  # batches whose utterances are sorted together by their lengths


@dataclass(frozen=True, slots=True)
class SpeechBatch:
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
    index: Tensor

    def __len__(self) -> int:
        return len(self.index)

    @property
    def target_tokens(self) -> int:
        """Number of predicted tokens: all target tokens without ``bos`` and padding."""
        return int(self.target_lengths.sum()) - len(self)

    @property
    def labels(self) -> Tensor:
        """int64 ``[batch]``: the first token of each text, for texts that are labels."""
        return self.target[:, 1]

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "SpeechBatch":
        """The same batch on a device."""
        moved = (getattr(self, field.name).to(device, non_blocking=non_blocking) for field in fields(self))
        return SpeechBatch(*moved)

    @classmethod
    def of(
        cls,
        features: Sequence[NDArray[np.float32]],
        targets: Sequence[Sequence[int]] | None = None,
        index: Sequence[int] | None = None,
    ) -> "SpeechBatch":
        """A batch from features ``[frames, width]`` and lists of ids without ``bos`` and ``eos``.

        Args:
            features: of each utterance; at least one.
            targets: the ids of each text; None: each is empty.
            index: the number of each utterance; None: 0, 1, ...
        """
        targets = [()] * len(features) if targets is None else targets
        if len(targets) != len(features) or not features:
            raise ArgumentError(
                f"features and targets must be as many, and some; got {len(features)} and {len(targets)}"
            )
        lengths = np.array([len(one) for one in features], np.int64)
        source = np.zeros((len(features), int(lengths.max()), features[0].shape[1]), np.float32)
        for row, one in enumerate(features):
            source[row, : len(one)] = one
        rows = np.arange(len(targets))
        ragged = Ragged.from_lists(targets)
        target = ragged.padded(rows, before=1, after=1, fill=Tokenizer.PAD)
        target_lengths = ragged.lengths(rows) + 2
        target[:, 0] = Tokenizer.BOS
        target[rows, target_lengths - 1] = Tokenizer.EOS
        numbers = rows if index is None else np.asarray(index, np.int64)
        return cls(*map(torch.from_numpy, (source, lengths, target, target_lengths, numbers)))


@dataclass(frozen=True, slots=True)
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


class SpeechBatches:
    """Gives every utterance once an epoch, in batches of similar lengths; can resume after any batch.

    One iteration gives one epoch; the next iteration gives the next epoch. The order and the variation of an epoch are
    functions of the seed and the epoch; the number of batches is the same in every epoch.

    Args:
        features: of the utterances.
        target: gives the ids of the texts of the utterances with these numbers, which are joined in this order.
        batch_size: examples of a batch, at least 1; the last batch of an epoch may have fewer.
        variation: for training; None: utterances as they are, from the shortest to the longest.
        seed: seed of the order.
        rank: number of this process; it gets every ``world_size``-th batch. All processes get the same number of
            batches; if ``world_size`` does not divide it, the first batches of the epoch are repeated.
        world_size: number of processes.

    Raises:
        ArgumentError: there is no utterance, or a number is out of its range.
    """

    def __init__(
        self,
        features: FeatureTable,
        target: Callable[[Sequence[int]], list[int]],
        batch_size: int,
        variation: Variation | None = None,
        *,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ):
        if batch_size < 1:
            raise ArgumentError(f"batch_size must be at least 1; it is {batch_size}")
        if not len(features):
            raise ArgumentError("there are no utterances to make batches of")
        if not 0 <= rank < world_size:
            raise ArgumentError(f"rank must be from 0 to world_size - 1 = {world_size - 1}; it is {rank}")
        self._features, self._target, self._batch_size = features, target, batch_size
        self._variation, self._seed = variation, seed
        self._rank, self._world_size = rank, world_size
        self._epoch, self._position = 0, 0  # of the next iteration
        join = 1 if variation is None else variation.join
        # An example has (join + 1) / 2 utterances in the mean.
        self._examples = -(-2 * len(features) // (join + 1))
        self._all = -(-self._examples // batch_size)

    def __len__(self) -> int:
        """Batches of this process in an epoch."""
        return -(-self._all // self._world_size)

    def __iter__(self) -> Iterator[SpeechBatch]:
        epoch, position = self._epoch, self._position
        self._epoch, self._position = epoch + 1, 0
        batches = self._plan(epoch)
        for number in range(position, len(self)):
            place = (self._rank + number * self._world_size) % self._all
            yield self._batch(batches[place], epoch, place)

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration this epoch, from its first batch."""
        self._epoch, self._position = epoch, 0

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Make the next iteration start in ``state["epoch"]``, after ``state["position"]`` of its batches.

        Raises:
            ArgumentError: an epoch does not have so many batches.
        """
        epoch, position = state["epoch"], state["position"]
        if epoch < 0 or not 0 <= position <= len(self):
            raise ArgumentError(f"the state {state} does not fit {len(self)} batches an epoch; was the data changed?")
        self._epoch, self._position = (epoch + 1, 0) if position == len(self) else (epoch, position)

    def _plan(self, epoch: int) -> list[list[NDArray[np.int64]]]:
        """The batches of an epoch: for each example the numbers of its utterances."""
        size, lengths = self._batch_size, self._features.lengths
        if self._variation is None:
            order = np.argsort(lengths, kind="stable")
            examples = [order[place : place + 1] for place in range(len(order))]
            return [examples[first : first + size] for first in range(0, len(examples), size)]
        random = np.random.default_rng([self._seed, epoch])
        examples = self._joined(random)
        frames = np.array([lengths[example].sum() for example in examples])
        batches = []
        for first in range(0, len(examples), _POOL * size):
            pool = first + np.argsort(frames[first : first + _POOL * size], kind="stable")
            chosen = [examples[place] for place in pool]
            batches += [chosen[start : start + size] for start in range(0, len(chosen), size)]
        return [batches[place] for place in random.permutation(len(batches))]

    def _joined(self, random: np.random.Generator) -> list[NDArray[np.int64]]:
        assert self._variation is not None
        utterances = len(self._features)
        if self._variation.join == 1:
            return np.split(random.permutation(utterances), utterances)
        sizes = random.integers(1, self._variation.join + 1, self._examples)
        ends = np.cumsum(sizes)
        rounds = [random.permutation(utterances) for _ in range(-(-int(ends[-1]) // utterances))]
        return np.split(np.concatenate(rounds)[: ends[-1]], ends[:-1])

    def _batch(self, examples: list[NDArray[np.int64]], epoch: int, place: int) -> SpeechBatch:
        found = []
        random = np.random.default_rng([self._seed, epoch, place])
        for example in examples:
            parts = [self._features[number] for number in example.tolist()]
            features = parts[0] if len(parts) == 1 else np.concatenate(parts)
            if self._variation is not None and self._variation.stretch:
                factor = 1.0 + random.uniform(-self._variation.stretch, self._variation.stretch)
                features = stretched(features, factor)
            found.append(features)
        targets = [self._target(example.tolist()) for example in examples]
        return SpeechBatch.of(found, targets, [int(example[0]) for example in examples])


def stretched(features: NDArray[np.float32], factor: float) -> NDArray[np.float32]:
    """The features of the same sound, spoken ``factor`` times as fast: ``round(frames / factor)`` frames, at least 1.

    Args:
        features: ``[frames, width]``.
        factor: above 0.
    """
    frames = len(features)
    length = max(1, round(frames / factor))
    # Frame t stands for the time from t to t + 1, its centre is t + ½.
    places = np.clip((np.arange(length) + 0.5) * frames / length - 0.5, 0, frames - 1)
    before = np.floor(places).astype(int)
    after = np.minimum(before + 1, frames - 1)
    share = (places - before).astype(np.float32)[:, None]
    return (features[before] * (1 - share) + features[after] * share).astype(np.float32)
