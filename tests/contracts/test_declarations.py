"""Declarations read alike: one class a name, constants that say what they hold, docstrings that begin with a verb."""

import ast
import re
from collections import defaultdict
from pathlib import Path

from regard.cli.commands import COMMANDS
from sources import FILES, SOURCE, parsed

NOUNS = re.compile(
    r"Arguments|Axes|Batches|Blocks|Classes|Columns|Distances|Examples|Features|Fields|Files|"
    r"Functions|Gradients|Heads|Indices|Is|Its|Keys|Lengths|Letters|Lines|Numbers|Offsets|Options|"
    r"Parameters|Parts|Probabilities|Queries|Rows|Sentences|Sizes|Spans|Steps|Tensors|Texts|"
    r"This|Tokens|Values|Words"
)
"""First words that end as verbs do and are none."""

PARTICIPLES = re.compile(
    r"ALL|ASKED|CACHED|CALLED|COMPILED|DRAWN|EMPTY|ENDS|ENOUGH|EVEN|FAILED|FAINT|FOREIGN|FULL|"
    r"GIVEN|HALF|KEPT|LARGEST|LEAST|LONG|LONGEST|LOWEST|MISSING|MOST|MOVED|NAMED|NARROW|"
    r"NARROWEST|OWN|PACKED|PALE|READY|RENAMED|RESUMABLE|SEARCHED|SEEN|SHARED|SHORT|SHOWN|SPARSE|"
    r"TIMED|TYPED|UNKNOWN|USUAL|WANTED|WEIGHTED|WHOLE|WIDEST|WRITTEN"
)
"""Adjectives, participles and verbs, which name nothing by themselves."""

PUBLIC = {
    "Custom": "regard.scores and regard.normalizers have one each, as they have names",
    "Caption": "the task of captions has the name of its command, and a picture has the word of the field",
}
"""Class name in two public packages: why."""


def test_a_class_name_stands_for_one_class():
    files = defaultdict(list)
    for file in FILES:
        for node in ast.walk(parsed(file)):
            if isinstance(node, ast.ClassDef):
                files[node.name].append(file.relative_to(SOURCE).as_posix())
    shared = {name: where for name, where in files.items() if len(where) > 1 and name not in PUBLIC}
    assert not shared, "\n".join(f"{name}: {', '.join(where)}" for name, where in sorted(shared.items()))


def test_a_constant_says_what_it_holds():
    offenders = [
        f"{file.relative_to(SOURCE)}, line {node.lineno}: {target.id}"
        for file in FILES
        for node in parsed(file).body
        if isinstance(node, (ast.Assign, ast.AnnAssign))
        for target in ast.walk(node.targets[0] if isinstance(node, ast.Assign) else node.target)
        if isinstance(target, ast.Name) and PARTICIPLES.fullmatch(target.id.strip("_"))
    ]
    assert not offenders, "\n".join(offenders)


def is_property(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any("property" in ast.unparse(decorator) for decorator in function.decorator_list)


def is_command(file: Path, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether the docstring is the help of a command, which says in the imperative what the command does."""
    return file.parent.name == "cli" and file.stem in COMMANDS and function.name in ("command", "unavailable")


def test_a_docstring_of_a_function_begins_with_a_verb():
    offenders = []
    for file in FILES:
        for node in ast.walk(parsed(file)):
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or is_property(node):
                continue
            words = (ast.get_docstring(node) or "Whether").split()
            first = words[0].rstrip(",:;.")
            is_verb = first == "Whether" or (first[:1].isupper() and first.endswith("s") and not NOUNS.fullmatch(first))
            if not is_verb and not is_command(file, node):
                offenders.append(f"{file.relative_to(SOURCE)}, line {node.lineno}, {node.name}: {' '.join(words[:6])}")
    assert not offenders, "\n".join(offenders)
