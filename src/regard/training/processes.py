"""The processes and devices of a run: which process is the first, and Lightning's Fabric, which joins them.

Fabric starts the other processes of a run on one machine itself. ``torchrun`` and cluster managers start all processes
at once. Either way the others wait in `Fabric.launch` until the first process has made the run folder and prepared the
data. This module imports nothing that takes time.
"""

import logging
import os
import platform
import warnings
from typing import TYPE_CHECKING, Any

from regard.errors import ArgumentError, MissingPartError

if TYPE_CHECKING:
    from lightning.fabric import Fabric

    from regard.training.config import TrainingConfig

_RANKS = {"LOCAL_RANK": None, "NODE_RANK": None, "RANK": "WORLD_SIZE", "SLURM_PROCID": "SLURM_NTASKS"}
"""Variables of Lightning, ``torchrun`` and Slurm that are above 0 in every process but the first, each with the
variable that holds the number of processes, without which a number means something else."""

_CALLING_STRATEGIES = ("spawn", "fork", "notebook")
"""Endings of strategies whose processes run a function instead of the command."""


def is_first_process() -> bool:
    """Whether this process prints, and makes the run folder."""
    return not any(_number(rank) > 0 and (size is None or _number(size) > 1) for rank, size in _RANKS.items())


def _number(name: str) -> int:
    value = os.environ.get(name, "")
    return int(value) if value.isdecimal() else 0


def is_on_cpu(training: "TrainingConfig") -> bool:
    """Whether a run computes on a CPU."""
    if training.accelerator != "auto":
        return training.accelerator == "cpu"
    import torch

    return not torch.accelerator.is_available()


def process_count(training: "TrainingConfig") -> int:
    """Returns how many processes share the batches of a run."""
    started = max(_number(size) for size in _RANKS.values() if size is not None)
    if started > 1:  # torchrun or a cluster manager has started them
        return started
    devices = training.devices
    if devices.isdigit():
        number = int(devices)
    elif "," in devices:
        number = len([one for one in devices.split(",") if one.strip()])
    elif is_on_cpu(training):
        number = 1
    else:  # auto, or -1: all
        import torch

        number = torch.accelerator.device_count()
    return max(1, number) * training.nodes


def hardware_kind(device: Any, processes: int) -> str:
    """Returns the kind of a machine: ``"CPU (x86_64), 2 threads"``, or the name of the GPU."""
    import torch

    if device.type == "cuda":
        kind = torch.cuda.get_device_name(device)
    elif device.type == "cpu":
        threads = torch.get_num_threads()
        kind = f"CPU ({platform.machine()}), {threads} thread{'s' * (threads > 1)}"
    else:
        kind = device.type.upper()
    return kind if processes == 1 else f"{processes} × {kind}"


def make_fabric(training: "TrainingConfig") -> "Fabric":
    """Returns Lightning's Fabric for the accelerator, devices, strategy and precision of a run; it starts nothing yet.
    Raises ArgumentError if this machine has none such, and MissingPartError if Lightning cannot be imported."""
    try:
        from lightning.fabric import Fabric
        from lightning.fabric.utilities.exceptions import MisconfigurationException
    except ImportError as error:
        raise MissingPartError("lightning", "train") from error
    except RuntimeError as error:
        # It imports torchvision where there is one, which raises if it was built for another PyTorch.
        remedy = MissingPartError.SAME_BUILD if "torchvision" in str(error) else None
        raise MissingPartError("lightning", "train", str(error).splitlines()[0], remedy) from error
    for name in ("lightning.fabric", "lightning.pytorch"):  # their messages are advice for programmers
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        if training.strategy.endswith(_CALLING_STRATEGIES):
            raise ValueError("its processes do not run the command; use ddp or fsdp")
        with warnings.catch_warnings(action="ignore"):
            return Fabric(
                accelerator=training.accelerator,
                devices=_devices(training),
                num_nodes=training.nodes,
                strategy=_strategy(training),
                **_precision(training),
            )
    except (MisconfigurationException, ImportError, RuntimeError, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ArgumentError(
            f"--accelerator {training.accelerator}, --devices {training.devices} and --strategy "
            f"{training.strategy} cannot be used together here: {reason}"
        ) from error


def _devices(training: "TrainingConfig") -> int | str:
    if training.devices == "auto":
        return 1 if training.accelerator == "cpu" else "auto"
    return int(training.devices) if training.devices.isdigit() else training.devices


def _precision(training: "TrainingConfig") -> dict[str, Any]:
    """Returns the options of a Fabric for the precision of a run."""
    if training.precision == "16-mixed" and training.strategy != "fsdp" and not is_on_cpu(training):
        import torch

        from regard.training.precision import ScaledPrecision

        kind = torch.accelerator.current_accelerator()
        if kind is not None:
            return {"plugins": ScaledPrecision("16-mixed", device=kind.type)}
    return {"precision": "32-true" if training.precision == "32" else training.precision}


def _strategy(training: "TrainingConfig") -> Any:
    if training.strategy != "fsdp":
        return training.strategy
    from regard.training.sharding import ShardedStrategy

    return ShardedStrategy()
