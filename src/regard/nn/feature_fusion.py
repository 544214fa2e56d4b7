"""Attentional feature fusion: a gate of local and global context mixes two feature maps."""

from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import ShapeError, UnknownNameError
from regard.nn.batch_norm import BatchNorm2d
from regard.nn.feature_maps import check_feature_map, reduced_channels
from regard.nn.fx_leaf import fx_leaf

GlobalNorm = Literal["batch", "layer"]
GLOBAL_NORMS = ("batch", "layer")


@fx_leaf
class MSCAM(nn.Module):
    """The multi-scale channel attention module.

    ::

        L(X)  = B(PWConv2(ReLU(B(PWConv1(X)))))                 local context, for each position
        g(X)  = the same with weights of its own, of X averaged over all positions
        M(X)  = σ(L(X) + g(X))
        X'    = X ⊗ M(X)

    Dai et al. 2021, "Attentional Feature Fusion", eq. 1 to 3 and section 3.2. B is batch normalization, PWConv a
    convolution of 1 × 1; ``local_context`` and ``global_context`` are L and g, and r is our ``reduction``.

    The global context has one value for each image and channel, so batch normalization takes mean and variance of as
    few numbers as the batch has images: with small batches they say little, and differ from the running statistics of
    the evaluation (Wu & He 2018, "Group Normalization", figure 1). ``global_norm="layer"`` normalizes the channels of
    each image instead. With ``"batch"``, a batch of one is normalized by the running statistics while training, since
    one value has no variance.

    Args:
        channels: of the feature map.
        reduction: ``channels // reduction`` channels are between the two convolutions, at least 1; 4 unless told.
        hidden: these channels, instead of ``reduction``.
        global_norm: B in g: ``"batch"``, as in the paper, or ``"layer"`` (Ba et al. 2016), for batches of few images.

    Raises:
        ArgumentError: a number is below 1.
        UnknownNameError: there is no such normalization.
    """

    def __init__(
        self, channels: int, reduction: int = 4, *, hidden: int | None = None, global_norm: GlobalNorm = "batch"
    ):
        super().__init__()
        if global_norm not in GLOBAL_NORMS:
            raise UnknownNameError("global_norm", global_norm, GLOBAL_NORMS)
        units = reduced_channels(channels, reduction, hidden)
        self.channels = channels
        self.local_context = _bottleneck(channels, units, BatchNorm2d)
        self.global_context = _bottleneck(channels, units, BatchNorm2d if global_norm == "batch" else _LayerNorm)

    def gate(self, features: Tensor) -> Tensor:
        """M: ``[batch, channels, height, width]`` in (0, 1); arguments and errors as for `forward`."""
        check_feature_map("features", features, self.channels)
        return (self.local_context(features) + self.global_context(features.mean((2, 3), keepdim=True))).sigmoid()

    def forward(self, features: Tensor, *, scales: bool = True) -> Tensor:
        """The feature map, each of its numbers scaled.

        Args:
            features: ``[batch, channels, height, width]``.
            scales: whether the features are scaled; without, the result is the gate M alone, as `AFF` needs it.

        Returns:
            the same shape.

        Raises:
            ShapeError, KindError: another shape or dtype.
        """
        return features * self.gate(features) if scales else self.gate(features)

    def extra_repr(self) -> str:
        return f"channels={self.channels}"


@fx_leaf
class AFF(nn.Module):
    """Attentional feature fusion of two feature maps of one shape.

    ::

        Z = M(X + Y) ⊗ X + (1 − M(X + Y)) ⊗ Y

    Dai et al. 2021, eq. 4, where M is that of `MSCAM`. X is our ``first``, Y our ``second``: in a decoder the one of
    the encoder at the same scale, and the upsampled one of the level below.

    Args:
        channels: of both feature maps.
        reduction, hidden, global_norm: as for `MSCAM`.

    Raises:
        ArgumentError: a number is below 1.
        UnknownNameError: there is no such normalization.
    """

    def __init__(
        self, channels: int, reduction: int = 4, *, hidden: int | None = None, global_norm: GlobalNorm = "batch"
    ):
        super().__init__()
        self.attention = MSCAM(channels, reduction, hidden=hidden, global_norm=global_norm)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Both feature maps as one.

        Args:
            first: ``[batch, channels, height, width]``.
            second: the same shape.

        Returns:
            the same shape.

        Raises:
            ShapeError, KindError: another shape or dtype, or two shapes.
        """
        _check_pair(first, second, self.attention.channels)
        return mixed(first, second, self.attention(first + second, scales=False))


@fx_leaf
class IAFF(nn.Module):
    """Iterative attentional feature fusion: the first fusion decides the gate of the second one.

    ::

        U = M1(X + Y) ⊗ X + (1 − M1(X + Y)) ⊗ Y
        Z = M2(U) ⊗ X + (1 − M2(U)) ⊗ Y

    Dai et al. 2021, eq. 4 and 5; M1 and M2 are two `MSCAM` with weights of their own, ``initial`` and ``attention``.

    Args:
        channels: of both feature maps.
        reduction, hidden, global_norm: as for `MSCAM`.

    Raises:
        ArgumentError: a number is below 1.
        UnknownNameError: there is no such normalization.
    """

    def __init__(
        self, channels: int, reduction: int = 4, *, hidden: int | None = None, global_norm: GlobalNorm = "batch"
    ):
        super().__init__()
        self.initial = AFF(channels, reduction, hidden=hidden, global_norm=global_norm)
        self.attention = MSCAM(channels, reduction, hidden=hidden, global_norm=global_norm)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Both feature maps as one; arguments, result and errors as for `AFF.forward`."""
        return mixed(first, second, self.attention(self.initial(first, second), scales=False))


def mixed(first: Tensor, second: Tensor, gate: Tensor) -> Tensor:
    """``gate · first + (1 − gate) · second``."""
    return second + gate * (first - second)


def _check_pair(first: Tensor, second: Tensor, channels: int) -> None:
    check_feature_map("first", first, channels)
    check_feature_map("second", second, channels)
    if first.shape != second.shape:
        raise ShapeError(f"second must have the shape of first, {list(first.shape)}; it has shape {list(second.shape)}")


def _bottleneck(channels: int, units: int, norm: Callable[[int], nn.Module]) -> nn.Sequential:
    # The biases of the convolutions would be subtracted again by the normalizations.
    return nn.Sequential(
        nn.Conv2d(channels, units, 1, bias=False),
        norm(units),
        nn.ReLU(inplace=True),
        nn.Conv2d(units, channels, 1, bias=False),
        norm(channels),
    )


class _LayerNorm(nn.GroupNorm):
    """Layer normalization of the channels at each position; of one channel, its bias.

    `torch.nn.GroupNorm` refuses one image with one channel, in evaluation too.
    """

    def __init__(self, channels: int):
        super().__init__(1, channels)

    def forward(self, input: Tensor) -> Tensor:
        channels_last = input.movedim(1, -1)
        normalized = F.layer_norm(channels_last, (self.num_channels,), self.weight, self.bias, self.eps)
        return normalized.movedim(-1, 1)
