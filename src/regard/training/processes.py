"""The processes of a distributed run: which one this is, and how the others wait for the first.

Lightning starts the other processes itself when the training of the first one begins. ``torchrun`` and cluster managers
start all processes at once; there the others wait until the first one has made the run folder and prepared the data.
"""

import os
from pathlib import Path
from typing import Any

_RANKS = {"LOCAL_RANK": None, "NODE_RANK": None, "RANK": "WORLD_SIZE", "SLURM_PROCID": "SLURM_NTASKS"}
"""Variables that are above 0 in every process but the first: of Lightning, of ``torchrun``, of Slurm; and the variable
that says of how many processes, without which a number means something else."""


def is_first_process() -> bool:
    """Whether this process prints, and makes the run folder."""
    return not any(_number(rank) > 0 and (size is None or _number(size) > 1) for rank, size in _RANKS.items())


def _number(name: str) -> int:
    value = os.environ.get(name, "")
    return int(value) if value.isdecimal() else 0


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
