"""Dual attention: positions of a feature map attend to all positions, and channels to all channels."""

import torch
from torch import Tensor, nn

from regard.attention import Observed, Readings, attend, observe
from regard.attention.planner import check_backend
from regard.attention.verbs import BackendName
from regard.nn.batch_norm import BatchNorm2d
from regard.nn.feature_maps import as_feature_map, as_sequence, check_feature_map, reduced_channels
from regard.nn.fx_leaf import fx_leaf
from regard.shapes import upcast, whole_number


@fx_leaf
class PositionAttention(nn.Module):
    """The position attention module, in memory linear in the number of positions.

    ::

        s_ji = softmax over i of (B_i · C_j)
        E_j  = α Σ_i s_ji D_i + A_j

    Fu et al. 2019, "Dual Attention Network for Scene Segmentation", eq. 1 and 2. Their A is our ``features``; C, B and
    D are what the convolutions ``query``, ``key`` and ``value`` make of it, and α is ``scale``, which begins as 0. The
    weights are those of `regard.attend`, which makes no matrix of them: 180 × 240 positions attend to each other on a
    CPU. They are not divided by √dim, as in the paper.

    Args:
        channels: of the feature map.
        reduction: queries and keys have ``channels // reduction`` features, at least 1. The paper's equations have 1,
            its authors' networks 8, which is the default.
        hidden: these features, instead of ``reduction``.
        backend: of `regard.attend`.

    Raises:
        ArgumentError: a number is below 1.
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
        """The feature map with what each position gets of all positions added.

        Args:
            features: ``[batch, channels, height, width]``.

        Returns:
            the same shape.

        Raises:
            ShapeError, KindError: another shape or dtype.
            BackendError: the named backend cannot run this.
        """
        mixed = attend(*self._projected(features), score="dot", backend=self.backend)[:, 0]
        return self.scale * as_feature_map(mixed, *features.shape[2:]) + features

    def observe(self, features: Tensor, read: Readings) -> Observed:
        """Readings of the weights of positions, row by row of the feature map, with one head.

        Args:
            features: as for `forward`.
            read: which readings; ``Readings(rows=[y * width + x])`` gives the weights of one position, in linear
                memory.

        Returns:
            `Observed`; its output is Σ_i s_ji D_i, ``[batch, 1, positions, channels]``.

        Raises:
            ShapeError, KindError: another shape or dtype.
            ArgumentError: a reading that this attention does not have.
        """
        return observe(*self._projected(features), read=read, score="dot", backend=self.backend)

    def _projected(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        check_feature_map("features", features, self.channels)
        query, key, value = (as_sequence(part(features))[:, None] for part in (self.query, self.key, self.value))
        return query, key, value

    def extra_repr(self) -> str:
        return f"channels={self.channels}"


@fx_leaf
class ChannelAttention(nn.Module):
    """The channel attention module.

    ::

        x_ji = softmax over i of (A_i · A_j)
        E_j  = β Σ_i x_ji A_i + A_j

    Fu et al. 2019, eq. 3 and 4: A_i are all positions of channel i, and β is ``scale``, which begins as 0. The matrix
    of weights has a row and a column for each channel, whatever the size of the map. Half precision is computed in
    float32.

    Args:
        channels: of the feature map.

    Raises:
        ArgumentError: the number is below 1.
    """

    def __init__(self, channels: int):
        super().__init__()
        self.channels = whole_number("channels", channels, 1)
        self.scale = nn.Parameter(torch.zeros(()))

    def weights(self, features: Tensor) -> Tensor:
        """x: ``[batch, channels, channels]``; the row of a channel sums to 1. Arguments as for `forward`."""
        check_feature_map("features", features, self.channels)
        flat = upcast(features).flatten(2)  # B C N
        return (flat @ flat.mT).softmax(-1)

    def forward(self, features: Tensor) -> Tensor:
        """The feature map with what each channel gets of all channels added.

        Args:
            features: ``[batch, channels, height, width]``.

        Returns:
            the same shape.

        Raises:
            ShapeError, KindError: another shape or dtype.
        """
        mixed = (self.weights(features) @ upcast(features).flatten(2)).view_as(features)
        return self.scale * mixed.to(features.dtype) + features

    def extra_repr(self) -> str:
        return f"channels={self.channels}"


@fx_leaf
class DualAttention(nn.Module):
    """Position and channel attention side by side, and the sum of both.

    ::

        Z = f_p(position(g_p(A))) + f_c(channel(g_c(A)))

    Fu et al. 2019, section 3.4 and figure 2: g and f are convolutions of 3 × 3 with batch normalization and ReLU; g
    reduces the channels.

    Args:
        channels: of the feature map.
        hidden: channels of both attentions and of the result. Default: a quarter of ``channels``.
        reduction: of the `PositionAttention`.
        backend: of `regard.attend`.

    Raises:
        ArgumentError: a number is below 1.
    """

    def __init__(self, channels: int, hidden: int | None = None, *, reduction: int = 8, backend: BackendName = "auto"):
        super().__init__()
        self.channels = channels
        self.hidden = reduced_channels(channels, 4, hidden)
        self.before_position = _convolution(channels, self.hidden)
        self.position = PositionAttention(self.hidden, reduction, backend=backend)
        self.after_position = _convolution(self.hidden, self.hidden)
        self.before_channel = _convolution(channels, self.hidden)
        self.channel = ChannelAttention(self.hidden)
        self.after_channel = _convolution(self.hidden, self.hidden)

    def forward(self, features: Tensor) -> Tensor:
        """The sum of both attentions.

        Args:
            features: ``[batch, channels, height, width]``.

        Returns:
            ``[batch, hidden, height, width]``.

        Raises:
            ShapeError, KindError: another shape or dtype.
            BackendError: the named backend cannot run this.
        """
        check_feature_map("features", features, self.channels)
        position = self.after_position(self.position(self.before_position(features)))
        return position + self.after_channel(self.channel(self.before_channel(features)))

    def observe(self, features: Tensor, read: Readings) -> Observed:
        """Readings of the weights of positions; as `PositionAttention.observe`, of the features that it gets."""
        check_feature_map("features", features, self.channels)
        return self.position.observe(self.before_position(features), read)


def _convolution(channels: int, hidden: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, hidden, 3, padding=1, bias=False), BatchNorm2d(hidden), nn.ReLU(inplace=True)
    )
