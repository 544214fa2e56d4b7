"""Each page with cells as a notebook to download, made from the page's source."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from docutils import nodes
from myst_nb.core.read import is_myst_markdown_notebook, read_myst_markdown_notebook
from myst_parser.config.main import MdParserConfig
from nbformat import NotebookNode
from sphinx.application import Sphinx

SECTIONS = ("start", "learn", "how-to")
WORDS = {"en": "This page as a notebook", "zh_CN": "本页的笔记本"}
FOLDED = {"hide-cell", "hide-input", "remove-cell", "remove-input"}
"""Tags of cells whose code the notebook folds, as the page does; the code of every cell is in it, so that it runs."""

FENCE = re.compile(r"^(`{3,}|:{3,}) *(?:\{([\w:-]+)\})? *(.*)$")
ROLE = re.compile(r"\{([\w:.-]+)\}`(?:([^`<]*?) *<[^`>]*>|([^`]*))`")
LABEL = re.compile(r"^\([\w:-]+\)= *\n?", re.M)
ATTRIBUTES = re.compile(r"(?<=[\])])\{[.#][^}\n]*\}|^\{[.#][^}\n]*\} *\n", re.M)
LINK = re.compile(r"`[^`\n]+`|(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]*)\)")
"""Code, which stays as it is, or a link, whose words may hold code."""
DROPPED = {"toctree", "only", "raw", "include"}
VERBATIM = {"code-block", "code", "literalinclude", "math"}
UNTITLED = {"div", "grid", "container"}


def has_notebook(source: str, page: str) -> bool:
    """Whether a page of this text and path (without its suffix, in the folder of its language) has a notebook."""
    return page.split("/")[0] in SECTIONS and is_myst_markdown_notebook(source)


def as_notebook(source: str, folder: Path, page: str) -> NotebookNode:
    """The notebook of a page: its Markdown as Jupyter shows it, and the code of its cells, letter by letter.

    Args:
        source: the text of the page.
        folder: that of the language, such as docs/en.
        page: path of the page in it, without its suffix.
    """
    notebook = nbformat.v4.new_notebook()
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    for cell in read_myst_markdown_notebook(
        source, MdParserConfig(enable_extensions={"colon_fence", "dollarmath"})
    ).cells:
        if cell.cell_type == "code":
            tags = cell.metadata.get("tags", [])
            is_folded = FOLDED.intersection(tags)
            metadata = {"tags": tags, "jupyter": {"source_hidden": True}} if is_folded else {}
            notebook.cells.append(nbformat.v4.new_code_cell(cell.source, metadata=metadata))
        else:
            text = "\n".join(_plain_blocks(cell.source.splitlines(), folder, page)).strip()
            notebook.cells += [nbformat.v4.new_markdown_cell(text)] if text else []
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
    return notebook


def _plain_blocks(lines: list[str], folder: Path, page: str) -> Iterator[str]:
    """The lines of plain Markdown for those of MyST: a directive is a quote, code stays as it is."""
    paragraph: list[str] = []
    number = 0
    while number < len(lines):
        opening = FENCE.match(lines[number])
        if not opening:
            paragraph.append(lines[number])
            number += 1
            continue
        yield from _plain_text(paragraph, folder, page)
        paragraph = []
        mark, name, title = opening.groups()
        end = next((n for n in range(number + 1, len(lines)) if lines[n].rstrip() == mark), len(lines))
        body = lines[number + 1 : end]
        yield from (
            lines[number : end + 1] if name is None else _plain_directive(name, title.strip(), body, folder, page)
        )
        number = end + 1
    yield from _plain_text(paragraph, folder, page)


def _plain_directive(name: str, title: str, body: list[str], folder: Path, page: str) -> Iterator[str]:
    if name in DROPPED:
        return
    content = re.sub(r"\A(?:---\n(?:.*\n)*?---(?:\n|\Z)|(?::[\w-]+:.*(?:\n|\Z))*)", "", "\n".join(body)).strip("\n")
    if name == "math":
        yield from ("$$", content, "$$")
    elif name in VERBATIM:
        yield from (f"```{title}", content, "```")
    elif name in ("figure", "image"):
        yield from _plain_text([f"![{content}]({title})"], folder, page)
    else:
        if title or name not in UNTITLED:
            yield from (f"> **{title or name.capitalize()}**", ">")
        yield from (f"> {line}".rstrip() for line in _plain_blocks(content.splitlines(), folder, page))


def _plain_text(lines: list[str], folder: Path, page: str) -> Iterator[str]:
    """Lines without roles, labels and attributes; links to pages lead to their notebooks, or are plain words."""

    def link(found: re.Match[str]) -> str:
        is_picture, words, address = found.groups()
        if address is None or re.match(r"\w+:|#", address):
            return found[0]
        if is_picture:
            return f"*{words}*" if words else ""
        target = (folder / page).parent / address.partition("#")[0]
        if target.suffix == ".md" and target.exists():
            name = target.resolve().relative_to(folder.resolve()).as_posix().removesuffix(".md")
            if has_notebook(target.read_text("utf-8"), name):
                return f"[{words}]({address.partition('#')[0].removesuffix('.md')}.ipynb)"
        return words

    text = ATTRIBUTES.sub("", LABEL.sub("", ROLE.sub(_plain_role, "\n".join(lines))))
    yield from LINK.sub(link, text).split("\n") if lines else ()


def _plain_role(found: re.Match[str]) -> str:
    role, text, target = found.groups()
    if role == "math":
        return f"${target}$"
    return text or f"`{target.lstrip('~').rpartition('.')[2] if target.startswith('~') else target}`"


def write_notebook(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    path = Path(app.srcdir) / f"{page}.md"
    if doctree is None or not path.exists():
        return
    source = path.read_text("utf-8")
    if has_notebook(source, page):
        target = Path(app.outdir) / "notebooks" / f"{page}.ipynb"
        target.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(as_notebook(source, Path(app.srcdir), page), target)
        context["notebook_address"] = f"{'../' * page.count('/')}notebooks/{page}.ipynb"
        context["notebook_words"] = WORDS[app.config.language]


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("html-page-context", write_notebook)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
