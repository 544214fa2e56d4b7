"""Batches without end, and where in them a run stands."""

from collections.abc import Iterator
from dataclasses import dataclass

from regard.data.batches import BatchLoader, PairBatch


@dataclass(slots=True)
class Progress:
    """How far a run has come; with the weights and the optimizer, all that a resumed run needs to know."""

    step: int = 0
    """Optimizer steps taken."""
    epoch: int = 0
    """Epochs completed."""
    position: int = 0
    """Batches of the current epoch that have been learned from."""
    seconds: float = 0.0
    """Of training and validation, over all interruptions."""
    best_bleu: float = -1.0
    """Of a validation; −1 before the first."""
    best_step: int = 0
    waited: int = 0
    """Validations since the best."""
    loss_sum: float = 0.0
    """Summed over target tokens since the last validation, in nats."""
    tokens: int = 0
    """Target tokens since the last validation."""
    training_seconds: float = 0.0
    """Since the last validation."""
    finished: str = ""
    """Why the run is over; empty while it isn't."""


class BatchStream:
    """Every batch of every epoch, from where ``progress`` stands when the iteration begins.

    Lightning sees one endless epoch; epochs, validation and checkpoints are counted by ``progress``, which moves when a
    batch has been learned from and not when it is fetched. So a run can stop and go on between any two steps, whatever
    the loop above prefetches.

    Args:
        loader: one epoch of batches, in an order that depends on its seed and the epoch alone.
        progress: the run's.
    """

    def __init__(self, loader: BatchLoader, progress: Progress):
        self._loader = loader
        self._progress = progress

    def __iter__(self) -> Iterator[PairBatch]:
        self._loader.load_state_dict({"epoch": self._progress.epoch, "position": self._progress.position})
        while True:
            yield from self._loader
