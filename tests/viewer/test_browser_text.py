"""Token text is data: it runs nothing, ends nothing, and is shown as it is."""

import html
import re

import numpy as np

import viewer_documents as documents
from regard.records import AttentionRecord, Document, TokenAxis
from regard.viewer import View
from regard.viewer.view import VIEWS


def hostile():
    count = len(documents.HOSTILE)
    axis = TokenAxis(documents.HOSTILE)
    weights = np.full((2, count, count), 1 / count, np.float32)
    name = documents.HOSTILE[0]
    return Document(name, (AttentionRecord(name, 0, "self", axis, axis, weights),), (), ((name, documents.HOSTILE[1]),))


def test_hostile_tokens_run_nothing_and_are_shown_intact(show):
    shown = show(View(hostile(), view="pattern"))
    for view in ("pattern", "lines", "grid", "words"):
        shown.show(view)
        for row, token in enumerate(documents.HOSTILE):
            if view == "pattern":
                text = shown.hover(row=row, column=row)
                if token.isprintable() and token.strip():
                    assert token in text
        assert "run" not in shown.page.title().replace(html.escape("document.title='run'"), "").split("'")[0]
        assert shown.page.evaluate("document.title") != "run"
    assert shown.page.evaluate("document.querySelectorAll('img').length") == 0
    assert len(shown.requests) == 1
    assert shown.page.locator("h1").text_content() == documents.HOSTILE[0]


def test_invisible_characters_are_shown(show):
    shown = show(View(hostile()))
    position = documents.HOSTILE.index("\0\x01\x1b[31m")
    assert "␀␁␛[31m" in shown.hover(row=position, column=position)
    position = documents.HOSTILE.index("\u202eabc\u202c")
    assert "\\u202eabc\\u202c" in shown.hover(row=position, column=position)
    position = len(documents.HOSTILE) - 1
    assert "x" * 5000 in shown.hover(row=position, column=0)


def test_the_svg_of_hostile_tokens_parses(show):
    import xml.etree.ElementTree as ET

    shown = show(View(hostile()))
    for view in VIEWS:
        if view in ("pattern", "lines", "grid", "words"):
            shown.show(view)
            tree = ET.fromstring(shown.call("svg"))
            assert not [element for element in tree.iter() if element.tag.endswith("script")]


def test_the_file_lets_no_text_out_of_its_block():
    page = View(hostile()).to_html()
    assert page.count("<script") == page.count("</script>") == 3  # the payload, the module, and what unpacks it
    assert "<img" not in page
    block = re.search(r'<script type="application/json" id="input">(.*?)</script>', page, re.S)[1]
    assert not set("<>&") & set(block)
    assert page.isprintable() or "\0" not in page


def test_a_browser_that_cannot_unpack_the_page_says_so(browser, tmp_path):
    path = View(hostile()).save(tmp_path / "view.html")
    with browser.new_context(offline=True) as context:
        context.add_init_script("delete globalThis.DecompressionStream;")
        page = context.new_page()
        page.goto(path.as_uri())
        page.get_by_text("too old for this page").wait_for(timeout=10_000)
        assert "版本过旧" in page.inner_text("body")
