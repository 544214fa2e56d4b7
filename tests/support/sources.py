"""The package's own files, for tests that read them."""

import ast
import functools
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "regard"
FILES = sorted(SOURCE.rglob("*.py"))


@functools.cache
def parsed(file: Path) -> ast.Module:
    """The file's syntax tree."""
    return ast.parse(file.read_text(encoding="utf-8"))
