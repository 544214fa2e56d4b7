"""Trainings in each process of a group, whose lines share the tokens of texts."""

import os
from pathlib import Path

import datasets
from lightning.fabric.utilities.rank_zero import rank_zero_only

from regard.tasks.registry import find
from regard.training.checkpoints import list_checkpoints, load_checkpoint
from regard.training.config import RunConfig
from regard.training.reporter import SilentReporter
from regard.training.run import train_run
from regard.training.run_folder import RunFolder


class Interrupted(BaseException):
    """Ends a training as a kill does: nothing is saved after the step."""


class InterruptingReporter(SilentReporter):
    """Interrupts a training after a step, in every process after the same one; 0: never."""

    def __init__(self, step):
        self.left = step

    def step(self, fraction, text):
        self.left -= 1
        if self.left == 0:
            raise Interrupted


def trained(rank, processes, cache, folder, configuration, interrupted_at=0, resume=False):
    """Trains, and returns whether the run was interrupted."""
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes}
    address = {"TORCHELASTIC_RUN_ID": "test", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    os.environ |= {name: str(value) for name, value in names.items()} | address
    rank_zero_only.rank = rank
    datasets.config.HF_DATASETS_CACHE = Path(cache)
    task = find(configuration["task"])
    config = RunConfig.from_dict(configuration, "test", task)
    opened = RunFolder.open(folder) if resume else RunFolder(Path(folder))
    try:
        train_run(task, config, opened, resume=resume, reporter=InterruptingReporter(interrupted_at))
    except Interrupted:
        return True
    return False


def state_of(folder):
    """The weights after the last step, and the metrics of the validations."""
    folder = RunFolder(Path(folder))
    weights = load_checkpoint(list_checkpoints(folder.checkpoints)[-1])["state_dict"]
    kept = {"step", "val_loss", "val_bits_per_byte", "val_bleu"}
    rows = [{name: row[name] for name in kept & row.keys()} for row in folder.read_metrics()]
    return weights, rows


def largest_difference(one, other):
    """Of weights, of two runs.

    Not of the biases of keys, whose gradients under a softmax are the rounding of 0, of which Adam makes steps.
    """
    assert one.keys() == other.keys()
    parts = {name: (one[name], other[name]) for name in one}
    for name, (first, second) in parts.items():
        if name.endswith("in_proj_bias"):
            parts[name] = tuple(part.view(3, -1)[[0, 2]] for part in (first, second))
    return max(float((first - second).abs().max()) for first, second in parts.values())
