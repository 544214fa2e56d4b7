"""Batches of windows of a long text, in an order that can be resumed at any batch."""

from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from regard.data.text.token_table import TokenTable
from regard.errors import ArgumentError, DataError

Order = Literal["random", "consecutive"]


class WindowBatches:
    """Gives batches of windows of a text; the order depends only on the seed and the epoch.

    One iteration gives one epoch; the next iteration gives the next epoch. A batch is ``int64 [batch, length + 1]``:
    each window and the token after it, so that every token of a window has one to predict.

    With ``"random"`` each window begins at any token, with equal probabilities. With ``"consecutive"`` the windows of
    an epoch follow one another without overlap, in a random order; where the first one begins is drawn for each epoch.

    Args:
        table: the ids of the text.
        batch_size: windows of a batch.
        length: tokens of a window.
        order: how windows are chosen.
        steps: batches of an epoch, of each process; 0: as many as the text has windows for.
        seed: seed of the order.
        rank: number of this process; it gets every ``world_size``-th batch.
        world_size: number of processes.

    Raises:
        ArgumentError: a number is out of its range, or the text has fewer consecutive windows than ``steps`` need.
        DataError: the text is shorter than a window.
    """

    def __init__(
        self,
        table: TokenTable,
        batch_size: int,
        length: int,
        *,
        order: Order = "random",
        steps: int = 0,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ):
        for name, value, least in (("batch_size", batch_size, 1), ("length", length, 1), ("steps", steps, 0)):
            if value < least:
                raise ArgumentError(f"{name} must be at least {least}; it is {value}")
        if not 0 <= rank < world_size:
            raise ArgumentError(f"rank must be from 0 to world_size - 1 = {world_size - 1}; it is {rank}")
        if len(table) <= length:
            raise DataError(
                f"the training text has {len(table)} tokens, too few for a window of {length} tokens and the token "
                "after it; give more text or a smaller --context"
            )
        self._table = table
        self._batch_size, self._length = batch_size, length
        self._order: Order = order
        self._seed, self._rank, self._world_size = seed, rank, world_size
        # The last window needs a token after it. One consecutive window fewer leaves room for another start each epoch.
        self._windows = (len(table) - 1) // length
        if order == "consecutive":
            self._windows = max(1, self._windows - 1)
        available = max(1, self._windows // (batch_size * world_size))
        if order == "consecutive" and steps > available:
            raise ArgumentError(
                f"steps_per_epoch must be at most {available}, the text's consecutive windows, or 0; it is {steps}"
            )
        self._steps = steps or available
        self._epoch, self._position = 0, 0  # of the next iteration

    def __len__(self) -> int:
        """Batches of this process in an epoch."""
        return self._steps

    def __iter__(self) -> Iterator[Tensor]:
        epoch, position = self._epoch, self._position
        self._epoch, self._position = epoch + 1, 0
        starts = self._random(epoch) if self._order == "random" else self._consecutive(epoch)
        for number in range(position, len(self)):
            chosen = starts(number * self._world_size + self._rank)
            yield torch.from_numpy(self._table.windows(chosen, self._length + 1))

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Make the next iteration start in ``state["epoch"]``, after ``state["position"]`` of its batches.

        Raises:
            ArgumentError: an epoch does not have so many batches.
        """
        epoch, position = state["epoch"], state["position"]
        if epoch < 0 or not 0 <= position <= len(self):
            raise ArgumentError(f"the state {state} does not fit {len(self)} batches an epoch; was the data changed?")
        self._epoch, self._position = (epoch + 1, 0) if position == len(self) else (epoch, position)

    def _random(self, epoch: int) -> Callable[[int], np.ndarray]:
        most = len(self._table) - self._length

        def starts(batch: int) -> np.ndarray:
            return np.random.default_rng([self._seed, epoch, batch]).integers(0, most, self._batch_size)

        return starts

    def _consecutive(self, epoch: int) -> Callable[[int], np.ndarray]:
        random = np.random.default_rng([self._seed, epoch])
        offset = int(random.integers(0, len(self._table) - self._windows * self._length))
        order = random.permutation(self._windows)
        batches = max(1, self._windows // self._batch_size)

        def starts(batch: int) -> np.ndarray:
            # A text with fewer windows than the processes need gives some of them twice.
            first = batch % batches * self._batch_size
            return offset + self._length * order[first : first + self._batch_size]

        return starts
