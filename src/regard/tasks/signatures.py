"""`regard.train` and `regard.load`; ``signatures.pyi`` says for each task what they take and return."""

from regard.tasks.registry import load
from regard.tasks.train import train

__all__ = ["load", "train"]
