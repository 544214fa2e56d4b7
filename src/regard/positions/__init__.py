"""Encodings of positions: added to the input, or applied to queries and keys as rotations.

The biases that depend on positions are those of `regard.biases`; their names can be imported from here as well.
"""

from regard.biases import Alibi, Bias, RelativeBias, RelativePosition, TensorBias, alibi, as_bias
from regard.positions.learned import Learned
from regard.positions.rotary import Rotary
from regard.positions.sinusoidal import Sinusoidal

__all__ = [
    "Alibi",
    "Bias",
    "Learned",
    "RelativeBias",
    "RelativePosition",
    "Rotary",
    "Sinusoidal",
    "TensorBias",
    "alibi",
    "as_bias",
]
