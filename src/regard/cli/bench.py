"""``regard bench``: the benchmark, which is part of the repository but not of the package."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

import regard
from regard.errors import ArgumentError


def checkout() -> Path | None:
    """Returns the root of the checkout that this package is imported from, or None for an installed wheel."""
    source = Path(regard.__file__).resolve().parents[1]
    root = source.parent
    return root if source.name == "src" and (root / "bench" / "command.py").is_file() else None


def unavailable(*arguments: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)]) -> None:
    """Measure regard and its peers; needs a checkout of the repository, since a wheel does not contain it."""
    raise ArgumentError(
        "the benchmark is not part of the installed package; clone regard's repository and run `make bench` there, "
        "or `regard bench` after `pip install --editable '.[bench]'`"
    )


def _command() -> Any:
    root = checkout()
    if root is None:
        return unavailable
    if str(root) not in sys.path:
        sys.path.append(str(root))
    return import_module("bench.command").command


command = _command()
