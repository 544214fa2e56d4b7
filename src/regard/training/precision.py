"""Training in float16 with a scaled loss, without waiting for an accelerator."""

from lightning.fabric.plugins import MixedPrecision
from torch.optim import Optimizer


class ScaledPrecision(MixedPrecision):
    """Lightning's mixed precision, whose gradients are unscaled for clipping with a fused optimizer too.

    A fused optimizer skips a step with gradients that are not finite on the device. For any other one PyTorch's scaler
    reads from the device whether they are, and the host waits in each step.
    """

    def unscale_gradients(self, optimizer: Optimizer) -> None:
        if self.scaler is not None:
            self.scaler.unscale_(optimizer)
