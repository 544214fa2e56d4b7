"""The page of terms, in both languages, written before a build from docs/glossary.toml."""

import tomllib
from pathlib import Path

from generated_pages import write_page
from sphinx.application import Sphinx

DOCS = Path(__file__).parents[1]

PAGES = {
    "en": (
        "reference/glossary.md",
        "# Glossary\n\nThe terms of the field, and the one Chinese term that the Chinese pages have for each.\n",
        {"english": "English", "chinese": "中文"},
    ),
    "zh": (
        "start/glossary.md",
        "# 术语表\n\n中文页面中，每个术语只有一种写法。\n",
        {"chinese": "中文", "english": "English"},
    ),
}
"""Language → the path of its page, how the page begins, and the columns: their keys and titles."""


def pages() -> dict[str, str]:
    """Path below docs → the text of the page."""
    terms = tomllib.loads((DOCS / "glossary.toml").read_text(encoding="utf-8"))["terms"]
    texts = {}
    for language, (path, beginning, columns) in PAGES.items():
        rows = [columns, dict.fromkeys(columns, "---"), *sorted(terms, key=lambda term: term["english"].lower())]
        table = "".join("| " + " | ".join(row[key] for key in columns) + " |\n" for row in rows)
        texts[f"{language}/{path}"] = f"{beginning}\n{table}"
    return texts


def write(app: Sphinx) -> None:
    for path, text in pages().items():
        write_page(DOCS / path, text)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
