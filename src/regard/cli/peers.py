"""The packages that regard is compared with, and checks of their installation."""

import importlib.metadata
import importlib.util
import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Peer:
    """A package that regard is compared with."""

    column: str
    distribution: str
    modules: tuple[str, ...]


PEER_PACKAGES = {
    peer.column: peer
    for peer in (
        Peer("keras", "keras", ("keras",)),
        Peer("entmax", "entmax", ("entmax",)),
        Peer("jax", "jax", ("jax", "jaxlib")),
        Peer("onnxruntime", "onnxruntime", ("onnxruntime", "onnx")),
        Peer("x-transformers", "x-transformers", ("x_transformers",)),
        Peer("openvino", "openvino", ("openvino",)),
        Peer("transformers", "transformers", ("transformers",)),
    )
}


def absence(column: str) -> str | None:
    """Returns why the peer of this column cannot run, or None if it can or if the column needs no other package."""
    peer = PEER_PACKAGES.get(column)
    if peer is None:
        return None
    missing = [module for module in peer.modules if importlib.util.find_spec(module) is None]
    if missing:
        return f"{missing[0]} is not installed; it comes with: pip install 'regard[bench]'"
    if column == "keras" and "keras" in sys.modules and sys.modules["keras"].backend.backend() != "torch":
        return "keras was imported with another backend than torch before the benchmark began"
    return None


def version(column: str) -> str | None:
    """Returns the installed version of the peer, or None if it is not installed."""
    try:
        return importlib.metadata.version(PEER_PACKAGES[column].distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
