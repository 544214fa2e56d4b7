"""The versions of the packages that a run was trained with, for its ``config.yaml``."""

import platform
from importlib import metadata

PACKAGES = ("regard", "torch", "lightning", "numpy", "tokenizers", "datasets", "safetensors")


def installed_versions() -> dict[str, str]:
    """Package → version of those that are installed, and of Python."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions
