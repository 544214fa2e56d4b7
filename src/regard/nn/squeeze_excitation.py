"""Squeeze-and-excitation: each channel of a feature map is scaled by a gate that all of them decide."""

from torch import Tensor, nn

from regard.nn.feature_maps import check_feature_map, reduced_channels
from regard.nn.fx_leaf import fx_leaf
from regard.shapes import flag


@fx_leaf
class SqueezeExcitation(nn.Module):
    """Squeeze-and-excitation.

    ::

        z_c = mean of u_c over all positions       (squeeze)
        s   = σ(W2 ReLU(W1 z))                     (excitation)
        x̃_c = s_c · u_c                            (scale)

    Hu, Shen & Sun 2018, "Squeeze-and-Excitation Networks", eq. 2, 3 and 4. Their U is our ``features``, C our
    ``channels``, r our ``reduction``; W1 and W2 are the weights of ``reduce`` and ``expand``.

    Args:
        channels: of the feature map.
        reduction: ``channels // reduction`` units are between the two layers, at least 1; 16 as in the paper.
        hidden: these units, instead of ``reduction``.
        bias: whether the two layers have biases, which eq. 3 has not.

    Raises:
        ArgumentError: a number is below 1.
    """

    def __init__(self, channels: int, reduction: int = 16, *, hidden: int | None = None, bias: bool = False):
        super().__init__()
        units = reduced_channels(channels, reduction, hidden)
        flag("bias", bias)
        self.channels = channels
        self.reduce = nn.Linear(channels, units, bias=bias)
        self.expand = nn.Linear(units, channels, bias=bias)

    def gate(self, features: Tensor) -> Tensor:
        """The factor of each channel, ``[batch, channels]``, in (0, 1); arguments and errors as for `forward`."""
        check_feature_map("features", features, self.channels)
        return self.expand(self.reduce(features.mean((2, 3))).relu()).sigmoid()

    def forward(self, features: Tensor) -> Tensor:
        """The feature map with its channels scaled.

        Args:
            features: ``[batch, channels, height, width]``.

        Returns:
            the same shape.

        Raises:
            ShapeError, KindError: another shape or dtype.
        """
        return features * self.gate(features)[:, :, None, None]

    def extra_repr(self) -> str:
        return f"channels={self.channels}"
