"""The extensions of the site: notebooks of pages, viewers in pages, links between languages, cells run once."""

import json
import re
import zlib
from pathlib import Path

import embedded_views
import nbformat
import pytest
from mechanism_pages import restructured
from page_notebooks import as_notebook, has_notebook
from shared_cells import SharedCells
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace
from two_languages import ENGLISH, counterpart, english_sections

import regard
from book import DOCS, all_pages, cells, pages
from english_links import unmarked_links

NOTEBOOKS = [
    (language, page) for language in ("en", "zh") for page, text in pages(language).items() if has_notebook(text, page)
]


@pytest.mark.parametrize(("language", "page"), NOTEBOOKS)
def test_a_notebook_has_the_cells_of_its_page(language, page):
    text = pages(language)[page]
    notebook = as_notebook(text, DOCS / language, page)
    nbformat.validate(notebook)
    assert [cell.source for cell in notebook.cells if cell.cell_type == "code"] == cells(text)
    markdown = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    assert not [
        line
        for line in markdown.splitlines()
        if line.startswith((":::", "```{", "(")) and line.endswith(("}", ")=", ":::"))
    ]
    assert ".md)" not in markdown


MYST = """---
file_format: mystnb
kernelspec:
  name: python3
---

(label)=
# A {ref}`heading <label>`

:::{note}
See [masks](13-masks.md), [keys](01-queries-keys-values.md#scores) and `[not](a-link.md)`.

```{code-block} python
x = [1](2)
```
:::

````{admonition} What of this?
:class: tip
Inner *text* {math}`q k`.
```python
y = 1  # [left](as-it-is.md)
```
````

![A picture](../pictures/alignment.png) and {py:func}`regard.attend`.

```{toctree}
next
```

```{code-cell} python
:tags: [hide-cell]
print(1)  # as it is
```
"""

MARKDOWN = """# A heading

> **Note**
>
> See masks, [keys](01-queries-keys-values.ipynb) and `[not](a-link.md)`.
>
> ```python
> x = [1](2)
> ```

> **What of this?**
>
> Inner *text* $q k$.
> ```python
> y = 1  # [left](as-it-is.md)
> ```

*A picture* and `regard.attend`."""


def test_directives_are_plain_markdown(tmp_path):
    (tmp_path / "learn").mkdir()
    (tmp_path / "learn" / "01-queries-keys-values.md").write_text(MYST)
    text, code = as_notebook(MYST, tmp_path, "learn/02-scores").cells
    assert text.source == MARKDOWN
    assert code.source == "print(1)  # as it is"
    assert code.metadata.jupyter.source_hidden


HOSTILE = '"></iframe><script>alert(1)</script>'


def build(folder: Path, language: str) -> tuple[str, list[str]]:
    """A page with a viewer of a hostile title, and its files of viewers."""
    source, site = folder / "source", folder / language
    source.mkdir(exist_ok=True)
    (source / "index.md").write_text("# A page\n\n```{view} hostile.json\n:height: 300\n```\n", "utf-8")
    values = {"extensions": ["myst_parser", "embedded_views"], "language": language, "html_search_language": "en"}
    with docutils_namespace():
        application = Sphinx(source, None, site, folder / "doctrees", "html", values, status=None, freshenv=True)
        application.build()
    files = [path.read_text("utf-8") for path in sorted((site / "views").glob("*.html"))]
    return (site / "index.html").read_text("utf-8"), files


def test_a_viewer_is_a_file_that_speaks_the_language_of_the_page(tmp_path, monkeypatch):
    view = regard.View([[0.75, 0.25], [0.5, 0.5]], ["<b>", "two"], title=HOSTILE, height=300)
    view.save(tmp_path / "hostile.json")
    monkeypatch.setattr(embedded_views, "PICTURES", tmp_path)

    english, files = build(tmp_path, "en")
    chinese, chinese_files = build(tmp_path, "zh_CN")

    for language, written in (("en", files), ("zh", chinese_files)):
        view.language = language
        for theme, text in zip(("dark", "light"), written, strict=True):
            view.theme = theme
            assert text == view.to_html()
    for page in (english, chinese):
        assert page.count("<iframe") == page.count('loading="lazy" src="views/') == 1
        assert "srcdoc" not in page
        assert "<script>alert" not in page
    assert embedded_views.VIEWER.fullmatch(view._repr_html_()), "the output of a cell is such a frame too"


LINKS = """# 页

按 {external+en:doc}`点积 <mechanisms/dot>` 和 {external+en:py:obj}`regard.attend`，见[本站](other.md)。

| 表 |
|---|
| {external+en:doc}`窗口 <mechanisms/dot>` |

:::{card} 机制
:link: ../en/mechanisms/index.html
每种机制一页。
:::

```{toctree}
folder/other
```
"""


@pytest.mark.filterwarnings("ignore:'myst_parser.sphinx_ext")
def test_a_chinese_page_marks_each_link_to_an_english_page(tmp_path):
    source = tmp_path / "source"
    (source / "folder").mkdir(parents=True)
    (source / "index.md").write_text(LINKS.replace("other.md", "folder/other.md"), "utf-8")
    (source / "folder" / "other.md").write_text("# 另一页\n\n{external+en:doc}`点积 <mechanisms/dot>`\n", "utf-8")
    objects = "mechanisms/dot std:doc -1 mechanisms/dot.html Dot\nregard.attend py:function 1 reference.html#$ -\n"
    head = "# Sphinx inventory version 2\n# Project: regard\n# Version: 1\n# The rest is compressed with zlib.\n"
    (tmp_path / "objects.inv").write_bytes(head.encode() + zlib.compress(objects.encode()))
    values = {
        "extensions": ["myst_parser", "sphinx.ext.intersphinx", "sphinx_design", "two_languages"],
        "myst_enable_extensions": ["colon_fence"],
        "html_search_language": "en",
    }
    pages = {}
    for language in ("zh_CN", "en"):
        site = tmp_path / language
        with docutils_namespace():
            inventory = {"en": ("../en", str(tmp_path / "objects.inv"))}
            configuration = values | {"language": language, "intersphinx_mapping": inventory}
            Sphinx(source, None, site, tmp_path / f"{language}-trees", "html", configuration, status=None).build()
        pages[language] = {name: (site / f"{name}.html").read_text("utf-8") for name in ("index", "folder/other")}
    texts = pages["zh_CN"]
    assert [unmarked_links(text) for text in texts.values()] == [[], []]
    assert [text.count(ENGLISH) for text in texts.values()] == [3 + 2, 1]
    assert [len(unmarked_links(text)) for text in pages["en"].values()] == [4, 1]


def test_a_written_link_to_an_english_page_has_the_mark():
    """In the sources, which are read as they are on other sites; a role gets its mark when the site is built."""
    beside = {path: text for path, text in all_pages().items() if path.startswith("docs/zh/") or path == "README.zh.md"}
    link = re.compile(r"(?<!\[English)\]\((?:[^)]*/)?(?:en/[^)]*|[A-Z]+\.md)\)(?P<after>.{0,4})")
    found = [(path, each) for path, text in beside.items() for each in link.finditer(text)]
    assert found
    assert [(path, each[0]) for path, each in found if each["after"] != ENGLISH] == []


@pytest.mark.parametrize("page", ["index"])
def test_the_cells_of_a_page_run(page, tmp_path, monkeypatch):
    """`make docs-test` runs all pages, each in a kernel; one is run here, by Python alone."""
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for code in cells(pages("en")[page]):
        exec(compile(code, page, "exec"), names)


def test_a_page_and_its_translation_are_run_once(tmp_path):
    notebook = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_code_cell("1", metadata={"tags": ["hide-cell"], "mystnb": {"code_prompt_show": "Answer"}})
        ]
    )
    translation = json.loads(json.dumps(notebook))
    translation["cells"][0]["metadata"]["mystnb"]["code_prompt_show"] = "答案"
    cache = SharedCells(str(tmp_path))
    first, second = (cache.create_hashed_notebook(nbformat.from_dict(each))[1] for each in (notebook, translation))
    assert first == second
    translation["cells"][0]["source"] = "2"
    assert cache.create_hashed_notebook(nbformat.from_dict(translation))[1] != first


def test_names_of_a_docstring_are_links_and_its_roles_stay():
    text = ":math:`a` are the weights of `Softmax`, ``s`` scores, `rows` others"
    expected = ":math:`a` are the weights of :py:obj:`~regard.normalizers.Softmax`, ``s`` scores, ``rows`` others"
    assert expected in restructured(text, "normalizers")


def test_the_switch_leads_to_a_page_that_exists():
    for language, other in (("en", "zh"), ("zh", "en")):
        for page in pages(language):
            target = counterpart(page, other)
            assert target in pages(other)
            assert target == page or page not in pages(other)
    assert counterpart("mechanisms/scores/dot", "zh") == "index"
    assert counterpart("search", "zh") == "search"
    assert all((DOCS / "en" / folder / "index.md").exists() for folder, _ in english_sections())
