"""Biases: numbers added to the scores, given as a tensor or by the distance of query and key."""

from regard.biases.alibi import Alibi, alibi
from regard.biases.appended import AppendedBias
from regard.biases.bias import Bias, DiagonalBias, TensorBias, as_bias
from regard.biases.relative import RelativeBias, RelativePosition
from regard.biases.sums import SummedBias

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
