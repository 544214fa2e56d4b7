"""One process of a distributed training, for `torchrun`: trains a tiny translator, and does what the test asks for.

torchrun --nproc-per-node 2 distributed_run.py FOLDER CACHE CONFIGURATION [gradients FILE | kill STEP | resume]
"""

import contextlib
import json
import os
import signal
import sys
from pathlib import Path

import datasets
import torch
from torch.distributed.fsdp import FullyShardedDataParallel

from regard.tasks.translate import TASK
from regard.training.config import RunConfig
from regard.training.module import TrainingModule
from regard.training.reporter import SilentReporter
from regard.training.run import train
from regard.training.run_folder import RunFolder
from regard.training.sharding import is_sharded


class KillingReporter(SilentReporter):
    """Ends this process by signal 9 after a step."""

    def __init__(self, step: int):
        self.left = step

    def step(self, fraction: float, text: str) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def save_gradients(file: str) -> None:
    """Write the gradients of the first step, averaged over the processes, and end the training."""

    def before_step(module: TrainingModule, optimizer: torch.optim.Optimizer) -> None:
        with contextlib.ExitStack() as exits:
            if is_sharded(module.trainer):
                whole = module.trainer.strategy.model
                exits.enter_context(FullyShardedDataParallel.summon_full_params(whole, with_grads=True))
            if module.global_rank == 0:
                torch.save({name: parameter.grad.clone() for name, parameter in module.model.named_parameters()}, file)
        torch.distributed.barrier()
        os._exit(0)

    TrainingModule.on_before_optimizer_step = before_step  # type: ignore[method-assign]


def main() -> None:
    folder, cache, configuration, *what = sys.argv[1:]
    datasets.config.HF_DATASETS_CACHE = Path(cache)
    config = RunConfig.from_dict(json.loads(configuration), "test", TASK)
    reporter = SilentReporter()
    if what[:1] == ["gradients"]:
        save_gradients(what[1])
    elif what[:1] == ["kill"] and os.environ["LOCAL_RANK"] == "1":
        reporter = KillingReporter(int(what[1]))
    resume = what[:1] == ["resume"]
    opened = RunFolder.open(folder) if resume else RunFolder(folder)
    train(TASK, config, opened, resume=resume, reporter=reporter)


if __name__ == "__main__":
    main()
