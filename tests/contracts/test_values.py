"""A method that returns a new value of its own kind has no name of a method that changes an object in place."""

import ast
import re
from collections import OrderedDict, deque
from collections.abc import Iterator
from types import MappingProxyType

import pytest

from sources import FILES, parsed

MUTABLE = {list: tuple, deque: tuple, bytearray: bytes, set: frozenset, dict: MappingProxyType, OrderedDict: dict}
"""Python's mutable collections, each with the one whose methods change nothing."""

OF_CACHES = {"crop", "reorder", "reset"}
"""What the methods of transformers' caches (5.24) do in place, besides ``update``."""

CHANGING = OF_CACHES.union(*(set(dir(kind)) - set(dir(other)) for kind, other in MUTABLE.items())) - {"copy"}
"""First words of the names of methods that change an object."""


def classes(trees: dict[str, ast.Module]) -> Iterator[tuple[str, ast.ClassDef]]:
    for name, tree in trees.items():
        yield from ((name, node) for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def offences(trees: dict[str, ast.Module]) -> list[str]:
    owners = list(classes(trees))
    bases = {
        node.name: {word for base in node.bases for word in re.findall(r"\w+", ast.unparse(base))} for _, node in owners
    }

    def kinds(name: str) -> set[str]:
        known, new = set[str](), {name}
        while new:
            known |= new
            new = set().union(*(bases.get(each, ()) for each in new)) - known
        return known

    return [
        f"{file}: {owner.name}.{method.name} returns {ast.unparse(method.returns)}"
        for file, owner in owners
        for method in owner.body
        if isinstance(method, ast.FunctionDef) and method.returns is not None
        if method.name.split("_")[0] in CHANGING
        if set(re.findall(r"\w+", ast.unparse(method.returns))) & {"Self", *kinds(owner.name)}
    ]


def test_a_method_that_returns_a_new_value_does_not_sound_like_a_change():
    assert not offences({str(file): parsed(file) for file in FILES})


@pytest.mark.parametrize("name", ["append", "reorder", "update", "pop_last", "appended", "select", "of_rows"])
def test_names_that_sound_like_a_change_are_noticed_in_classes_and_subclasses(name):
    changes = name.split("_")[0] in ("append", "reorder", "update", "pop")
    for returned in ("Cache", "Self", "Cache | None", "'Cache'", "tuple[Cache, int]"):
        text = f"class Cache:\n    pass\n\nclass Long(Cache):\n    def {name}(self) -> {returned}: ...\n"
        assert bool(offences({"file": ast.parse(text)})) == changes
    assert not offences({"file": ast.parse(f"class Cache:\n    def {name}(self) -> None: ...\n")})
