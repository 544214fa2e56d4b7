"""The viewer speaks the document's language: in Chinese no English word is left, on the screen or for a screen reader."""

import re

import pytest

import viewer_documents as documents
from regard.viewer import View
from regard.viewer.view import views_of

KEPT = {"softmax", "sparsemax", "entmax", "sigmoid", "tanh", "PNG", "SVG", "Esc", "Enter", "Tab", "Home", "End", "Page", "Up", "Down",
        "Ctrl", "Shift", "NaN", "nats", "exp", "logit", "logits", "CLS", "SEP", "dim", "regard"}  # fmt: skip
"""What Chinese texts of the field leave as it is."""

SEEN = """() => {
  const root = document.getElementById('viewer').shadowRoot;
  const texts = [];
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) if (walker.currentNode.parentElement?.tagName !== 'STYLE') texts.push(walker.currentNode.data);
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


def test_the_language_of_the_page_around_is_taken(show):
    shown = show(View(documents.causal()[0]))
    assert shown.page.locator("[role=tab]").first.text_content() == "Pattern"
    shown.page.evaluate(
        """() => {
          const [old, next] = [document.getElementById('viewer'), document.createElement('div')];
          old.regardView.destroy();
          document.documentElement.lang = 'zh-CN';
        }"""
    )
