"""Viewers in pages: each is a file of its own, in the language of the site, and is loaded when it comes near.

A viewer is the output of a cell, or the payload that ``View.save("NAME.json")`` wrote into docs/pictures::

    ```{view} home.json
    :view: lines
    :height: 420
    ```
"""

import hashlib
import html
import json
import re
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.docutils import SphinxDirective

from regard.records.html_document import LANGUAGE_TAGS, iframe
from regard.viewer.html_file import html_page
from regard.viewer.view import HEIGHT

PICTURES = Path(__file__).parents[1] / "pictures"
VIEWER = re.compile(r'<iframe (sandbox="[^"]*" title="[^"]*") style="([^"]*)" srcdoc="([^"]*)"></iframe>')


class StoredView(SphinxDirective):
    """A viewer of a payload."""

    required_arguments = 1
    option_spec: ClassVar = {"view": directives.unchanged_required, "height": directives.positive_int}

    def run(self) -> list[nodes.Node]:
        path = PICTURES / self.arguments[0]
        self.env.note_dependency(str(path))
        payload = json.loads(path.read_text("ascii"))
        page = html_page(
            payload, {"view": self.options.get("view"), "theme": "auto", "language": "auto", "selection": {}}
        )
        frame = iframe(page, self.options.get("height", HEIGHT), f"attention weights: {payload['title']}")
        return [nodes.raw("", frame, format="html")]


class EmbeddedViews(SphinxPostTransform):
    """Moves the HTML file of each viewer out of the page that shows it."""

    default_priority = 900
    formats = ("html",)
    folder: ClassVar[Path]
    """Of the viewers' files, in that of the site."""

    def run(self, **kwargs):
        for node in self.document.findall(nodes.raw):
            if VIEWER.search(node.astext()):
                node.children = [nodes.Text(VIEWER.sub(self.frame, node.astext()))]

    def frame(self, found: re.Match[str]) -> str:
        attributes, style, source = found.groups()
        page = html.unescape(source)
        language = "zh" if self.config.language == "zh_CN" else "en"
        page = page.replace('"language":"auto"', f'"language":"{language}"')
        page = page.replace('<html lang="en">', f'<html lang="{LANGUAGE_TAGS[language]}">')
        name = hashlib.sha256(page.encode()).hexdigest()[:16]
        self.folder.mkdir(parents=True, exist_ok=True)
        # Two files, since a viewer takes its theme from no address: _static/viewer_themes.js chooses that of the site.
        for theme in ("light", "dark"):
            themed = page.replace('"theme":"auto"', f'"theme":"{theme}"')
            (self.folder / f"{name}-{theme}.html").write_text(themed, encoding="utf-8")
        up = "../" * self.env.docname.count("/")
        source = f'loading="lazy" src="{up}views/{name}-light.html"'
        return f'<iframe class="regard-view" {attributes} style="{style}" {source}></iframe>'


def setup(app: Sphinx) -> dict[str, bool]:
    EmbeddedViews.folder = Path(app.outdir) / "views"
    app.add_directive("view", StoredView)
    app.add_post_transform(EmbeddedViews)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
