"""Types of row normalizers; a kernel is compiled for one of them."""

from typing import NamedTuple

from regard.kernels import kinds


class RowParameters(NamedTuple):
    """The parameters of a normalizer for a head. The type of the record tells which normalizer it is.

    Attributes:
        alpha: alpha of entmax.
        learned: whether to compute the gradient of alpha.
        sink: score of softmax's sink.
        has_sink: whether there is a sink.
        shift: bias of sigmoid.
    """

    alpha: float
    learned: bool
    sink: float
    has_sink: bool
    shift: float


class SoftmaxRow(RowParameters):
    """e^s / Σ e^s."""


class Entmax15Row(RowParameters):
    """(s/2 − τ)₊²."""


class SparsemaxRow(RowParameters):
    """(s − τ)₊."""


class EntmaxRow(RowParameters):
    """((alpha − 1) s − τ)₊^{1/(alpha − 1)}."""


class SigmoidRow(RowParameters):
    """1 / (1 + e^−(s + shift))."""


class HardRow(RowParameters):
    """1 on the largest score, 0 on all others."""


NORMALIZERS: dict[str, type[RowParameters]] = dict(
    zip(kinds.NORMALIZERS, (SoftmaxRow, Entmax15Row, SparsemaxRow, EntmaxRow, SigmoidRow, HardRow), strict=True)
)
"""The types by name."""
