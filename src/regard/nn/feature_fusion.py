"""Attentional feature fusion: a gate from local and global context mixes two feature maps."""

from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F

from regard.distributed.sequence_parts import refuse_parts
from regard.errors import ShapeError, UnknownNameError
from regard.nn.batch_norm import BatchNorm2d
from regard.nn.feature_gates import FeatureGate
from regard.nn.feature_maps import check_feature_map, reduced_channels
from regard.nn.fx_leaf import fx_leaf
from regard.tracing.module_calls import Module

GlobalNorm = Literal["batch", "layer"]
GLOBAL_NORMS = ("batch", "layer")


@fx_leaf
class MSCAM(FeatureGate):
    """Scales a feature map by multi-scale channel attention.

    .. math::

        L(X) = B(PWConv_2(ReLU(B(PWConv_1(X)))))
        M(X) = σ(L(X) + g(mean of X over all positions))
        X' = X ⊗ M(X)

    Dai et al. 2021, "Attentional Feature Fusion", eq. 1 to 3 and section 3.2. B is batch normalization, and PWConv is a
    1 × 1 convolution; ``local_context`` and ``global_context`` are L and g, which has the form of L and weights of its
    own, and r is ``reduction``.

    The global context has one value for each image and channel, so batch normalization computes mean and variance from
    only as many values as the batch has images. In small batches these are unreliable, and differ from the running
    statistics in evaluation (Wu & He 2018, "Group Normalization", figure 1). ``global_norm="layer"`` normalizes the
    channels of each image instead. With ``"batch"``, a batch of one is normalized by the running statistics while
    training, since one value has no variance.

    Args:
        channels: channels of the feature map.
        reduction: there are ``channels // reduction`` channels between the convolutions, at least 1; default 4.
        hidden: the number of these channels, which overrides ``reduction``.
        global_norm: B in g: ``"batch"``, as in the paper, or ``"layer"`` (Ba et al. 2016), for batches of few images.

    Raises:
        ArgumentError: a number is below 1.
        KindError: an argument has the wrong type.
        UnknownNameError: the normalization is unknown.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> attention = nn.MSCAM(8).eval()
        >>> features = torch.randn(2, 8, 5, 7)
        >>> gate = attention.gate(features)  # a factor for each element
        >>> gate.shape, bool((0 < gate).all() and (gate < 1).all())
        (torch.Size([2, 8, 5, 7]), True)
        >>> torch.equal(attention(features), features * gate)
        True
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
        """Returns M, ``[batch, channels, height, width]`` in (0, 1); arguments and errors as in `forward`."""
        check_feature_map("features", features, self.channels)
        return (self.local_context(features) + self.global_context(features.mean((2, 3), keepdim=True))).sigmoid()

    def forward(self, features: Tensor, *, scales: bool = True) -> Tensor:
        """Scales each element of a feature map.

        Args:
            features: ``[batch, channels, height, width]``.
            scales: whether to scale the features; if False, the result is the gate M, which `AFF` needs.

        Returns:
            A tensor of the same shape.

        Raises:
            ShapeError, KindError: the input has another shape or dtype.
        """
        refuse_parts(type(self).__name__)
        return super().forward(features) if scales else self.gate(features)


@fx_leaf
class AFF(Module):
    """Fuses two feature maps of one shape by attentional feature fusion.

    .. math::

        Z = M(X + Y) ⊗ X + (1 − M(X + Y)) ⊗ Y

    Dai et al. 2021, eq. 4, where M is the gate of `MSCAM`. X is ``first`` and Y is ``second``: in a decoder, the
    encoder's feature map at the same scale, and the upsampled one of the level below.

    Args:
        channels: channels of both feature maps.
        reduction, hidden, global_norm: as in `MSCAM`.

    Raises:
        ArgumentError: a number is below 1.
        KindError: an argument has the wrong type.
        UnknownNameError: the normalization is unknown.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> fusion = nn.AFF(8).eval()
        >>> encoded, upsampled = torch.zeros(2, 8, 5, 7), torch.ones(2, 8, 5, 7)
        >>> fused = fusion(encoded, upsampled)
        >>> torch.allclose(fused, 1 - fusion.attention.gate(encoded + upsampled))  # (1 − M) ⊗ 1
        True
        >>> torch.allclose(fusion(upsampled, upsampled), upsampled)  # the two factors sum to 1
        True
    """

    def __init__(
        self, channels: int, reduction: int = 4, *, hidden: int | None = None, global_norm: GlobalNorm = "batch"
    ):
        super().__init__()
        self.attention = MSCAM(channels, reduction, hidden=hidden, global_norm=global_norm)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Fuses both feature maps.

        Args:
            first: ``[batch, channels, height, width]``.
            second: a tensor of the same shape.

        Returns:
            A tensor of the same shape.

        Raises:
            ShapeError, KindError: an input has another shape or dtype, or the shapes differ.
        """
        for name, features in (("first", first), ("second", second)):
            check_feature_map(name, features, self.attention.channels)
        if first.shape != second.shape:
            raise ShapeError(
                f"second must have the shape of first, {list(first.shape)}; it has shape {list(second.shape)}"
            )
        return mix(first, second, self.attention(first + second, scales=False))


@fx_leaf
class IAFF(Module):
    """Fuses two feature maps by iterative attentional feature fusion: a first fusion determines the gate of the second.

    .. math::

        U = M_1(X + Y) ⊗ X + (1 − M_1(X + Y)) ⊗ Y
        Z = M_2(U) ⊗ X + (1 − M_2(U)) ⊗ Y

    Dai et al. 2021, eq. 4 and 5; M_1 and M_2 are two separate `MSCAM`, in ``initial`` and ``attention``.

    Args:
        channels: channels of both feature maps.
        reduction, hidden, global_norm: as in `MSCAM`.

    Raises:
        ArgumentError: a number is below 1.
        KindError: an argument has the wrong type.
        UnknownNameError: the normalization is unknown.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> fusion = nn.IAFF(8, global_norm="layer")
        >>> first, second = torch.randn(2, 8, 5, 7), torch.randn(2, 8, 5, 7)
        >>> fused = fusion(first, second)
        >>> fused.shape
        torch.Size([2, 8, 5, 7])
        >>> bounds = first.minimum(second), first.maximum(second)
        >>> torch.allclose(fused, fused.clamp(*bounds))  # each element lies between the two
        True
    """

    def __init__(
        self, channels: int, reduction: int = 4, *, hidden: int | None = None, global_norm: GlobalNorm = "batch"
    ):
        super().__init__()
        self.initial = AFF(channels, reduction, hidden=hidden, global_norm=global_norm)
        self.attention = MSCAM(channels, reduction, hidden=hidden, global_norm=global_norm)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Fuses both feature maps; arguments, result and errors as in `AFF.forward`."""
        return mix(first, second, self.attention(self.initial(first, second), scales=False))


def mix(first: Tensor, second: Tensor, gate: Tensor) -> Tensor:
    """Returns ``gate · first + (1 − gate) · second``."""
    return second + gate * (first - second)


def _bottleneck(channels: int, units: int, norm: Callable[[int], nn.Module]) -> nn.Sequential:
    # The normalizations would subtract the biases of the convolutions again.
    return nn.Sequential(
        nn.Conv2d(channels, units, 1, bias=False),
        norm(units),
        nn.ReLU(inplace=True),
        nn.Conv2d(units, channels, 1, bias=False),
        norm(channels),
    )


class _LayerNorm(nn.GroupNorm):
    """Normalizes the channels at each position; a single channel becomes its bias.

    `torch.nn.GroupNorm` refuses one image with one channel, even in evaluation.
    """

    def __init__(self, channels: int):
        super().__init__(1, channels)

    def forward(self, input: Tensor) -> Tensor:
        channels_last = input.movedim(1, -1)
        normalized = F.layer_norm(channels_last, (self.num_channels,), self.weight, self.bias, self.eps)
        return normalized.movedim(-1, 1)
