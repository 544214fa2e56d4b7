"""Distributed trainings of a tiny translator, one after the other, each in two processes as `torchrun` starts them.

``python distributed_run.py CACHE TRAININGS``, where TRAININGS is a JSON list of ``[folder, configuration, *what]`` and
``what`` is ``gradients FILE``, ``kill STEP``, ``resume`` or nothing. Prints a JSON list for each: the exit codes of the
processes that failed. The processes are copies of this one, which has imported already what each of them needs.

``python distributed_run.py alone CACHE FOLDER CONFIGURATION`` is one training, whose first process starts the second.
"""

import contextlib
import json
import os
import signal
import sys
from pathlib import Path

import datasets
import pydantic  # noqa: F401
import sacrebleu  # noqa: F401
import torch
from lightning.fabric.utilities.rank_zero import rank_zero_only
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from regard.models import RecurrentTranslator  # noqa: F401
from regard.tasks.translate import TASK
from regard.training.config import RunConfig
from regard.training.loop import TrainingLoop
from regard.training.reporter import SilentReporter
from regard.training.run import train_run
from regard.training.run_folder import RunFolder


class KillingReporter(SilentReporter):
    """Ends this process by signal 9 after a step."""

    def __init__(self, step: int):
        self.left = step

    def step(self, fraction: float, text: str) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class Enough(BaseException):
    """Ends a training after its first step."""


def save_gradients(file: str) -> None:
    """Write the gradients of the first step, averaged over the processes, and end the training."""

    def save_and_exit(loop: TrainingLoop) -> None:
        sharded = isinstance(loop.module, FullyShardedDataParallel)
        summon = FullyShardedDataParallel.summon_full_params
        with summon(loop.module, with_grads=True) if sharded else contextlib.nullcontext():
            if loop.fabric.global_rank == 0:
                model = loop.experiment.model
                torch.save({name: parameter.grad.clone() for name, parameter in model.named_parameters()}, file)
        torch.distributed.barrier()
        raise Enough

    TrainingLoop._update_weights = save_and_exit  # type: ignore[method-assign]


def train_in_a_process(cache: str, folder: str, configuration: dict, *what: str) -> None:
    """What each of the two processes does."""
    rank_zero_only.rank = int(os.environ["RANK"])  # Lightning asks for it when it is imported, which was before
    datasets.config.HF_DATASETS_CACHE = Path(cache)
    config = RunConfig.from_dict(configuration, "test", TASK)
    reporter = SilentReporter()
    if what[:1] == ("gradients",):
        save_gradients(what[1])
    elif what[:1] == ("kill",) and os.environ["LOCAL_RANK"] == "1":
        reporter = KillingReporter(int(what[1]))
    resume = what[:1] == ("resume",)
    opened = RunFolder.open(folder) if resume else RunFolder(Path(folder))
    with contextlib.suppress(Enough):
        train_run(TASK, config, opened, resume=resume, reporter=reporter)


def main() -> None:
    if sys.argv[1] == "alone":
        cache, folder, configuration = sys.argv[2:]
        datasets.config.HF_DATASETS_CACHE = Path(cache)
        train_run(TASK, RunConfig.from_dict(json.loads(configuration), "test", TASK), RunFolder(Path(folder)))
        return
    cache, trainings = sys.argv[1:]
    launch = LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=2, run_id="test", rdzv_backend="c10d", rdzv_endpoint="localhost:0",
        start_method="fork", max_restarts=0, monitor_interval=0.1,
    )  # fmt: skip
    for training in json.loads(trainings):
        try:
            elastic_launch(launch, train_in_a_process)(cache, *training)
            print([], flush=True)
        except ChildFailedError as error:
            print(json.dumps([failure.exitcode for failure in error.failures.values()]), flush=True)


if __name__ == "__main__":
    main()
