"""Training whose weights, gradients and optimizer states are divided among the processes (Rajbhandari et al. 2020)."""

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from lightning.fabric.strategies import FSDPStrategy
from torch import nn
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    FullyShardedDataParallel,
    OptimStateKeyType,
    StateDictType,
)
from torch.optim import Optimizer


class ShardedStrategy(FSDPStrategy):
    """Lightning's FSDP, on CPUs too.

    All layers are gathered for a step at once. The memory between two steps is divided: with Adam three quarters of the
    whole or more.
    """

    def setup_module(self, module: nn.Module) -> nn.Module:
        # Lightning passes the index of the device. A CPU has none, and FSDP would then refuse to run without a GPU.
        return FullyShardedDataParallel(
            module, mixed_precision=self.mixed_precision_config, device_id=self.root_device, use_orig_params=True
        )


def whole_weights(module: nn.Module) -> AbstractContextManager[Any]:
    """Gives each process all weights in this context, to measure or save the model; every process must enter it."""
    if not isinstance(module, FullyShardedDataParallel):
        return nullcontext()
    return FullyShardedDataParallel.summon_full_params(module, writeback=False)


def whole_states(module: nn.Module, optimizer: Optimizer) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the undivided states of a model and its optimizer, as those of a run in one process. Every process must
    call this. On a GPU only the first process gets the states."""
    if not isinstance(module, FullyShardedDataParallel):
        return getattr(module, "module", module).state_dict(), optimizer.state_dict()  # DDP has the model in ``module``
    # FSDP would move the states from a CPU to the CPU, and free them while they are in use.
    gpu = next(module.parameters()).device.type != "cpu"
    with _undivided(module, offload=gpu):
        states = FullyShardedDataParallel.optim_state_dict(module, optimizer)
        if states:
            states = FullyShardedDataParallel.rekey_optim_state_dict(states, OptimStateKeyType.PARAM_ID, module)
        return module.state_dict(), states


def load_optimizer_state(module: nn.Module, optimizer: Optimizer, state: dict[str, Any]) -> None:
    """Restores the optimizer's state that `whole_states` returned."""
    if isinstance(module, FullyShardedDataParallel):
        with _undivided(module, offload=False):
            state = FullyShardedDataParallel.rekey_optim_state_dict(state, OptimStateKeyType.PARAM_NAME, module)
            state = FullyShardedDataParallel.optim_state_dict_to_load(module, optimizer, state)
    optimizer.load_state_dict(state)


def in_parameter_order(state: dict[str, Any], saved: Iterable[str], module: nn.Module) -> dict[str, Any]:
    """Renumbers an optimizer's state whose module had the same parameters in another order, that of the names
    ``saved``: PyTorch numbers states in the order of the parameters, so those of a module whose parts are registered in
    another order now would be taken for each other's. A shared parameter has the number of its first name."""
    names = {parameter: name for name, parameter in module.named_parameters()}
    name_of = {alias: names[parameter] for alias, parameter in module.named_parameters(remove_duplicate=False)}
    saved_names = dict.fromkeys(name_of[one] for one in saved if one in name_of)
    saved_number = {name: number for number, name in enumerate(saved_names)}
    order = list(names.values())
    if list(saved_number) == order or saved_number.keys() != set(order):
        return state
    states = state["state"]
    numbered = {new: states[saved_number[name]] for new, name in enumerate(order) if saved_number[name] in states}
    return {**state, "state": numbered}


def _undivided(module: nn.Module, offload: bool) -> AbstractContextManager[Any]:
    return FullyShardedDataParallel.state_dict_type(
        module,
        StateDictType.FULL_STATE_DICT,
        FullStateDictConfig(offload_to_cpu=offload, rank0_only=offload),
        FullOptimStateDictConfig(offload_to_cpu=offload, rank0_only=offload),
    )
