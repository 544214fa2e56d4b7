"""The axes of a call, the grid of its pairs, and what arguments must be.

The public names are those that a mask, a score or a normalizer of a user needs.
"""

from regard.names.lazy_names import public_names
from regard.shapes.checks import check_pairs, check_result
from regard.shapes.grid import Grid, spread_heads, upcast

__all__ = ["Grid", "check_pairs", "check_result", "spread_heads", "upcast"]

__dir__ = public_names(__name__)
