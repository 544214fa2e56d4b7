"""Whether compiled kernels can be used here. Asking imports nothing."""

from functools import cache
from importlib.util import find_spec


@cache
def why_missing() -> str | None:
    """Why there are no compiled kernels; None if there are."""
    if find_spec("numba") is None:
        return "Numba is not installed (pip install 'regard[cpu]')"
    return None
