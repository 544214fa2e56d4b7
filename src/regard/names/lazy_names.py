"""The public names of packages: ``__all__`` is what ``dir()`` lists, and may be imported at its first use (PEP 562)."""

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import ModuleType

_GUESSED_FUNCTIONS = ("regard.attention", "regard.explanations", "regard.watching", "regard.viewer", "regard.training")
"""Packages that are called as if they were functions: those of `regard.names.missing_names.CALLED_PACKAGES`."""


def lazy_names(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Returns the ``__getattr__`` and the ``__dir__`` of a package that imports nothing by itself.

    The package imports its public names in a block ``if TYPE_CHECKING:`` alone. The first use of a name carries out its
    import and stores the name in the package, so that later uses cost nothing. A submodule must not have the name of a
    function or a class from another module: Python stores an imported submodule in its package.
    """

    def get_name(name: str) -> object:
        module = _modules_of(package).get(name)
        if module is None:
            raise _no_attribute(package, name)
        value = import_module(f"{package}.{name}") if module == package else getattr(import_module(module), name)
        setattr(sys.modules[package], name, value)
        return value

    return get_name, public_names(package)


@cache
def _modules_of(package: str) -> dict[str, str]:
    """Returns the module of each public name of a package, as its compiled imports have it."""
    import dis

    code = sys.modules[package].__loader__.get_code(package)  # type: ignore[union-attr]
    modules, module = {}, ""
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IMPORT_NAME":
            module = instruction.argval
        elif instruction.opname == "IMPORT_FROM" and instruction.argval in sys.modules[package].__all__:
            modules[instruction.argval] = module
    return modules


class _Package(ModuleType):
    """A package whose call is answered with the function that is meant."""

    def __call__(self, *args: object, **kwargs: object) -> None:
        from regard.names.missing_names import called_package  # as above

        raise called_package(self.__name__)


def public_names(package: str) -> Callable[[], list[str]]:
    """Returns the ``__dir__`` of a package, which lists ``__all__`` and the names with two underscores alone.

    It also gives the package a ``__getattr__`` that says what is written in place of a missing name. Type checkers do
    not see it, so that they report such names too.
    """
    module = sys.modules[package]
    if package in _GUESSED_FUNCTIONS:
        module.__class__ = _Package

    def refuse(name: str) -> object:
        raise _no_attribute(package, name)

    def list_names() -> list[str]:
        return sorted({*module.__all__, *(name for name in vars(module) if name.startswith("__"))})

    vars(module)["__getattr__"] = refuse
    return list_names


def _no_attribute(package: str, name: str) -> AttributeError:
    from regard.names.missing_names import missing_name  # an import of regard alone costs nothing

    return AttributeError(missing_name(package, name))
