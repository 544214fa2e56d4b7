"""Training whose weights, gradients and optimizer states are divided among the processes (Rajbhandari et al. 2020)."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.core.optimizer import LightningOptimizer
from lightning.pytorch.plugins import FSDPPrecision
from lightning.pytorch.strategies import FSDPStrategy
from torch import nn
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    FullyShardedDataParallel,
    OptimStateKeyType,
    StateDictType,
)


class ShardedPrecision(FSDPPrecision):
    """Lightning's precision of FSDP, without its conversion of batches, which cannot be frozen records there."""

    def convert_input(self, data: Any) -> Any:
        return data


class ShardedStrategy(FSDPStrategy):
    """Lightning's FSDP, on CPUs too, with checkpoints like those of every run.

    A checkpoint is one file, which any number of processes can resume from. It is read by the run's own reader first,
    which verifies its sum and refuses what is more than tensors and plain values. All layers are gathered for a step
    at once: what is divided is what lies between two steps, with Adam three quarters of the memory or more.
    """

    def __init__(self) -> None:
        super().__init__(state_dict_type="full")

    def _setup_model(self, model: nn.Module) -> nn.Module:
        if self.root_device.type != "cpu":
            return super()._setup_model(model)
        # Lightning gives the index of a GPU; without one FSDP looks for an accelerator, and refuses to run.
        return FullyShardedDataParallel(
            model,
            mixed_precision=self.mixed_precision_config,
            sharding_strategy=self.sharding_strategy,
            device_id=self.root_device,
            **self.kwargs,
        )

    def lightning_module_state_dict(self) -> dict[str, Any]:
        assert self.model is not None
        with self._whole_states():
            return self.model.state_dict()

    def optimizer_state(self, optimizer: Any) -> dict[str, Any]:
        assert self.model is not None
        optimizer = optimizer.optimizer if isinstance(optimizer, LightningOptimizer) else optimizer
        with self._whole_states():
            states = FullyShardedDataParallel.optim_state_dict(self.model, optimizer)
            if not states:  # it is with the first process
                return states
            return FullyShardedDataParallel.rekey_optim_state_dict(states, OptimStateKeyType.PARAM_ID, self.model)

    def _whole_states(self) -> AbstractContextManager[None]:
        # On a CPU every process gets the whole state: moving what is on a CPU to the CPU would free it while in use.
        gpu = self.root_device.type != "cpu"
        assert self.model is not None
        return FullyShardedDataParallel.state_dict_type(
            self.model,
            StateDictType.FULL_STATE_DICT,
            FullStateDictConfig(offload_to_cpu=gpu, rank0_only=gpu),
            FullOptimStateDictConfig(offload_to_cpu=gpu, rank0_only=gpu),
        )  # pyright: ignore[reportReturnType]

    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        self.checkpoint_io.load_checkpoint(checkpoint_path)
        return super().load_checkpoint(checkpoint_path, weights_only)


def is_sharded(trainer: Trainer) -> bool:
    """Whether the weights of the trained model are divided among the processes."""
    return isinstance(trainer.strategy, FSDPStrategy)


@contextmanager
def whole_weights(trainer: Trainer) -> Iterator[None]:
    """A context in which each process has all weights, to measure or to save the model; every process must enter it."""
    if not is_sharded(trainer):
        yield
        return
    assert isinstance(trainer.strategy.model, FullyShardedDataParallel)
    with FullyShardedDataParallel.summon_full_params(trainer.strategy.model, writeback=False):
        yield


def clip_sharded_gradient(trainer: Trainer, norm: float) -> None:
    """Clip the norm of the gradient of all shards together."""
    assert isinstance(trainer.strategy.model, FullyShardedDataParallel)
    trainer.strategy.model.clip_grad_norm_(norm)
