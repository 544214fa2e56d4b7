"""PyTorch, NumPy and rooms that need them, imported at their first use: the options of a task need none of them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch.nn import functional as F

    from regard import pictures, records
    from regard.data import tables
    from regard.pictures import fonts, numbers
else:

    class _Module:
        """A module that is imported when one of its attributes is read."""

        def __init__(self, name: str):
            self._name = name

        def __getattr__(self, attribute: str) -> Any:
            return getattr(import_module(self._name), attribute)

    np, torch, F = map(_Module, ("numpy", "torch", "torch.nn.functional"))
    pictures, fonts, numbers = map(_Module, ("regard.pictures", "regard.pictures.fonts", "regard.pictures.numbers"))
    records, tables = map(_Module, ("regard.records", "regard.data.tables"))

__all__ = ["F", "fonts", "np", "numbers", "pictures", "records", "tables", "torch"]
