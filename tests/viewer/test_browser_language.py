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
