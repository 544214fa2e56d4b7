"""No files of the package import each other in a circle, so that each can be read after the files that it uses."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "regard"

KNOWN_CIRCLES = (
    "tasks.caption.corpora tasks.caption.evaluation tasks.caption.experiment tasks.caption.task "
    "tasks.caption.trained_captioner",
    "tasks.classify.corpora tasks.classify.evaluation tasks.classify.experiment tasks.classify.task "
    "tasks.classify.trained_classifier",
    "tasks.images.evaluation tasks.images.experiment tasks.images.task tasks.images.trained_classifier",
    "tasks.language.corpus tasks.language.evaluation tasks.language.experiment tasks.language.task "
    "tasks.language.trained_language_model",
    "tasks.segment.corpora tasks.segment.evaluation tasks.segment.experiment tasks.segment.task "
    "tasks.segment.trained_segmenter",
    "tasks.sounds.evaluation tasks.sounds.experiment tasks.sounds.pictures tasks.sounds.task "
    "tasks.sounds.trained_listener",
    "tasks.summarize.corpora tasks.summarize.evaluation tasks.summarize.experiment tasks.summarize.task "
    "tasks.summarize.trained_summarizer",
    "tasks.transcribe.evaluation tasks.transcribe.experiment tasks.transcribe.pictures tasks.transcribe.task "
    "tasks.transcribe.trained_transcriber",
    "tasks.translate.corpora tasks.translate.evaluation tasks.translate.experiment tasks.translate.task "
    "tasks.translate.trained_translator",
)
"""Circles that are not broken yet. This list may only become shorter, until it is empty."""


def imported(tree):
    """The modules and names that a file imports, at its beginning or inside of functions, but not for types alone."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            waiting += node.orelse
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports of the package are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        waiting += ast.iter_child_nodes(node)


def import_graph(files):
    """The files that each file imports, by the names of modules.

    Args:
        files: name of a module → text.
    """
    graph = {}
    for name, text in files.items():
        targets = {full if full in files else full.rpartition(".")[0] for full in imported(ast.parse(text))}
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
    for path in SOURCE.rglob("*.py"):
        parts = ("regard", *path.relative_to(SOURCE).with_suffix("").parts)
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text(encoding="utf-8")
    return files


def test_no_circle_of_files():
    known = [frozenset(f"regard.{name}" for name in names.split()) for names in KNOWN_CIRCLES]
    found = circles(import_graph(files_of_the_package()))
    new = [sorted(circle) for circle in found if not any(circle <= listed for listed in known)]
    assert not new, f"these files import each other in a circle: {new}"
    broken = [sorted(listed) for listed in known if not any(circle <= listed for circle in found)]
    assert not broken, f"these circles are gone; remove them from KNOWN_CIRCLES: {broken}"


def test_a_circle_is_found_wherever_the_import_stands():
    files = {
        "regard.a": "from regard.b import name",
        "regard.b": "def function():\n    import regard.c",
        "regard.c": "from regard import a",
        "regard.d": "from regard import a",
        "regard": "",
    }
    assert circles(import_graph(files)) == {frozenset({"regard.a", "regard.b", "regard.c"})}
    files["regard.c"] = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from regard.a import name"
    assert not circles(import_graph(files))
