"""Position encodings, which are added to the input or rotate queries and keys.

The biases of `regard.biases` that depend on positions can be imported from here as well.
"""

from regard.biases import Alibi, Bias, RelativeBias, RelativePosition, TensorBias, alibi, as_bias
from regard.names.lazy_names import public_names
from regard.positions.axes import Axial, Sections
from regard.positions.learned_table import Learned
from regard.positions.rotation import Rotary
from regard.positions.scaling import DynamicNTK, Llama3, LongRoPE, PositionInterpolation, Proportional, YaRN
from regard.positions.sinusoids import Sinusoidal

__all__ = [
    "Alibi",
    "Axial",
    "Bias",
    "DynamicNTK",
    "Learned",
    "Llama3",
    "LongRoPE",
    "PositionInterpolation",
    "Proportional",
    "RelativeBias",
    "RelativePosition",
    "Rotary",
    "Sections",
    "Sinusoidal",
    "TensorBias",
    "YaRN",
    "alibi",
    "as_bias",
]

__dir__ = public_names(__name__)
