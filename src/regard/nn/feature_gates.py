"""Gates of feature maps: squeeze-and-excitation, and the channel and spatial gates of CBAM."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from regard.distributed.sequence_parts import refuse_parts
from regard.nn.feature_maps import check_feature_map, check_odd, reduced_channels
from regard.nn.fx_leaf import fx_leaf
from regard.shapes.checks import flag, whole_number
from regard.tracing.module_calls import Module


class FeatureGate(Module, ABC):
    """The base of modules that multiply a feature map by a gate in (0, 1), which they compute from it.

    Attributes:
        channels: channels of the feature map.
    """

    channels: int

    @abstractmethod
    def gate(self, features: Tensor) -> Tensor:
        """Returns the factors of channels, positions or elements; arguments and errors as in `forward`."""

    def forward(self, features: Tensor) -> Tensor:
        """Multiplies a feature map by the gate.

        Args:
            features: ``[batch, channels, height, width]``.

        Returns:
            A tensor of the same shape.

        Raises:
            ShapeError, KindError: the input has another shape or dtype.
        """
        refuse_parts(type(self).__name__)
        gate = self.gate(features)
        return features * (gate if gate.dim() == 4 else gate[:, :, None, None])

    def extra_repr(self) -> str:
        return f"channels={self.channels}"


@fx_leaf
class SqueezeExcitation(FeatureGate):
    """Scales the channels of a feature map by squeeze-and-excitation.

    .. math::

        z_c = mean of u_c over all positions   (squeeze)
        s = σ(W_2 ReLU(W_1 z))   (excitation)
        x̃_c = s_c · u_c   (scale)

    Hu, Shen & Sun 2018, "Squeeze-and-Excitation Networks", eq. 2, 3 and 4. Their U is ``features``, C is ``channels``,
    and r is ``reduction``; W_1 and W_2 are the weights of ``reduce`` and ``expand``.

    Args:
        channels: channels of the feature map.
        reduction: the hidden layer has ``channels // reduction`` units, at least 1; default 16, as in the paper.
        hidden: the number of hidden units, which overrides ``reduction``.
        bias: whether the two layers have biases, which eq. 3 does not have.

    Raises:
        ArgumentError: a number is below 1.
        KindError: an argument has the wrong type.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> block = nn.SqueezeExcitation(2, hidden=1)
        >>> for part in (block.reduce, block.expand):
        ...     _ = torch.nn.init.ones_(part.weight)
        >>> features = torch.tensor([[[[0.0, 2.0]], [[0.0, -1.0]]]])  # z = (1, −0.5)
        >>> block.gate(features).detach()  # σ(ReLU(0.5))
        tensor([[0.6225, 0.6225]])
        >>> block(features).detach()
        tensor([[[[ 0.0000,  1.2449]],
        <BLANKLINE>
                 [[ 0.0000, -0.6225]]]])
    """

    def __init__(self, channels: int, reduction: int = 16, *, hidden: int | None = None, bias: bool = False):
        super().__init__()
        units = reduced_channels(channels, reduction, hidden)
        flag("bias", bias)
        self.channels = channels
        self.reduce = nn.Linear(channels, units, bias=bias)
        self.expand = nn.Linear(units, channels, bias=bias)

    def gate(self, features: Tensor) -> Tensor:
        """Returns the factor of each channel, ``[batch, channels]``, in (0, 1); arguments and errors as in
        `forward`."""
        check_feature_map("features", features, self.channels)
        return self.expand(self.reduce(features.mean((2, 3))).relu()).sigmoid()


@fx_leaf
class ChannelGate(FeatureGate):
    """Computes the channel attention of CBAM: one perceptron on the means and on the maxima of all channels.

    .. math::

        M_c(F) = σ(W_1 ReLU(W_0 F_avg) + W_1 ReLU(W_0 F_max))

    Woo et al. 2018, "CBAM: Convolutional Block Attention Module", eq. 2. W_0 and W_1 are the weights of ``reduce`` and
    ``expand``, which both terms share, and r is ``reduction``.

    Args:
        channels: channels of the feature map.
        reduction: the hidden layer has ``channels // reduction`` units, at least 1; default 16, as in the paper.
        hidden: the number of hidden units, which overrides ``reduction``.

    Raises:
        ArgumentError: a number is below 1.
        KindError: an argument has the wrong type.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> gate = nn.ChannelGate(2, hidden=1)
        >>> for part in (gate.reduce, gate.expand):
        ...     _ = torch.nn.init.ones_(part.weight)
        >>> features = torch.tensor([[[[0.0, 1.0]], [[-1.0, 0.0]]]])  # means 0.5 and −0.5, maxima 1 and 0
        >>> gate.gate(features).flatten().detach()  # σ(ReLU(0) + ReLU(1))
        tensor([0.7311, 0.7311])
        >>> gate(features).detach()
        tensor([[[[ 0.0000,  0.7311]],
        <BLANKLINE>
                 [[-0.7311,  0.0000]]]])
    """

    def __init__(self, channels: int, reduction: int = 16, *, hidden: int | None = None):
        super().__init__()
        units = reduced_channels(channels, reduction, hidden)
        self.channels = channels
        self.reduce = nn.Linear(channels, units, bias=False)
        self.expand = nn.Linear(units, channels, bias=False)

    def gate(self, features: Tensor) -> Tensor:
        """Returns M_c, ``[batch, channels, 1, 1]`` in (0, 1); arguments and errors as in `forward`."""
        check_feature_map("features", features, self.channels)
        pooled = torch.stack((features.mean((2, 3)), features.amax((2, 3))))  # 2 B C
        return self.expand(self.reduce(pooled).relu()).sum(0).sigmoid()[:, :, None, None]


@fx_leaf
class SpatialGate(FeatureGate):
    """Computes the spatial attention of CBAM: a convolution on the mean and the maximum over the channels.

    .. math::

        M_s(F) = σ(f([F_avg; F_max]))

    Woo et al. 2018, eq. 3, where f is a 7 × 7 convolution, here ``convolution``.

    Args:
        channels: channels of the feature map.
        kernel_size: kernel size of the convolution, odd; default 7, as in the paper.

    Raises:
        ArgumentError: a number is below 1, or ``kernel_size`` is even.
        KindError: an argument has the wrong type.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> gate = nn.SpatialGate(2, kernel_size=1)
        >>> _ = torch.nn.init.ones_(gate.convolution.weight)
        >>> features = torch.tensor([[[[0.0, 1.0]], [[-2.0, 3.0]]]])  # means −1 and 2, maxima 0 and 3
        >>> gate.gate(features).detach()  # σ(−1 + 0) and σ(2 + 3)
        tensor([[[[0.2689, 0.9933]]]])
        >>> gate(features).detach()
        tensor([[[[ 0.0000,  0.9933]],
        <BLANKLINE>
                 [[-0.5379,  2.9799]]]])
    """

    def __init__(self, channels: int, kernel_size: int = 7):
        super().__init__()
        self.channels = whole_number("channels", channels, 1)
        size = check_odd("kernel_size", kernel_size)
        self.convolution = nn.Conv2d(2, 1, size, padding=size // 2, bias=False)

    def gate(self, features: Tensor) -> Tensor:
        """Returns M_s, ``[batch, 1, height, width]`` in (0, 1); arguments and errors as in `forward`."""
        check_feature_map("features", features, self.channels)
        pooled = torch.cat((features.mean(1, keepdim=True), features.amax(1, keepdim=True)), 1)  # B 2 H W
        return self.convolution(pooled).sigmoid()


@fx_leaf
class CBAM(Module):
    """Applies channel attention, then spatial attention.

    .. math::

        F' = M_c(F) ⊗ F
        F'' = M_s(F') ⊗ F'

    Woo et al. 2018, eq. 1, with `ChannelGate` for M_c and `SpatialGate` for M_s.

    Args:
        channels: channels of the feature map.
        reduction: reduction of the channel attention; default 16, as in the paper.
        kernel_size: kernel size of the spatial attention, odd; default 7, as in the paper.

    Raises:
        ArgumentError: a number is below 1, or ``kernel_size`` is even.
        KindError: an argument has the wrong type.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> block = nn.CBAM(16, reduction=4)
        >>> features = torch.randn(2, 16, 5, 7)
        >>> torch.equal(block(features), block.spatial(block.channel(features)))
        True
        >>> factor = block(torch.ones(1, 16, 5, 7))
        >>> factor.shape, bool((0 < factor).all() and (factor < 1).all())
        (torch.Size([1, 16, 5, 7]), True)
    """

    def __init__(self, channels: int, reduction: int = 16, kernel_size: int = 7):
        super().__init__()
        self.channel = ChannelGate(channels, reduction)
        self.spatial = SpatialGate(channels, kernel_size)

    def forward(self, features: Tensor) -> Tensor:
        """Scales channels and positions of a feature map; arguments and errors as in `ChannelGate.forward`."""
        return self.spatial(self.channel(features))

    def extra_repr(self) -> str:
        return f"channels={self.channel.channels}"
