"""What tells row normalizers apart: types, each of which a kernel is compiled for."""

from typing import NamedTuple

from regard.kernels import kinds


class _Parameters(NamedTuple):
    """What a normalizer knows of a head. Its type is the normalizer: a kernel is compiled for one of them.

    Attributes:
        alpha: entmax's.
        learned: whether alpha's gradient is wanted.
        sink: score of softmax's sink.
        has_sink: whether there is one.
        shift: sigmoid's bias.
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
"""By their names."""
