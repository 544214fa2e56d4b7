"""Squeeze-and-excitation: a gate computed from all channels scales each channel of a feature map."""

from torch import Tensor, nn

from regard.nn.feature_maps import FeatureGate, check_feature_map, reduced_channels
from regard.nn.fx_leaf import fx_leaf
from regard.shapes.checks import flag


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
