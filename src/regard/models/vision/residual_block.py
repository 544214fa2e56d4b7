"""Residual blocks (He et al. 2016, figure 2) with a gate of channels or positions before the sum."""

from collections.abc import Callable

from torch import Tensor, nn

from regard.errors import UnknownNameError
from regard.models.vision.configs import Gate
from regard.nn import BatchNorm2d, branch_attention, feature_gates
from regard.nn.non_local import GlobalContext
from regard.tracing.module_calls import Module

Channels = Callable[..., nn.Module]
"""Creates a module, from a number of channels, that weighs a map ``[batch, channels, height, width]``."""

GATES: dict[str, Channels | None] = {
    "none": None,
    "se": feature_gates.SqueezeExcitation,
    "eca": lambda channels, reduction=1: feature_gates.ECA(channels),
    "cbam": feature_gates.CBAM,
    "coordinate": feature_gates.CoordinateAttention,
    "global_context": GlobalContext,
    "sk": branch_attention.SelectiveKernel,
    "split": branch_attention.SplitAttention,
}
"""Gates by name, which take a number of channels and a reduction."""


def gate_class(name: str) -> Channels | None:
    """Returns the class of a gate of `GATES`, or None for no gate."""
    if name not in GATES:
        raise UnknownNameError("gate", name, GATES)
    return GATES[name]


def residual_layers(channels: int, weigh: nn.Module | None = None) -> tuple[nn.Sequential, nn.Module | None]:
    """Creates ``B(conv(ReLU(B(conv(x)))))``, 3 × 3 convolutions with batch normalization B, and what weighs the result.

    A convolution with branches in ``weigh`` replaces the first one and its normalization instead (Li et al. 2019, table
    1), and nothing weighs the result.
    """
    first = [nn.Conv2d(channels, channels, 3, padding=1, bias=False), BatchNorm2d(channels), nn.ReLU()]
    if isinstance(weigh, branch_attention.BranchAttention):
        first, weigh = [weigh], None
    return nn.Sequential(*first, nn.Conv2d(channels, channels, 3, padding=1, bias=False), BatchNorm2d(channels)), weigh


class GatedBlock(Module):
    """Computes ``ReLU(x + gate(residual_layers(x)))``, in a `Segmenter`; the gate is a name of `GATES`."""

    def __init__(self, channels: int, gate: Gate = "none", reduction: int = 4):
        super().__init__()
        kind = gate_class(gate)
        self.layers, weigh = residual_layers(channels, None if kind is None else kind(channels, reduction))
        self.gate = nn.Identity() if weigh is None else weigh

    def forward(self, features: Tensor) -> Tensor:
        """Maps ``[batch, channels, height, width]`` to the same shape."""
        return (features + self.gate(self.layers(features))).relu()


class WeighedBlock(Module):
    """Computes ``ReLU(x + weigh(residual_layers(x)))``, in a `ConvolutionalGrid`. A new block is the identity, so that
    deep networks start like shallow ones (Goyal et al. 2017, section 5.1)."""

    def __init__(self, channels: int, weigh: nn.Module | None = None):
        super().__init__()
        self.layers, self.weigh = residual_layers(channels, weigh)
        nn.init.zeros_(self.layers[-1].weight)  # pyright: ignore[reportArgumentType]

    def forward(self, features: Tensor) -> Tensor:
        """Maps ``[batch, channels, height, width]`` to the same shape."""
        residual = self.layers(features)
        return (features + (residual if self.weigh is None else self.weigh(residual))).relu()
