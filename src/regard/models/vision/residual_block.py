"""Residual blocks (He et al. 2016, figure 2) with a gate of channels or positions before the sum."""

from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn

from regard.errors import UnknownNameError
from regard.nn import CBAM, BatchNorm2d, SqueezeExcitation
from regard.tracing.module_calls import Module

Gate = Literal["none", "se", "cbam"]
Channels = Callable[..., nn.Module]
"""Creates a module, from a number of channels, that weighs a map ``[batch, channels, height, width]``."""

GATES: dict[str, Channels | None] = {"none": None, "se": SqueezeExcitation, "cbam": CBAM}
"""Gates by name: none, squeeze-and-excitation (Hu et al. 2018, figure 3) or CBAM (Woo et al. 2018, figure 3)."""


def gate_class(name: str) -> Channels | None:
    """Returns the class of a gate of `GATES`, or None for no gate."""
    if name not in GATES:
        raise UnknownNameError("gate", name, GATES)
    return GATES[name]


def residual_layers(channels: int) -> nn.Sequential:
    """Creates ``B(conv(ReLU(B(conv(x)))))`` with 3 × 3 convolutions and batch normalization B."""
    return nn.Sequential(
        nn.Conv2d(channels, channels, 3, padding=1, bias=False),
        BatchNorm2d(channels),
        nn.ReLU(),
        nn.Conv2d(channels, channels, 3, padding=1, bias=False),
        BatchNorm2d(channels),
    )


class GatedBlock(Module):
    """Computes ``ReLU(x + gate(residual_layers(x)))``, in a `Segmenter`.

    Args:
        channels: channels of the feature map.
        gate: ``none``, ``se`` or ``cbam``.
        reduction: reduction of the gate.

    Raises:
        UnknownNameError: the gate is unknown.
    """

    def __init__(self, channels: int, gate: Gate = "none", reduction: int = 4):
        super().__init__()
        kind = gate_class(gate)
        self.layers = residual_layers(channels)
        self.gate = nn.Identity() if kind is None else kind(channels, reduction)

    def forward(self, features: Tensor) -> Tensor:
        """Maps ``[batch, channels, height, width]`` to the same shape."""
        return (features + self.gate(self.layers(features))).relu()


class WeighedBlock(Module):
    """Computes ``ReLU(x + weigh(residual_layers(x)))``, in a `ConvolutionalGrid`.

    A new block is the identity, so that deep networks start like shallow ones (Goyal et al. 2017, section 5.1).

    Args:
        channels: channels of input and output.
        weigh: weighs the output of the convolutions before the sum; None: no weighing.
    """

    def __init__(self, channels: int, weigh: nn.Module | None = None):
        super().__init__()
        self.layers = residual_layers(channels)
        self.weigh = weigh
        nn.init.zeros_(self.layers[4].weight)  # pyright: ignore[reportArgumentType]

    def forward(self, features: Tensor) -> Tensor:
        """Maps ``[batch, channels, height, width]`` to the same shape."""
        residual = self.layers(features)
        return (features + (residual if self.weigh is None else self.weigh(residual))).relu()
