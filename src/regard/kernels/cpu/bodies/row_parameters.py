"""Types of row normalizers; a kernel is compiled for one of them."""

from typing import NamedTuple

from regard.kernels import kinds


class _Parameters(NamedTuple):
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


class Softmax(_Parameters):
    """e^s / Σ e^s."""


class Entmax15(_Parameters):
    """(s/2 − τ)₊²."""


class Sparsemax(_Parameters):
    """(s − τ)₊."""


class Entmax(_Parameters):
    """((alpha − 1) s − τ)₊^{1/(alpha − 1)}."""


class Sigmoid(_Parameters):
    """1 / (1 + e^−(s + shift))."""


class Hard(_Parameters):
    """1 on the largest score, 0 on all others."""


NORMALIZERS: dict[str, type[_Parameters]] = dict(
    zip(kinds.NORMALIZERS, (Softmax, Entmax15, Sparsemax, Entmax, Sigmoid, Hard), strict=True)
)
"""The types by name."""
