"""Viewers in pages: each is a file of its own, in the language of the site, and is loaded when it comes near."""

import hashlib
import html
import re
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

VIEWER = re.compile(r'<iframe (sandbox="[^"]*" title="[^"]*") style="([^"]*)" srcdoc="([^"]*)"></iframe>')


class EmbeddedViews(SphinxPostTransform):
    """Moves the HTML file of each viewer out of the page that shows it."""

    default_priority = 900
    formats = ("html",)

    def run(self, **kwargs):
        for node in self.document.findall(nodes.raw):
            if VIEWER.search(node.rawsource or node.astext()):
                node.children = [nodes.Text(VIEWER.sub(self.frame, node.astext()))]

    def frame(self, found: re.Match[str]) -> str:
        attributes, style, source = found.groups()
        page = html.unescape(source)
        if self.config.language == "zh_CN":
            page = page.replace('<html lang="en">', '<html lang="zh-CN">').replace('"language":"en"', '"language":"zh"')
        name = hashlib.sha256(page.encode()).hexdigest()[:16] + ".html"
        folder = Path(self.app.outdir) / "views"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(page, encoding="utf-8")
        up = "../" * self.env.docname.count("/")
        return f'<iframe {attributes} style="{style}" loading="lazy" src="{up}views/{name}"></iframe>'


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_post_transform(EmbeddedViews)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
