"""Importing the peers, each set to PyTorch's number of threads."""

import importlib
import os
import sys
import warnings
from typing import Any

import torch

from regard.cli.peers import PEER_PACKAGES


def load(column: str, module: str | None = None) -> Any:
    """The peer's module, imported.

    Keras runs on PyTorch. The number of threads of JAX is set before its first import.

    Args:
        column: the peer.
        module: one of its modules; None: the first that it needs.

    Raises:
        ImportError: it is not installed.
    """
    if column == "keras":
        os.environ["KERAS_BACKEND"] = "torch"
    if column == "jax" and "jax" not in sys.modules:
        os.environ["NPROC"] = str(torch.get_num_threads())
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
    with warnings.catch_warnings():
        # Peers warn about their own dependencies.
        warnings.simplefilter("ignore")
        return importlib.import_module(module or PEER_PACKAGES[column].modules[0])
