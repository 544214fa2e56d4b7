"""PyTorch and NumPy, imported at their first use: to list and check the options of a task needs neither."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch.nn import functional as F
else:

    class _Module:
        """A module that is imported when one of its attributes is read."""

        def __init__(self, name: str):
            self._name = name

        def __getattr__(self, attribute: str) -> Any:
            return getattr(import_module(self._name), attribute)

    np, torch, F = _Module("numpy"), _Module("torch"), _Module("torch.nn.functional")

__all__ = ["F", "np", "torch"]
