"""Where a vector stands: encodings of the input, and biases of the scores."""

from regard.positions.alibi import Alibi, alibi
from regard.positions.bias import Bias, TensorBias, as_bias
from regard.positions.learned import Learned
from regard.positions.relative import RelativeBias, RelativePosition
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
