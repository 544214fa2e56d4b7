"""Biases: numbers added to the scores, given as a tensor or computed from positions; ``+`` adds them."""

from regard.biases.alibi import Alibi, alibi
from regard.biases.appended import AppendedBias
from regard.biases.bias import Bias, SummedBias, TensorBias, as_bias
from regard.biases.diagonal_bias import DiagonalBias
from regard.biases.relative_bias import RelativeBias
from regard.biases.relative_position import RelativePosition

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
]
