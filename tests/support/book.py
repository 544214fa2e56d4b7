"""The sources of the documentation, taken apart for its tests: pages, code cells, fences, prose."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from generated_pages import generated

ROOT = Path(__file__).parents[2]
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


WITHOUT_MARKDOWN = ("{code-cell}", "{code-block}", "{code}", "{math}", "{view}", "{toctree}")
"""Directives whose content is no text of the page."""

MARK = re.compile(r"^ {0,3}(?:> ?)*(`{3,}|~{3,}|:{3,}) *(\S*)(.*)$")


def sources(folder: Path) -> list[Path]:
    """The pages in a folder of docs that somebody wrote, without those that a build makes, even now."""
    paths = sorted(folder.rglob("*.md"))
    made = set(generated())
    return [path for path in paths if made.isdisjoint([path, *path.parents])]


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


def parts(text: str) -> Iterator[tuple[int, str | None, list[str]]]:
    """The page from top to bottom: its blocks of code and its other lines, those inside of directives too.

    Each has the number of its first line, and what the opening mark says: the language of a block, ``{name}`` and its
    argument of a directive without Markdown in it; None of a line.
    """
    lines, number, directives = text.splitlines(), 0, []
    while number < len(lines):
        opening = MARK.match(lines[number])
        number += 1
        if not opening or opening[1][0] == ":":
            yield number, None, [lines[number - 1]]
            continue
        mark, word, rest = opening.groups()
        if not word and directives and mark.startswith(directives[-1]):
            directives.pop()
        elif word.startswith("{") and word not in WITHOUT_MARKDOWN:
            directives.append(mark)
        else:
            start = number
            end = re.compile(rf"^ {{0,3}}(?:> ?)*{mark[0]}{{{len(mark)},}}\s*$")
            while number < len(lines) and not end.match(lines[number]):
                number += 1
            yield start + 1, f"{word} {rest}".strip(), lines[start:number]
            number += 1


def fences(page: str, text: str) -> Iterator[Fence]:
    """The fenced blocks of a page that are neither cells nor directives; ``code-block`` counts as one."""
    for line, opening, lines in parts(text):
        language = re.sub(r"^\{code(-block)?\} *", "", opening or "").split(" ")[0]
        if opening is not None and not language.startswith("{"):
            yield Fence(page, line, language, "\n".join(lines) + "\n")


def sections(text: str) -> list[Section]:
    """The sections of a page, in order; the first one's heading is the title."""
    found, prose, level, title = [], [], 0, ""
    for _, opening, lines in parts(re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.S)):
        if opening is not None:
            continue
        (line,) = lines
        if heading := re.match(r"(#+) (.*)", line):
            found.append(Section(level, title, "\n".join(prose)))
            level, title, prose = len(heading[1]), heading[2], []
        elif not re.match(r":[\w-]+:|:{3,}", line):
            prose.append(line)
    found.append(Section(level, title, "\n".join(prose)))
    return found[1:]
