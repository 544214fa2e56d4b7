"""Annotations that name a tensor's axes: ``Float[Tensor, "batch heads queries dim"]``.

Python and type checkers see an annotated tensor. A test substitutes the jaxtyping types of the same names and checks
each call against the annotations (`tests/contracts/test_shapes_in_signatures.py`). Axes with the same name have the
same length in all arguments and in the result. ``#name`` also allows length 1; ``*name`` and ``...`` stand for any
number of axes.
"""

from typing import Annotated as Bool
from typing import Annotated as Float

__all__ = ["Bool", "Float"]
