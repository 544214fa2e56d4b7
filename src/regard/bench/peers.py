"""The peers: which are installed, and how each is set to PyTorch's number of threads."""

import importlib
import importlib.metadata
import importlib.util
import os
import sys
import warnings
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Peer:
    """A package that regard is compared with.

    Attributes:
        column: its column in `regard.bench.columns.COLUMNS`.
        distribution: its name for pip.
        modules: the modules that must be importable.
    """

    column: str
    distribution: str
    modules: tuple[str, ...]


PEERS = {
    peer.column: peer
    for peer in (
        Peer("keras", "keras", ("keras",)),
        Peer("entmax", "entmax", ("entmax",)),
        Peer("jax", "jax", ("jax", "jaxlib")),
        Peer("onnxruntime", "onnxruntime", ("onnxruntime", "onnx")),
        Peer("x-transformers", "x-transformers", ("x_transformers",)),
    )
}


def absence(column: str) -> str | None:
    """Why the peer of this column cannot run; None if it can, or if the column needs only PyTorch and regard."""
    peer = PEERS.get(column)
    if peer is None:
        return None
    missing = [module for module in peer.modules if importlib.util.find_spec(module) is None]
    if missing:
        return f"{missing[0]} is not installed; it comes with: pip install 'regard[bench]'"
    if column == "keras" and "keras" in sys.modules and sys.modules["keras"].backend.backend() != "torch":
        return "keras was imported with another backend than torch before the benchmark began"
    return None


def version(column: str) -> str | None:
    """The installed version of the peer; None if it is not installed."""
    try:
        return importlib.metadata.version(PEERS[column].distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


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
        return importlib.import_module(PEERS[column].modules[0] if module is None else module)
