"""``regard train TASK --dry-run``: checks a run, and measures its cost."""

import itertools
import statistics
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from regard.files.atomic import temporary_folder
from regard.names.counted import counted

if TYPE_CHECKING:
    from lightning.fabric import Fabric
    from torch import nn

    from regard.training.fitted_config import FittedConfig
    from regard.training.task import Experiment, Task

WARMING_STEPS, TIMED_STEPS, MOST_SECONDS = 2, 8, 20.0
"""Untimed steps, which include compilation; timed steps; and seconds after which timing stops early."""


def dry_run(task: "Task", fitted: "FittedConfig") -> None:
    """Prepares a fitted run in a temporary folder, prints its sizes, times a few steps, and removes everything."""
    import torch

    from regard.training.loggers import logger_classes
    from regard.training.processes import make_fabric
    from regard.training.randomness import seed_step
    from regard.training.run_folder import RunFolder

    config, training = fitted.config, fitted.config.training
    if training.threads:
        torch.set_num_threads(training.threads)
    with temporary_folder() as temporary:
        folder = RunFolder(temporary)
        fabric = make_fabric(training)
        logger_classes(training.loggers)
        seed_step(training.seed, -1)
        experiment = task.prepare(config, folder)
        if training.for_export is not None:
            experiment.try_export(training.for_export)
        batches = experiment.batches(0, 1)
        if fitted.reasons:
            print("from the data:", *fitted.lines(), sep="\n  ")
        print(f"data: {experiment.description} · {counted(len(batches), 'batch', ' an epoch')}")
        for line in parameter_lines(experiment.model):
            print(line)
        seconds, activations = _measured(experiment, itertools.islice(batches, WARMING_STEPS + TIMED_STEPS), fabric)
    parameters = sum(parameter.numel() * parameter.element_size() for parameter in experiment.model.parameters())
    sharing = getattr(training, "sequence_processes", 1)
    activations //= sharing
    divided = "" if sharing == 1 else f" on each of the {sharing} processes that share it"
    # Weights, gradients, and the two moments of Adam.
    states = 4 * parameters
    print(
        f"memory: at least {_size(states + activations)} besides PyTorch and the data: weights, gradients and moments "
        f"{_size(states)}, activations of a batch up to {_size(activations)}{divided}"
    )
    epoch = seconds * len(batches)
    print(
        f"time: {1000 * seconds:.0f} ms a step on {fabric.device}, {_duration(epoch)} an epoch, "
        f"{_duration(epoch * training.epochs)} for {training.epochs} epochs, without validations"
    )
    print("nothing was trained or written")


def parameter_lines(model: "nn.Module") -> list[str]:
    """Returns lines with the number of parameters of a model and of its parts; shared parameters count once."""
    seen: set[int] = set()
    lines = []
    for name, part in model.named_children():
        own = [parameter for parameter in part.parameters() if id(parameter) not in seen]
        seen |= {id(parameter) for parameter in own}
        lines.append(f"  {name:<20} {sum(parameter.numel() for parameter in own):>14,}")
    total = sum(parameter.numel() for parameter in model.parameters())
    rest = total - sum(parameter.numel() for parameter in model.parameters() if id(parameter) in seen)
    if rest:
        lines.append(f"  {'the model itself':<20} {rest:>14,}")
    return [f"model: {total:,} parameters", *lines]


def _measured(experiment: "Experiment", batches: Iterable[Any], fabric: "Fabric") -> tuple[float, int]:
    """Returns the seconds of a step, and the bytes that the largest forward pass saves for the backward pass."""
    import torch

    # The weights are thrown away, so only the cost of the optimizer counts, not its settings.
    device = fabric.device
    experiment.model.to(device).train()
    optimizer = torch.optim.AdamW(experiment.model.parameters(), lr=1e-6)
    seconds: list[float] = []
    most = 0
    began = time.perf_counter()
    for number, batch in enumerate(batches):
        start = time.perf_counter()
        saved: dict[int, int] = {}

        def record(tensor: "torch.Tensor", saved: dict[int, int] = saved) -> "torch.Tensor":
            storage = tensor.untyped_storage()
            saved[storage.data_ptr()] = storage.nbytes()
            return tensor

        hooks = torch.autograd.graph.saved_tensors_hooks(record, lambda tensor: tensor)
        with fabric.autocast(), hooks:
            loss = experiment.loss(fabric.to_device(batch))
        loss.total.backward()
        optimizer.step()
        optimizer.zero_grad()
        if device.type != "cpu":
            torch.accelerator.synchronize()
        most = max(most, sum(saved.values()))
        seconds.append(time.perf_counter() - start)
        if number >= WARMING_STEPS and time.perf_counter() - began > MOST_SECONDS:
            break
    return statistics.median(seconds[WARMING_STEPS:] or seconds), most


def _size(count: int) -> str:
    if count < 2**20:
        return "less than 1 MiB"
    return f"{count / 2**20:,.0f} MiB" if count < 2**30 else f"{count / 2**30:,.1f} GiB"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
