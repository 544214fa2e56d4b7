"""The viewer speaks the document's language: in Chinese no English word is left, seen or read aloud."""

import re

import pytest

import viewer_documents as documents
from regard.viewer import View
from regard.viewer.view import views_of

KEPT = {
    "softmax",
    "sparsemax",
    "entmax",
    "sigmoid",
    "PNG",
    "SVG",
    "Esc",
    "Enter",
    "Ctrl",
    "Shift",
    "NaN",
    "exp",
    "Transformer",
    "alpha",
    "float",
}
"""What Chinese texts of the field leave as it is."""

SEEN = """() => {
  const root = document.getElementById('viewer').shadowRoot;
  const texts = [];
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) texts.push(walker.currentNode.data);
  for (const element of root.querySelectorAll('*')) {
    for (const name of ['aria-label', 'title', 'placeholder', 'alt', 'aria-roledescription', 'aria-valuetext']) {
      if (element.hasAttribute(name)) texts.push(element.getAttribute(name));
    }
  }
  return texts;
}"""
"""Every text of the viewer's elements, and what only a screen reader says."""


def words_of(document):
    """Every word that the document itself has: of its titles, names and tokens."""
    given = [document.title, *(part for text in document.texts for part in text)]
    for record in document.records:
        given += [record.name, *record.queries.labels, *record.keys.labels]
    for steps in document.steps:
        given += [steps.name, steps.score, steps.normalizer, *steps.query_labels, *steps.key_labels]
    for grid in document.grids:
        given += [grid.title, grid.unit, *grid.notes]
    return set(re.findall("[A-Za-z]+", " ".join(given)))


@pytest.mark.parametrize("item", [{"row": 1, "column": 1}, None], ids=["pointed", "at the start"])
def test_in_chinese_no_english_word_is_left(show, item):
    document = documents.everything()
    known = KEPT | words_of(document)
    shown = show(View(document, language="zh"))
    assert shown.page.evaluate("document.documentElement.lang").startswith("zh")
    left = {}
    for view in views_of(document):
        shown.show(view)
        if item:
            sided = view in ("lines", "words", "image")
            shown.hover(**({"side": "query", "row": 1} if sided else item))
        texts = [*shown.page.evaluate(SEEN), *re.findall(r">([^<>]+)<", shown.call("svg"))]
        for text in texts:
            english = {word for word in re.findall("[A-Za-z]{3,}", text) if word not in known}
            if english:
                left[text[:120]] = (view, sorted(english))
    assert not left


@pytest.mark.parametrize(
    ("locale", "given", "expected"),
    [
        ("zh-TW", None, "zh-Hans"),
        ("en-GB", None, "en"),
        ("fr-FR", None, "en"),
        ("zh-CN", "en", "en"),
        ("de-DE", "zh", "zh-Hans"),
    ],
)
def test_a_file_has_the_language_of_the_browser_unless_one_was_chosen(show, locale, given, expected):
    shown = show(View(documents.causal()[0], language=given), locale=locale)
    assert shown.page.evaluate("document.documentElement.lang") == expected
    assert shown.page.get_by_role("tab", selected=True).text_content() == ("Pattern" if expected == "en" else "图样")


def test_the_menu_changes_all_words_and_nothing_else(show):
    document = documents.everything()
    shown = show(View(document, view="lines"), locale="en-US")
    shown.show("lines", head=1, locked=[1])
    shown.show("pattern")
    before = shown.call("state")
    shown.menu().get_by_label("Language").select_option("zh")
    shown.settle()
    assert {**shown.call("state"), "language": None} == before
    assert shown.page.evaluate("document.documentElement.lang") == "zh-Hans"
    assert shown.page.evaluate("document.getElementById('viewer').shadowRoot.activeElement.className") == "more"
    known = KEPT | words_of(document)
    assert not {word for text in shown.page.evaluate(SEEN) for word in re.findall("[A-Za-z]{3,}", text)} - known
    # The address has the choice; what was done before can be taken back in the new language too.
    assert "language=zh" in shown.page.url
    shown.call("undo")
    shown.settle()
    assert shown.call("state")["view"] == "lines"
    shown.page.wait_for_url(re.compile("view=lines.*language=zh"))
    shown.call("redo")
    shown.page.wait_for_url(re.compile("view=pattern"))
    shown.call("undo")
    shown.page.wait_for_url(re.compile("view=lines"))
    shown.page.reload()
    shown.page.wait_for_selector("canvas")
    shown.settle()
    assert shown.page.get_by_role("tab", selected=True).text_content() == "连线"
    assert shown.call("state")["locked"] == [1]
    shown.page.get_by_role("button", name="更多", exact=True).click()
    shown.page.get_by_label("语言").select_option("en")
    shown.settle()
    assert shown.page.get_by_role("tab", selected=True).text_content() == "Lines"
