"""Gates of feature maps: squeeze-and-excitation, ECA, the gates of CBAM, and coordinate attention."""

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.distributed.sequence_parts import refuse_parts
from regard.nn.batch_norm import BatchNorm2d
from regard.nn.feature_maps import check_feature_map, check_odd, reduced_channels
from regard.nn.fx_leaf import fx_leaf
from regard.shapes.checks import flag, whole_number
from regard.tracing.module_calls import Module


class FeatureGate(Module, ABC):
    """The base of modules that multiply a feature map of ``channels`` by a gate in (0, 1), which they compute from
    it."""

    channels: int

    @abstractmethod
    def gate(self, features: Tensor) -> Tensor:
        """Returns the factors of channels, positions or elements; arguments and errors as in `forward`."""

    def forward(self, features: Tensor) -> Tensor:
        """Multiplies a feature map ``[batch, channels, height, width]`` by the gate; raises ShapeError or KindError for
        another shape or dtype."""
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
class ECA(FeatureGate):
    """Scales the channels of a feature map by efficient channel attention: each factor depends on near channels alone.

    .. math::

        ω = σ(C1D_k(y)),    y_c = mean of x_c over all positions
        k = ψ(C) = |log_2(C) / γ + b / γ|_odd,    γ = 2, b = 1

    Wang et al. 2020, "ECA-Net: Efficient Channel Attention for Deep Convolutional Neural Networks", section 3.2. C1D_k
    is ``convolution``, over the channels, with k elements; ``|t|_odd`` is the odd number nearest to t, the larger of
    two. Below 8 channels k is 1, and no channel sees another.

    Args:
        channels: channels of the feature map.
        kernel_size: k, odd; default: that of the equation.

    Raises:
        ArgumentError, KindError: an argument is invalid; the message names it.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> [nn.ECA(channels).convolution.kernel_size[0] for channels in (4, 8, 64, 256, 512)]
        [1, 3, 3, 5, 5]
        >>> block = nn.ECA(3, kernel_size=3)
        >>> _ = torch.nn.init.ones_(block.convolution.weight)
        >>> features = torch.tensor([[[[0.0, 2.0]], [[0.0, -1.0]], [[1.0, 1.0]]]])  # y = (1, −0.5, 1)
        >>> block.gate(features).detach()  # σ(1 − 0.5), σ(1 − 0.5 + 1), σ(−0.5 + 1)
        tensor([[0.6225, 0.8176, 0.6225]])
    """

    def __init__(self, channels: int, kernel_size: int | None = None):
        super().__init__()
        self.channels = whole_number("channels", channels, 1)
        if kernel_size is None:
            kernel_size = 2 * int((math.log2(channels) + 1) / 4) + 1
        check_odd("kernel_size", kernel_size)
        self.convolution = nn.Conv1d(1, 1, kernel_size, padding=kernel_size // 2, bias=False)

    def gate(self, features: Tensor) -> Tensor:
        """Returns ω, ``[batch, channels]``, in (0, 1); arguments and errors as in `forward`."""
        check_feature_map("features", features, self.channels)
        return self.convolution(features.mean((2, 3))[:, None])[:, 0].sigmoid()


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


@fx_leaf
class CoordinateAttention(FeatureGate):
    """Scales a feature map by coordinate attention: a gate of rows times a gate of columns, for each channel.

    .. math::

        z^h_c(i) = mean of x_c over row i,    z^w_c(j) = mean of x_c over column j
        f = δ(F_1([z^h, z^w]))
        g^h = σ(F_h(f^h)),    g^w = σ(F_w(f^w))
        y_c(i, j) = x_c(i, j) · g^h_c(i) · g^w_c(j)

    Hou, Zhou & Feng 2021, "Coordinate Attention for Efficient Mobile Network Design", eq. 4 to 9 and figure 2. F_1 is
    the 1 × 1 convolution ``reduce`` with batch normalization ``norm``, which rows and columns share, and δ is h-swish;
    F_h and F_w are the 1 × 1 convolutions ``expand_rows`` and ``expand_columns``, and r is ``reduction``.

    Args:
        channels: channels of the feature map.
        reduction: F_1 has ``channels // reduction`` outputs, at least 8; default 32, as in the paper.
        hidden: the number of these outputs, which overrides ``reduction``.

    Raises:
        ArgumentError, KindError: an argument is invalid; the message names it.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> block = nn.CoordinateAttention(4).eval()
        >>> rows, columns = block.gates(torch.randn(2, 4, 5, 7))
        >>> rows.shape, columns.shape
        (torch.Size([2, 4, 5, 1]), torch.Size([2, 4, 1, 7]))
    """

    def __init__(self, channels: int, reduction: int = 32, *, hidden: int | None = None):
        super().__init__()
        units = reduced_channels(channels, reduction, hidden, least=8)
        self.channels = channels
        self.reduce = nn.Conv2d(channels, units, 1, bias=False)  # the normalization would subtract a bias
        self.norm = BatchNorm2d(units)
        self.expand_rows = nn.Conv2d(units, channels, 1)
        self.expand_columns = nn.Conv2d(units, channels, 1)

    def gates(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Returns g^h, ``[batch, channels, height, 1]``, and g^w, ``[batch, channels, 1, width]``, in (0, 1);
        arguments and errors as in `forward`."""
        check_feature_map("features", features, self.channels)
        pooled = torch.cat((features.mean(3), features.mean(2)), 2)[..., None]  # B C H+W 1
        hidden = F.hardswish(self.norm(self.reduce(pooled)))
        rows, columns = hidden.split((features.shape[2], features.shape[3]), 2)
        return self.expand_rows(rows).sigmoid(), self.expand_columns(columns.mT).sigmoid()

    def gate(self, features: Tensor) -> Tensor:
        """Returns g^h · g^w, ``[batch, channels, height, width]``; arguments and errors as in `forward`."""
        rows, columns = self.gates(features)
        return rows * columns
