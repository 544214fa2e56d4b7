"""`regard.train` and `regard.load`; ``signatures.pyi``, which the build writes, has their types for each task."""

from regard.tasks.registry import load
from regard.tasks.train import train

__all__ = ["load", "train"]
