"""A residual block with a gate of channels or positions before the sum."""

from typing import Literal

from torch import Tensor, nn

from regard.errors import UnknownNameError
from regard.nn import CBAM, BatchNorm2d, SqueezeExcitation
from regard.tracing.module_calls import Module

Gate = Literal["none", "se", "cbam"]
GATES = ("none", "se", "cbam")


class ResidualBlock(Module):
    """Computes ``ReLU(x + gate(B(conv(ReLU(B(conv(x)))))))`` with 3 × 3 convolutions and batch normalization B.

    He et al. 2016, "Deep Residual Learning for Image Recognition", figure 2; the gate comes before the sum, as in
    Hu et al. 2018, figure 3, and Woo et al. 2018, figure 3.

    Args:
        channels: channels of the feature map.
        gate: ``none``, ``se`` (squeeze-and-excitation) or ``cbam``.
        reduction: reduction of the gate.

    Raises:
        UnknownNameError: the gate is unknown.
    """

    def __init__(self, channels: int, gate: Gate = "none", reduction: int = 4):
        super().__init__()
        if gate not in GATES:
            raise UnknownNameError("gate", gate, GATES)
        self.layers = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            BatchNorm2d(channels),
        )
        self.gate: nn.Module = nn.Identity()
        if gate == "se":
            self.gate = SqueezeExcitation(channels, reduction)
        elif gate == "cbam":
            self.gate = CBAM(channels, reduction)

    def forward(self, features: Tensor) -> Tensor:
        """Maps ``[batch, channels, height, width]`` to the same shape."""
        return (features + self.gate(self.layers(features))).relu()
