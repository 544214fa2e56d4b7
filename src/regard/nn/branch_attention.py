"""Attention over the branches of a convolution: selective kernels, and split attention."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from regard.distributed.sequence_parts import refuse_parts
from regard.errors import ArgumentError
from regard.nn.batch_norm import BatchNorm2d
from regard.nn.feature_maps import check_feature_map, check_odd, reduced_channels
from regard.nn.fx_leaf import fx_leaf
from regard.shapes.checks import whole_number
from regard.shapes.grid import upcast
from regard.tracing.module_calls import Module


class BranchAttention(Module, ABC):
    """The base of convolutions with branches, whose outputs are mixed; each group has weights of its own."""

    def __init__(self, channels: int, branches: int, hidden: int, groups: int, bias: bool):
        super().__init__()
        _check_divides("hidden", hidden, groups)
        self.channels, self.branches, self.groups = channels, branches, groups
        self.reduce = nn.Conv2d(channels, hidden, 1, groups=groups, bias=False)
        self.norm = BatchNorm2d(hidden)
        self.expand = nn.Conv2d(hidden, branches * channels, 1, groups=groups, bias=bias)

    @abstractmethod
    def branch_maps(self, features: Tensor) -> Tensor:
        """Returns U, ``[batch, branches, channels, height, width]``; arguments and errors as in `forward`."""

    def weights(self, features: Tensor) -> Tensor:
        """Returns a, ``[batch, branches, channels]``; several branches have a sum of 1. Arguments as in `forward`."""
        return self._weights(self.branch_maps(features))

    def forward(self, features: Tensor) -> Tensor:
        """Mixes the branches; arguments, result and errors as in `SqueezeExcitation.forward`."""
        refuse_parts(type(self).__name__)
        maps = self.branch_maps(features)
        return (self._weights(maps).to(maps.dtype)[..., None, None] * maps).sum(1)

    def _weights(self, maps: Tensor) -> Tensor:
        pooled = maps.mean((3, 4)).sum(1)[:, :, None, None]  # B C 1 1
        logits = self.expand(self.norm(self.reduce(pooled)).relu()).flatten(1)
        by_group = upcast(logits).unflatten(1, (self.groups, self.branches, self.channels // self.groups))
        by_branch = by_group.transpose(1, 2).flatten(2)  # B M C
        return by_branch.sigmoid() if self.branches == 1 else by_branch.softmax(1)

    def extra_repr(self) -> str:
        return f"channels={self.channels}, branches={self.branches}"


@fx_leaf
class SelectiveKernel(BranchAttention):
    """Convolves with kernels of several sizes, and lets each channel attend to them.

    .. math::

        U_m = ReLU(B(conv_m(X))),    s = mean of Σ_m U_m over all positions,    z = ReLU(B(W s))
        V_c = Σ_m a_{m,c} U_{m,c},    a_{m,c} = softmax_m(A_{m,c} z)

    Li et al. 2019, "Selective Kernel Networks", eq. 1 to 6. W and the batch normalization of z are ``reduce`` and
    ``norm``, the matrices A and B of the paper are the rows of ``expand``, and r is ``reduction``. As in the paper, the
    second kernel has 3 × 3 elements with dilation 2 in place of 5 × 5. Weights are computed in float32.

    Args:
        channels: channels of input and output.
        reduction: z has ``channels // reduction`` features, at least 32; default 16, as in the paper.
        kernel_sizes, dilations: size (odd) and dilation of each branch's kernel.
        hidden: the number of features of z, which overrides ``reduction``.
        groups: groups of the convolutions, a divisor of ``channels``; 32 in the paper.

    Raises:
        ArgumentError, KindError: an argument is invalid; the message names it.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> block = nn.SelectiveKernel(8).eval()
        >>> block.weights(torch.randn(3, 8, 5, 7)).shape  # of both kernels, for each channel
        torch.Size([3, 2, 8])
    """

    def __init__(
        self, channels: int, reduction: int = 16, *, kernel_sizes: Sequence[int] = (3, 3),
        dilations: Sequence[int] = (1, 2), hidden: int | None = None, groups: int = 1,
    ):  # fmt: skip
        units = reduced_channels(channels, reduction, hidden, least=32)
        are_lists = isinstance(kernel_sizes, (list, tuple)) and isinstance(dilations, (list, tuple))
        if not are_lists or len(kernel_sizes) != len(dilations) or len(dilations) < 2:
            raise ArgumentError(
                "kernel_sizes and dilations must be lists with one number for each of at least two branches; they are "
                f"{kernel_sizes} and {dilations}"
            )
        _check_divides("channels", channels, whole_number("groups", groups, 1), "groups")
        super().__init__(channels, len(dilations), units, 1, bias=False)
        self.convolutions = nn.ModuleList()
        for size, dilation in zip(kernel_sizes, dilations, strict=True):
            padding = whole_number("dilations", dilation, 1) * (check_odd("kernel_sizes", size) // 2)
            self.convolutions.append(
                _convolution(channels, channels, size, padding=padding, dilation=dilation, groups=groups)
            )

    def branch_maps(self, features: Tensor) -> Tensor:
        check_feature_map("features", features, self.channels)
        return torch.stack([convolution(features) for convolution in self.convolutions], 1)


@fx_leaf
class SplitAttention(BranchAttention):
    """Convolves groups of channels into splits, and lets each channel attend to its splits.

    .. math::

        U = ReLU(B(conv(X))),    s^k = mean of Σ_r U^k_r over all positions
        V^k_c = Σ_r a^k_{r,c} U^k_{r,c},    a^k_{r,c} = softmax_r(G^k_r(s^k)_c), for R = 1 σ(G^k(s^k)_c)

    Zhang et al. 2020, "ResNeSt: Split-Attention Networks", eq. 1 and 2. K is ``cardinality``, R is ``radix``; the
    channels of U are in the order of the paper's appendix, all groups' first splits first. G^k is ``expand`` of
    ReLU(``norm``(``reduce``)), with weights of its own for each group. Weights are computed in float32.

    Args:
        channels: channels of input and output, a multiple of ``cardinality * radix``.
        reduction: G has ``channels * radix // reduction`` hidden units, at least 32; default 4, as in the paper.
        radix: R, splits of each group.
        cardinality: K, groups of channels.
        kernel_size: size of the convolution's kernel, odd.
        hidden: the number of hidden units, which overrides ``reduction``; a multiple of ``cardinality``.

    Raises:
        ArgumentError, KindError: an argument is invalid; the message names it.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> block = nn.SplitAttention(8, radix=2, cardinality=2).eval()
        >>> block.weights(torch.randn(3, 8, 5, 7)).shape  # of both splits, for each channel
        torch.Size([3, 2, 8])
    """

    def __init__(
        self, channels: int, reduction: int = 4, *,
        radix: int = 2, cardinality: int = 1, kernel_size: int = 3, hidden: int | None = None,
    ):  # fmt: skip
        whole_number("channels", channels, 1)
        splits = whole_number("radix", radix, 1) * whole_number("cardinality", cardinality, 1)
        _check_divides("channels", channels, splits, "cardinality · radix")
        units = reduced_channels(channels * radix, reduction, hidden, least=32)
        super().__init__(channels, radix, units, cardinality, bias=True)
        padding = check_odd("kernel_size", kernel_size) // 2
        self.convolution = _convolution(channels, channels * radix, kernel_size, padding=padding, groups=splits)

    def branch_maps(self, features: Tensor) -> Tensor:
        check_feature_map("features", features, self.channels)
        return self.convolution(features).unflatten(1, (self.branches, self.channels))


def _convolution(channels: int, outputs: int, kernel_size: int, **options: int) -> nn.Sequential:
    convolution = nn.Conv2d(channels, outputs, kernel_size, bias=False, **options)  # pyright: ignore[reportArgumentType]
    return nn.Sequential(convolution, BatchNorm2d(outputs), nn.ReLU(inplace=True))


def _check_divides(name: str, number: int, divisor: int, divisor_name: str = "cardinality") -> None:
    if number % divisor:
        raise ArgumentError(f"{name} must be a multiple of {divisor_name}, {divisor}; it is {number}")
