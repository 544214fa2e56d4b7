"""Biases, which are added to the scores: a tensor, or values computed from positions; ``+`` adds biases."""

from regard.biases.alibi import Alibi, alibi
from regard.biases.bias import AppendedBias, Bias, DiagonalBias, SummedBias, TensorBias, as_bias
from regard.biases.decomposed_position import DecomposedPosition
from regard.biases.disentangled import Disentangled
from regard.biases.distance import DistanceBias, Kerple, Sandwich
from regard.biases.fire import Fire
from regard.biases.names import bias_for
from regard.biases.query_bias import BoundBias, KeyedBias, QueryBias
from regard.biases.relative_bias import RelativeBias
from regard.biases.relative_position import RelativePosition
from regard.biases.transformer_xl import TransformerXL
from regard.biases.window_tables import LogSpacedTable, WindowBias, WindowTable
from regard.names.lazy_names import public_names

__all__ = [
    "Alibi",
    "AppendedBias",
    "Bias",
    "BoundBias",
    "DecomposedPosition",
    "DiagonalBias",
    "Disentangled",
    "DistanceBias",
    "Fire",
    "Kerple",
    "KeyedBias",
    "LogSpacedTable",
    "QueryBias",
    "RelativeBias",
    "RelativePosition",
    "Sandwich",
    "SummedBias",
    "TensorBias",
    "TransformerXL",
    "WindowBias",
    "WindowTable",
    "alibi",
    "as_bias",
    "bias_for",
]

__dir__ = public_names(__name__)
