"""The processes of a distributed run: which one this is, and how the others wait for the first.

Lightning starts the other processes itself when the training of the first one begins. ``torchrun`` and cluster managers
start all processes at once; there the others wait until the first one has made the run folder and prepared the data.
"""

import os
from pathlib import Path
from typing import Any

_RANKS = ("RANK", "NODE_RANK", "LOCAL_RANK", "SLURM_PROCID")
"""Variables that are above 0 in every process but the first: of ``torchrun``, of Lightning, of Slurm."""


def is_first_process() -> bool:
    """Whether this process prints, and makes the run folder."""
    return not any(os.environ.get(name, "0").isdecimal() and int(os.environ.get(name, "0")) > 0 for name in _RANKS)


class Processes:
    """The processes of a run.

    Args:
        trainer: Lightning's trainer.

    Attributes:
        first: whether this process is the first one.
    """

    def __init__(self, trainer: Any):
        self._trainer = trainer
        self.first = trainer.global_rank == 0 and is_first_process()
        environment = getattr(trainer.strategy, "cluster_environment", None)
        self._started_at_once = (
            trainer.world_size > 1 and environment is not None and environment.creates_processes_externally
        )
        if self._started_at_once:
            trainer.strategy.setup_environment()

    def share_folder(self, path: Path) -> Path:
        """The first process's run folder, which exists then: the others wait for it."""
        return Path(self._trainer.strategy.broadcast(str(path))) if self._started_at_once else path

    def wait_for_first(self) -> None:
        """Wait until the first process has come here as well."""
        if self._started_at_once and not self.first:
            self._trainer.strategy.barrier("prepared")

    def release_others(self) -> None:
        """Let the others go on, which wait for the first process."""
        if self._started_at_once and self.first:
            self._trainer.strategy.barrier("prepared")
