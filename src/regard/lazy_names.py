"""Packages whose public names are imported when they are first used (PEP 562)."""

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec


def lazy_names(
    package: str, names: Mapping[str, Iterable[str]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Returns the ``__getattr__`` and the ``__dir__`` of a package that imports nothing by itself.

    The first use of a name imports its module and stores the name in the package, so that later uses cost nothing. Any
    other name is that of a submodule, as in ``regard.errors``. A submodule must not have the name of a function or a
    class from another module: Python stores an imported submodule in its package.

    Args:
        package: the package's ``__name__``.
        names: module → the public names that are imported from it.
    """
    modules = {name: module for module, of_module in names.items() for name in of_module}

    def get_name(name: str) -> object:
        if name in modules:
            value = getattr(import_module(modules[name]), name)
        elif not name.startswith("_") and find_spec(f"{package}.{name}") is not None:
            value = import_module(f"{package}.{name}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(sys.modules[package], name, value)
        return value

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *sys.modules[package].__all__})

    return get_name, list_names
