"""Links between the two languages of the site: the switch, ``hreflang``, and what exists in English only."""

import re
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

DOCS = Path(__file__).parents[1]
NAMES = {"en": "English", "zh": "中文"}
TAGS = {"en": "en", "zh": "zh-Hans"}
SECTIONS = {
    "start": "开始",
    "learn": "学习",
    "mechanisms": "机制",
    "how-to": "操作指南",
    "reference": "参考",
    "understand": "原理",
}
"""Folder of a section → its Chinese name."""
BUILT = {"search", "genindex"}
"""Pages that Sphinx builds in each language without a source."""
ENGLISH = "（英文）"
"""What a link of the Chinese site to an English page ends with."""


def counterpart(page: str, language: str) -> str:
    """The page that a switch of the language leads to: the same one, or its section, or the home page."""
    folder = DOCS / language
    section = f"{page.split('/')[0]}/index"
    candidates = [page, section] if page not in BUILT else []
    return next((name for name in candidates if (folder / f"{name}.md").exists()), page if page in BUILT else "index")


def english_sections() -> list[tuple[str, str]]:
    """Folder and Chinese name of each section that has no Chinese page."""
    is_missing = {name: not (DOCS / "zh" / name / "index.md").exists() for name in SECTIONS}
    return [(name, SECTIONS[name]) for name in SECTIONS if is_missing[name]]


def mark_english_pages(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Marks each link of a Chinese page that leads to an English one; a card has the mark in its title as well."""
    if app.config.language != "zh_CN":
        return
    for link in doctree.findall(nodes.reference):
        if not re.match(r"(\.\./)+en/", link.get("refuri", "")):
            continue
        link += nodes.inline(ENGLISH, ENGLISH)
        card = link
        while card is not None and "sd-card" not in card.get("classes", ()):
            card = card.parent
        for title in card.findall(nodes.container) if card is not None else ():
            if "sd-card-title" in title["classes"]:
                title.children[-1] += nodes.inline(ENGLISH, ENGLISH)


def add_links(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    own, other = ("zh", "en") if app.config.language == "zh_CN" else ("en", "zh")
    root = "../" * (page.count("/") + 1)
    same = counterpart(page, other)
    address = f"{root}{other}/{same}.html"
    context["language"] = TAGS[own]
    context["other_language"] = {"name": NAMES[other], "tag": TAGS[other], "address": address}
    context["english_sections"] = [
        (f"{root}en/{folder}/index.html", name) for folder, name in (english_sections() if own == "zh" else [])
    ]
    if same == page:
        own_address = f"{root}{own}/{page}.html"
        links = {TAGS[own]: own_address, TAGS[other]: address}
        context["metatags"] = context.get("metatags", "") + "".join(
            f'\n<link rel="alternate" hreflang="{tag}" href="{escape(link)}">' for tag, link in links.items()
        )


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("doctree-resolved", mark_english_pages)
    app.connect("html-page-context", add_links)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
