"""Where a vector stands: encodings of the input, and the names of the biases by position (`regard.biases`)."""

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
