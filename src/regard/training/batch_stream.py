"""An endless stream of training batches that starts where a run stopped."""

from collections.abc import Iterator
from typing import Any

from regard.training.progress import Progress
from regard.training.task import EpochLoader


class BatchStream:
    """Every batch of every epoch; each iteration starts at the epoch and the position of ``progress``.

    Lightning sees one endless epoch. ``progress`` counts the epochs: it is updated after the optimizer step on a batch,
    not when the batch is fetched. A run can therefore stop and resume between any two steps, however many batches
    Lightning prefetches.

    Args:
        loader: one epoch of batches, in an order that depends only on the loader's seed and the epoch.
        progress: the counters of the run.
    """

    def __init__(self, loader: EpochLoader, progress: Progress):
        self._loader = loader
        self._progress = progress

    def __iter__(self) -> Iterator[Any]:
        if self._progress.position > len(self._loader):  # the run was resumed on fewer data, with --allow-changed-data
            self._progress.epoch, self._progress.position = self._progress.epoch + 1, 0
        self._loader.load_state_dict({"epoch": self._progress.epoch, "position": self._progress.position})
        while True:
            yield from self._loader
