"""Biases, which are added to the scores: a tensor, or values computed from positions; ``+`` adds biases."""

from typing import TYPE_CHECKING

from regard.biases.alibi import Alibi, alibi
from regard.biases.bias import AppendedBias, Bias, DiagonalBias, SummedBias, TensorBias, as_bias
from regard.biases.names import bias_for
from regard.biases.relative_bias import RelativeBias
from regard.biases.relative_position import RelativePosition
from regard.names.lazy_names import no_attribute, public_names

__all__ = [
    "Alibi",
    "AppendedBias",
    "Bias",
    "DiagonalBias",
    "RelativeBias",
    "RelativePosition",
    "SummedBias",
    "TensorBias",
    "alibi",
    "as_bias",
    "bias_for",
]

__dir__ = public_names(__name__)

if not TYPE_CHECKING:  # so that type checkers report names that do not exist

    def __getattr__(name: str) -> object:
        raise no_attribute(__name__, name)
