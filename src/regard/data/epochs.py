"""Batches of any examples, in an order that can be resumed at any batch."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from regard.errors import ArgumentError

T = TypeVar("T")


class EpochBatches(Generic[T]):
    """Gives every example once an epoch, in batches; the order depends only on the seed and the epoch.

    One iteration gives one epoch; the next iteration gives the next epoch.

    Args:
        examples: the examples.
        batch_size: examples of a batch, at least 1; the last batch of an epoch may have fewer.
        collate: makes a batch of a list of examples.
        seed: seed of the order.
        rank: number of this process; it gets every ``world_size``-th batch. All processes get the same number of
            batches; if ``world_size`` does not divide it, the first batches of the epoch are repeated.
        world_size: number of processes.

    Raises:
        ArgumentError: there is no example, or a number is out of its range.
    """

    def __init__(
        self,
        examples: Sequence[T],
        batch_size: int,
        collate: Callable[[list[T]], Any],
        *,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ):
        if batch_size < 1:
            raise ArgumentError(f"batch_size must be at least 1; it is {batch_size}")
        if not len(examples):
            raise ArgumentError("there are no examples to make batches of")
        if not 0 <= rank < world_size:
            raise ArgumentError(f"rank must be from 0 to world_size - 1 = {world_size - 1}; it is {rank}")
        self._examples = examples
        self._batch_size = batch_size
        self._collate = collate
        self._seed = seed
        self._rank, self._world_size = rank, world_size
        self._epoch, self._position = 0, 0  # of the next iteration

    def __len__(self) -> int:
        """Batches of this process in an epoch."""
        return -(-self._all // self._world_size)

    def __iter__(self) -> Iterator[Any]:
        epoch, position = self._epoch, self._position
        self._epoch, self._position = epoch + 1, 0
        order = np.random.default_rng([self._seed, epoch]).permutation(len(self._examples))
        for number in range(position, len(self)):
            first = (self._rank + number * self._world_size) % self._all * self._batch_size
            yield self._collate([self._examples[row] for row in order[first : first + self._batch_size]])

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Make the next iteration start in ``state["epoch"]``, after ``state["position"]`` of its batches.

        Raises:
            ArgumentError: an epoch does not have so many batches.
        """
        epoch, position = state["epoch"], state["position"]
        if epoch < 0 or not 0 <= position <= len(self):
            raise ArgumentError(f"the state {state} does not fit {len(self)} batches an epoch; was the data changed?")
        self._epoch, self._position = (epoch + 1, 0) if position == len(self) else (epoch, position)

    @property
    def _all(self) -> int:
        # Batches of all processes in an epoch.
        return -(-len(self._examples) // self._batch_size)
