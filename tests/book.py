"""The sources of the documentation, taken apart for its tests: pages, code cells, fences, prose."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


class Fence(NamedTuple):
    """A block of code that is not a cell."""

    page: str
    line: int
    language: str
    text: str


class Section(NamedTuple):
    """What stands under a heading, without blocks of code."""

    level: int
    title: str
    prose: str


MARK = re.compile(r"^ {0,3}(?:> ?)*(`{3,}|~{3,}|:{3,}) *(\S*)(.*)$")


def sources(folder: Path) -> list[Path]:
    """The pages in a folder of docs that somebody wrote, without those that a build makes (.gitignore names them)."""
    lines = [line for line in (ROOT / ".gitignore").read_text("utf-8").splitlines() if "docs/" in line]
    made = {path for line in lines for path in ROOT.glob(line.strip("/")) if path.is_dir() or not line.endswith("/")}
    return [path for path in sorted(folder.rglob("*.md")) if made.isdisjoint([path, *path.parents])]


def pages(language: str) -> dict[str, str]:
    """Path of a page in the folder of its language, without its suffix → its text."""
    folder = DOCS / language
    return {path.relative_to(folder).with_suffix("").as_posix(): path.read_text("utf-8") for path in sources(folder)}


@cache
def all_pages() -> dict[str, str]:
    """Path from the root → text, of the pages of the site and the files beside the README."""
    paths = [*sorted(ROOT.glob("*.md")), *sources(DOCS)]
    return {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in paths}


def cells(text: str) -> list[str]:
    """The code of each cell of a page, without its options."""
    from myst_nb.core.read import is_myst_markdown_notebook, read_myst_markdown_notebook

    if not is_myst_markdown_notebook(text):
        return []
    return [cell.source for cell in read_myst_markdown_notebook(text).cells if cell.cell_type == "code"]


def fences(page: str, text: str) -> Iterator[Fence]:
    """The fenced blocks of a page: not cells, not directives but ``code-block``, those in directives too."""
    lines, number, directives = text.splitlines(), 0, []
    while number < len(lines):
        opening = MARK.match(lines[number])
        number += 1
        if not opening or opening[1][0] == ":":
            continue
        mark, language, rest = opening.groups()
        if not language and directives and mark.startswith(directives[-1]):
            directives.pop()
            continue
        if language in ("{code-block}", "{code}"):
            language = rest.strip()
        elif language.startswith("{") and language not in ("{code-cell}", "{math}", "{view}", "{toctree}"):
            directives.append(mark)
            continue
        start = number
        while number < len(lines) and not re.match(rf"^ {{0,3}}(?:> ?)*{mark[0]}{{{len(mark)},}}\s*$", lines[number]):
            number += 1
        if not language.startswith("{"):
            yield Fence(page, start + 1, language, "\n".join(lines[start:number]) + "\n")
        number += 1


def sections(text: str) -> list[Section]:
    """The sections of a page, in order; the first one's heading is the title."""
    text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.S)
    found, prose, level, title, closing = [], [], 0, "", None
    directives = []
    for line in text.splitlines():
        mark = MARK.match(line)
        if closing:
            closing = None if mark and mark[1].startswith(closing) and not mark[2] else closing
        elif mark and not mark[2] and directives and mark[1].startswith(directives[-1]):
            directives.pop()
        elif mark and mark[1][0] != ":" and re.match(r"\{(?!code|math|view|toctree)", mark[2]):
            directives.append(mark[1])
        elif mark and mark[1][0] != ":":
            closing = mark[1]
        elif heading := re.match(r"(#+) (.*)", line):
            found.append(Section(level, title, "\n".join(prose)))
            level, title, prose = len(heading[1]), heading[2], []
        elif not re.match(r":[\w-]+:|:{3,}|`{3,}", line):
            prose.append(line)
    found.append(Section(level, title, "\n".join(prose)))
    return found[1:]
