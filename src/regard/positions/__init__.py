"""Position encodings, which are added to the input or rotate queries and keys.

The biases of `regard.biases` that depend on positions can be imported from here as well.
"""

from typing import TYPE_CHECKING

from regard.biases import Alibi, Bias, RelativeBias, RelativePosition, TensorBias, alibi, as_bias
from regard.names.lazy_names import no_attribute, public_names
from regard.positions.learned_table import Learned
from regard.positions.rotation import Rotary
from regard.positions.sinusoids import Sinusoidal

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

__dir__ = public_names(__name__)

if not TYPE_CHECKING:  # so that type checkers report names that do not exist

    def __getattr__(name: str) -> object:
        raise no_attribute(__name__, name)
