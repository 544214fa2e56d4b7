"""No files of the package import each other in a circle, so that each can be read after the files that it uses."""

import ast
import re

from sources import FILES, SOURCE, parsed

ENTRY_POINT = re.compile(r"(regard(?:\.\w+)+):(\w+)")
"""A text that names what is imported when it is needed: a task, a model."""

CLASSES_BY_NAME = {
    "regard.models.configs",
    "regard.models.speech.configs",
    "regard.models.vision.configs",
    "regard.nn.attention_names",
}
"""Files whose entry points do not count: a configuration names the class that it builds, which imports it."""


def imported(tree):
    """The modules and names that a file imports: at its beginning, inside of functions, and for types alone."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports of the package are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def entry_points(tree):
    """The modules and names that a file names by entry points."""
    texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return [".".join(match.groups()) for text in texts if (match := ENTRY_POINT.fullmatch(text))]


def import_graph(files):
    """The files that each file imports, by the names of modules.

    Args:
        files: name of a module → syntax tree.
    """
    graph = {}
    for name, tree in files.items():
        names = [*imported(tree), *(() if name in CLASSES_BY_NAME else entry_points(tree))]
        targets = {full if full in files else full.rpartition(".")[0] for full in names}
        graph[name] = (targets & files.keys()) - {name}
    return graph


def circles(graph):
    """The groups of files that reach each other."""

    def reached(start):
        seen, waiting = set(), [start]
        while waiting:
            for target in graph[waiting.pop()] - seen:
                seen.add(target)
                waiting.append(target)
        return seen

    reach = {name: reached(name) for name in graph}
    return {frozenset(other for other in reach[name] if name in reach[other]) for name in graph if name in reach[name]}


def files_of_the_package():
    files = {}
    for path in FILES:
        parts = ("regard", *path.relative_to(SOURCE).with_suffix("").parts)
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = parsed(path)
    return files


def test_no_circle_of_files():
    found = [sorted(circle) for circle in circles(import_graph(files_of_the_package()))]
    assert not found, f"these files import each other in a circle: {found}"


def circles_of(texts):
    return circles(import_graph({name: ast.parse(text) for name, text in texts.items()}))


def test_a_circle_is_found_wherever_the_import_stands():
    files = {
        "regard.a": "from regard.b import name",
        "regard.b": "def function():\n    import regard.c",
        "regard.c": "from regard import a",
        "regard.d": "from regard import a",
        "regard": "",
    }
    assert circles_of(files) == {frozenset({"regard.a", "regard.b", "regard.c"})}
    files["regard.c"] = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from regard.a import name"
    assert circles_of(files) == {frozenset({"regard.a", "regard.b", "regard.c"})}
    files["regard.c"] = 'PARTS = {"a": "regard.a:name"}'
    assert circles_of(files) == {frozenset({"regard.a", "regard.b", "regard.c"})}
    files["regard.c"] = ""
    assert not circles_of(files)
