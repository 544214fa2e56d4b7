"""Dual attention: positions of a feature map attend to all positions, and channels to all channels."""

import torch
from torch import Tensor, nn

from regard.attention import Observed, Readings
from regard.attention.execution import check_backend
from regard.attention.readings import ReadingName
from regard.attention.verbs import BackendName
from regard.distributed.sequence_parts import refuse_parts
from regard.nn.batch_norm import BatchNorm2d
from regard.nn.feature_maps import PositionMixer, as_feature_map, check_feature_map, reduced_channels
from regard.nn.fx_leaf import fx_leaf
from regard.shapes.checks import whole_number
from regard.shapes.grid import upcast
from regard.tracing.module_calls import Module


@fx_leaf
class PositionAttention(PositionMixer):
    """Lets each position attend to all positions, in memory linear in their number.

    .. math::

        s_{ji} = softmax_i(B_i · C_j)
        E_j = α Σ_i s_{ji} D_i + A_j

    Fu et al. 2019, "Dual Attention Network for Scene Segmentation", eq. 1 and 2. Their A is ``features``; C, B and D
    are the outputs of the convolutions ``query``, ``key`` and ``value``, and α is ``scale``, which is initially 0. The
    sum is computed by `regard.attend` without a matrix of weights, so that 180 × 240 positions can attend to each other
    on a CPU. As in the paper, scores are not divided by √dim.

    Args:
        channels: channels of the feature map.
        reduction: queries and keys have ``channels // reduction`` features, at least 1. The paper's equations use 1,
            its authors' networks use 8, which is the default.
        hidden: the number of these features, which overrides ``reduction``.
        backend: backend of `regard.attend`.

    Raises:
        ArgumentError: a number is below 1.
        KindError: an argument has the wrong type.
        UnknownNameError: the backend is unknown.

    Example:
        >>> import torch
        >>> import regard
        >>> attention = regard.nn.PositionAttention(16)
        >>> features = torch.randn(2, 16, 5, 7)
        >>> torch.equal(attention(features), features)  # α is 0
        True
        >>> seen = attention.observe(features, regard.Readings(rows=[2 * 7 + 3]))
        >>> weights = seen.rows.view(2, 5, 7)  # those of row 2, column 3
        >>> weights.sum((1, 2)).detach()
        tensor([1.0000, 1.0000])
    """

    def __init__(self, channels: int, reduction: int = 8, *, hidden: int | None = None, backend: BackendName = "auto"):
        super().__init__()
        dim = reduced_channels(channels, reduction, hidden)
        self.channels = channels
        self.backend: BackendName = check_backend(backend)
        self.query = nn.Conv2d(channels, dim, 1)
        self.key = nn.Conv2d(channels, dim, 1)
        self.value = nn.Conv2d(channels, channels, 1)
        self.scale = nn.Parameter(torch.zeros(()))

    def forward(self, features: Tensor) -> Tensor:
        """Adds to each position the weighted sum over all positions.

        Args:
            features: ``[batch, channels, height, width]``.

        Returns:
            A tensor of the same shape.

        Raises:
            ShapeError, KindError: the input has another shape or dtype.
            BackendError: the named backend cannot run this.
        """
        refuse_parts(type(self).__name__)
        mixed = self._attended(*self.projected(features))[:, 0]
        return self.scale * as_feature_map(mixed, *features.shape[2:]) + features


@fx_leaf
class ChannelAttention(Module):
    """Lets each channel attend to all channels.

    .. math::

        x_{ji} = softmax_i(A_i · A_j)
        E_j = β Σ_i x_{ji} A_i + A_j

    Fu et al. 2019, eq. 3 and 4: A_i are all positions of channel i, and β is ``scale``, which is initially 0. The
    matrix of weights has one row and one column a channel, whatever the size of the map. Half precision is computed in
    float32.

    Args:
        channels: channels of the feature map.

    Raises:
        ArgumentError: ``channels`` is below 1.
        KindError: an argument has the wrong type.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> attention = nn.ChannelAttention(3)
        >>> features = torch.tensor([[[[1.0, 0.0]], [[1.0, 0.0]], [[0.0, 1.0]]]])  # the first two channels are alike
        >>> attention.weights(features)
        tensor([[[0.4223, 0.4223, 0.1554],
                 [0.4223, 0.4223, 0.1554],
                 [0.2119, 0.2119, 0.5761]]])
        >>> _ = torch.nn.init.ones_(attention.scale)
        >>> attention(features).detach()
        tensor([[[[1.8446, 0.1554]],
        <BLANKLINE>
                 [[1.8446, 0.1554]],
        <BLANKLINE>
                 [[0.4239, 1.5761]]]])
    """

    def __init__(self, channels: int):
        super().__init__()
        self.channels = whole_number("channels", channels, 1)
        self.scale = nn.Parameter(torch.zeros(()))

    def weights(self, features: Tensor) -> Tensor:
        """Returns x, ``[batch, channels, channels]``, whose rows sum to 1; arguments as in `forward`."""
        check_feature_map("features", features, self.channels)
        flat = upcast(features).flatten(2)  # B C N
        return (flat @ flat.mT).softmax(-1)

    def forward(self, features: Tensor) -> Tensor:
        """Adds to each channel the weighted sum over all channels; arguments and errors as in `ChannelGate.forward`."""
        refuse_parts(type(self).__name__)
        mixed = (self.weights(features) @ upcast(features).flatten(2)).view_as(features)
        return self.scale * mixed.to(features.dtype) + features

    def extra_repr(self) -> str:
        return f"channels={self.channels}"


@fx_leaf
class DualAttention(Module):
    """Adds the results of position attention and channel attention.

    .. math::

        Z = f_p(position(g_p(A))) + f_c(channel(g_c(A)))

    Fu et al. 2019, section 3.4 and figure 2: g and f are 3 × 3 convolutions with batch normalization and ReLU; g may
    reduce the channels.

    Args:
        channels: channels of the feature map.
        reduction: reduction of the `PositionAttention`.
        hidden: channels of both attentions and of the result. Default: ``channels``. The paper's head, which a
            classifier of positions follows, has a quarter of them: ``hidden=channels // 4``.
        backend: backend of `regard.attend`.

    Raises:
        ArgumentError: a number is below 1.
        KindError: an argument has the wrong type.
        UnknownNameError: the backend is unknown.

    Example:
        >>> import torch
        >>> import regard
        >>> head = regard.nn.DualAttention(64, hidden=16)
        >>> features = torch.randn(2, 64, 5, 7)
        >>> head(features).shape
        torch.Size([2, 16, 5, 7])
        >>> head.observe(features, regard.Readings(received=True)).received.shape  # 35 positions
        torch.Size([2, 1, 35])
    """

    def __init__(self, channels: int, reduction: int = 8, *, hidden: int | None = None, backend: BackendName = "auto"):
        super().__init__()
        self.channels = channels
        self.hidden = reduced_channels(channels, 1, hidden)
        self.before_position = _convolution(channels, self.hidden)
        self.position = PositionAttention(self.hidden, reduction, backend=backend)
        self.after_position = _convolution(self.hidden, self.hidden)
        self.before_channel = _convolution(channels, self.hidden)
        self.channel = ChannelAttention(self.hidden)
        self.after_channel = _convolution(self.hidden, self.hidden)

    def forward(self, features: Tensor) -> Tensor:
        """Returns the sum of both attentions.

        Args:
            features: ``[batch, channels, height, width]``.

        Returns:
            ``[batch, hidden, height, width]``: a tensor of the same shape, unless ``hidden`` says otherwise.

        Raises:
            ShapeError, KindError: the input has another shape or dtype.
            BackendError: the named backend cannot run this.
        """
        refuse_parts(type(self).__name__)
        check_feature_map("features", features, self.channels)
        position = self.after_position(self.position(self.before_position(features)))
        return position + self.after_channel(self.channel(self.before_channel(features)))

    def observe(self, features: Tensor, read: Readings | ReadingName) -> Observed:
        """Reads the weights of positions; see `PositionAttention.observe`."""
        check_feature_map("features", features, self.channels)
        return self.position.observe(self.before_position(features), read)

    def extra_repr(self) -> str:
        return f"channels={self.channels}, hidden={self.hidden}"


def _convolution(channels: int, hidden: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, hidden, 3, padding=1, bias=False), BatchNorm2d(hidden), nn.ReLU(inplace=True)
    )
