"""Names of dtypes for annotations that say axes: ``Float[Tensor, "batch heads queries dim"]``.

To Python and to type checkers they are plain tensors with a note. A test puts jaxtyping's types of the same names in
place of these, and so checks each call against its notes (`tests/contracts/test_shapes_in_signatures.py`). An axis of
one name has one length in all arguments and in the result; ``#`` before a name: or length 1; ``*`` before a name, or
``...``: any number of axes.
"""

from typing import Annotated as Bool
from typing import Annotated as Float

__all__ = ["Bool", "Float"]
