"""Batches of examples of any kind, in an order that can be resumed exactly at any batch."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Generic, Self, TypedDict, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import ArgumentError
from regard.names.counted import counted
from regard.tracing.transforms import moved

T = TypeVar("T")
B = TypeVar("B")


@dataclass(frozen=True)
class Batch:
    """The tensors of some examples; subclasses add fields, all of them tensors.

    Attributes:
        index: int64 ``[batch]``: the row of each example in the data.
    """

    index: Tensor

    def __len__(self) -> int:
        return len(self.index)

    def to(self, device: torch.device | str) -> Self:
        """Returns the batch on a device; the host does not wait for the copy (`moved`)."""
        return type(self)(**{field.name: moved(getattr(self, field.name), device) for field in fields(self)})


@dataclass(frozen=True)
class TargetBatch(Batch):
    """A batch with texts that are predicted: its subclasses have ``target_lengths``, with ``bos`` and ``eos``."""

    @cached_property
    def target_tokens(self) -> int:
        """Number of predicted tokens: all target tokens without ``bos`` and padding."""
        lengths: Tensor = self.target_lengths  # pyright: ignore[reportAttributeAccessIssue] (of the subclasses)
        return int(lengths.sum()) - len(lengths)

    def to(self, device: torch.device | str) -> Self:
        batch = super().to(device)
        # Counted on the host, which would wait for a number of the device.
        vars(batch)["target_tokens"] = self.target_tokens
        return batch


class Order(TypedDict, total=False):
    """The order of the batches of an epoch, and the share of a process: options of `Batches`."""

    shuffle: bool
    seed: int
    rank: int
    world_size: int


class Batches(Generic[T, B]):
    """Yields every example once an epoch, in batches; can resume after any batch.

    One iteration gives one epoch; the next iteration gives the next epoch. The batches of an epoch are a function of
    the seed and the epoch alone, and every epoch has the same number of them. The object is an iterable with a length
    and a state, so Lightning accepts it as a training or validation loader.

    The examples are shuffled. With ``lengths`` they are then sorted into buckets of similar lengths, split into
    batches, and the batches are shuffled. Without ``shuffle`` the order is fixed: that of the examples, or with
    ``lengths`` from the shortest to the longest.

    Args:
        examples: the examples; or a function that draws those of an epoch with the generator that it is given, always
            equally many.
        batch_size: largest number of examples in a batch; the last batch may have fewer. None: only ``limits`` count.
        collate: makes a batch of a list of examples.
        lengths: int64 ``[examples]`` or ``[examples, sides]``, the first side sorted first; or a function that gives
            them for the examples of an epoch. None: batches are made without regard to lengths.
        limits: for each side, the largest number of elements of a batch, with padding; a longer example is a batch of
            its own. It needs lengths that are the same in every epoch. None: no limit.
        bucket_width: range of lengths in one bucket, at least 1: a larger one gives more variation between epochs and
            more padding.
        shuffle: whether each epoch has another order.
        seed: seed of the order, at least 0.
        rank: number of this process; it gets every ``world_size``-th batch of the epoch. All processes get the same
            number of batches; if ``world_size`` does not divide it, the first batches of the epoch are repeated.
        world_size: number of processes.

    Raises:
        ArgumentError: there is no example, or a number is out of its range.
    """

    def __init__(
        self,
        examples: Sequence[T] | Callable[[np.random.Generator], Sequence[T]],
        batch_size: int | None,
        collate: Callable[[list[T]], B],
        *,
        lengths: NDArray[np.int64] | Callable[[Sequence[T]], NDArray[np.int64]] | None = None,
        limits: tuple[int, ...] | None = None,
        bucket_width: int = 1,
        shuffle: bool = True,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ):
        at_least_1 = {"batch_size": batch_size, "bucket_width": bucket_width, "world_size": world_size}
        for name, value in at_least_1.items():
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ArgumentError(f"{name} must be a whole number of at least 1; got {value!r}")
        if not 0 <= rank < world_size:
            raise ArgumentError(f"rank must be from 0 to world_size - 1 = {world_size - 1}; got {rank!r}")
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise ArgumentError(f"seed must be a whole number of at least 0; got {seed!r}")
        self._examples, self._collate, self._lengths = examples, collate, lengths
        self._seed, self._shuffle, self._rank, self._world_size = seed, shuffle, rank, world_size
        self._bucket_width = bucket_width if shuffle else 1
        self._epoch, self._position = 0, 0  # of the next batch
        self._resumed = False
        first_epoch = self._drawn(np.random.default_rng([seed, 0]))
        if not len(first_epoch):
            raise ArgumentError("there are no examples to make batches of")
        if limits is None:
            step = batch_size or len(first_epoch)
            self._cuts = np.append(np.arange(0, len(first_epoch), step), len(first_epoch))
        else:
            buckets, most = self._buckets(first_epoch)
            padded = np.minimum(buckets * self._bucket_width, most)
            self._cuts = cuts(padded[np.lexsort(buckets.T[::-1])], limits, batch_size)

    def __len__(self) -> int:
        """Returns the number of batches of this process in an epoch."""
        return -(-(len(self._cuts) - 1) // self._world_size)

    def __iter__(self) -> Iterator[B]:
        # An epoch whose iteration stopped early is not continued, unless a state was loaded.
        if not self._resumed and self._position > 0:
            self._epoch, self._position = self._epoch + 1, 0
        self._resumed = False
        return self._iterate(self._epoch, self._position)

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration this epoch, from its first batch; a loaded state of this epoch is kept."""
        if not (self._resumed and epoch == self._epoch):
            self._epoch, self._position, self._resumed = epoch, 0, False

    def state_dict(self) -> dict[str, int]:
        """Returns the epoch, and the number of its batches that the iteration has yielded."""
        return {"epoch": self._epoch, "position": self._position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Makes the next iteration start in ``state["epoch"]``, after ``state["position"]`` of its batches.

        Raises:
            ArgumentError: an epoch does not have so many batches.
        """
        epoch, position = int(state["epoch"]), int(state["position"])
        if epoch < 0 or not 0 <= position <= len(self):
            raise ArgumentError(
                f"the state {state} does not fit {counted(len(self), 'batch', ' an epoch')}; was the data changed?"
            )
        if position == len(self):
            epoch, position = epoch + 1, 0
        self._epoch, self._position, self._resumed = epoch, position, True

    def _iterate(self, epoch: int, position: int) -> Iterator[B]:
        random = np.random.default_rng([self._seed, epoch])
        examples = self._drawn(random)
        order = random.permutation(len(examples)) if self._shuffle else np.arange(len(examples))
        batches = np.arange(len(self._cuts) - 1)
        if self._lengths is not None:
            buckets, _ = self._buckets(examples)
            order = order[np.lexsort(buckets[order].T[::-1])]
            batches = random.permutation(batches) if self._shuffle else batches
        for number in range(position, len(self)):
            batch = batches[(self._rank + number * self._world_size) % len(batches)]
            rows = order[self._cuts[batch] : self._cuts[batch + 1]].tolist()
            # Counted before the yield: a state that is read afterwards includes this batch.
            self._epoch, self._position = epoch, number + 1
            yield self._collate([examples[row] for row in rows])
        self._epoch, self._position = epoch + 1, 0

    def _drawn(self, random: np.random.Generator) -> Sequence[T]:
        return self._examples(random) if callable(self._examples) else self._examples

    def _buckets(self, examples: Sequence[T]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the bucket of each example, ``[examples, sides]``, and the largest length of each side."""
        lengths = self._lengths(examples) if callable(self._lengths) else self._lengths
        assert lengths is not None
        sides = np.asarray(lengths, np.int64).reshape(len(examples), -1)
        return -(-sides // self._bucket_width), sides.max(0)


def cuts(lengths: NDArray[np.int64], limits: tuple[int, ...], batch_size: int | None = None) -> NDArray[np.int64]:
    """Returns the boundaries of batches that hold as many rows as the limits allow, and at least one.

    Args:
        lengths: ``[rows, sides]``, with padding, sorted by the first side.
        limits: for each side, the largest product of a batch's rows and its longest row.
        batch_size: largest number of rows.
    """
    boundaries = [0]
    while (start := boundaries[-1]) < len(lengths):
        shortest = max(1, int(lengths[start, 0]))
        most = max(1, min(limits[0] // shortest, batch_size or len(lengths)))
        longest = np.maximum.accumulate(lengths[start : start + most])
        rows = np.arange(1, len(longest) + 1)[:, None]
        fits = np.append((rows * longest <= limits).all(1), False)
        boundaries.append(start + max(1, int(fits.argmin())))
    return np.asarray(boundaries)
